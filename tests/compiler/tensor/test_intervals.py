"""Intervals of expressions hold every value that an evaluation gives."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.tensor.evaluate import evaluate
from weft.compiler.tensor.intervals import Facts, cases

X, Y = t.Var("x"), t.Var("y")
DATA = t.Buffer("data", (8,), "int64")


def within(x: int, y: t.Expr) -> Facts:
    return Facts({}).inside_loop(X, t.Const(x)).inside_loop(Y, y)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> t.Expr:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([X, Y, t.Const(draw(st.integers(-9, 9)))]))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    match draw(st.sampled_from(["add", "sub", "mul", "min", "max", "floordiv", "mod", "select"])):
        case "select":
            cond = t.BinOp(draw(st.sampled_from(["lt", "le", "eq", "ne"])), a, b)
            return t.select(cond, draw(expressions(depth - 1)), draw(expressions(depth - 1)))
        case "floordiv" | "mod" as op:
            return t.BinOp(op, a, t.Const(draw(st.integers(1, 9))))
        case op:
            return t.BinOp(op, a, b)


@settings(max_examples=200, deadline=None)
@given(expressions(), st.integers(1, 7), st.integers(1, 7))
def test_every_value_lies_in_the_interval(expr: t.Expr, x: int, y: int) -> None:
    low, high = within(x, t.Const(y)).interval(expr)
    for values in product(range(x), range(y)):
        assert low <= evaluate(expr, dict(zip((X, Y), values, strict=True))) <= high


@settings(max_examples=200, deadline=None)
@given(expressions(), expressions(2), expressions(2), st.sampled_from(["lt", "le", "eq", "ne"]), st.booleans())
def test_every_value_under_a_condition_lies_in_the_interval(
    expr: t.Expr, a: t.Expr, b: t.Expr, op: str, holds: bool
) -> None:
    cond = t.BinOp(op, a, b)
    low, high = within(5, t.Const(6)).given(cond, holds).interval(expr)
    for values in product(range(5), range(6)):
        env = dict(zip((X, Y), values, strict=True))
        if bool(evaluate(cond, env)) is holds:
            assert low <= evaluate(expr, env) <= high


def test_an_extent_that_depends_on_a_loop_bounds_their_sum() -> None:
    assert within(4, t.minimum(t.Const(8), 30 - X * 8)).interval(X * 8 + Y)[1] == 29


def test_a_guard_bounds_the_sum_that_it_compares() -> None:
    facts = within(9, t.Const(3)).given((t.Const(1) <= X + Y) & (t.Const(9) > X + Y), True)
    assert facts.interval(X + Y - 1) == (0, 7)


@pytest.mark.parametrize(("value", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_a_sum_that_may_wrap_is_any_number_of_its_type(value: t.DType, low: int, high: int) -> None:
    number = t.Buffer("n", (1,), value)[0]
    assert Facts({}).interval(number + t.Const(1, value)) == (low, high)


def test_indices_that_were_checked_are_added_up_case_by_case() -> None:
    """A gather counts negative indices from the end."""
    facts = Facts({"data": ((-5, 4),)})
    index = DATA[X] + (DATA[X] < t.Const(0)).astype("int64") * 5
    assert [each.interval(index) for each in cases(facts, index)] == [(0, 4), (0, 4)]


def test_what_memory_holds_is_not_trusted_when_it_is_read_again() -> None:
    guarded = t.select(DATA[X] < t.Const(8), DATA[X], t.Const(0))
    assert Facts({}).interval(guarded)[1] == 2**63 - 1
    assert Facts({}).with_rereads().interval(guarded)[1] == 7


def test_a_bound_of_a_sum_bounds_its_steps() -> None:
    """A loop over whole vectors stays below their number: 4 * x + y < 12 says x < 3."""
    facts = within(9, t.Const(4)).given(X * 4 + Y < 12, True)
    assert facts.interval(X) == (0, 2)
    assert facts.interval(X * 4 + Y) == (0, 11)
    assert within(9, t.Const(4)).given(X * 4 - Y < 12, True).interval(X) == (0, 3)


def test_a_bound_of_a_sum_bounds_each_part_and_quotients_of_a_part() -> None:
    """Rows of a tile that stay inside of an image of 4 columns: 8 * x + y < 20 says 2 * x + y // 4 < 5."""
    facts = within(9, t.Const(8)).given(X * 8 + Y < 20, True)
    assert facts.interval(X)[1] == 2
    assert facts.interval(X * 2 + Y // 4) == (0, 4)
    assert facts.interval(Y // 4 - X * 2)[1] == 1
    assert facts.interval(X * 2 - Y // 4)[1] == 4


def test_quotients_of_which_different_things_are_known_are_bounded_by_themselves() -> None:
    """A tile's row and a tap's row: pixels stay below 20, of 4 columns each, taps below 24, of 8 for each row."""
    z, w = t.Var("z"), t.Var("w")
    facts = within(9, t.Const(8)).inside_loop(z, t.Const(9)).inside_loop(w, t.Const(16))
    facts = facts.given(X * 8 + Y < 20, True).given(z * 16 + w < 24, True)
    assert facts.interval(X * 2 + Y // 4 + z * 2 + w // 8) == (0, 6)
    assert facts.interval(X * 2 + Y // 4 - z * 2 - w // 8) == (-2, 4)


def test_a_multiple_of_a_sum_is_bounded_by_the_sum() -> None:
    """Every second row of 5, of 4 columns each."""
    facts = within(9, t.Const(8)).given(X * 8 + Y < 12, True)
    assert facts.interval(X * 4 + Y // 4 * 2) == (0, 4)


def test_many_quotients_are_bounded_without_trying_all_orders() -> None:
    """Of twelve, one after another, there are half a billion orders."""
    facts, total = Facts({}), t.Const(0)
    for number in range(12):
        x, y = t.Var(f"x{number}"), t.Var(f"y{number}")
        facts = facts.inside_loop(x, t.Const(9)).inside_loop(y, t.Const(9)).given(x * 8 + y < 20, True)
        total = total + x * 2 + y // 4
    assert facts.interval(total) == (0, 4 * 12)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 40))
def test_a_bound_of_a_sum_bounds_its_multiples(a: int, b: int, times: int, most: int) -> None:
    facts = within(6, t.Const(6)).given(X * a + Y * b < most, True)
    total = X * (a * times) + Y * (b * times)
    values = [(x, y) for x, y in product(range(6), range(6)) if x * a + y * b < most]
    low, high = facts.interval(total)
    for x, y in values:
        assert low <= times * (x * a + y * b) <= high
    if values:
        assert high <= times * (most - 1)


def test_parts_of_a_tile_stay_in_the_picture() -> None:
    """An index that two bounds together keep inside: one of a sum of which it holds a multiple, one of a quotient's."""
    names = ("i", "o", "row", "k", "deep", "lane")
    i, o, row, k, deep, lane = (t.Var(name) for name in names)
    facts = Facts({})
    for var, extent in ((i, 4), (o, 2), (row, 8), (k, 16), (deep, 2), (lane, 4)):
        facts = facts.inside_loop(var, t.Const(extent))
    facts = facts.given(lane + k * 4 + deep * 64 < 12, True).given(row + i * 8 + o * 32 < 40, True)
    assert facts.interval(i * 2 + o * 8 + (k + deep * 16) // 3 - 1) == (-1, 7)


def test_a_quotient_has_nothing_to_do_with_a_tap_beside_it() -> None:
    """Every second row of a picture of 4 columns, and a tap that has no quotient."""
    z, w, lane = (t.Var(name) for name in ("z", "w", "lane"))
    facts = within(4, t.Const(8)).inside_loop(z, t.Const(2)).inside_loop(w, t.Const(16)).inside_loop(lane, t.Const(4))
    facts = facts.given(lane + w * 4 + z * 64 < 16, True).given(Y + X * 8 < 12, True)
    row = X * 4 + w + z * 16 + Y // 4 * 2
    assert facts.interval(row) == (0, 7)
    padded = facts.given(t.Const(0) <= row - 1, True)  # what is said of its least says nothing of its most
    assert padded.interval(row - 1) == (0, 6)


def test_parts_of_a_sum_that_read_the_same_are_looked_at_together() -> None:
    read = t.Load(DATA, (t.Const(0),))
    assert Facts({"data": ((0, 99),)}).interval(read // 4 * 4 - read) == (-3, 0)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_compared_with_memory_that_may_change_says_nothing(turned: bool) -> None:
    facts = Facts({"data": ((0, 99),)})
    kept, changing = t.Load(DATA, (t.Const(0),)), t.Load(t.Buffer("other", (8,), "int64"), (t.Const(0),))
    sides = (changing, kept) if turned else (kept, changing)
    assert facts.given(t.BinOp("lt", *sides), True) == facts
    assert facts.with_rereads().given(t.BinOp("lt", *sides), True) != facts.with_rereads()
