"""Images with their channels last between convolutions on tensor cores: equal to the graph, copied by vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, Module, call, evaluate
from weft.compiler.model import GpuCode, HostStep
from weft.compiler.targets.gpu.build import check_gpu_program
from weft.compiler.targets.gpu.vector_loops import neighbours_at_once, taken_apart
from weft.compiler.targets.registry import find_target
from weft.compiler.tensor.evaluate import OPERATOR_VALUES
from weft.compiler.tensor.ir import BinOp, Buffer, Const, Load, Var

from .graphs import RUN_ON, check_on, module_of, values_for, variable


def convolved(data: Expr, channels: int, kernel: tuple[int, int], seed: int = 0, **attrs: Any) -> Call:
    """A convolution of bytes with constant weights, as bytes again."""
    generator = np.random.default_rng(seed)
    weights = generator.integers(-128, 128, (channels, data.shape[1] // attrs.get("groups", 1), *kernel))
    sums = call("conv2d", data, Constant(weights.astype(np.int8)), **attrs)
    parameters = (generator.integers(-99, 99, channels), generator.integers(1 << 20, 1 << 23, channels),
                  np.full(channels, 33))  # fmt: skip
    return call("requantise", sums, *(Constant(each.astype(np.int32)) for each in parameters), zero_point=3)


def read_by_a_pool(value: Expr) -> Call:
    return call("max_pool", value, kernel=(2, 2), strides=(1, 1), pads=(0, 0, 0, 0))


def chain(*data: int, channels: int = 16, between: str = "", last: int = 24, kernel: tuple[int, int] = (3, 3),
          **attrs: Any) -> Module:  # fmt: skip
    """Two convolutions, the first of which reads the model's input, with something between and a pooling behind."""
    x = variable("x", "int8", *data)
    value: Expr = convolved(x, channels, (1, 1))
    match between:
        case "pool":
            value = read_by_a_pool(value)
        case "join":
            value = call("concat", value, convolved(x, channels, (1, 1), 2), axis=1)
        case "depthwise":
            value = convolved(value, channels, (3, 3), 3, groups=channels, pads=(1, 1, 1, 1), pad_value=-128)
        case "sum":
            value = read_by_a_pool(convolved(value, channels, (1, 1), 4))
            value = call("requantise", call("multiply_immediate", value, weight=3), *(
                Constant(np.full(channels, each, np.int32)) for each in (1, 1 << 20, 21)))  # fmt: skip
    return module_of([x], read_by_a_pool(convolved(value, last, kernel, 1, **attrs)))


CHAINS = {
    "vectors": chain(1, 32, 9, 7, channels=64, pads=(1, 1, 1, 1), pad_value=-128),
    "images": chain(3, 16, 5, 6, channels=32, pads=(1, 0, 2, 1), pad_value=7, strides=(1, 2)),
    "dilated": chain(1, 16, 11, 9, channels=16, dilations=(2, 3), pads=(2, 3, 2, 3), pad_value=-1),
    "groups": chain(2, 16, 6, 6, channels=32, groups=2, pads=(1, 1, 1, 1), pad_value=9),
    "odd groups": chain(1, 16, 6, 6, channels=30, last=20, groups=2, pads=(1, 1, 1, 1), pad_value=9),
    "few channels": chain(2, 3, 9, 9, channels=8, pads=(1, 1, 1, 1), pad_value=-9),
    "odd channels": chain(1, 9, 8, 8, channels=10, last=13, pads=(1, 1, 1, 1), pad_value=4),
    "smaller than its window": chain(1, 8, 2, 3, channels=16, kernel=(5, 5), pads=(3, 2, 3, 2), pad_value=-77),
    "pool": chain(1, 16, 9, 9, channels=16, between="pool", pads=(1, 1, 1, 1), pad_value=-128),
    "join": chain(1, 16, 7, 7, channels=16, between="join"),
    "depthwise": chain(1, 16, 7, 7, channels=24, between="depthwise", pads=(1, 1, 1, 1), pad_value=5),
    "sum": chain(1, 16, 7, 7, channels=16, between="sum"),
}


def check(module: Module, gpu: str = "sm_80") -> weft.CompiledModel:
    """The module on the emulated device is its meaning, to the bit; from a file it would be believed."""
    generator = np.random.default_rng(0)
    values = {name: generator.integers(-128, 128, each.shape).astype(np.int8)
              for name, each in values_for(module).items()}  # fmt: skip
    wanted = evaluate(module, values)
    model = weft.compile(module, target="cuda", strict=True, gpu=gpu)
    assert isinstance(model, weft.CompiledModel)
    for name, result in weft.load(model, RUN_ON["cuda"]).run(values).items():
        np.testing.assert_array_equal(result, wanted[name])
    (step,) = model.steps
    assert isinstance(step, HostStep)
    check_gpu_program(step.program)
    return model


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str, gpu: str) -> None:
    kinds = [layer.kind for layer in check(CHAINS[name], gpu).layers]
    assert kinds.count("tensor cores") >= (1 if name == "few channels" else 2)
    assert ("channels last" in kinds) == (name in ("few channels", "pool", "join", "depthwise", "sum"))
    assert "convert" not in kinds


