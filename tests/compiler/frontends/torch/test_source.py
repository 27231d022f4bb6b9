"""Modules of PyTorch read through torch.export, run as machine code, beside eager PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import nn
from torch.nn import functional
from weft.cli.run import least_sizes
from weft.compiler.frontends import ModelError, from_torch, read
from weft.compiler.frontends.torch.site import RULES, Site
from weft.compiler.graph import Span, TensorType, Var, evaluate_function
from weft.compiler.model import OpenModel

DROPOUT = Site("aten.dropout.default", Span(), (TensorType((2,), "float32"),))


def results_of(source: Any, *args: torch.Tensor, target: str = "cpu", **options: Any) -> dict[str, Any]:
    """What the compiled model gives for the inputs in their order."""
    loaded = weft.load(weft.compile(source, target=target, **options))
    names = [each.name for each in source.inputs({})]
    return dict(loaded.run({name: arg.numpy() for name, arg in zip(names, args, strict=True)}))


def assert_equal_to_eager(module: nn.Module, *args: torch.Tensor, tolerance: float = 1e-5) -> None:
    module = module.eval()
    made = results_of(from_torch(module, args), *args)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*args))
    for mine, theirs in zip(made.values(), wanted, strict=True):
        assert mine.dtype == theirs.numpy().dtype
        assert np.abs(theirs.numpy()).max() > 1e-3, "a result that vanishes shows nothing"
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=tolerance, atol=tolerance * float(theirs.abs().max()))


class Picture(nn.Module):
    """What networks on pictures are made of, with sizes that do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, groups=4, dilation=2, padding=2)
        self.groups = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1)
        self.head = nn.Linear(6, 5)
        nn.init.uniform_(self.norm.running_mean, -1, 1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2, ceil_mode=True)
        y = functional.silu(self.groups(self.grouped(y)))
        y = functional.interpolate(self.up(y), scale_factor=1.5, mode="bilinear")
        y = functional.pad(y, (2, 1, 0, 1), mode="circular")
        y = functional.avg_pool2d(functional.pad(y, (1, 2, 0, 1), mode="reflect"), 3, padding=1, ceil_mode=True)
        pooled = functional.adaptive_avg_pool2d(y, (3, 2))
        return self.head(pooled.mean((2, 3))), torch.roll(y, (1, -2), (2, 3))[:, 1:5, ::2].flip(1)


class Indexed(nn.Module):
    """Reads and writes at places that are computed, and by masks."""

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x[places, :, places]
        changed = x.clone()
        changed[:, 1:3] = 7.0
        changed[x > 0.5] = -1.0
        values, order = torch.sort(x, dim=1, descending=True)
        return rows, changed, values, order, x.cumsum(2), torch.where(x > 0, x, 0.5), x.var((0, 1)), x.argmax(2)


def test_networks_of_many_kinds_are_equal_to_eager_pytorch() -> None:
    torch.manual_seed(0)
    assert_equal_to_eager(Picture(), torch.randn(2, 3, 9, 11))
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", norm_first=True)
    assert_equal_to_eager(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 32))
    assert_equal_to_eager(nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), torch.randn(2, 5, 8))
    assert_equal_to_eager(Indexed(), torch.randn(4, 5, 4), torch.tensor([2, -1, 0]))


