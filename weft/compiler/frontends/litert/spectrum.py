"""Spectra: Fourier transforms of real signals, and the complex numbers that they give, held in two parts."""

from __future__ import annotations

from ...graph import Expr
from ..forms import crop_or_pad
from .site import Held, Result, Site, rule

MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "CONCATENATION", "PACK", "SPLIT")
"""Operators that move complex numbers: they move either part."""
TAKING = ("REAL", "IMAG", "COMPLEX_ABS")
"""Operators that make real numbers of complex ones, and of nothing else."""
ENDING = (*TAKING, "CAST")
"""Operators that may make real numbers of complex ones."""


@rule("RFFT2D")
def _rfft_2d(site: Site) -> Result:
    """Of the last two axes; half of the last one's frequencies, since the others are their conjugates."""
    x = site.raw(0)
    height, width = site.numbers(1, "the lengths")
    if len(x.shape) < 2 or min(height, width) < 1:
        raise site.error(f"lengths of {[height, width]} do not fit {x.type}")
    rank = len(x.shape)
    for sizes in ((*x.shape[:-2], height, width), (height, height), (width, width)):  # the signal, and the waves
        site.made(sizes)
    after = [0] * (rank - 2) + [height - x.shape[-2], width - x.shape[-1]]
    signal = site.reshape(crop_or_pad(site.node, x, [0] * rank, after, 0.0), (*x.shape[:-2], height, width, 1))
    found = site.onnx("DFT", signal, None, site.integers([rank - 1]), onesided=1)
    if height > 1:
        found = site.onnx("DFT", found, None, site.integers([rank - 2]), onesided=0)
    return Held.plain(_part(site, found, 0), _part(site, found, 1))


def _part(site: Site, x: Expr, number: int) -> Expr:
    return site.reshape(site.slice(x, len(x.shape) - 1, number, 1), x.shape[:-1])


@rule(*TAKING)
def _taken(site: Site) -> Result:
    held = site.held(0)
    if held.imaginary is None:
        raise site.error(f"operand 0 is {held.expr.type}, not complex")
    if site.op == "COMPLEX_ABS":
        squares = [site("multiply", part, part) for part in (held.expr, held.imaginary)]
        return Held(site("sqrt", site("add", *squares)), held.order)
    return Held(held.expr if site.op == "REAL" else held.imaginary, held.order)
