"""The polynomials by which targets compute functions of floats in single precision, so that all give the same.

They are Chebyshev fits, made here in double precision when the module is loaded; their error is below one unit in the
last place of single precision, and rounding adds about as much again. Coefficients stand constant first.

- exp(x) is ``2**n * EXP(x - n log 2)`` with n the nearest whole number to ``x / log 2``. ``LOG2_HIGH`` has the 16
  leading bits of log 2, so that its multiples up to ``2**8`` are exact; ``LOG2_LOW`` is the rest.
- tanh(x) is ``x * TANH(x * x)`` below ``TANH_SMALL``, and ``1 - 2 / (exp(2 |x|) + 1)`` with the sign of x elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Chebyshev, Polynomial

LOG2 = float(np.log(2.0))
LOG2_HIGH = 0.693145751953125
LOG2_LOW = LOG2 - LOG2_HIGH
EXP_LARGEST, EXP_SMALLEST = 88.72283935546875, -104.0
"""Beyond these exp is infinite, or 0."""

TANH_SMALL = 0.625

_Array = npt.NDArray[np.float64]


def _fit(function: Callable[[_Array], _Array], low: float, high: float, degree: int) -> tuple[float, ...]:
    """Coefficients of a polynomial that is ``function`` on ``low .. high``."""
    series = Chebyshev.interpolate(function, degree, [low, high])
    return tuple(float(value) for value in series.convert(kind=Polynomial).coef)


def _tanh_over_x(square: _Array) -> _Array:
    root = np.sqrt(np.maximum(square, 1e-30))
    return np.asarray(np.tanh(root) / root)


EXP = _fit(np.exp, -LOG2 / 2, LOG2 / 2, 6)
TANH = _fit(_tanh_over_x, 0.0, TANH_SMALL**2, 5)
