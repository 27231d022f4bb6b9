"""Where tensors lie during a run: nothing alive shares bytes, unless it is written over an operand that dies there."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.model import ArenaTensor, CompiledModel
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.cpu.tiles import convolution_tile
from weft.compiler.targets.loops.in_place import overwritable
from weft.compiler.targets.loops.link import program_figures
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.tensor.loops import loop_nest

from ..cpu.programs import compiled, program_of

IMAGE = TensorType((1, 16, 6, 7), "float32")
X = Var("x", IMAGE)


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


def linked(*results: Expr, threads: int = 1) -> CompiledModel:
    """The model of a graph over ``X``, run twice and compared with the graph's meaning."""
    names = tuple(f"y{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    return checked(Module(Function((X,), body, Attrs({"outputs": names}))), {"x": values(IMAGE.shape)}, threads)


def checked(module: Module, inputs: dict[str, Any], threads: int) -> CompiledModel:
    model = compiled(prepare(module), threads=threads)
    loaded = weft.load(model)
    wanted = evaluate(module, inputs)
    for _ in range(2):
        for name, found in loaded.run(inputs).items():
            if found.dtype.kind in "fV":  # V: 16-bit floats that NumPy does not know
                error = np.abs(found.astype(np.float64) - wanted[name].astype(np.float64)).max(initial=0)
                step = 2e-2 if found.dtype.itemsize == 2 else 2e-5
                assert error <= step * max(1, np.abs(wanted[name].astype(np.float64)).max(initial=0))
            else:
                np.testing.assert_array_equal(found, wanted[name])
    program = program_of(model)
    assert program.arena_bytes == model.statistics["arena_bytes"]
    return model


def values(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def convolution(data: Expr, size: int = 3) -> Expr:
    weights = Constant(values((16, 16, size, size)) / 16)
    return call("nn.conv2d", data, weights, pads=(size // 2,) * 4)


def meet(a: ArenaTensor, b: ArenaTensor) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def check_plan(model: CompiledModel) -> None:
    """Bytes of two tensors that are alive together are apart, but for one that is written over the other."""
    program = program_of(model)
    peak = 0
    for a, b in combinations(program.memory, 2):
        if a.last < b.first or b.last < a.first or not meet(a, b):
            continue
        below, above = sorted((a, b), key=lambda each: each.first)
        assert above.reuses is not None
        assert program.memory[above.reuses] is below
        assert (above.offset, above.nbytes) == (below.offset, below.nbytes)
        assert below.last <= above.first  # the kernel's own launch: what fills a border comes behind it
    for tensor in program.memory:
        assert tensor.offset % 64 == 0
        peak = max(peak, -(-(tensor.offset + tensor.nbytes) // 64) * 64)
    assert program.arena_bytes == peak
    figures = program_figures(program)
    assert figures["arena_bytes_alive"] <= figures["arena_bytes"] <= figures["arena_bytes_unshared"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 2))
def test_random_graphs_share_memory_without_harm(seed: int, threads: int) -> None:
    graph = random_graph(seed)
    check_plan(checked(graph.module, dict(graph.inputs), threads))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+*rcts"), st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=9),
       st.integers(1, 2))  # fmt: skip
def test_graphs_full_of_residuals_share_memory_without_harm(steps: list[tuple[str, int, int]], threads: int) -> None:
    """Convolutions, additions, rows turned over, reshapes there and back, sums along the channels."""
    known: list[Expr] = [X]
    for kind, first, second in steps:
        a, b = (known[-1 - place % len(known)] for place in (first, second))
        made = {
            "+": lambda a=a, b=b: call("nn.multiply", call("nn.add", a, b), Constant(np.float32(0.5))),
            "*": lambda a=a, b=b: call("nn.tanh", call("nn.multiply", a, b)),
            "r": lambda a=a: call("slice", a, starts=(0, 0, 5, 0), sizes=IMAGE.shape, steps=(1, 1, -1, 1)),
            "c": lambda a=a, first=first: convolution(a, 1 + 2 * (first % 2)),
            "t": lambda a=a: call("reshape", call("nn.exp", call("nn.negative", call("nn.abs", call(
                "reshape", a, shape=(16, 42))))), shape=IMAGE.shape),
            "s": lambda a=a: call("nn.subtract", a, call("nn.reduce_mean", a, axes=(1,), keepdims=True)),
        }[kind]()  # fmt: skip
        known.append(made)
    body = known[-1] if len(known) == 2 else call("nn.add", known[-1], known[len(known) // 2])
    check_plan(checked(Module(Function((X,), body)), {"x": values(IMAGE.shape)}, threads))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 3])
def test_a_residual_addition_is_written_over_the_residual(size: int, threads: int) -> None:
    width = next(w for w in range(7, 99) if w % convolution_tile(w, 16, 16, host_target()).rows == 0)
    x = Var("x", TensorType((1, 16, 6, width), "float32"))
    first = convolution(x, size)
    second = call("nn.add", convolution(convolution(first, size), size), first)
    module = Module(Function((x,), convolution(second, size)))
    model = checked(module, {"x": values((1, 16, 6, width))}, threads)
    check_plan(model)
    (tensor,) = (each for each in program_of(model).memory if each.reuses is not None)
    assert tensor.nbytes == 4 * 16 * (6 + 2 * (size // 2)) * (width + 2 * (size // 2))  # with its halo


@pytest.mark.parametrize("width", [29, 31, 37])
def test_a_residual_is_kept_where_tiles_overlap(width: int) -> None:
    """Rows that no tile divides: some elements of the sum are computed twice, from the same residual."""
    x = Var("x", TensorType((1, 16, 3, width), "float32"))
    first = convolution(x, 1)
    second = call("nn.add", convolution(convolution(first, 1), 1), first)
    module = Module(Function((x,), convolution(second, 1)))
    check_plan(checked(module, {"x": values((1, 16, 3, width))}, 1))


def test_what_is_read_later_is_kept() -> None:
    first = convolution(X)
    second = call("nn.tanh", convolution(call("nn.add", convolution(first), first)))
    kept = linked(call("nn.add", second, first))
    check_plan(kept)
    memory = program_of(kept).memory
    over = {memory[tensor.reuses].first for tensor in memory if tensor.reuses is not None}
    assert min(tensor.first for tensor in memory if tensor.nbytes >= 4 * 16 * 42) not in over


def test_one_memory_under_two_names_is_kept_when_the_other_name_is_read_elsewhere() -> None:
    flat = call("nn.softmax", call("reshape", X, shape=(42, 16)), axis=1)
    turned = call("transpose", call("reshape", flat, shape=(16, 42)), perm=(1, 0))
    total = call("nn.add", flat, turned)  # element (i, j) and element (j, i) of the same bytes
    check_plan(linked(call("nn.softmax", total, axis=0)))


def test_inputs_and_outputs_of_the_model_are_never_written_over() -> None:
    doubled = call("nn.add", X, X)
    value = call("nn.tanh", call("nn.softmax", doubled, axis=1))
    loaded = weft.load(linked(call("nn.softmax", value, axis=2), doubled))
    given = values(IMAGE.shape)
    loaded.run({"x": given})
    np.testing.assert_array_equal(given, values(IMAGE.shape))


def function(read: Any, rows: int = 4, columns: int = 6, dtype: te.DType = "float32") -> te.PrimFunc:
    x = te.placeholder((rows, columns), dtype, "x")
    out = te.compute((rows, columns), lambda i, j: read(x, i, j) + te.Const(1.0, "float32"), "out")
    return te.lower([out], [x], "f")


@pytest.mark.parametrize(("read", "allowed"), [
    (lambda x, i, j: x[i, j], True),
    (lambda x, i, j: x[i, j] * x[i, j], True),
    (lambda x, i, j: x[i, j] * x[i, 0], False),
    (lambda x, i, j: x[i, 5 - j], False),
    (lambda x, i, j: x[te.minimum(i + 1, te.Const(3)), j], False),
])  # fmt: skip
def test_an_operand_is_overwritten_only_if_each_element_is_read_where_it_is_replaced(read: Any, allowed: bool) -> None:
    assert overwritable(function(read), 1, {}, 0) == (allowed,)


def test_an_operand_is_overwritten_after_the_parts_that_read_it_are_done() -> None:
    x = te.placeholder((4, 6), "float32", "x")
    k = te.reduce_axis(6, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], [k]), "total")
    for column, allowed in ((lambda j: j, True), (lambda j: 5 - j, False)):
        out = te.compute((4, 6), lambda *at, column=column: x[at[0], column(at[1])] - total[at[0]], "out")
        func = te.lower([out], [x], "f")
        assert overwritable(func, 1, {}, 0) == (allowed,)
        schedule = te.Schedule(func)
        schedule.compute_at("total", schedule.get_loops("out")[1])  # an element's sum between the others' replacement
        assert overwritable(schedule.func, 1, {}, 0) == (False,)


def test_weights_of_a_softmax_are_written_over_the_scores() -> None:
    """Where they are the second operand of a product, so that it is no attention."""
    scores = call("nn.matmul", call("reshape", X, shape=(1, 42, 16)), call("reshape", X, shape=(1, 16, 42)))
    weights = call("nn.softmax", scores, axis=2)
    model = linked(call("nn.matmul", call("reshape", X, shape=(1, 16, 42)), weights), threads=2)
    check_plan(model)
    assert [tensor.nbytes for tensor in program_of(model).memory if tensor.reuses is not None] == [4 * 42 * 42]


def test_an_operand_with_wider_elements_is_not_overwritten() -> None:
    narrow = function(lambda x, i, j: x[i, j].astype("float32"), dtype="int8")
    assert overwritable(narrow, 1, {}, 0) == (False,)


def test_the_inside_of_a_larger_tensor_is_no_place_of_a_whole_one() -> None:
    func = function(lambda x, i, j: x[i, j])
    assert overwritable(func, 1, {"out": (6, 1)}, 0) == (True,)
    assert overwritable(func, 1, {"out": (6, 1)}, 7) == (False,)
    assert overwritable(func, 1, {"out": (8, 1)}, 0) == (False,)


def test_nothing_is_overwritten_where_elements_are_computed_twice() -> None:
    x, out = te.Buffer("x", (13,), "float32"), te.Buffer("out", (13,), "float32")
    outer, inner = te.Var("outer"), te.Var("inner")
    for place, allowed in ((te.minimum(outer * 4, te.Const(9)) + inner, False), (outer * 4 + inner, True)):
        store = out.store((place,), x[(place,)] + te.Const(1.0, "float32"))
        body = loop_nest([(outer, te.Const(3)), (inner, te.Const(4))], te.Block("out", "spatial", store))
        assert overwritable(te.PrimFunc("f", (x, out), body), 1, {}, 0) == (allowed,)


def test_nothing_is_overwritten_by_a_loop_that_comes_back_to_the_same_elements() -> None:
    x, out = te.Buffer("x", (4,), "float32"), te.Buffer("out", (4,), "float32")
    again, i = te.Var("again"), te.Var("i")
    store = te.Block("out", "spatial", out.store((i,), x[(i,)] + te.Const(1.0, "float32")))
    body = loop_nest([(again, te.Const(2)), (i, te.Const(4))], store)
    assert overwritable(te.PrimFunc("f", (x, out), body), 1, {}, 0) == (False,)