@settings(max_examples=12)
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    """Sizes, windows, strides, dilations and padding on both sides, of any value."""
    draw = data.draw
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    pads = draw(st.tuples(*(st.integers(0, 3) for _ in range(4))))
    least = [max(2, (k - 1) * d + 2) for k, d in zip(kernel, dilations, strict=True)]
    height, width = (draw(st.integers(each, each + 4)) for each in least)
    strides = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    check(chain(draw(st.integers(1, 2)), 8, height + 2, width + 2, channels=draw(st.integers(4, 40)),
                last=draw(st.integers(8, 20)), kernel=kernel, dilations=dilations, strides=strides, pads=pads,
                pad_value=draw(st.integers(-128, 127))))  # fmt: skip


def kernels_of(model: weft.CompiledModel) -> list[str]:
    """The texts of its functions."""
    (step,) = model.steps
    assert isinstance(step, HostStep)
    code = find_target("cuda").host_code(step.program, trusted=True)
    assert isinstance(code, GpuCode)
    return code.text.split(".entry")[1:]


def test_windows_are_copied_by_vectors_while_threads_go_on() -> None:
    """Whatever the padding holds: no byte is gathered."""
    x = variable("x", "int8", 1, 64, 9, 9)
    first = convolved(x, 64, (3, 3))
    second = convolved(first, 64, (3, 3), 1, pads=(1, 1, 1, 1), pad_value=-128)
    model = weft.compile(module_of([x], read_by_a_pool(second)), target="cuda", strict=True)
    assert isinstance(model, weft.CompiledModel)
    texts = [text for text in kernels_of(model) if "mma.sync" in text]
    assert len(texts) == 2
    for text in texts:
        assert text.count("cp.async.cg") >= 4
        assert not re.search(r"ld\.global(\.nc)?\.u8", text)


def test_floats_of_sixteen_bits() -> None:
    generator = np.random.default_rng(0)
    x = variable("x", "float16", 1, 16, 9, 9)
    value: Expr = x
    for _ in range(2):
        weights = generator.normal(size=(16, 16, 3, 3)).astype(np.float16) / 8
        value = call("nn.abs", call("nn.conv2d", value, Constant(weights), pads=(1, 1, 1, 1)))
    module = module_of([x], call("nn.max_pool", value, kernel=(2, 2), strides=(2, 2)))
    values = values_for(module)
    model = check_on("cuda", module, values, evaluate(module, values), 2e-3)
    assert [layer.kind for layer in model.layers] == ["convert", "tensor cores", "tensor cores", "plain"]


def test_a_single_convolution_stays_plain() -> None:
    """Its result is the model's: nothing is gained by turning it back."""
    x = variable("x", "int8", 1, 16, 8, 8)
    model = check(module_of([x], convolved(x, 16, (1, 1))))
    assert [layer.kind for layer in model.layers] == ["tensor cores"]


def value_of(expr: Any, places: Mapping[Var, int]) -> int:
    match expr:
        case Const(value):
            return int(value)
        case Var():
            return places[expr]
        case BinOp(op, a, b):
            return int(OPERATOR_VALUES[op](value_of(a, places), value_of(b, places)))
    raise TypeError(expr)


@given(st.integers(0, 500), st.integers(0, 15), st.integers(1, 6), st.integers(1, 5), st.sampled_from([4, 8, 16]))
def test_quotients_taken_apart_keep_their_value(chunk: int, lane: int, wide: int, kernel: int, count: int) -> None:
    outer, each = Var("outer"), Var("each")
    k = outer * count + each
    depth = count * wide
    for index in (
        k % depth,
        k // depth,
        (k // depth) % kernel,
        (k // depth) // kernel * 7 + k % depth,
        k % (count + 1),
    ):
        places = {outer: chunk, each: lane % count}
        assert value_of(taken_apart(index, each, count), places) == value_of(index, places)


@pytest.mark.parametrize(
    ("depth", "stride", "expected"),
    [(64, 64, 16), (24, 24, 8), (12, 12, 4), (12, 16, 4), (64, 72, 8), (6, 6, 0), (64, 65, 0), (1, 1, 0)],
)
def test_neighbours_at_once(depth: int, stride: int, expected: int) -> None:
    """Channels of a pixel, ``stride`` from those of the next."""
    k, row = Var("k"), Var("row")
    memory = Buffer("x", (99, stride), "int8", "global")
    value = Load(memory, (row + k // depth, k % depth))
    assert neighbours_at_once(value, k, 16, 4) == expected


def test_nothing_is_copied_at_once_from_nowhere() -> None:
    assert neighbours_at_once(Const(0, "int8"), Var("k"), 16, 4) == 0
