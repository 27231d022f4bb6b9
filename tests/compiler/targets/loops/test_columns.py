"""Products gather their rows themselves, a block at a time, where nothing else needs them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Call, Constant, Expr, TensorType, Var, call
from weft.compiler.graph.dtypes import HALVES, numpy_dtype
from weft.compiler.graph.dtypes import step as step_of_dtype
from weft.compiler.targets.loops.columns import columns_of
from weft.compiler.targets.loops.prepare import prepare

from ..cpu.programs import compiled
from ..cpu.test_link import check, floats, module_of


def gathered(shape: tuple[int, ...], axis: int, places: int, taps: int, seed: int = 0) -> tuple[Var, Expr]:
    """An image, and what windows of so many elements meet in it, at any places; negative ones count from the end."""
    x = Var("x", TensorType(shape, "float32"))
    table = np.random.default_rng(seed).integers(-shape[axis], shape[axis], (places, taps))
    return x, call("gather", x, Constant(table), axis=axis)


def product(met: Expr, lead: int, columns: int) -> Call:
    """The first ``lead`` axes are rows."""
    rows, depth = prod(met.shape[:lead]), prod(met.shape[lead:])
    w = Var("w", TensorType((depth, columns), "float32"))
    return call("nn.matmul", call("reshape", met, shape=(rows, depth)), w)


def weights(node: Call) -> Var:
    w = node.args[1]
    assert isinstance(w, Var)
    return w


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_rows_of_any_size(data: st.DataObject) -> None:
    draw = data.draw
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 12)), draw(st.sampled_from([1, 2, 3, 8, 17, 32])))
    axis = draw(st.integers(0, 2))
    x, met = gathered(
        shape, axis, draw(st.sampled_from([1, 2, 7, 30])), draw(st.integers(2, 9)), draw(st.integers(0, 9))
    )
    node = product(met, axis + 1, draw(st.sampled_from([1, 5, 16, 33])))
    value = call("nn.clip", call("nn.add", node, floats(node.shape[1])), low=0.0)
    w = weights(node)
    terms = max(1.0, w.type.shape[0] ** 0.5)  # so far a sum goes on its way to a result that may be small
    model = check(module_of(value, params=(x, w)), draw(st.sampled_from([1, 2])), terms=terms)
    joined = met.tensor_type.size > x.type.size
    assert ("gather" in model.layers[-1].operators) == joined
    assert len(model.layers) == (1 if joined else 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("images", [16, 23, 31])
def test_blocks_of_rows_of_which_the_last_is_shorter(images: int, threads: int) -> None:
    """Rows are never there all at once."""
    x, met = gathered((images, 100, 32), 1, 64, 9)
    node = product(met, 2, 40)
    model = check(module_of(node, params=(x, weights(node))), threads)
    assert "allocate" in model.steps[0].program.kernels[0].text
    assert model.statistics["arena_bytes"] < 0.6 * met.tensor_type.size * 4


def test_rows_that_something_else_needs_are_kept() -> None:
    x, met = gathered((3, 10, 8), 1, 20, 4)
    node = product(met, 2, 12)
    model = check(module_of(node, call("nn.negative", met), params=(x, weights(node))))
    assert ("gather",) in [layer.operators for layer in model.layers]


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_types_are_not_gathered_by_products(dtype: str) -> None:
    x, table = Var("x", TensorType((2, 5, 4), dtype)), Constant(np.zeros((9, 3), np.int64))
    rows = call("reshape", call("gather", x, table, axis=1), shape=(18, 12))
    assert columns_of(call("nn.matmul", rows, Var("w", TensorType((12, 6), dtype)))) is None


def test_a_row_holds_whole_stretches() -> None:
    """Rows that end within a place, or hold several places, are gathered first."""
    _, met = gathered((2, 10, 8), 1, 6, 4)
    for rows in (2 * 6 * 4, 2 * 6):
        found = columns_of(call("nn.matmul", call("reshape", met, shape=(rows, met.tensor_type.size // rows)), floats(
            met.tensor_type.size // rows, 3)))  # fmt: skip
        assert found is not None
        assert found.run == 8
    for rows in (2 * 6 * 4 * 8, 3):
        depth = met.tensor_type.size // rows
        assert columns_of(call("nn.matmul", call("reshape", met, shape=(rows, depth)), floats(depth, 3))) is None


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_operands_are_cast_as_they_are_copied(data: st.DataObject) -> None:
    """Weights in 32 bits that are multiplied in 16, and values of 16 bits that are multiplied in 32."""
    draw = data.draw
    outer = draw(st.sampled_from([(), (3,)]))
    rows, depth, columns = (draw(st.integers(1, 70)) for _ in range(3))
    dtype = draw(st.sampled_from(HALVES))
    shapes = ((*outer, rows, depth), (*outer, depth, columns))
    params = tuple(
        Var(name, TensorType(shape, "float32")) for name, shape in zip("xw", shapes, strict=True)
    )  # fmt: skip
    to = draw(st.sampled_from([(dtype,), (dtype, "float32")]))
    operands: list[Expr] = list(params)
    for each in to:
        operands = [call("nn.cast", operand, to=each) for operand in operands]
    value = call("nn.matmul", *operands)
    value = call("nn.cast", value, to="float32") if len(to) == 1 else value
    model = compiled(prepare(module_of(value, params=params)), threads=draw(st.sampled_from([1, 2])))
    assert [layer.operators for layer in model.layers if "nn.matmul" in layer.operators] == [
        (*("nn.cast",) * 2 * len(to), "nn.matmul", *(("nn.cast",) if len(to) == 1 else ()))
    ]
    random = np.random.default_rng(0)
    given_values = {param.name: random.normal(size=param.type.shape).astype(np.float32) for param in params}
    rounded = [given_values[name].astype(numpy_dtype(dtype)).astype(np.float64) for name in "xw"]
    wanted = rounded[0] @ rounded[1]
    (found,) = weft.load(model).run(given_values).values()
    tolerance = 1e-5 if len(to) == 2 else 0.6 * step_of_dtype(dtype)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * depth**0.5)


def test_a_cast_that_something_else_needs_is_made_once() -> None:
    x, w = (Var(name, TensorType((40, 40), "float32")) for name in "xw")
    narrow = call("nn.cast", w, to="bfloat16")
    results = (call("nn.matmul", call("nn.cast", x, to="bfloat16"), narrow), call("nn.negative", narrow))
    wide = [call("nn.cast", each, to="float32") for each in results]
    model = check(module_of(*wide, params=(x, w)), tolerance=1e-2)
    assert ("nn.cast", "nn.matmul", "nn.cast") in [layer.operators for layer in model.layers]
