"""How sums are rounded when they are requantised: names that models, cores and docs share (`docs/integers.md`)."""

from __future__ import annotations

HALF_UP = "half_up"
"""The sum times the exact factor is rounded once, halves up."""

FLOAT32 = "float32"
"""As XNNPACK has it, see the operator ``requantise_float32``."""

TWO_ROUNDINGS = "two_roundings"
"""As LiteRT's reference kernels have it: times a factor of 31 bits to a multiple of 2**-31 of that, halves up; then to
a whole number, halves away from 0."""

HALF_AWAY = "half_away"
"""The sum times the exact factor is rounded once, halves away from 0: LiteRT's reference of a dense layer."""

ROUNDINGS = (HALF_UP, FLOAT32, TWO_ROUNDINGS, HALF_AWAY)

OF_CORES = (HALF_UP, FLOAT32, TWO_ROUNDINGS)
"""What a core may have; half up every one has."""

BESIDE = {HALF_UP: (HALF_UP,), FLOAT32: (HALF_UP, FLOAT32), TWO_ROUNDINGS: (HALF_UP, TWO_ROUNDINGS, HALF_AWAY)}
"""What a core with each of `OF_CORES` can be asked for: multipliers of 31 bits round away from 0 as well."""

FIRST_PLACES = 31
"""After so many bits a product is rounded for the first time, where it is rounded twice."""
