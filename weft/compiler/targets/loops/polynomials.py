"""The polynomials by which targets compute functions of floats in single precision, so that all give the same.

They are Chebyshev fits, made here in double precision when the module is loaded; their error is below one unit in the
last place of single precision, and rounding adds about as much again. Coefficients stand constant first.

- exp(x) is ``2**n * EXP(x - n log 2)`` with n the nearest whole number to ``x / log 2``. ``LOG2_HIGH`` has the 16
  leading bits of log 2, so that its multiples up to ``2**8`` are exact; ``LOG2_LOW`` is the rest. As n may be 128, the
  power is half of that and the polynomial twice; below ``EXP_TINY``, where results may be denormal, it is
  ``2**EXP_STEPS`` times as large at first.
- erf(x) is ``1 - exp(-t)`` with ``t = |x| + |x| * LOG_ERFC(|x|)`` and the sign of x; from ``ERF_LARGEST`` on it is 1.
  With n the nearest whole number to ``-t / log 2`` and r the rest, exp(-t) is ``2**n * (1 + r + r * r * EXP_REST(r))``:
  1 is taken away before these are added up, so that small results keep all their digits.
- log(x) for ``x = 2**n * (1 + f)``, with 1 + f between sqrt(1/2) and sqrt(2), is
  ``n log 2 + f - f * f / 2 + f**3 * LOG(f)``.
- log2(x) in double precision, for powers, is ``n + LOG2_ATANH(s * s) * s`` with ``s = f / (2 + f)``, and 2**r between
  -1/2 and 1/2 is ``EXP2(r)``: exact to 2e-12 and 5e-12, so that 150 bits of exponent leave single precision intact.
- tanh(x) is ``x * TANH(x * x)`` below ``TANH_SMALL``, and ``1 - 2 / (exp(2 |x|) + 1)`` with the sign of x elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial

LOG2 = float(np.log(2.0))
LOG2_HIGH = 0.693145751953125
LOG2_LOW = LOG2 - LOG2_HIGH
EXP_LARGEST, EXP_SMALLEST = 88.75, -104.0
"""From these on exp is infinite, or 0; the nearest power of two is ``2**128`` here still, and ``2**-150`` there."""

EXP_TINY, EXP_STEPS = -86.0, 64

TANH_SMALL = 0.625
ERF_LARGEST = 4.0
ERF_NODES = (0.012, 0.121, 0.325, 0.604, 0.941, 1.325, 1.752, 2.237, 2.828)
"""Where the polynomial of erf is exact. So placed, its error moves erf alike everywhere: at most 4e-9 of it."""

WHOLE = 12582912.0
"""1.5 * 2**23: a number up to 2**22 that is added to it becomes whole, and stands in its last bits."""
SQRT_HALF = float(np.sqrt(0.5))

_Array = npt.NDArray[np.float64]


def _fit(function: Callable[[_Array], _Array], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Coefficients of a polynomial that is ``function`` on ``low .. high``."""
    series = Chebyshev.interpolate(function, degree, [low, high])
    return tuple(float(value) for value in series.convert(kind=Polynomial).coef)


def _tanh_over_x(square: _Array) -> _Array:
    root = np.sqrt(np.maximum(square, 1e-30))
    return np.asarray(np.tanh(root) / root)


def _log_erfc(nodes: Sequence[float]) -> tuple[float, ...]:
    """The polynomial that is ``-log(erfc(x)) / x - 1`` at the nodes."""
    logs = [math.log1p(-math.erf(x)) if x < 0.5 else math.log(math.erfc(x)) for x in nodes]
    values = [-log / x - 1 for log, x in zip(logs, nodes, strict=True)]
    return tuple(float(value) for value in np.linalg.solve(np.vander(nodes, increasing=True), values))


def _exp_rest(x: _Array) -> _Array:
    """``(exp(x) - 1 - x) / x**2``, by its series."""
    return np.array([math.fsum(each**k / math.factorial(k + 2) for k in range(30)) for each in x])


def _log_rest(f: _Array) -> _Array:
    """``(log(1 + f) - f + f * f / 2) / f**3``, by its series: the difference has few digits near 0."""
    return np.array([math.fsum((-x) ** k / (k + 3) for k in range(80)) for x in f])


def _log2_atanh(square: _Array) -> _Array:
    """``log2((1 + s) / (1 - s)) / s``."""
    return np.array([2 / LOG2 * math.fsum(x**k / (2 * k + 1) for k in range(40)) for x in square])


EXP = _fit(np.exp, -LOG2 / 2, LOG2 / 2, 6)
TANH = _fit(_tanh_over_x, 0.0, TANH_SMALL**2, 5)
LOG_ERFC = _log_erfc(ERF_NODES)
EXP_REST = _fit(_exp_rest, -LOG2 / 2, LOG2 / 2, 4)
LOG = _fit(_log_rest, SQRT_HALF - 1, 2 * SQRT_HALF - 1, 8)
LOG2_ATANH = _fit(_log2_atanh, 0.0, (3 - 2 * math.sqrt(2)) ** 2, 6)
EXP2 = _fit(np.exp2, -0.5, 0.5, 9)
