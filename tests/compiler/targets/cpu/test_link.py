"""Whole graphs on the CPU give what their operators mean in NumPy: integers to the bit, floats but for rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.errors import CompileError
from weft.runtime.errors import InputError
from weft.runtime.host import HostExecutor

from .programs import compiled, integers_of, program_of

ROOT = Path(weft.__file__).parents[1]
GENERATOR = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


def floats(*shape: int) -> Constant:
    return Constant(GENERATOR.standard_normal(shape).astype(np.float32))


def bytes_(*shape: int) -> Constant:
    return Constant(GENERATOR.integers(-128, 127, shape, np.int8, endpoint=True))


def module_of(*results: Expr, params: tuple[Var, ...]) -> Module:
    body = results[0] if len(results) == 1 else Tuple(results)
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


def random_inputs(module: Module, seed: int = 1) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for param in module.main.params:
        if param.dtype == "float32":
            values[param.name] = generator.standard_normal(param.shape).astype(np.float32)
        elif param.dtype == "bool":
            values[param.name] = generator.random(param.shape) < 0.5
        else:
            limits = np.iinfo(param.dtype)
            values[param.name] = generator.integers(limits.min, limits.max, param.shape, param.dtype, endpoint=True)
    return values


def check(module: Module, threads: int = 1, tolerance: float = 1e-5, terms: float = 1e-3) -> weft.CompiledModel:
    """Compile and run on random inputs; results must be those of the graph. ``terms``: how large what is added up is,
    where results may be much smaller than that."""
    values = random_inputs(module)
    expected = evaluate(module, values)
    model = compiled(module, threads=threads)
    loaded = weft.load(model)
    for _ in range(2):  # twice: nothing may be left over from the first run
        found = loaded.run(values)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        if array.dtype.kind == "f":
            scale = max(float(np.abs(array[np.isfinite(array)]).max(initial=0)), terms)
            np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(found[name], array)
    return model


def kinds(model: weft.CompiledModel) -> list[str]:
    return [layer.kind for layer in model.layers]


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_convolutions_of_any_shape(data: st.DataObject) -> None:
    """Two in a row, the second with a residual addition, in floats and in integers."""
    draw = data.draw
    channels, middle, out = (draw(st.sampled_from([1, 3, 4, 8, 10, 16, 24, 32])) for _ in range(3))
    size = draw(st.integers(3, 15)), draw(st.integers(3, 15))
    kernel = draw(st.integers(1, 3))
    attrs = {
        "strides": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(4)),
        "dilations": (1, draw(st.integers(1, 2)) if size[1] > 4 else 1),
    }
    integer = draw(st.booleans())
    dtype = "int8" if integer else "float32"
    x = Var("x", TensorType((draw(st.integers(1, 2)), channels, *size), dtype))
    make = bytes_ if integer else floats
    op = "conv2d" if integer else "nn.conv2d"
    pad = {"pad_value": draw(st.integers(-128, 127))} if integer else {}

    def finish(value: Expr) -> Expr:
        count = value.shape[1]
        if not integer:
            return call("nn.clip", call("nn.add", value, floats(1, count, 1, 1)), low=0.0)
        bias, multiplier = (Constant(GENERATOR.integers(0, limit, count, np.int32)) for limit in (1000, 1 << 23))
        shift = Constant(GENERATOR.integers(28, 36, count, np.int32))
        return call("requantise", value, bias, multiplier, shift, zero_point=3)

    first = finish(call(op, x, make(middle, channels, kernel, kernel), **attrs, **pad))
    second = call(op, first, make(out, middle, 1, 1), **pad)
    if integer and middle == out:
        second = call("multiply_accumulate", second, first, weight=77)
    elif middle == out:
        second = call("nn.add", second, first)
    model = check(module_of(finish(second), first, params=(x,)), draw(st.sampled_from([1, 2])), 2e-5)
    assert kinds(model).count("convolution") == 2


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("kernel", [1, 2])
def test_a_result_of_one_value(kernel: int, integer: bool) -> None:
    """One channel, one column: nothing is left of the tile but the loops of the reduction, and of pooling neither."""
    x = Var("x", TensorType((2, 3, 4, kernel), "int8" if integer else "float32"))
    if integer:
        value = call("conv2d", x, bytes_(1, 3, kernel, kernel))
        value = call("requantise", value, *(Constant(np.array([n], np.int32)) for n in (5, 1 << 22, 30)))
    else:
        value = call("nn.conv2d", x, floats(1, 3, kernel, kernel))
    pooled = call("max_pool" if integer else "nn.max_pool", value, kernel=(2, 1), strides=(1, 1), pads=(1, 0, 0, 0))
    assert kinds(check(module_of(pooled, params=(x,)))) == ["convert", "convolution", "blocked", "convert"]


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("channels", [16, 24, 12])
def test_depthwise_and_pooling_stay_in_blocks(channels: int, integer: bool) -> None:
    x = Var("x", TensorType((1, 8, 9, 14), "int8" if integer else "float32"))
    if integer:
        ones = Constant(np.full(channels, 1 << 22, np.int32))
        params = Constant(np.zeros(channels, np.int32)), ones, Constant(np.full(channels, 30, np.int32))
        value = call("requantise", call("conv2d", x, bytes_(channels, 8, 1, 1)), *params)
        value = call("conv2d", value, bytes_(channels, 1, 3, 3), pads=(1, 1, 1, 1), groups=channels, pad_value=-7)
        value = call("requantise", value, *params)
        value = call("max_pool", value, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        value = call("requantise", call("sum_pool", value, kernel=value.shape[2:]), *params)
    else:
        value = call("nn.conv2d", x, floats(channels, 8, 1, 1))
        value = call("nn.conv2d", value, floats(channels, 1, 3, 3), pads=(1, 1, 1, 1), groups=channels)
        value = call("nn.max_pool", value, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
        value = call("nn.average_pool", value, kernel=(3, 3), pads=(1, 1, 1, 1))
        value = call("nn.reduce_mean", value, axes=(2, 3), keepdims=True)
    model = check(module_of(value, params=(x,)))
    assert "blocked" in kinds(model)
    assert "plain" not in kinds(model)


def test_a_grouped_convolution_runs_in_the_plain_layout() -> None:
    x = Var("x", TensorType((1, 6, 5, 7), "float32"))
    value = call("nn.conv2d", x, floats(4, 3, 3, 3), pads=(1, 0, 1, 2), groups=2, strides=(1, 2))
    assert kinds(check(module_of(value, params=(x,)))) == ["plain"]


def test_attention() -> None:
    q, k, v = (Var(name, TensorType((2, 3, 7, 8), "float32")) for name in "qkv")
    scores = call("nn.multiply", call("nn.matmul", q, call("transpose", k, perm=(0, 1, 3, 2))), floats())
    weights = call("nn.softmax", scores, axis=3)
    mixed = call("reshape", call("transpose", call("nn.matmul", weights, v), perm=(0, 2, 1, 3)), shape=(2, 7, 24))
    mean = call("nn.reduce_mean", mixed, axes=(2,), keepdims=True)
    centred = call("nn.subtract", mixed, mean)
    variance = call("nn.reduce_mean", call("nn.multiply", centred, centred), axes=(2,), keepdims=True)
    normal = call("nn.divide", centred, call("nn.sqrt", call("nn.add", variance, Constant(np.float32(1e-5)))))
    dense = call("nn.dense", call("reshape", normal, shape=(14, 24)), floats(33, 24))
    gelu = call("nn.multiply", dense, call("nn.erf", dense))
    model = check(module_of(gelu, params=(q, k, v)), threads=2, tolerance=1e-4)
    assert [layer.reason for layer in model.layers if layer.reason] == []


def test_moves_compose_without_copies_of_their_own() -> None:
    x = Var("x", TensorType((4, 6, 5), "int32"))
    value = call("slice", x, starts=(3, 1, 0), sizes=(2, 4, 5), steps=(-2, 1, 1))
    value = call("pad", value, pads=(0, 1, 2, 0), value=7.0)
    value = call("concat", value, call("expand", Constant(np.int32(9)), shape=value.shape), axis=1)
    value = call("transpose", value, perm=(2, 0, 1))
    check(module_of(value, params=(x,)))


def test_what_has_no_machine_code_runs_in_numpy_and_says_so() -> None:
    x = Var("x", TensorType((3, 8), "float32"))
    rest = call("nn.modulo", call("nn.add", x, x), x)
    model = check(module_of(call("nn.exp", rest), params=(x,)))
    reasons = [(layer.operators, layer.reason) for layer in model.layers if layer.device == "numpy"]
    assert reasons == [(("nn.modulo",), "nn.modulo of float32")]
    with pytest.raises(CompileError, match=r"NumPy would run it: nn.modulo.*compile without strict"):
        compiled(module_of(rest, params=(x,)), strict=True)


def test_outputs_may_be_inputs_constants_and_each_other() -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    doubled = call("nn.add", x, x)
    check(module_of(x, doubled, floats(4), doubled, call("reshape", doubled, shape=(6,)), params=(x,)))


def test_elementwise_operators_join_the_kernel_of_their_producer() -> None:
    x = Var("x", TensorType((1, 16, 4, 4), "float32"))
    convolution = call("nn.conv2d", x, floats(16, 16, 1, 1))
    value = call("nn.sigmoid", call("nn.add", convolution, floats(1, 16, 1, 1)))
    model = check(module_of(call("nn.multiply", value, value), params=(x,)))
    (layer,) = (layer for layer in model.layers if layer.kind == "convolution")
    assert layer.operators == ("nn.conv2d", "nn.add", "nn.sigmoid", "nn.multiply")


def test_memory_is_shared_by_tensors_that_are_not_alive_together() -> None:
    x = Var("x", TensorType((1, 16, 8, 8), "float32"))
    value: Expr = x
    for _ in range(6):
        value = call("nn.conv2d", value, floats(16, 16, 1, 1))
    figures = check(module_of(value, params=(x,))).statistics
    assert figures["arena_bytes"] <= figures["arena_bytes_unshared"] / 2


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_digits_are_the_integers_of_the_graph(threads: int) -> None:
    path = ROOT / "examples" / "digits" / "digits.onnx"
    module = from_onnx(path)
    integers = integers_of(module)
    loaded = weft.load(compiled(path, threads=threads))
    for seed in range(20):
        values = {"image": np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32)}
        np.testing.assert_array_equal(loaded.run(values)["logits"], evaluate(integers, values)["logits"])


def test_results_are_written_where_the_user_says() -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    loaded = weft.load(compiled(module_of(call("nn.add", x, x), params=(x,))))
    given, out = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    assert loaded.run(given, {"out0": out})["out0"] is out
    np.testing.assert_array_equal(out, 2)
    with pytest.raises(InputError, match=r"output 'out0' must be a contiguous, writable float32\[2, 3\]"):
        loaded.run(given, {"out0": out.T})
    with pytest.raises(InputError, match=r"input 'x' must be float32\[2, 3\], not float64\[2, 3\]"):
        loaded.run(given.astype(np.float64))


def test_a_small_model_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert program_of(compiled(ROOT / "examples" / "digits" / "digits.onnx", threads=2)).threads == 1


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        CompileError, match="there is no target 'gpu'; hint: known: accel, cpu, opencl, cuda, or install"
    ):
        weft.compile("model.onnx", target="gpu")


MACHINES = {"aarch64": 183, "armv7a": 40}
"""Numbers of processors in the header of an ELF object."""


@pytest.mark.parametrize("processor", MACHINES)
def test_a_model_for_another_processor_has_objects_for_that_and_runs_here_too(processor: str) -> None:
    x = Var("x", TensorType((1, 4, 6, 6), "int8"))
    module = module_of(call("conv2d", x, bytes_(8, 4, 3, 3)), params=(x,))
    model = compiled(replace(module, stage="operators"), processor=processor, threads=2)
    for content in build_program(program_of(model), named_target(processor)).objects:
        assert content[:4] == b"\x7fELF"
        assert int.from_bytes(content[18:20], "little") == MACHINES[processor]
    values = random_inputs(module)
    np.testing.assert_array_equal(weft.load(model).run(values)["out0"], evaluate(module, values)["out0"])


def test_code_for_another_processor_is_not_run_here() -> None:
    x = Var("x", TensorType((3,), "float32"))
    program = program_of(compiled(module_of(call("nn.exp", x), params=(x,))))
    code = build_program(program, named_target("aarch64"))
    with pytest.raises(InputError, match=r"is compiled for aarch64.*but this machine is"):
        HostExecutor(program, code)


def test_the_result_of_a_convolution_under_another_shape() -> None:
    x = Var("x", TensorType((1, 16, 6, 6), "float32"))
    weights = Constant(np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32))
    check(module_of(call("reshape", call("nn.conv2d", x, weights, pads=(1,) * 4), shape=(16, 36)), params=(x,)), 1)
