"""Factors of matrices with their rows exchanged, A = P L U, and equations by them: a column in each step of a loop.

All is computed in float64, so that a pivot is the one that exact arithmetic would choose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Constant, Expr
from ..forms import matrix_product
from ..onnx.loop import looped
from .factors import chosen_along, flat, substituted, turned, units_of
from .site import Site, rule


def _eliminated(site: Site, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Of matrices (N, rows, columns): both factors in one, L without its ones; the row, from 1, that each of the first
    rows was exchanged for; which column was the first, from 1, without a pivot, or 0."""
    count, rows, columns = x.shape
    steps = min(rows, columns)
    down = Constant(np.arange(rows, dtype=np.int64).reshape(1, rows, 1))
    across = Constant(np.arange(columns, dtype=np.int64).reshape(1, 1, columns))

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (left, lacking), (number,) = states, items
        here = site.reshape(number, (1, 1, 1))
        is_row, is_column = (site("equal", places, here) for places in (down, across))
        column = chosen_along(site, left, is_column, 2)
        sizes = site.where(site("less", down, here), -1.0, site("abs", column))
        pivot = site.cast(site.call("nn.arg_max", sizes, axis=1, keepdims=True), "int64")
        is_pivot = site("equal", down, pivot)
        row, other = chosen_along(site, left, is_pivot, 1), chosen_along(site, left, is_row, 1)
        left = site.where(is_row, row, site.where(is_pivot, other, left))
        value, column = chosen_along(site, row, is_column, 2), chosen_along(site, left, is_column, 2)
        nothing, below = site("equal", value, 0), site("less", here, down)
        factors = site.where(below, site("divide", column, site.where(nothing, 1.0, value)), 0.0)
        rest = site.where(site("less", here, across), row, 0.0)
        left = site("subtract", left, site("multiply", factors, rest))
        left = site.where(site("and", below, is_column), factors, left)
        from_one = site("add", site.reshape(here, (1,)), 1)
        first = site("and", site.reshape(nothing, (count,)), site("equal", lacking, 0))
        return (left, site.where(first, from_one, lacking)), (site("add", site.reshape(pivot, (count,)), 1),)

    states = (x, Constant(np.zeros(count, np.int64)))
    numbers = Constant(np.arange(steps, dtype=np.int64))
    (packed, lacking), (exchanged,) = looped(site.node, step, states, (numbers,), (False,) * 2)
    return packed, site.transpose(exchanged, (1, 0)), lacking


def _factors(site: Site, x: Expr, pivot: bool) -> tuple[Expr, Expr, Expr]:
    """As `_eliminated`, in the types and shapes of PyTorch."""
    if not pivot:
        raise site.error("factors without exchanges of rows are not supported", hint="leave out pivot=False")
    batch, steps = x.shape[:-2], min(x.shape[-2:])
    if 0 in x.shape:
        none = np.broadcast_to(np.arange(1, steps + 1, dtype=np.int32), (*batch, steps))
        return x, Constant(none.copy()), Constant(np.zeros(batch, np.int32))
    packed, exchanged, lacking = _eliminated(site, site.cast(flat(site, x), "float64"))
    return (site.reshape(site.cast(packed, x.dtype), x.shape),
            site.reshape(site.cast(exchanged, "int32"), (*batch, steps)),
            site.reshape(site.cast(lacking, "int32"), batch))  # fmt: skip


def _order(site: Site, exchanged: Expr, rows: int) -> Expr:
    """Which row of A stands in each row of L U: (N, rows) of the exchanges (N, steps)."""
    count, steps = exchanged.shape
    places = Constant(np.arange(rows, dtype=np.int64).reshape(1, rows))

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (order,), (number, chosen) = states, items
        is_here = site("equal", places, site.reshape(number, (1, 1)))
        is_there = site("equal", places, site.reshape(chosen, (count, 1)))
        first, second = (chosen_along(site, order, place, 1) for place in (is_here, is_there))
        return (site.where(is_here, second, site.where(is_there, first, order)),), ()

    start = Constant(np.repeat(places.value, count, 0))
    numbers = Constant(np.arange(steps, dtype=np.int64))
    chosen = site("subtract", site.transpose(site.cast(exchanged, "int64"), (1, 0)), 1)
    (order,), _ = looped(site.node, step, (start,), (numbers, chosen), (False,) * 2)
    return order


