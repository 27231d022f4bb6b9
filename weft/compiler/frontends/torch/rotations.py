"""Singular values and eigenvalues of symmetric matrices by Jacobi's rotations of columns, in float64.

Half of the columns lie beside the other half, and each pair is turned until both stand upright on each other; then all
but the first move on by one place, as players of a tournament do, so that after a sweep each has met each. What the
columns are turned into are singular vectors times singular values. Vectors may have either sign, as in every library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import numpy_dtype
from ..forms import matrix_product
from ..onnx.loop import looped
from .factors import flat, turned
from .orthogonal import applied, first_columns, reflected, upper_of
from .reduce import sorted_along
from .site import Site, rule

SWEEPS = 12
"""Each squares what is left between columns once it is small: of 256 columns 10 leave 1e-15."""


def _moved_on(size: int) -> Array:
    """Where the columns of the next step stand in this one."""
    half = size // 2
    if half == 1:
        return np.arange(size)
    first, second = np.arange(half), np.arange(half, size)
    return np.concatenate([first[:1], second[:1], first[1:-1], second[1:], first[-1:]])


def upright(site: Site, x: Expr) -> tuple[Expr, Expr]:
    """Of matrices (N, rows, columns): x V, whose columns stand upright on each other, and V (N, columns, columns)."""
    count, rows, columns = x.shape
    size = columns + columns % 2
    if size > columns:
        x = site.concat([x, Constant(np.zeros((count, rows, 1)))], 2)
    if size == 0:
        return x, x
    both = site.concat([x, first_columns(count, size, size)], 1)
    order = Constant(_moved_on(size).astype(np.int64))

    def step(states: Sequence[Expr], items: Sequence[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        (whole,) = states
        one, other = (site.slice(whole, 2, start, size // 2) for start in (0, size // 2))
        a, b = (site.slice(each, 1, 0, rows) for each in (one, other))
        squares, others, both = (
            site.call("nn.reduce_sum", site("multiply", left, right), axes=(1,), keepdims=True)
            for left, right in ((a, a), (b, b), (a, b))
        )
        nothing = site("equal", both, 0)
        ratio = site("divide", site("subtract", others, squares), site.where(nothing, 1.0, site("multiply", both, 2)))
        root = site("sqrt", site("add", site("multiply", ratio, ratio), 1))
        tangent = site("divide", site.where(site("less", ratio, 0), -1.0, site.like(1, ratio)),
                       site("add", site("abs", ratio), root))  # fmt: skip
        tangent = site.where(nothing, 0.0, tangent)
        cosine = site("divide", 1, site("sqrt", site("add", site("multiply", tangent, tangent), 1)))
        sine = site("multiply", cosine, tangent)
        turned_one = site("subtract", site("multiply", one, cosine), site("multiply", other, sine))
        turned_other = site("add", site("multiply", one, sine), site("multiply", other, cosine))
        return (site.call("gather", site.concat([turned_one, turned_other], 2), order, axis=2),), ()

    (both,), _ = looped(site.node, step, (both,), (), (), steps=SWEEPS * max(size - 1, 1))
    kept = site.slice(both, 2, 0, columns)  # a column of zeros met all, and nothing was turned
    return site.slice(kept, 1, 0, rows), site.slice(kept, 1, rows, columns)


def _in_order(site: Site, values: Expr, matrices: Sequence[Expr], largest: bool) -> tuple[Expr, list[Expr]]:
    """Values (N, columns) in order, and the columns of matrices (N, rows, columns) with them."""
    found, places = sorted_along(site, values, values.shape[1], 1, largest)
    places = site.reshape(places, (values.shape[0], 1, values.shape[1]))
    return found, [site.call("gather_elements", each, site.expand(places, each.shape), axis=2) for each in matrices]


def _singular(site: Site, x: Expr, full: bool) -> tuple[Expr, Expr, Expr]:
    """U, S and V (not its transpose) of matrices (N, rows, columns) with as many rows as columns at least.

    Of x = Q R and R^T = Q' R' the columns of R'^T are turned, which are nearly upright: a few sweeps do, also for
    columns of very unlike lengths and of fewer than all directions.
    """
    count, rows, columns = x.shape
    left, *before = reflected(site, x)
    left, *behind = reflected(site, turned(site, upper_of(site, site.slice(left, 1, 0, columns))))
    long, v = upright(site, turned(site, upper_of(site, left)))
    squares = site.call("nn.reduce_sum", site("multiply", long, long), axes=(1,), keepdims=False)
    values, (long, v) = _in_order(site, site("sqrt", squares), (long, v), True)
    left, *directions = reflected(site, long)  # columns of no length get a direction, too
    diagonal = site.call("nn.reduce_sum", site("multiply", left, Constant(np.eye(columns)[None])), axes=(1,),
                         keepdims=True)  # fmt: skip
    signs = site.where(site("less", diagonal, 0), -1.0, site.like(1, diagonal))
    u = site("multiply", applied(site, first_columns(count, columns, columns), *directions), signs)
    if rows > columns:
        u = site.concat([u, Constant(np.zeros((count, rows - columns, columns)))], 1)
    if rows > columns and full:
        rest = np.broadcast_to(np.eye(rows)[:, columns:], (count, rows, rows - columns))
        u = site.concat([u, Constant(rest.copy())], 2)
    return applied(site, u, *before), values, applied(site, v, *behind)


def singular(site: Site, x: Expr, full: bool = False) -> tuple[Expr, Expr, Expr]:
    """U, S, V of matrices (N, rows, columns), in float64."""
    wide = site.cast(x, "float64")
    if x.shape[1] >= x.shape[2]:
        return _singular(site, wide, full)
    v, values, u = _singular(site, turned(site, wide), full)
    return u, values, v


@rule("_linalg_svd.default")
def _svd(
    site: Site, x: Expr, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Expr, Expr, Expr]:
    """With the transpose of V."""
    kinds = [kind for kind in site.types if kind is not None]
    if 0 in x.shape:
        none, other, last = (_units(kind.shape, x.dtype) for kind in kinds)
        return none, other, last
    u, values, v = singular(site, flat(site, x), full_matrices)
    found = [site.cast(each, x.dtype) for each in (u, values, turned(site, v))]
    if not compute_uv:
        return _units(kinds[0].shape, x.dtype), site.reshape(found[1], kinds[1].shape), _units(kinds[2].shape, x.dtype)
    u, values, v = (site.reshape(each, kind.shape) for each, kind in zip(found, kinds, strict=True))
    return u, values, v


def _units(shape: Sequence[int], dtype: str) -> Constant:
    """Unit matrices, or values of none."""
    made = (
        np.eye(shape[-1], dtype=numpy_dtype(dtype))
        if len(shape) > 1 and shape[-1] == shape[-2]
        else np.zeros((), numpy_dtype(dtype))
    )
    return Constant(np.broadcast_to(made, shape).copy())


def eigen(site: Site, x: Expr, lower: bool) -> tuple[Expr, Expr]:
    """Eigenvalues, the least first, and eigenvectors of symmetric matrices (N, size, size), of which one triangle
    counts; in float64. With its norm on the diagonal no eigenvalue is negative, so they are singular values."""
    size = x.shape[-1]
    wide = site.cast(x if lower else turned(site, x), "float64")
    below = site.where(Constant(np.tri(size, size, -1, dtype=bool)), wide, 0.0)
    diagonal = site.where(Constant(np.eye(size, dtype=bool)), wide, 0.0)
    whole = site("add", site("add", below, turned(site, below)), diagonal)
    norm = site("sqrt", site.call("nn.reduce_sum", site("multiply", whole, whole), axes=(1, 2), keepdims=True))
    _, v = upright(site, site("add", whole, site("multiply", Constant(np.eye(size)[None]), norm)))
    values: Expr = site.call("nn.reduce_sum", site("multiply", v, matrix_product(site.node, whole, v)), axes=(1,),
                       keepdims=False)  # fmt: skip
    values, (v,) = _in_order(site, values, (v,), False)
    return values, v


@rule("_linalg_eigh.default")
def _eigh(site: Site, x: Expr, triangle: str = "L", compute_v: bool = True) -> tuple[Expr, Expr]:
    if 0 in x.shape:
        return Constant(np.zeros(x.shape[:-1], x.dtype)), x if compute_v else Constant(np.zeros(0, x.dtype))
    values, v = eigen(site, flat(site, x), triangle.upper() == "L")
    vectors = site.reshape(site.cast(v, x.dtype), x.shape) if compute_v else Constant(np.zeros(0, x.dtype))
    return site.reshape(site.cast(values, x.dtype), x.shape[:-1]), vectors


def _inverted(site: Site, u: Expr, values: Expr, v: Expr, least: Expr) -> Expr:
    """V / S U^T, without singular values up to ``least`` (N, 1)."""
    counts = site("less", least, site("abs", values))
    factors = site.where(counts, site("divide", 1, site.where(counts, values, 1.0)), 0.0)
    scaled = site("multiply", v, site.reshape(factors, (values.shape[0], 1, values.shape[1])))
    return matrix_product(site.node, scaled, turned(site, u))


@rule("linalg_pinv.atol_rtol_tensor")
def _pinv(site: Site, x: Expr, *, atol: Expr | None = None, rtol: Expr | None = None, hermitian: bool = False) -> Expr:
    (*batch, rows, columns), count = x.shape, math.prod(x.shape[:-2])
    if 0 in x.shape:
        return Constant(np.zeros((*batch, columns, rows), x.dtype))
    if hermitian:
        values, v = eigen(site, flat(site, x), True)
        u = v
    else:
        u, values, v = singular(site, flat(site, x))
    epsilon = float(np.finfo(x.dtype).eps) * max(rows, columns)

    def given(bound: Expr) -> Expr:
        return site.reshape(site.expand(site.cast(bound, "float64"), (*batch,)), (count, 1))

    absolute = given(atol) if atol is not None else Constant(np.zeros((count, 1)))
    relative = Constant(np.full((count, 1), epsilon if atol is None else 0.0)) if rtol is None else given(rtol)
    if rtol is None and atol is not None:
        relative = site.where(site("less", 0, absolute), 0.0, site.like(epsilon, absolute))
    largest = site.call("nn.reduce_max", site("abs", values), axes=(1,), keepdims=True)
    least = site("maximum", absolute, site("multiply", relative, largest))
    return site.reshape(site.cast(_inverted(site, u, values, v, least), x.dtype), (*batch, columns, rows))
