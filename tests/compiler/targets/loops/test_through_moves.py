"""Kernels that read through moves: as few as there can be, the integers and floats of the graph, and proved."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.model import CompiledModel, HostStep
from weft.compiler.targets.cpu.build import check_host_program
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.target import PLAIN_JOB

X = Var("x", TensorType((2, 3, 4, 8), "float32"))


def linked(body: Expr) -> tuple[Module, CompiledModel]:
    module = Module(Function((X,), body, Attrs({"name": "main", "outputs": ("y",)})), "operators")
    target = loop_target(named_target("host"))
    target = replace(target, fusion=replace(target.fusion, through_moves=True))
    return module, link_model(module, "cpu", target, 1, PLAIN_JOB)


def agrees(body: Expr) -> CompiledModel:
    """The model, proved and compared with the graph's meaning."""
    module, model = linked(body)
    for step in model.steps:
        assert isinstance(step, HostStep)
        check_host_program(step.program)
    x = np.random.default_rng(prod(body.shape)).normal(0, 2, X.shape).astype(np.float32)
    (found,), (wanted,) = weft.load(model).run({"x": x}).values(), evaluate(module, {"x": x}).values()
    if found.dtype == np.float32:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, wanted)
    return model


def quantised(x: Expr) -> Expr:
    return call("quantise", x, Constant(np.float32(0.05)), Constant(np.int8(-3)))


def floats(x: Expr) -> Expr:
    return x if x.dtype == "float32" else call("dequantise", x, Constant(np.float32(0.05)), Constant(np.int8(-3)))


def part(x: Expr, axis: int, first: int, count: int) -> Expr:
    starts, sizes = [0] * len(x.shape), list(x.shape)
    starts[axis], sizes[axis] = first, count
    return call("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * len(x.shape))


def norm(x: Expr) -> Expr:
    mean = call("nn.reduce_mean", x, axes=(len(x.shape) - 1,), keepdims=True)
    centred = call("nn.subtract", x, mean)
    squares = call("nn.multiply", centred, centred)
    variance = call("nn.reduce_mean", squares, axes=(len(x.shape) - 1,), keepdims=True)
    return call("nn.divide", centred, call("nn.sqrt", call("nn.add", variance, Constant(np.float32(1)))))


KINDS = ("transpose", "reshape", "slice", "pad", "roll", "gather", "number", "form", "norm", "softmax")


@st.composite
def bodies(draw: st.DrawFn) -> Expr:
    value: Expr = X
    exact = True  # a float that differs in its last digit may be rounded to another integer
    for _ in range(draw(st.integers(2, 7))):
        rank = len(value.shape)
        axis = draw(st.integers(0, rank - 1)) if rank else 0
        size = value.shape[axis] if rank else 1
        match draw(st.sampled_from(KINDS)):
            case "transpose":
                value = call("transpose", value, perm=tuple(draw(st.permutations(range(rank)))))
            case "reshape":
                factors = draw(st.permutations([each for each in value.shape if each > 1]))
                cut = draw(st.integers(0, len(factors)))
                shape = (prod(factors[:cut]), *factors[cut:])
                value = call("reshape", value, shape=shape)
            case "slice":
                first = draw(st.integers(0, size - 1))
                value = part(value, axis, first, draw(st.integers(1, size - first)))
            case "pad" if value.tensor_type.size < 5000:
                pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
                value = call("pad", value, pads=tuple(pads), value=3)
            case "roll" if size > 1:
                first = draw(st.integers(1, size - 1))
                value = call("concat", part(value, axis, first, size - first), part(value, axis, 0, first), axis=axis)
            case "gather":
                indices = Constant(np.array([draw(st.integers(0, size - 1)) for _ in range(3)], np.int64))
                value = call("gather", value, indices, axis=axis)
            case "number":
                value = call("nn.add", floats(value), Constant(np.float32(0.5)))
            case "form" if exact:
                value = quantised(floats(value))
            case "norm" if len(value.shape) > 1:
                value, exact = norm(floats(value)), False
            case "softmax":
                value, exact = call("nn.softmax", floats(value), axis=rank - 1), False
    return value if value is not X else call("nn.abs", value)


@settings(max_examples=40, deadline=None)
@given(bodies())
def test_random_chains_of_moves_and_arithmetic_are_those_of_the_graph_and_are_proved(body: Expr) -> None:
    agrees(body)


def kernels(model: CompiledModel) -> list[str]:
    return [" ".join(layer.operators) for layer in model.layers]


def turned(x: Expr) -> Expr:
    split = call("reshape", x, shape=(2, 3, 2, 2, 8))
    return call("reshape", call("transpose", split, perm=(2, 0, 3, 4, 1)), shape=(4, 2, 24))


def test_moves_behind_each_other_and_the_changes_of_numbers_around_them_are_one_kernel() -> None:
    model = agrees(call("transpose", turned(quantised(X)), perm=(2, 0, 1)))
    assert kernels(model) == ["quantise reshape transpose reshape transpose"]
    model = agrees(floats(turned(call("nn.abs", X))))
    assert len(model.layers) == 1


def test_a_normalisation_is_one_kernel_with_moves_of_whole_rows_and_its_numbers_change() -> None:
    rows = call("transpose", X, perm=(0, 2, 1, 3))
    model = agrees(quantised(norm(call("nn.add", rows, Constant(np.float32(1))))))
    assert len(model.layers) == 1


def test_what_a_reduction_reads_by_lanes_lies_in_rows_before() -> None:
    model = agrees(norm(turned(X)))
    assert len(model.layers) == 2


def test_what_others_need_too_is_a_kernel_of_its_own() -> None:
    shared = call("nn.abs", X)
    total = call("nn.add", call("transpose", shared, perm=(0, 1, 3, 2)), call("reshape", shared, shape=(2, 3, 8, 4)))
    assert len(agrees(total).layers) == 2


@pytest.mark.parametrize("costly", ["nn.exp", "nn.sigmoid"])
def test_costly_values_are_not_computed_again_for_a_reduction(costly: str) -> None:
    body = call("nn.softmax", call("transpose", call(costly, X), perm=(1, 0, 2, 3)), axis=3)
    assert len(agrees(body).layers) == 2
