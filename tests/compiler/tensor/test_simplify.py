"""simplify keeps the value; bounds are bounds."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from functools import reduce
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.tensor import (
    Buffer,
    Const,
    Expr,
    Var,
    constant_range,
    evaluate,
    expr_text,
    lower_bound,
    maximum,
    minimum,
    select,
    simplify,
    upper_bound,
)
from weft.compiler.tensor.simplify import MOST_OUTSIDE, Simplifier
from weft.compiler.tensor.visitor import free_vars, loads

ROW, COL, DEEP = Var("i"), Var("j"), Var("k")
# The extent of j depends on i, as after a split that does not divide.
LOOPS = [(ROW, Const(4)), (COL, minimum(3, 11 - ROW * 3)), (DEEP, Const(5))]


def points() -> list[dict[Var, int]]:
    """All iterations of LOOPS."""
    found = []
    for i, j, k in product(range(4), range(3), range(5)):
        if j < min(3, 11 - i * 3):
            found.append({ROW: i, COL: j, DEEP: k})
    return found


POINTS = points()


def exprs() -> st.SearchStrategy[Expr]:
    """Index expressions over i, j and k."""
    leaves = st.one_of(st.sampled_from([ROW, COL, DEEP]), st.integers(-20, 20).map(Const))

    def wider(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        scaled = st.tuples(inner, st.integers(-6, 6))
        divided = st.tuples(inner, st.integers(1, 7))
        return st.one_of(
            pair.map(lambda p: p[0] + p[1]),
            pair.map(lambda p: p[0] - p[1]),
            pair.map(lambda p: p[0] * p[1]),
            pair.map(lambda p: minimum(p[0], p[1])),
            pair.map(lambda p: maximum(p[0], p[1])),
            scaled.map(lambda p: p[0] * p[1]),
            divided.map(lambda p: p[0] // p[1]),
            divided.map(lambda p: p[0] % p[1]),
            st.tuples(inner, inner, inner, inner).map(lambda p: select(p[0] < p[1], p[2], p[3])),
        )

    return st.recursive(leaves, wider, max_leaves=8)


@given(exprs())
@settings(max_examples=200)
def test_simplify_keeps_the_value(expr: Expr) -> None:
    simple = simplify(expr, LOOPS)
    for point in POINTS:
        assert evaluate(simple, point) == evaluate(expr, point), expr_text(simple)


@given(exprs())
@settings(max_examples=200)
def test_constant_range_holds_all_values(expr: Expr) -> None:
    low, high = constant_range(expr, LOOPS)
    assert all(low <= evaluate(expr, point) <= high for point in POINTS)


@given(exprs(), st.integers(0, 3))
@settings(max_examples=200)
def test_symbolic_bounds_hold_all_values(expr: Expr, depth: int) -> None:
    outer, inner = LOOPS[:depth], LOOPS[depth:]
    low, high = lower_bound(expr, inner, outer), upper_bound(expr, inner, outer)
    for point in POINTS:
        known = {var: point[var] for var, _ in outer}
        value = evaluate(expr, point)
        assert low is None or evaluate(low, known) <= value
        assert high is None or evaluate(high, known) >= value


@given(st.lists(st.lists(st.tuples(st.integers(-6, 12), st.integers(-9, 20)), min_size=3, max_size=6), min_size=2,
                max_size=5))  # fmt: skip
@settings(max_examples=60)
def test_bounds_of_bounds_stay_short(groups: list[list[tuple[int, int]]]) -> None:
    """A maximum of minima of lines: no more lines than places, however many went in."""
    lowest = [reduce(minimum, (ROW * slope + start for slope, start in lines)) for lines in groups]
    expr = reduce(lambda a, b: maximum(a, b + 1 - ROW), lowest)
    simple = simplify(expr, LOOPS[:1])
    for i in range(4):
        assert evaluate(simple, {ROW: i}) == evaluate(expr, {ROW: i})
    assert expr_text(simple).replace("min", "").count("i") <= 4 * 4


def test_the_tail_of_a_split_is_seen_to_stay_inside() -> None:
    assert constant_range(ROW * 3 + COL, LOOPS) == (0, 10)


def test_a_fused_loop_taken_apart_and_put_together_is_itself() -> None:
    assert simplify((ROW // 7) * 7 + ROW % 7, [(ROW, Const(35))]) == ROW


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 8), st.integers(-9, 9), st.sampled_from([1, -1, 3]),
       st.sampled_from([1, -1]))  # fmt: skip
def test_places_in_blocks_are_found_in_larger_blocks(
    unit: int, times: int, lanes: int, shift: int, ways: int, turn: int
) -> None:
    """Blocks of ``unit``, ``times`` of which are one of another tensor; ``lanes`` may be more than a block."""
    place, loops = ROW * unit * ways + COL * turn + shift, [(ROW, Const(7)), (COL, Const(lanes))]
    outer, lane = simplify(place // (unit * times), loops), simplify(place % (unit * times), loops)
    for i, j in product(range(7), range(lanes)):
        at = i * unit * ways + j * turn + shift
        point = {ROW: i, COL: j}
        assert (evaluate(outer, point), evaluate(lane, point)) == divmod(at, unit * times)
    if lanes <= unit and shift == 0 and turn == 1:
        assert COL not in free_vars(outer)
        assert COL not in free_vars(simplify(lane - COL, loops))


def test_a_window_with_a_halo_has_a_short_extent() -> None:
    high = upper_bound(ROW * 3 + COL + DEEP, LOOPS[1:], LOOPS[:1])
    assert high is not None
    assert expr_text(high) == "min(14, i * 3 + 6)"


def test_linear_terms_have_one_order() -> None:
    assert expr_text(simplify(DEEP + 4 - ROW * 2 + COL * 3 + DEEP)) == "j * 3 + k * 2 - i * 2 + 4"


def test_a_variable_that_runs_once_is_zero() -> None:
    assert simplify(ROW * 4 + COL, [(ROW, Const(1)), (COL, Const(4))]) == COL


@given(st.lists(st.tuples(exprs(), st.integers(1, 40)), min_size=1, max_size=3))
@settings(max_examples=200)
def test_a_position_is_the_sum_of_its_indices(parts: list[tuple[Expr, int]]) -> None:
    indices, strides = zip(*parts, strict=True)
    position = Simplifier(LOOPS).position(indices, strides)
    for point in POINTS:
        there = sum(evaluate(index, point) * stride for index, stride in parts)
        assert evaluate(position.to_expr(), point) == there


EVEN = [(ROW, Const(4)), (COL, Const(3)), (DEEP, Const(5))]
FACTORS = st.integers(-6, 6)


@given(st.tuples(FACTORS, FACTORS, FACTORS, st.integers(-9, 20)), st.integers(0, 3), st.booleans())
def test_a_sum_is_bounded_at_once_as_loop_by_loop(factors: tuple[int, ...], outer: int, upper: bool) -> None:
    expr = ROW * factors[0] + COL * factors[1] + DEEP * factors[2] + factors[3]
    bound = upper_bound if upper else lower_bound
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[Simplifier.__module__], "_linear_bound", lambda *_: None)
        slow = bound(expr, EVEN[outer:], EVEN[:outer])
    assert bound(expr, EVEN[outer:], EVEN[:outer]) == slow


def test_what_is_simple_stays_the_same_object() -> None:
    simple = simplify(ROW * 3 + COL + minimum(DEEP, 4 - ROW), LOOPS)
    assert simplify(simple, LOOPS) is simple


@given(exprs())
def test_a_hash_stays_in_its_process(expr: Expr) -> None:
    """Equal expressions have equal hashes, which are not handed to processes in which texts have others."""
    first = hash(expr)
    assert free_vars(expr) <= {ROW, COL, DEEP}
    assert not loads(expr)
    twin = pickle.loads(pickle.dumps(expr))
    assert vars(twin).keys() <= set(expr.__match_args__)
    assert twin == expr
    assert hash(twin) == first


def test_what_is_remembered_is_bounded() -> None:
    """What a simplifier forgets, it finds again."""
    simplifier = Simplifier(LOOPS, 50)
    exprs = [(ROW * step + COL) // 3 + maximum(DEEP, step) for step in range(1, 200)]
    found = [simplifier.simplify(expr) for expr in exprs]
    assert all(len(memo) <= 50 for memo in simplifier._memos.values())
    assert found == [simplify(expr, LOOPS) for expr in exprs] == [simplifier.simplify(expr) for expr in exprs]


def test_expressions_outside_of_loops_go_with_their_function() -> None:
    """The simplifier of no loops lives as long as the process, and expressions hold all that they read."""
    buffers = [Buffer(f"b{number}", (4,), "int64") for number in range(1000)]
    alive = [weakref.ref(buffer) for buffer in buffers]
    for buffer in buffers:
        simplify(buffer[0] + 0 * buffer[1])
    del buffer, buffers
    gc.collect()
    assert sum(each() is not None for each in alive) <= MOST_OUTSIDE
