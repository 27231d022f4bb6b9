"""Packing and unpacking as moves that every target knows, against the NumPy meaning of both."""

from __future__ import annotations

import numpy as np
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.compile import prepared
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, Span, TensorType, Var, call, evaluate
from weft.compiler.graph.host import host_call
from weft.compiler.model import CompiledModel, HostStep
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.host_moves import layouts_as_moves, packed_by_moves, unpacked_by_moves
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options

from ..test_layout_kernels import BLOCKS, plain_shapes

SOME_BLOCKS = st.sampled_from([*BLOCKS, Blocks(1, 1, 1), Blocks(1, 1, 2), Blocks(4, 1, 16), Blocks(2, 16, 1)])


def result_of(x: Var, value: Expr, given: np.ndarray) -> np.ndarray:
    module = Module(Function((x,), value, Attrs({"name": "main", "outputs": ("y",)})), "operators")
    return evaluate(module, {x.name: given})["y"]


def random_bytes(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)


@settings(max_examples=200, deadline=None)
@given(plain_shapes(), SOME_BLOCKS)
def test_moves_do_what_pack_and_unpack_do(shape: tuple[int, ...], blocks: Blocks) -> None:
    image = random_bytes(shape)
    packed = packed_layout.pack_activation(image, blocks)
    x, y = Var("x", TensorType(shape, "int8")), Var("y", TensorType(packed.shape, "int8"))
    np.testing.assert_array_equal(result_of(x, packed_by_moves(x, blocks), image), packed)
    np.testing.assert_array_equal(result_of(y, unpacked_by_moves(y, shape, blocks), packed), image)


def test_a_matrix_of_whole_blocks_lies_the_same_in_both_layouts() -> None:
    x = Var("x", TensorType((7, 48), "int8"))
    packed = packed_by_moves(x, Blocks(1, 16, 16))
    assert isinstance(packed, Call)
    assert (packed.op, packed.args) == ("reshape", (x,))
    back = unpacked_by_moves(packed, x.type.shape, Blocks(1, 16, 16))
    assert isinstance(back, Call)
    assert back.op == "reshape"


def test_neighbours_that_stay_neighbours_are_one_axis() -> None:
    x = Var("x", TensorType((1, 32, 5, 7), "int8"))
    packed = packed_by_moves(x, Blocks(1, 16, 16))
    assert isinstance(packed, Call)
    assert isinstance(packed.args[0], Call)
    assert (packed.args[0].op, packed.args[0].args[0].shape) == ("transpose", (2, 16, 35))


def quantised(x: Expr) -> Call:
    scale, zero = Constant(np.float32(0.02)), Constant(np.int8(3))
    return call("dequantise", call("quantise", x, scale, zero), scale, zero)


def dense(x: Expr, columns: int, seed: int) -> Call:
    values = np.random.default_rng(seed).integers(-127, 128, (columns, x.shape[1])).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    return quantised(call("nn.dense", x, weights))


def layers_with_the_host_between(width: int) -> tuple[CompiledModel, Module]:
    """Two layers of the core, with a softmax between them."""
    x = Var("x", TensorType((6, width), "float32"))
    result = dense(quantised(call("nn.softmax", dense(quantised(x), width, 1), axis=1)), width, 2)
    module = Module(Function((x,), result, Attrs({"name": "main", "outputs": ("y",)})))
    accel = find_target("accel")
    packed = prepared(module, accel, target_options(accel, {"config": "tiny"}))
    model = weft.compile(packed, "tiny")
    assert isinstance(model, CompiledModel)
    return model, packed


def test_whole_blocks_cost_the_host_nothing_and_others_say_why_they_are_there() -> None:
    for width, moves in ((16, 0), (21, 2)):
        model, packed = layers_with_the_host_between(width)
        x = np.random.default_rng(3).standard_normal((6, width)).astype(np.float32)
        np.testing.assert_array_equal(weft.load(model, "fsim").run(x)["y"], evaluate(packed, {"x": x})["y"])
        host = [step for step in model.steps if isinstance(step, HostStep)]
        layers = [layer for step in host for layer in step.program.layers]
        assert not any({"pack", "unpack"} & set(layer.operators) for layer in layers)
        assert all(layer.reason != "part of a function on the host" for layer in layers)
        between = [layer for layer in host[1].program.layers if {"pad", "slice"} & set(layer.operators)]
        assert len(between) == moves, [layer.operators for layer in layers]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), SOME_BLOCKS)
def test_unpacking_and_packing_whole_blocks_again_is_nothing(
    images: int, groups: int, size: int, blocks: Blocks
) -> None:
    shape = images * blocks.batch, groups * blocks.dram_block, size, 3
    x = Var("x", blocks.packed_type(TensorType(shape, "int8")))
    unpacked = host_call("unpack", (x,), {"blocks": blocks.sizes, "shape": shape}, "plain", Span())
    packed = host_call("pack", (unpacked,), {"blocks": blocks.sizes}, "packed", Span())
    attrs = Attrs({"name": "host", "outputs": ("y",)})
    module = Module(Function((x,), layouts_as_moves(packed), attrs), "host")
    assert prepare(module).main.body == x
