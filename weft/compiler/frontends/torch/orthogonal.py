"""Factors Q R of matrices by Householder's reflections, in float64: signs are those of LAPACK."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Constant, Expr
from ..forms import matrix_product
from ..onnx.loop import looped
from .factors import chosen_along, flat, turned
from .site import Site, rule


def reflected(site: Site, x: Expr) -> tuple[Expr, Expr, Expr]:
    """R of matrices (N, rows, columns), in their shape, and the reflections I - f v v^T that give it: v
    (steps, N, rows, 1), f (steps, N, 1, 1)."""
    rows, columns = x.shape[1:]
    steps = min(rows, columns)
    places = Constant(np.arange(rows, dtype=np.int64).reshape(1, rows, 1))
    across = Constant(np.arange(columns, dtype=np.int64).reshape(1, 1, columns))

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (left,), (number,) = states, items
        here = site.reshape(number, (1, 1, 1))
        is_here = site("equal", places, here)
        column = chosen_along(site, left, site("equal", across, here), 2)
        below = site.where(site("less", here, places), column, 0.0)
        value = chosen_along(site, column, is_here, 1)
        rest = site.call("nn.reduce_sum", site("multiply", below, below), axes=(1,), keepdims=True)
        nothing = site("equal", rest, 0)
        length = site("sqrt", site("add", rest, site("multiply", value, value)))
        made = site.where(site("less", value, 0), length, site("negative", length))
        away = site("subtract", value, made)
        direction = site.where(is_here, 1.0, site("divide", below, site.where(nothing, 1.0, away)))
        factor = site.where(nothing, 0.0, site("divide", site("negative", away), site.where(nothing, 1.0, made)))
        return (_applied(site, left, direction, factor),), (direction, factor)

    numbers = Constant(np.arange(steps, dtype=np.int64))
    (left,), (directions, factors) = looped(site.node, step, (x,), (numbers,), (False,) * 3)
    return left, directions, factors


def _applied(site: Site, x: Expr, direction: Expr, factor: Expr) -> Expr:
    """One reflection of matrices."""
    along = matrix_product(site.node, turned(site, direction), x)
    return site("subtract", x, matrix_product(site.node, direction, site("multiply", factor, along)))


def applied(site: Site, x: Expr, directions: Expr, factors: Expr, *, inverse: bool = False) -> Expr:
    """Q x of the product Q of all reflections, or its transpose's."""

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        return (_applied(site, states[0], *items),), ()

    (found,), _ = looped(site.node, step, (x,), (directions, factors), (not inverse,) * 2)
    return found


def upper_of(site: Site, x: Expr) -> Expr:
    return site.where(Constant(~np.tri(x.shape[-2], x.shape[-1], -1, dtype=bool)), x, 0.0)


def first_columns(count: int, rows: int, columns: int) -> Constant:
    """Of unit matrices (count, rows, rows)."""
    return Constant(np.broadcast_to(np.eye(rows, columns), (count, rows, columns)).copy())


@rule("linalg_qr.default")
def _qr(site: Site, x: Expr, mode: str = "reduced") -> tuple[Expr, Expr]:
    (*batch, rows, columns), rank = x.shape, len(x.shape)
    size = rows if mode == "complete" else min(rows, columns)
    if 0 in x.shape:
        none = Constant(np.broadcast_to(np.eye(rows, size, dtype=x.dtype), (*batch, rows, size)).copy())
        left = site.slice(x, rank - 2, 0, size)
        return none if mode != "r" else Constant(np.zeros(0, x.dtype)), left
    left, directions, factors = reflected(site, site.cast(flat(site, x), "float64"))
    right = site.reshape(site.cast(upper_of(site, left), x.dtype), x.shape)
    right = site.slice(right, rank - 2, 0, size)
    if mode == "r":
        return Constant(np.zeros(0, x.dtype)), right
    q = applied(site, first_columns(math.prod(batch), rows, size), directions, factors)
    return site.reshape(site.cast(q, x.dtype), (*batch, rows, size)), right


@rule("geqrf.default")
def _geqrf(site: Site, x: Expr) -> tuple[Expr, Expr]:
    """R with the reflections below it, and their factors, as LAPACK has them."""
    (*batch, rows, columns), steps = x.shape, min(x.shape[-2:])
    if 0 in x.shape:
        return x, Constant(np.zeros((*batch, steps), x.dtype))
    left, directions, factors = reflected(site, site.cast(flat(site, x), "float64"))
    count = math.prod(batch)
    below = site.transpose(site.reshape(directions, (steps, count, rows)), (1, 2, 0))
    if columns > steps:
        nothing = Constant(np.zeros((count, rows, columns - steps)))
        below = site.concat([below, nothing], 2)
    packed = site.where(Constant(np.tri(rows, columns, -1, dtype=bool)), below, left)
    found = site.transpose(site.reshape(factors, (steps, count)), (1, 0))
    return (site.reshape(site.cast(packed, x.dtype), x.shape),
            site.reshape(site.cast(found, x.dtype), (*batch, steps)))  # fmt: skip


def _unpacked(site: Site, packed: Expr, factors: Expr) -> tuple[Expr, Expr]:
    """Reflections as `reflected` gives them, of those that stand below a diagonal."""
    *batch, rows, columns = packed.shape
    count, steps = math.prod(batch), factors.shape[-1]
    below = site.where(Constant(np.tri(rows, columns, -1, dtype=bool)), flat(site, packed), 0.0)
    below = site("add", below, Constant(np.eye(rows, columns)))
    directions = site.transpose(site.slice(below, 2, 0, steps), (2, 0, 1))
    sizes = site.transpose(site.reshape(factors, (count, steps)), (1, 0))
    return site.reshape(directions, (steps, count, rows, 1)), site.reshape(sizes, (steps, count, 1, 1))


@rule("linalg_householder_product.default", "orgqr.default")
def _householder_product(site: Site, packed: Expr, factors: Expr) -> Expr:
    """The first columns of the product of the reflections."""
    *batch, rows, columns = packed.shape
    if 0 in packed.shape or not factors.shape[-1]:
        return Constant(np.broadcast_to(np.eye(rows, columns, dtype=site.dtype), packed.shape).copy())
    wide = _unpacked(site, *(site.cast(each, "float64") for each in (packed, factors)))
    found = applied(site, first_columns(math.prod(batch), rows, columns), *wide)
    return site.reshape(site.cast(found, site.dtype), packed.shape)


@rule("ormqr.default")
def _ormqr(
    site: Site, packed: Expr, factors: Expr, other: Expr, left: bool = True, transpose: bool = False
) -> Expr:  # fmt: skip
    """The product of the reflections, or its transpose, times other; or other times that."""
    if 0 in other.shape or not factors.shape[-1]:
        return other
    wide = _unpacked(site, *(site.cast(each, "float64") for each in (packed, factors)))
    given = site.cast(flat(site, other if left else turned(site, other)), "float64")
    found = applied(site, given, *wide, inverse=transpose == left)
    shape = (*other.shape[:-2], *found.shape[1:])
    found = site.reshape(site.cast(found, site.dtype), shape)
    return found if left else turned(site, found)
