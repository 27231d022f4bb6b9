"""``torch.compile`` by weft: weights that change, sizes that change, gradients, and a loop of training as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import weft
from torch import nn
from torch.nn import functional
from weft.compiler.frontends import ModelError
from weft.compiler.frontends.torch.site import RULES
from weft.pytorch import backend


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(y.mean((2, 3)))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def compiled(module: nn.Module, **options: Any) -> Callable[..., Any]:
    return torch.compile(module, backend=backend.weft, options=options or None)


def assert_close(made: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["constants", "inputs"])
def test_results_follow_the_weights_whoever_changes_them(weights: str) -> None:
    first, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(first, weights=weights)
    with torch.no_grad():
        assert_close(run(x), first(x))
        second = Net().eval()
        run_second = compiled(second, weights=weights)
        assert_close(run_second(x), second(x))
        assert_close(run(x), first(x))
        for factor in (2.0, 0.5, 3.0, 0.25, 1.5):  # more often than weights are compiled in
            first.head.weight.mul_(factor)
            assert_close(run(x), first(x))
        first.load_state_dict(second.state_dict())
        assert_close(run(x), second(x))
        first.head.weight = nn.Parameter(torch.randn(5, 8))
        assert_close(run(x), first(x))
        first.norm.running_mean.add_(1)
        assert_close(run(x), first(x))


@pytest.mark.parametrize("change", [
    lambda net: setattr(net.head.weight, "data", torch.randn(5, 8)),
    lambda net: nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(net.parameters()) * 2, net.parameters()),
    lambda net: net.half().float(),
])  # fmt: skip
def test_results_follow_weights_that_are_given_other_memory(change: Callable[[Net], Any]) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(net)
    with torch.no_grad():
        before = run(x)
        for _ in range(2):
            change(net)
            assert_close(run(x), net(x))
        assert not torch.equal(run(x), before)


def test_weights_are_compiled_in_for_inference_and_an_unchanged_run_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = []
    original = backend.compile
    monkeypatch.setattr(backend, "compile", lambda module, **kw: modules.append(module) or original(module, **kw))
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(net)
    with torch.no_grad():
        for _ in range(3):
            run(x)
    assert [len(module.main.params) for module in modules] == [1]


def test_open_sizes_are_one_graph_for_pytorch() -> None:
    net = Net().eval()
    run = compiled(net)
    with torch.no_grad():
        for batch in (2, 3, 5, 4, 3):
            x = torch.randn(batch, 3, 8, 8)
            assert_close(run(x), net(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_a_training_loop_of_pytorchs_own_runs_unchanged() -> None:
    mine = Net().train()
    theirs = copy.deepcopy(mine)
    run = compiled(mine)
    optimisers = [torch.optim.SGD(net.parameters(), 0.1, momentum=0.9) for net in (mine, theirs)]
    for _ in range(4):
        x, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
        losses = []
        for call, optimiser in zip((run, theirs), optimisers, strict=True):
            loss = functional.cross_entropy(call(x), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        assert_close(losses[0], losses[1])
    for name, value in mine.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "module", "shape"),
    [
        ("encoder", lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), (2, 5, 16)),
        ("lstm", lambda: nn.LSTM(6, 8, batch_first=True), (2, 4, 6)),
        ("norms", lambda: nn.Sequential(nn.Conv1d(4, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.GELU(),
                                        nn.ConvTranspose1d(8, 4, 4, stride=2)), (2, 4, 11)),
        ("pools", lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2, dilation=2), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                                        nn.ELU(), nn.AdaptiveAvgPool2d((2, 3))), (2, 2, 13, 14)),
    ],
)  # fmt: skip
def test_gradients_of_networks(name: str, module: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    mine = module().train()
    theirs = copy.deepcopy(mine)
    x = torch.randn(shape)
    for call in (compiled(mine), theirs):
        result = call(x)
        (result[0] if isinstance(result, tuple) else result).pow(2).sum().backward()
    for (part, one), two in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-4, msg=lambda m, part=part: f"{part}: {m}")


@pytest.mark.parametrize(("name", "function", "shape"), [
    ("key and value", lambda x, y: functional.scaled_dot_product_attention(x, y, y), (1, 2, 4, 8)),
    ("query, key and value", lambda x, y: functional.scaled_dot_product_attention(x, x, x) * y, (1, 2, 4, 8)),
    ("picture and weights", lambda x, y: functional.conv2d(x, x, padding=1) * y[:, :, :3, :3], (3, 3, 3, 3)),
])  # fmt: skip
def test_one_value_in_two_places_has_the_gradient_of_each(
    name: str, function: Callable[..., torch.Tensor], shape: tuple[int, ...]
) -> None:
    x, y = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    found = []
    for run in (function, torch.compile(function, backend=backend.weft, options={"fallback": False})):
        found.append(torch.autograd.grad(run(x, y).pow(2).sum(), (x, y)))
    for wanted, made in zip(*found, strict=True):
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [
    torch.det,
    lambda x: torch.linalg.solve(x, x[:, :2] * 2),
    lambda x: functional.embedding_bag(torch.tensor([1, 2, 3, 0]), x, torch.tensor([0, 2, 2]), mode="max"),
])  # fmt: skip
def test_pytorch_runs_operators_whose_gradient_reads_results_that_rules_leave_out(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = (torch.randn(4, 4) + 4 * torch.eye(4)).requires_grad_()
    found = []
    for run in (function, torch.compile(function, backend=backend.weft)):
        found.extend(torch.autograd.grad((run(x * 2) * 3).sum(), x))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(Exception, match="results that only a gradient reads are not computed"):
        torch.compile(lambda x: function(x), backend=backend.weft, options={"fallback": False})(x * 2)


def test_inputs_that_lie_in_another_order_and_are_written_to() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum(1) + x.permute(1, 0)[0, 0]

    one = torch.randn(6, 4).t()
    two = one.clone()
    assert_close(torch.compile(program, backend=backend.weft)(one), program(two))
    assert_close(one, two)


@pytest.mark.parametrize(
    ("name", "module", "x", "parts"),
    [
        ("no rule", lambda x: torch.special.airy_ai(x.exp() + 1) * 2, torch.randn(3, 4), 2),
        ("complex parts", lambda x: torch.special.airy_ai(torch.fft.rfft(x * 2).abs()) + torch.fft.fft(x)[:, :21].real,
         torch.randn(2, 40), 2),
        ("complex, read", lambda x: torch.fft.fft2(x * 2).abs() + 1, torch.randn(4, 6), 1),
        ("complex results", lambda x: (torch.fft.rfft(x * 2).tanh(), x + 1), torch.randn(4, 6), 1),
        ("complex inputs", lambda x: (x * 2, x.mT.conj(), x.abs()), torch.randn(4, 6, dtype=torch.complex64), 1),
        ("no part", torch.special.airy_ai, torch.rand(3), 0),
        ("a loop", lambda x: torch.while_loop(lambda i, y: i < y.shape[1], lambda i, y: (i + 1, y * 1.5), (
            torch.tensor(0), x.sin()))[1].cos(), torch.randn(2, 3), 2),
        ("two results", lambda x: [each.abs() + 1 for each in torch.linalg.eigh(x @ x.mT)], torch.randn(5, 5), 2),
    ],
)  # fmt: skip
def test_pytorch_runs_what_has_no_rule_between_compiled_parts(
    name: str, module: Callable[..., Any], x: torch.Tensor, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(backend, "compile", lambda module, **kw: made.append(module) or weft.compile(module, **kw))
    with torch.no_grad():
        mine, theirs = torch.compile(module, backend=backend.weft)(x), module(x)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert len(made) == parts


def test_weights_are_compiled_into_the_parts_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(backend, "compile", lambda module, **kw: made.append(module) or weft.compile(module, **kw))

    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.then = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.then(torch.special.airy_ai(self.first(x).exp()))

    net, x = Between().eval(), torch.randn(3, 4)
    run = compiled(net)
    with torch.no_grad():
        for _ in range(2):
            assert_close(run(x), net(x))
        assert [len(module.main.params) for module in made] == [1, 1]
        net.then.weight.mul_(2)
        assert_close(run(x), net(x))


def test_dropout_is_pytorchs_and_the_rest_of_a_training_is_compiled() -> None:
    mine = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 2)).train()
    theirs, x = copy.deepcopy(mine), torch.randn(8, 6)
    run = compiled(mine)
    found = []
    for call in (run, theirs):
        torch.manual_seed(3)
        result = call(x)
        result.pow(2).sum().backward()
        found.append(result.detach())
    assert_close(*found)
    for one, two in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)


def test_a_graph_is_compiled_for_as_many_sizes_as_are_kept_and_pytorch_runs_it_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    monkeypatch.setattr(backend, "compile", lambda module, **kw: made.append(module) or weft.compile(module, **kw))
    monkeypatch.setattr(backend, "BUILDS_KEPT", 3)
    run = torch.compile(lambda x: x.sin() * 2, backend=backend.weft, dynamic=True)
    for size in (4, 7, 5, 9, 8, 7, 9, 3):
        x = torch.randn(size)
        assert_close(run(x), x.sin() * 2)
    assert [module.main.params[0].shape for module in made] == [(4,), (7,), (5,)]


def test_weights_are_compiled_in_for_each_open_size_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(backend, "compile", lambda module, **kw: made.append(module) or weft.compile(module, **kw))
    net = nn.Linear(4, 4).eval()
    run = torch.compile(net, backend=backend.weft, dynamic=True)
    with torch.no_grad():
        for number, rows in enumerate((3, 5, 3, 6, 7, 5)):
            monkeypatch.setattr(backend, "OPEN_BYTES", 250 if number < 4 else 0)
            x = torch.randn(rows, 4)
            assert_close(run(x), net(x))
        params = [len(module.main.params) for module in made]
        assert params == [1, 1, 1, 3]  # for 3, 5, 6 and 7 rows; 80 bytes of weights for each
        net.weight.mul_(2)
        for rows in (5, 7, 5):
            x = torch.randn(rows, 4)
            assert_close(run(x), net(x))
    assert [len(module.main.params) for module in made] == [1, 1, 1, 3, 3]


def test_pytorch_runs_a_graph_that_a_rule_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ModelError("this form is not read")

    monkeypatch.setitem(RULES, "aten.sin.default", refuses)
    x = torch.randn(5)
    with caplog.at_level("WARNING", "weft.pytorch"):
        run = torch.compile(torch.sin, backend=backend.weft)
        for _ in range(2):
            assert_close(run(x), x.sin())
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["this form is not read"]
    with pytest.raises(ModelError, match="this form is not read"):
        torch.compile(torch.sin, backend=backend.weft, options={"fallback": False})(x)


def test_what_cannot_be_compiled_says_so() -> None:
    with pytest.raises(Exception, match="airy_ai"):
        torch.compile(torch.special.airy_ai, backend=backend.weft, options={"fallback": False})(torch.rand(3))
    with pytest.raises(Exception, match="no option 'threds'"):
        compiled(nn.Linear(2, 2), threds=2)(torch.rand(1, 2))
    with pytest.raises(Exception, match="on the device 'meta'"):
        torch.compile(torch.sin, backend=backend.weft)(torch.ones(3, device="meta"))


def test_nested_tensors_are_left_to_pytorch_or_refused() -> None:
    rows = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)

    def twice(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    found = torch.compile(twice, backend="weft")(rows)
    torch.testing.assert_close(found.values(), twice(rows).values())
    torch._dynamo.reset()
    with pytest.raises(Exception, match="a nested tensor has rows of several lengths"):
        torch.compile(twice, backend="weft", options={"fallback": False})(rows)


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of the input, and of values; with a stride, an offset and a part of several; one that is computed with, too."""
    y = x * 2 + 1
    turned = y.transpose(1, 2)[:, 2:]
    pieces = y.sin().split([x.shape[1] - 2, 2], 1)
    return x.reshape(x.shape[0], -1)[:, 1::2], x[-1], y, turned, y.reshape(-1)[3:], *pieces, turned.exp()


