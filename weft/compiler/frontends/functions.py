"""Functions that several front ends write in the same way, where the plain form would lose digits."""

from __future__ import annotations

from ..graph import Expr
from .site import OperatorSite


def expm1(site: OperatorSite, x: Expr) -> Expr:
    """exp(x) - 1, by tanh where the difference would lose digits: 2t / (1 - t), t = tanh(x / 2)."""
    half = site("tanh", site("multiply", x, 0.5))
    near = site("divide", site("multiply", half, 2), site("subtract", site.like(1, x), half))
    return site.where(site("less", site("abs", x), 0.5), near, site("subtract", site("exp", x), 1))


def log1p(site: OperatorSite, x: Expr) -> Expr:
    """log(1 + x), with the rounding of 1 + x made good: log(u) * x / (u - 1)."""
    u = site("add", x, 1)
    whole = site("log", u)
    good = site("divide", site("multiply", whole, x), site("subtract", u, 1))
    far = site("or", site("less", site.like(1e6, x), u), site("less", u, 1e-3))
    return site.where(site("equal", u, 1), x, site.where(far, whole, good))
