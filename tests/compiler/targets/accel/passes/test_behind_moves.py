"""Arithmetic between moves is done behind them, where it is the same for all elements and nothing else reads it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.api import integer_graph
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.targets.accel.passes.behind_moves import behind_moves
from weft.hw.config import TINY
from weft.verify import verify

from tests.compiler.targets.accel.moves import BLOCK, STEPS, bent, part, turned
from tests.compiler.targets.accel.quantised_layers import compiled, layer, module_of, quantised, variable

X = Var("x", TensorType((2, 3, 4, 5), "int8"))


def narrowed(x: Expr, multipliers: tuple[int, ...] = (1 << 22,)) -> Expr:
    numbers = np.resize(np.array(multipliers, np.int32), x.shape[1])
    same = np.full(x.shape[1], 7, np.int32), numbers, np.full(x.shape[1], 21, np.int32)
    return call("requantise", x, *map(Constant, same))


def flipped(x: Expr) -> Expr:
    return call("transpose", x, perm=(0, 3, 1, 2))


def operators(body: Expr) -> list[str]:
    """Those of a graph after the pass, whose integers stay."""
    module = Module(Function((X,), body, Attrs({"name": "main", "outputs": ("y",)})))
    made = behind_moves(module)
    given_ = {"x": np.random.default_rng(0).integers(-128, 128, X.type.shape).astype(np.int8)}
    np.testing.assert_array_equal(evaluate(made, given_)["y"], evaluate(module, given_)["y"])
    names, value = [], made.main.body
    while not isinstance(value, Var):
        names.append(str(value.op))  # type: ignore[attr-defined]
        value = value.children[0]
    return names


def test_what_is_between_moves_is_done_last() -> None:
    halves = part(flipped(X), 1, 1, 2)
    assert operators(flipped(flipped(narrowed(halves)))) == [
        "requantise",
        "transpose",
        "transpose",
        "slice",
        "transpose",
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (flipped(narrowed(X)), ["transpose", "requantise"]),  # nothing is moved before
        (narrowed(flipped(X)), ["requantise", "transpose"]),
        (flipped(narrowed(flipped(X), (1 << 20, 1 << 21))), ["transpose", "requantise", "transpose"]),
        (call("pad", narrowed(flipped(X)), pads=(0, 0, 0, 0, 0, 0, 1, 0), value=3), ["pad", "requantise", "transpose"]),
        (
            call("reshape", flipped(narrowed(flipped(X))), shape=(5, 4, 3, 2, 1)),
            ["reshape", "transpose", "requantise", "transpose"],
        ),
    ],
)
def test_all_else_stays(body: Expr, found: list[str]) -> None:
    assert operators(body) == found


def test_what_is_read_elsewhere_stays() -> None:
    middle = narrowed(flipped(X))
    body = Tuple((flipped(middle), middle))
    module = Module(Function((X,), body, Attrs({"name": "main", "outputs": ("y", "z")})))
    assert behind_moves(module) is module


def test_a_part_that_is_scaled_between_moves_does_not_leave_the_core() -> None:
    x = variable(1, 3, 4, 6)
    heads = call("reshape", layer(quantised(x), 4 * BLOCK), shape=(1, 2, 2 * BLOCK, 4, 6))
    first = call("reshape", part(call("transpose", heads, perm=(1, 3, 4, 0, 2)), 0, 1, 1), shape=(24, 2 * BLOCK))
    scaled = quantised(call("nn.multiply", call("reshape", first, shape=(1, 24, 2 * BLOCK)), Constant(np.float32(0.3))))
    body = layer(call("reshape", call("transpose", scaled, perm=(0, 2, 1)), shape=(1, 2 * BLOCK, 4, 6)), 5)
    model = compiled(x, body, TINY)
    assert len(model.programs) == 1
    assert verify(model, integer_graph(module_of(x, body), model), seed=1).proved


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_moves_around_arithmetic_give_the_integers_of_the_graph(data: st.DataObject) -> None:
    def draw(size: int) -> int:
        return data.draw(st.integers(0, size - 1))

    x = variable(1 + draw(2), 3, 2 + draw(3), 2 + draw(3))
    body: Expr = layer(quantised(x), BLOCK * (1 + draw(2)))
    for _ in range(2):
        body = bent(STEPS[draw(len(STEPS))](turned(body, draw), draw), draw)
    compiled(x, layer(turned(body, draw), 5), TINY)