@pytest.mark.parametrize(("trained", "fallback"), [(False, True), (True, False)])
def test_results_that_are_views_are_right_for_every_open_size(trained: bool, fallback: bool) -> None:
    run = torch.compile(views, backend=backend.weft, dynamic=True, options={"fallback": fallback})
    for rows, turned in ((5, False), (7, True)):
        x = torch.randn(3, 6, rows).transpose(1, 2) if turned else torch.randn(3, rows, 6)
        x.requires_grad_(trained)
        made, wanted = run(x), views(x)
        torch.testing.assert_close(made, wanted)
        if trained:
            gradients = [torch.autograd.grad(sum((each * each).sum() for each in of), x) for of in (made, wanted)]
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_values_whose_channels_come_last_are_trained(dynamic: bool) -> None:
    conv = nn.Conv2d(4, 6, 3, padding=1).to(memory_format=torch.channels_last)

    def head(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = conv(x).permute(0, 2, 3, 1)
        return rows.reshape(x.shape[0], -1, 6), rows.reshape(x.shape[0], -1)[:, 1:]

    run = torch.compile(head, backend=backend.weft, dynamic=dynamic)
    for x in (torch.randn(2, 4, 6, 7), torch.randn(3, 4, 5, 7)):
        made, wanted = run(x), head(x)
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)
        gradients = [torch.autograd.grad(sum((each * each).sum() for each in of), conv.weight) for of in (made, wanted)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


class Orders(nn.Module):
    """Results whose axes lie in memory in other orders, of one size and of none among them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.conv(x)
        pooled = nn.functional.adaptive_avg_pool2d(y, 1)
        return y.relu(), pooled, pooled.flatten(1), y.permute(2, 0, 3, 1) * 2, (y + 1).mT, y.argmax(1), y.sum()


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
def test_results_lie_in_memory_as_pytorchs_do(form: torch.memory_format, dynamic: bool, fallback: bool) -> None:
    torch.manual_seed(0)
    module = Orders().to(memory_format=form).eval()
    fast = torch.compile(module, backend="weft", dynamic=dynamic, options={"fallback": fallback})
    with torch.no_grad():
        for size in (2, 3) if dynamic else (2,):
            x = torch.randn(size, 4, 5, 7).to(memory_format=form)
            for found, wanted in zip(fast(x), module(x), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
                assert found.stride() == wanted.stride()
