"""Factors of matrices and equations with triangular ones, a column or a row in each step of a loop.

Whether a matrix is positive definite, or singular, is not told: results are then no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import numpy_dtype
from ..forms import matrix_product
from ..onnx.loop import looped
from .site import Site, rule


def _rows_of(x: Expr, rows: Array) -> Constant:
    """A constant whose rows steps take, one each."""
    return Constant(rows.astype(numpy_dtype(x.dtype)))


def units_of(x: Expr) -> Constant:
    """The unit matrix of the size and type of square matrices."""
    return _rows_of(x, np.eye(x.shape[-1]))


def turned(site: Site, x: Expr) -> Expr:
    """Matrices with their axes swapped."""
    last = len(x.shape)
    return site.transpose(x, (*range(last - 2), last - 1, last - 2))


def flat(site: Site, x: Expr) -> Expr:
    """With one axis in front of both of a matrix."""
    return site.reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def chosen_along(site: Site, x: Expr, here: Expr, axis: int) -> Expr:
    """The elements of ``x`` along an axis, which stays, at the one place that ``here`` says. In a loop that is quicker
    than to gather them: a body with indices that only a run knows is copied for each step."""
    zero = np.zeros((), numpy_dtype(x.dtype))
    return site.call("nn.reduce_sum", site.call("nn.where", here, x, Constant(zero)), axes=(axis,), keepdims=True)


def cholesky(site: Site, x: Expr) -> Expr:
    """The lower factor: each step takes a column of what is left, and its product with itself away."""
    if 0 in x.shape:
        return x
    matrix, size = flat(site, x), x.shape[-1]

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (left,), (unit, below) = states, items
        column = matrix_product(site.node, left, site.reshape(unit, (size, 1)))
        pivot = matrix_product(site.node, site.reshape(unit, (1, size)), column)
        made = site("multiply", site("divide", column, site("sqrt", pivot)), site.reshape(below, (size, 1)))
        return (site("subtract", left, matrix_product(site.node, made, turned(site, made))),), (made,)

    units, masks = _rows_of(x, np.eye(size)), _rows_of(x, np.triu(np.ones((size, size))))
    _, (columns,) = looped(site.node, step, (matrix,), (units, masks), (False,) * 3)
    found = site.transpose(site.reshape(columns, columns.shape[:-1]), (1, 2, 0))
    return site.reshape(found, x.shape)


def substituted(site: Site, a: Expr, b: Expr, *, upper: bool, unit: bool = False) -> Expr:
    """X of A X = B, where only that triangle of A counts: a row in each step, which those before it give."""
    batch, size = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-1]
    if 0 in (*batch, *b.shape[-2:]):
        return Constant(np.zeros((*batch, *b.shape[-2:]), numpy_dtype(b.dtype)))
    matrix, right = (flat(site, site.expand(each, (*batch, *each.shape[-2:]))) for each in (a, b))

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (found,), (one,) = states, items
        across, down = site.reshape(one, (1, size)), site.reshape(one, (size, 1))
        row = matrix_product(site.node, across, matrix)
        left = site("subtract", matrix_product(site.node, across, right), matrix_product(site.node, row, found))
        if not unit:
            left = site("divide", left, matrix_product(site.node, row, down))
        return (site("add", found, site("multiply", down, left)),), ()

    nothing = Constant(np.zeros(right.shape, numpy_dtype(b.dtype)))
    (found,), _ = looped(site.node, step, (nothing,), (_rows_of(b, np.eye(size)),), (upper,))
    return site.reshape(found, (*batch, *b.shape[-2:]))


@rule("linalg_cholesky_ex.default")
def _cholesky(site: Site, x: Expr, *, upper: bool = False, check_errors: bool = False) -> tuple[Expr, Expr]:
    """Of the lower triangle, or of the upper one."""
    lower = cholesky(site, turned(site, x) if upper else x)
    return turned(site, lower) if upper else lower, Constant(np.zeros(x.shape[:-2], np.int32))


@rule("cholesky.default")
def _lower_or_upper(site: Site, x: Expr, upper: bool = False) -> Expr:
    return _cholesky(site, x, upper=upper)[0]


@rule("triangular_solve.default")
def _triangular_solve(
    site: Site, b: Expr, a: Expr, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Expr, Expr]:
    """Beside the solution, the matrix."""
    matrix = turned(site, a) if transpose else a
    return substituted(site, matrix, b, upper=upper != transpose, unit=unitriangular), site.expand(a, _shape(site, 1))


def _shape(site: Site, number: int) -> tuple[int, ...]:
    kind = site.types[number]
    if kind is None:
        raise site.error(f"its result {number} is no tensor")
    return kind.shape


@rule("linalg_solve_triangular.default")
def _solve_triangular(
    site: Site, a: Expr, b: Expr, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    if left:
        return substituted(site, a, b, upper=upper, unit=unitriangular)
    found = substituted(site, turned(site, a), turned(site, b), upper=not upper, unit=unitriangular)
    return turned(site, found)


@rule("cholesky_solve.default", "_cholesky_solve_helper.default")
def _solve_by_factor(site: Site, b: Expr, factor: Expr, upper: bool = False) -> Expr:
    lower = turned(site, factor) if upper else factor
    return substituted(site, turned(site, lower), substituted(site, lower, b, upper=False), upper=True)


@rule("cholesky_inverse.default")
def _inverse_by_factor(site: Site, factor: Expr, upper: bool = False) -> Expr:
    return _solve_by_factor(site, units_of(factor), factor, upper)
