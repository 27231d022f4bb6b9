"""Sums and extremes of segments, and matrices with a given diagonal."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Expr
from ...graph.dtypes import FLOATS, numpy_dtype
from .site import Result, Site, rule

_COMBINED = {"UNSORTED_SEGMENT_SUM": "add", "UNSORTED_SEGMENT_PROD": "multiply", "UNSORTED_SEGMENT_MAX": "maximum",
             "UNSORTED_SEGMENT_MIN": "minimum"}  # fmt: skip


def _neutral(how: str, dtype: str) -> float:
    """What a segment without elements holds."""
    ends = np.finfo(numpy_dtype(dtype)) if dtype in FLOATS else np.iinfo(numpy_dtype(dtype))
    return {"add": 0, "multiply": 1, "maximum": ends.min, "minimum": ends.max}[how]


def _combined(site: Site, count: int, how: str) -> Expr:
    """Rows of operand 0 by the segment that operand 1 names for each; rows of none are left out."""
    x, places = site.raw(0), site.cast(site.raw(1), "int64")
    rank = len(places.shape)
    if x.shape[:rank] != places.shape:
        raise site.error(f"segments of {list(places.shape)} do not fit {x.type}")
    rows, rest = math.prod(places.shape), x.shape[rank:]
    site.made((count + 1, *rest))
    flat = site.reshape(places, (rows,))
    inside = site("and", site("less_equal", site.like(0, flat), flat), site("less", flat, count))
    row = site.reshape(site.where(inside, flat, count), (rows, 1))  # one row more, for those
    base = site.like(np.full((count + 1, *rest), _neutral(how, x.dtype)), x)
    found = site.call("scatter_nd", base, row, site.reshape(x, (rows, *rest)), reduction=how)
    return site.slice(found, 0, 0, count)


@rule(*_COMBINED)
def _unsorted(site: Site) -> Result:
    return _combined(site, site.numbers(2, "the number of segments")[0], _COMBINED[site.op])


@rule("SEGMENT_SUM")
def _segment_sum(site: Site) -> Result:
    """The last number says how many there are."""
    numbers = site.numbers(1, "the segments")
    return _combined(site, numbers[-1] + 1 if numbers else 0, "add")


@rule("MATRIX_DIAG")
def _diagonal(site: Site) -> Result:
    x = site.raw(0)
    if not x.shape:
        raise site.error("its operand has no axis")
    size = x.shape[-1]
    site.made((*x.shape, size))
    return _with_diagonal(site, site.like(np.zeros((*x.shape, size)), x), x)


@rule("MATRIX_SET_DIAG")
def _set_diagonal(site: Site) -> Result:
    x, diagonal = site.raw(0), site.raw(1)
    if len(x.shape) < 2 or diagonal.shape != (*x.shape[:-2], min(x.shape[-2:])):
        raise site.error(f"{diagonal.type} is no diagonal of {x.type}")
    return _with_diagonal(site, x, diagonal)


def _with_diagonal(site: Site, x: Expr, diagonal: Expr) -> Expr:
    rows, columns = x.shape[-2:]
    lane = (rows, 1) if rows <= columns else (1, columns)
    spread = site.expand(site.reshape(diagonal, (*diagonal.shape[:-1], *lane)), x.shape)
    place = site.expand(site.like(np.eye(rows, columns), "bool"), x.shape)
    return site.where(place, spread, x)


@rule("BITCAST")
def _bits(site: Site) -> Result:
    x, to = site.raw(0), site.results[0].element
    if numpy_dtype(x.dtype).itemsize != numpy_dtype(to).itemsize:
        raise site.error(f"the bits of {x.dtype} are read as {to}, which has another width")
    return x if x.dtype == to else site.call("nn.bitcast", x, to=to)