def test_the_file_of_an_exported_program_is_a_model(tmp_path: Path) -> None:
    module = nn.Linear(4, 3)
    x = torch.randn(2, 4)
    path = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    made = weft.load(weft.compile(path, target="cpu")).run({"input": x.numpy()})
    np.testing.assert_allclose(made["output"], module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert read(path).name == "layer"
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(weft.WeftError, match="layer"):
        weft.compile(path, target="cpu")


def test_a_program_that_pytorch_cannot_decompose_is_a_named_error() -> None:
    """What a damaged file says of its sizes is run then, and raises anything."""
    program = torch.export.export(nn.Linear(4, 3), (torch.randn(2, 4),))
    for guards in (3, ["x +"], ["unknown(3)"]):
        program._guards_code = guards
        with pytest.raises(ModelError, match=r"cannot decompose the program: \w+Error: "):
            from_torch(program)


def test_open_sizes_have_the_users_names_and_run_for_any_size_in_their_range() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, y]).reshape(-1, 2, x.shape[1] // 2) * x.shape[0]

    rows = torch.export.Dim("rows", min=2, max=9)
    example = (torch.randn(3, 4), torch.randn(3, 4))
    source = from_torch(Net(), example, dynamic_shapes={"x": {0: rows}, "y": {0: rows}})
    assert [each.shape for each in source.inputs({})] == [("rows", 4), ("rows", 4)]
    opened = weft.compile(source, target="cpu")
    assert isinstance(opened, OpenModel)
    assert least_sizes(opened) == {"rows": 2}  # what weft run takes where no size is given
    loaded = weft.load(opened)
    for count in (2, 5, 9):
        x, y = torch.randn(count, 4), torch.randn(count, 4)
        made = loaded.run({"x": x.numpy(), "y": y.numpy()})["output"]
        np.testing.assert_allclose(made, Net()(x, y).numpy(), rtol=1e-6)
    with pytest.raises(ModelError, match=r"rows is 10, but the program was exported for 2 to 9; hint: .*--shape"):
        source.module({"x": (10, 4), "y": (10, 4)})
    with pytest.raises(weft.WeftError, match="'z'"):
        source.inputs({"z": (1, 4)})


def test_sizes_that_follow_from_others_are_open_with_them() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, y]).cumsum(0)[1:-1] * x.shape[0]

    rows = torch.export.Dim("rows", min=2, max=9)
    shapes = {"x": {0: rows}, "y": {0: 2 * rows}}
    source = from_torch(Net(), (torch.randn(3, 5), torch.randn(6, 5)), dynamic_shapes=shapes)
    loaded = weft.load(weft.compile(source, target="cpu"))
    for count in (2, 5, 9):
        x, y = torch.randn(count, 5), torch.randn(2 * count, 5)
        made = loaded.run({"x": x.numpy(), "y": y.numpy()})["output"]
        np.testing.assert_allclose(made, Net()(x, y).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(weft.WeftError, match=r"'y': dimension 0 is 5, but must be 2\*"):
        loaded.run({"x": np.zeros((3, 5), np.float32), "y": np.zeros((5, 5), np.float32)})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_integers_are_shifted_by_pythons_signs(dtype: torch.dtype) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x << 1, x >> 2, x << by, x >> by

    x, by = torch.tensor([0, 1, 5, 60, 33, 127], dtype=dtype), torch.tensor([0, 1, 2, 1, 0, 3], dtype=dtype)
    loaded = weft.load(weft.compile(from_torch(Net(), (x, by)), target="cpu"))
    for found, wanted in zip(loaded.run({"x": x.numpy(), "by": by.numpy()}).values(), Net()(x, by), strict=True):
        assert found.dtype == wanted.numpy().dtype
        np.testing.assert_array_equal(found, wanted.numpy())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(5, 4), (13, 20), (3, 17), (1, 7)])
def test_images_are_resized_without_aliasing(mode: str, size: tuple[int, int]) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.interpolate(x, size, mode=mode, antialias=True)

    x = torch.randn(2, 3, 12, 11)
    found = weft.load(weft.compile(from_torch(Net(), x), target="cpu")).run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(found, Net()(x).numpy(), rtol=1e-4, atol=1e-5)


def test_outputs_have_the_keys_of_a_dictionary_and_none_is_left_out() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | None]:
            return {"logits": x * 2, "nothing": None, "hidden": x + 1}

    source = from_torch(Net(), torch.randn(3))
    assert source.output_names == ("logits", "hidden")


def test_a_buffer_that_changes_is_an_input_and_an_output() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    source = from_torch(Counting(), torch.ones(2))
    assert set(source.output_names) == {"total.next", "output"}
    loaded = weft.load(weft.compile(source, target="cpu"))
    state = np.zeros(2, np.float32)
    for step in range(1, 4):
        made = loaded.run({"x": np.ones(2, np.float32), "total": state})
        state = made["total.next"]
        np.testing.assert_array_equal(made["output"], np.full(2, 2 * step, np.float32))


def test_control_flow_of_pytorch() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            chosen = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v * 2, (x,))
            from torch._higher_order_ops.scan import scan

            last, each = scan(lambda carry, item: (carry + item, carry * item), x[0], x)
            return chosen, each + last

    for sign in (1.0, -1.0):
        x = torch.rand(6, 3) * sign
        made = results_of(from_torch(Net(), x), x)
        wanted = Net()(x)
        for mine, theirs in zip(made.values(), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_half_precision_rounds_as_pytorch_does() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.randn(3, 8).to(dtype)
        module = nn.Sequential(nn.Linear(8, 8), nn.GELU()).to(dtype).eval()
        source = from_torch(module, x)
        array = x.view(torch.int16).numpy().view(source.module({}).main.params[0].dtype)
        made = np.asarray(evaluate_function(source.module({}).main, [array])).astype(np.float32)
        np.testing.assert_allclose(made, module(x).detach().float().numpy(), rtol=0.02, atol=0.02)


def test_a_quantised_program_runs_on_the_core() -> None:
    """In the form of PT2E: quantise and dequantise around operators of floats."""
    from torch.ao.quantization.fx import _decomposed  # registers the operators  # noqa: F401

    ops = torch.ops.quantized_decomposed

    def pair(x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
        facts = (scale, zero, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *facts), *facts)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", torch.randint(-127, 128, (8, 4, 3, 3), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(8) * 0.01 + 0.005)
            self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
            self.bias = nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            w = ops.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -127, 127, torch.int8)
            y = functional.relu(functional.conv2d(pair(x, 0.02, 3), w, self.bias, padding=1))
            return pair(functional.max_pool2d(pair(y, 0.05, -128), 2), 0.05, -128)

    torch.manual_seed(1)
    x = torch.randn(1, 4, 8, 8)
    net = Net()
    source = from_torch(net, x)
    compiled = weft.compile(source, target="accel", config="tiny", strict=True)
    assert sum(layer.macs for layer in compiled.layers if layer.device != "cpu") == 8 * 4 * 9 * 64
    on_core = weft.load(compiled, device="fsim").run({"x": x.numpy()})["output"]
    on_cpu = results_of(source, x)["output"]
    np.testing.assert_array_equal(on_core, on_cpu)
    with torch.no_grad():
        wanted = net(x).numpy()
    assert np.abs(on_core - wanted).max() <= 0.0501, "more than a step from PyTorch's emulation in floats"
    assert len(np.unique(on_core)) > 10