def _exchange(site: Site, exchanged: Expr, rows: int, dtype: str) -> Expr:
    """The matrix P of A = P L U, of exchanges (..., steps)."""
    batch = exchanged.shape[:-1]
    if 0 in (*batch, rows, exchanged.shape[-1]):
        return Constant(np.broadcast_to(np.eye(rows, dtype=dtype), (*batch, rows, rows)).copy())
    order = _order(site, site.reshape(exchanged, (-1, exchanged.shape[-1])), rows)
    places = Constant(np.arange(rows, dtype=np.int64).reshape(1, rows, 1))
    found = site("equal", places, site.reshape(order, (-1, 1, rows)))
    return site.reshape(site.cast(found, dtype), (*batch, rows, rows))


def _lower_and_upper(site: Site, packed: Expr) -> tuple[Expr, Expr]:
    rows, columns = packed.shape[-2:]
    steps, rank = min(rows, columns), len(packed.shape)
    left, right = site.slice(packed, rank - 1, 0, steps), site.slice(packed, rank - 2, 0, steps)
    below = site.where(Constant(np.tri(rows, steps, -1, dtype=bool)), left, 0.0)
    lower = site("add", below, Constant(np.eye(rows, steps).astype(packed.dtype)))
    return lower, site.where(Constant(~np.tri(steps, columns, -1, dtype=bool)), right, 0.0)


@rule("linalg_lu_factor_ex.default")
def _lu_factor(site: Site, x: Expr, *, pivot: bool = True, check_errors: bool = False) -> tuple[Expr, Expr, Expr]:
    """Where a pivot is zero, what would be divided by it stays as it is: zeros."""
    return _factors(site, x, pivot)


@rule("linalg_lu.default")
def _lu(site: Site, x: Expr, *, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    packed, exchanged, _ = _factors(site, x, pivot)
    return _exchange(site, exchanged, x.shape[-2], x.dtype), *_lower_and_upper(site, packed)


@rule("lu_unpack.default")
def _unpack(
    site: Site, packed: Expr, exchanged: Expr, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Expr, Expr, Expr]:
    none = Constant(np.zeros(0, packed.dtype))
    matrix = _exchange(site, exchanged, packed.shape[-2], packed.dtype) if unpack_pivots else none
    return matrix, *(_lower_and_upper(site, packed) if unpack_data else (none, none))


@rule("linalg_lu_solve.default")
def _lu_solve(
    site: Site, packed: Expr, exchanged: Expr, b: Expr, *, left: bool = True, adjoint: bool = False
) -> Expr:  # fmt: skip
    """X of A X = B, or of X A = B, of A = P L U or of its transpose."""
    wide = site.cast(packed, "float64")
    matrix = _exchange(site, exchanged, packed.shape[-2], "float64")
    right = site.cast(b if left else turned(site, b), "float64")
    if left != adjoint:
        right = matrix_product(site.node, turned(site, matrix), right)
        found = substituted(site, wide, substituted(site, wide, right, upper=False, unit=True), upper=True)
    else:
        wide = turned(site, wide)
        found = substituted(site, wide, substituted(site, wide, right, upper=False), upper=True, unit=True)
        found = matrix_product(site.node, matrix, found)
    return site.cast(found if left else turned(site, found), site.dtype)


HALVINGS = 32
"""Of a matrix whose exponential is wanted, at most; beyond norms of 2 ** 31 it would be no number anyway."""

TERMS = 16
"""Of the series, for norms of a half at most: the next one is below 1e-19."""


@rule("linalg_matrix_exp.default")
def _matrix_exp(site: Site, x: Expr) -> Expr:
    """By its series, of a matrix that was halved until it was small; the result is squared as often."""
    if 0 in x.shape:
        return x
    wide = site.cast(flat(site, x), "float64")
    sums = site.call("nn.reduce_sum", site("abs", wide), axes=(1,), keepdims=True)
    norm = site.call("nn.reduce_max", sums, axes=(2,), keepdims=True)
    halvings = site("add", site("ceil", site("divide", site("log", site("maximum", norm, 0.5)), float(np.log(2)))), 1)
    halvings = site("minimum", halvings, float(HALVINGS))
    small = site("divide", wide, site("exp", site("multiply", halvings, float(np.log(2)))))
    eye = units_of(wide)

    def term(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (found,), (divisor,) = states, items
        return (site("add", eye, site("divide", matrix_product(site.node, small, found), divisor)),), ()

    def square(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (found,), (number,) = states, items
        return (site.where(site("less", number, halvings), matrix_product(site.node, found, found), found),), ()

    start = site.expand(eye, wide.shape)
    (found,), _ = looped(site.node, term, (start,), (Constant(np.arange(TERMS, 0, -1.0)),), (False,))
    (found,), _ = looped(site.node, square, (found,), (Constant(np.arange(HALVINGS, dtype=np.float64)),), (False,))
    return site.reshape(site.cast(found, x.dtype), x.shape)
