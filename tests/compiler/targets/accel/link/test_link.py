"""Whole networks: one program where no host function stands between, NumPy's integers, steps and names as promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.compile import prepared
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Array, Attrs, Call, Function, Module, Tuple, Var, call, evaluate
from weft.compiler.model import CoreStep, HostStep
from weft.compiler.passes import integer_passes
from weft.compiler.passes.manager import PassManager
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.errors import ConfigError

from tests.effort import few

from ....onnx_models import FloatModel, quantise
from ..kernels import CONFIGS, Build, check


def residual_network() -> FloatModel:
    model = FloatModel((1, 3, 12, 12))
    first = model.op("Relu", model.conv("x", 3, 8))
    second = model.op("Relu", model.conv(first, 8, 8))
    third = model.op("Relu", model.op("Add", model.conv(second, 8, 8), first))
    pooled = model.op("MaxPool", third, kernel_shape=[2, 2], strides=[2, 2])
    wide = model.op("Relu", model.conv(pooled, 8, 16, strides=[2, 2]))
    model.op("Flatten", model.op("GlobalAveragePool", wide))
    model.dense(model.nodes[-1].output[0], 16, 10)
    return model


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network")
    model = residual_network()
    quantise(model.build(model.nodes[-1].output[0]), folder)
    return folder / "quantised.onnx"


def image(seed: int = 0, shape: tuple[int, ...] = (1, 3, 12, 12)) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def reference(path: Path, x: Array) -> Array:
    """The integer contract in NumPy, before packing."""
    (result,) = evaluate(PassManager(integer_passes()).run(from_onnx(path)), {"x": x}).values()
    return result


@pytest.mark.parametrize("config", [PYNQ, *CONFIGS], ids=lambda config: config.name)
@pytest.mark.parametrize("threads", few([2, 1], 1))
def test_a_network_is_one_program_with_numpys_integers(network: Path, config: CoreConfig, threads: int) -> None:
    model = weft.compile(network, config, vthreads=threads)
    assert sum(isinstance(step, CoreStep) for step in model.steps) == 1
    module = weft.load(model, "fsim")
    for seed in range(2):  # the second run finds what the first left in the scratchpads
        (result,) = module.run(image(seed)).values()
        np.testing.assert_array_equal(result, reference(network, image(seed)))


def test_layers_say_what_they_do(network: Path) -> None:
    model = weft.compile(network, PYNQ, chains=False)
    on_core = [layer for layer in model.layers if layer.device == "core"]
    assert [layer.kind for layer in on_core] == ["conv2d"] * 3 + ["max_pool", "conv2d", "sum_pool", "conv2d"]
    assert on_core[0].macs == 12 * 12 * 8 * 3 * 9
    assert on_core[0].shape == (1, 8, 12, 12)
    assert on_core[0].bytes_stored == 12 * 12 * 16
    assert all(layer.bytes_loaded > 0 and "tensorize" in layer.schedule for layer in on_core)
    assert all(layer.reason for layer in model.layers if layer.device != "core")
    assert [layer.output in model.core.slots for layer in on_core] == [True] * 7
    assert model.statistics["instructions"] > 50


def test_every_instruction_knows_its_layer(network: Path) -> None:
    model = weft.compile(network, PYNQ)
    (step,) = (step for step in model.steps if isinstance(step, CoreStep))
    count = len(step.program) // PYNQ.instruction_bytes
    assert len(step.layer_of) == len(step.tile_of) == count
    assert list(np.unique(step.layer_of)) == [i for i, layer in enumerate(model.layers) if layer.device == "core"]
    begins = [int(np.argmax(step.layer_of == layer)) for layer in np.unique(step.layer_of)]
    assert begins == sorted(begins)  # layers overlap, but begin in order


def test_without_reuse_every_layer_can_be_read(network: Path) -> None:
    shared, kept = weft.compile(network, PYNQ), weft.compile(network, PYNQ, keep=True)
    assert kept.core.window_bytes > shared.core.window_bytes
    values = weft.load(kept, "fsim").run(image(), keep=True)
    reached: dict[str, Array] = {}
    module = prepared(from_onnx(network), Accel(), AccelOptions(PYNQ))

    def observe(node: object, value: object) -> None:
        if isinstance(node, Call) and isinstance(node.op, Function) and node.op.is_primitive:
            reached[node.span.tensor] = value  # type: ignore[assignment]

    evaluate(module, {"x": image()}, observe)
    assert len(reached) == 7
    for name, value in reached.items():
        np.testing.assert_array_equal(values[name], value)


def test_the_loop_ir_of_every_layer_can_be_dumped(network: Path, tmp_path: Path) -> None:
    weft.compile(network, PYNQ, dump=tmp_path / "dump", chains=False)
    texts = sorted((tmp_path / "dump").glob("*.loops.txt"))
    assert len(texts) == 7  # of the core; the host's kernels lie beside them
    assert any("gemm(" in text.read_text() for text in texts)


def test_progress_names_the_layers(network: Path) -> None:
    lines: list[str] = []
    weft.compile(network, TINY, progress=lines.append, chains=False, cache=False)
    assert lines[0] == "reading the model"
    assert any(line.endswith("(7 of 7)") for line in lines)


def mobile_network(batch: int) -> FloatModel:
    """Depthwise and grouped convolutions, clips, averages, unaligned concatenation, products, softmax."""
    model = FloatModel((batch, 3, 16, 16))
    low, high = (model.weight(name, np.array(value, np.float32)) for name, value in (("low", 0), ("high", 6)))
    first = model.op("Clip", model.conv("x", 3, 12, strides=[2, 2]), low, high)
    deep = model.conv(model.op("Relu", model.conv(first, 12, 12, 3, group=12)), 12, 20, 1)
    half = model.op("Relu", model.conv(deep, 20, 20, 3, group=20, strides=[2, 2]))
    half = model.conv(half, 20, 20, 1)
    mean = model.op("AveragePool", deep, kernel_shape=[2, 2], strides=[2, 2])
    both = model.op("Concat", model.op("Add", half, mean), mean, half, axis=1)
    narrow = model.op("Relu", model.conv(both, 60, 16, 1))
    gate = model.op("Mul", model.op("Relu", model.conv(narrow, 16, 16, 3, group=4)), narrow)
    flat = model.op("Flatten", model.op("GlobalAveragePool", gate))
    model.op("Softmax", model.dense(flat, 16, 5))
    return model


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize(("config", "batch"), [(PYNQ, 1), (CONFIGS[4], 3)], ids=["pynq", "tiny-odd"])
def test_a_network_of_every_kind_of_layer(config: CoreConfig, batch: int, form: str, tmp_path: Path) -> None:
    network = mobile_network(batch)
    quantise(network.build(network.nodes[-1].output[0]), tmp_path, form, activation="QUInt8")
    path = tmp_path / "quantised.onnx"
    model = weft.compile(path, config, strict=True)
    assert sum(isinstance(step, CoreStep) for step in model.steps) == 1
    x = image(shape=(batch, 3, 16, 16))
    (result,) = weft.load(model, "fsim").run(x).values()
    np.testing.assert_array_equal(result, reference(path, x))


def with_a_transpose_between(folder: Path) -> Path:
    model = FloatModel((1, 4, 6, 6))
    first = model.op("Relu", model.conv("x", 4, 4))
    turned = model.op("Transpose", first, perm=[0, 3, 2, 1])
    quantise(model.build(model.op("Relu", model.conv(turned, 6, 4))), folder)
    return folder / "quantised.onnx"


def test_a_host_function_between_layers_makes_two_programs(tmp_path: Path) -> None:
    path = with_a_transpose_between(tmp_path)
    model = weft.compile(path, TINY)
    kinds = [type(step) for step in model.steps]
    assert kinds.count(CoreStep) == 2
    assert kinds[kinds.index(CoreStep) + 1] is HostStep
    x = image(shape=(1, 4, 6, 6))
    (result,) = weft.load(model, "fsim").run(x).values()
    np.testing.assert_array_equal(result, reference(path, x))


def test_what_only_a_later_program_reads_is_handed_on(tmp_path: Path) -> None:
    """A file's loader asks every step for what it reads. The host's function stands between the two programs."""
    model = FloatModel((1, 3, 12, 12))
    first = model.op("Relu", model.conv("x", 3, 8))
    between = model.op("Sin", model.conv(first, 8, 8))
    model.op("Add", model.conv(between, 8, 8), first)
    quantise(model.build(model.nodes[-1].output[0]), tmp_path)
    compiled = weft.compile(tmp_path / "quantised.onnx", TINY)
    assert isinstance(compiled, weft.CompiledModel)
    assert len(compiled.programs) == 2
    weft.save(compiled, tmp_path / "model.weft")
    result = weft.load(tmp_path / "model.weft", "fsim").run({"x": image()})
    np.testing.assert_array_equal(next(iter(result.values())), reference(tmp_path / "quantised.onnx", image()))


def test_strict_refuses_a_host_function_between_layers(tmp_path: Path) -> None:
    path = with_a_transpose_between(tmp_path)
    with pytest.raises(CompileError, match=r"node '.*': .* would run on the host: .* hint: compile without strict"):
        weft.compile(path, TINY, strict=True)


def test_strict_accepts_quantisation_at_the_ends(network: Path) -> None:
    assert weft.compile(network, TINY, strict=True).layers


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("batch", [1, 3])
def test_concat_is_copies_to_places(config: CoreConfig, batch: int) -> None:
    build = Build(config)
    a, b = build.input(batch, config.dram_block, 5, 3), build.input(batch, 2 * config.dram_block, 5, 3)
    model = check(build.function(build.op("concat", a, b)), config)
    assert next(layer for layer in model.layers if layer.device == "core").kind == "concat"


def two_layers(config: CoreConfig) -> tuple[Module, tuple[int, ...]]:
    """Two functions, of which the result of the first is an output, too."""
    build = Build(config)
    x = build.input(1, 8, 6, 6)
    one = build.function(build.requantise(x, 8, 128), "one")
    second = Build(config, seed=1)
    y = second.input(1, 8, 6, 6)
    two = second.function(second.op("max_pool", y, kernel=(2, 2)), "two")
    main_x = Var("x", x.type)
    first = call(one, main_x)
    outputs = (first, call(two, first), main_x)
    attrs = Attrs({"name": "main", "outputs": ("first", "second", "same")})
    return Module(Function((main_x,), Tuple(outputs), attrs), "packed"), x.type.shape


def test_values_that_are_outputs_too_are_handed_out() -> None:
    module, shape = two_layers(TINY)
    model = weft.compile(module, TINY)
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    results = weft.load(model, "fsim").run({"x": x})
    for name, expected in evaluate(module, {"x": x}).items():
        np.testing.assert_array_equal(results[name], expected)


def test_constants_that_are_equal_are_stored_once() -> None:
    build = Build(TINY)
    x = build.input(1, 4, 4, 4)
    function = build.function(build.requantise(x, 4, 128), "one")
    again = build.function(function.body, "again")
    main_x = Var("x", x.type)
    body = call(again, call(function, main_x))
    model = weft.compile(Module(Function((main_x,), body, Attrs({"name": "main"})), "packed"), TINY)
    assert len(model.core.constants) == 1


def test_an_unknown_configuration_is_refused(network: Path) -> None:
    with pytest.raises(ConfigError, match="unknown configuration 'huge'"):
        weft.compile(network, "huge")


def test_no_virtual_threads_are_refused(network: Path) -> None:
    with pytest.raises(CompileError, match="vthreads is 0, but must be at least 1"):
        weft.compile(network, TINY, vthreads=0)


def test_a_program_depends_on_its_tokens_only_for_speed(network: Path) -> None:
    """Queues and counters of other depths give another timing, but no other integers."""
    x = image()
    expected = reference(network, x)
    for config in (replace(TINY, token_depth=1), replace(TINY, queue_depth=2), replace(TINY, queue_depth=256)):
        (result,) = weft.load(weft.compile(network, config), "fsim").run(x).values()
        np.testing.assert_array_equal(result, expected)