def test_operators_that_cannot_be_read_are_named_all_at_once_with_their_lines() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.special.airy_ai(x)
            return y + torch.special.bessel_j0(x) + torch.rand(3)

    with pytest.raises(ModelError) as caught:
        from_torch(Net(), torch.randn(3))
    text = str(caught.value)
    assert "aten.special_airy_ai.default" in text
    assert "aten.special_bessel_j0.default" in text
    assert "it is random" in text
    assert "test_source.py" in text
    assert "y = torch.special.airy_ai(x)" in text


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: weft.compile(nn.Linear(2, 2), target="cpu"), "from_torch"),
        (lambda: from_torch(3, ()), "must be a torch.nn.Module"),
        (lambda: from_torch(nn.Linear(2, 2), torch.randn(2, 3)), "cannot capture Linear"),
        (lambda: from_torch(nn.Dropout(0.5).train(), torch.randn(2, 2)), "random"),
        (lambda: RULES["aten.dropout.default"](DROPOUT, Var("x", DROPOUT.type), 0.5, True), r"random \(p = 0.5\)"),
        (lambda: from_torch(nn.Linear(2, 2, device="meta"), torch.randn(2, 2, device="meta")), "no values"),
    ],
)
def test_what_is_no_program_is_refused_with_a_way_out(model: Any, words: str) -> None:
    with pytest.raises(weft.WeftError, match=words):
        model()


def test_a_float_program_is_refused_for_the_core_as_an_onnx_file_is() -> None:
    with pytest.raises(weft.WeftError, match="not quantised"):
        weft.compile(from_torch(nn.Linear(4, 4), torch.randn(1, 4)), target="accel", config="tiny")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("name", "module", "shape"),
    [
        ("layer norm", nn.LayerNorm(8), (3, 8)),
        ("group norm", nn.GroupNorm(2, 8), (2, 8, 5)),
        ("rms norm", nn.RMSNorm(8), (3, 8)),
        ("norm of the batch", nn.BatchNorm1d(8, track_running_stats=False), (3, 8)),
        ("instance norm", nn.InstanceNorm1d(8, affine=True), (3, 8, 6)),
        ("lstm", nn.LSTM(8, 8), (3, 2, 8)),
        ("encoder", nn.TransformerEncoderLayer(8, 2, 16), (3, 2, 8)),
    ],
)
def test_networks_in_halves_take_tensors_of_pytorchs(
    name: str, module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    module, x = module.to(dtype).eval(), torch.randn(shape).to(dtype)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(x))[0].float()
    loaded = weft.load(weft.compile(from_torch(module, (x,)), target="cpu"))
    (taken,) = (each.name for each in loaded.model.inputs)
    made = next(iter(loaded.run({taken: x}).values()))
    assert made.dtype.name == str(dtype).removeprefix("torch.")
    np.testing.assert_allclose(made.astype(np.float32), wanted.numpy(), atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_norms_in_training_keep_moments_in_pytorchs_types(dtype: torch.dtype) -> None:
    module = nn.BatchNorm1d(8).to(dtype).train()
    x = torch.randn(4, 8).to(dtype)
    loaded = weft.load(weft.compile(from_torch(module, (x,)), target="cpu"))
    names = {each.name for each in loaded.model.inputs}
    states = {name: each for name, each in module.named_buffers() if name in names}
    (taken,) = names - set(states)
    made = loaded.run({taken: x, **{name: each.clone() for name, each in states.items()}})
    with torch.no_grad():
        wanted = module(x).float().numpy()
    np.testing.assert_allclose(made["output"].astype(np.float32), wanted, atol=0.02)
    np.testing.assert_allclose(
        made["running_var.next"].astype(np.float32), module.running_var.float().numpy(), atol=0.02
    )


def test_a_branch_on_values_is_named_with_its_line_and_the_ways_out() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:  # decided by Python
                return x * 2
            return x

    with pytest.raises(ModelError, match=r"at test_source.py:\d+ \(if x.sum\(\) > 0:") as caught:
        from_torch(Branches(), (torch.randn(3),))
    assert "torch.where" in caught.value.hint


def test_open_sizes_that_cannot_be_open_are_named_with_what_could_be() -> None:
    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 3) + torch.ones(2, 3)

    words = r"UserError: Constraints violated \(rows\)! .*rows.*2.*hint: in dynamic_shapes: rows = 2"
    with pytest.raises(ModelError, match=words):
        from_torch(Half(), (torch.randn(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})


def test_what_cannot_be_captured_has_a_line_of_the_users_or_none() -> None:
    with pytest.raises(ModelError) as caught:
        from_torch(nn.Conv2d(3, 8, 3), (torch.randn(2, 4, 8, 8),))
    assert "(at test_source.py" in caught.value.message or "(at" not in caught.value.message
    with pytest.raises(ModelError, match=r"native_dropout.*call eval\(\) before exporting"):
        from_torch(nn.Dropout(0.5), (torch.randn(3),))


def test_inverses_keep_no_tokens_of_their_checks() -> None:
    class Filter(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            near = x @ x.T + torch.eye(3)
            return torch.linalg.inv(near) @ x + torch.linalg.solve(near, x) * torch.linalg.det(near)

    x = torch.randn(3, 2)
    source = from_torch(Filter(), (x,))
    assert ([each.name for each in source.inputs({})], source.output_names) == (["x"], ("output",))
    assert_equal_to_eager(Filter(), x, tolerance=1e-4)


@pytest.mark.parametrize("rows", [2, 6])
def test_a_map_over_rows(rows: int) -> None:
    from torch._higher_order_ops.map import map as over_rows

    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = over_rows(lambda row: torch.tanh(self.layer(row)), x)
            return result

    assert_equal_to_eager(Mapped(), torch.randn(rows, 3, 4))


def test_medians_among_numbers_that_are_none() -> None:
    nan = float("nan")

    class Medians(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            plain, present = x.median(1), x.nanmedian(1, keepdim=True)
            return plain.values, present.values, x.flatten().nanmedian(), (x[0] * 3).long().median()

    x = torch.tensor([[3.0, 1.0, 2.0, 5.0], [nan, 1.0, 2.0, 0.5], [nan, 4.0, nan, 3.0], [nan, nan, nan, nan]])
    made = results_of(from_torch(Medians(), (x,)), x)
    for mine, theirs in zip(made.values(), Medians()(x), strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


def test_bags_of_embeddings_with_padding_weights_and_empty_bags() -> None:
    rows, starts = torch.tensor([1, 0, 3, 3, 2, 1, 4]), torch.tensor([0, 3, 3])

    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(5, 3))

        def forward(self, rows: torch.Tensor, starts: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
            bag = functional.embedding_bag
            return (
                bag(rows, self.table, starts, mode="sum", per_sample_weights=weights),
                bag(rows, self.table, starts, mode="mean", padding_idx=3),
                bag(rows, self.table, starts, mode="max"),
                bag(
                    rows,
                    self.table,
                    torch.cat([starts, starts.new_full((1,), 7)]),
                    mode="sum",
                    include_last_offset=True,
                ),
            )

    assert_equal_to_eager(Bags(), rows, starts, torch.randn(7))


def test_a_model_is_trained_as_pytorch_trains_it_and_goes_back() -> None:
    """A step of its parameters, one of a single element too, and of no buffer."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.PReLU(), nn.Linear(5, 3)).eval()
    x, labels = torch.randn(4, 6), torch.tensor([2, 0, 1, 1])
    names = [name for name, _ in network.named_parameters()]
    module, start = weft.lift_constants(from_torch(network, (x,)).module(), names)
    assert list(start) == names
    step = weft.train.sgd(weft.train.cross_entropy(module), names)
    training = weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
    buffers = {name: value.clone() for name, value in network.named_buffers()}
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    functional.cross_entropy(network(x), labels).backward()
    optimiser.step()
    given = {module.main.params[0].name: x.numpy(), "labels": labels.numpy()}
    training.step(given, rate=0.5)
    theirs = {name: value.detach().clone() for name, value in network.named_parameters()}
    back = {name: torch.from_numpy(value) for name, value in training.parameters.items()}
    assert network.load_state_dict(back, strict=False).unexpected_keys == []
    for name, value in network.named_parameters():
        assert not np.array_equal(value.detach().numpy(), start[name])
        torch.testing.assert_close(value.detach(), theirs[name], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, buffers[name]) for name, value in network.named_buffers())
