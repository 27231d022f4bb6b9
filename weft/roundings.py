"""How sums are rounded when they are requantised: names that models, cores and docs share (`docs/integers.md`)."""

from __future__ import annotations

from typing import Any

HALF_UP = "half_up"
"""The sum times the exact factor is rounded once, halves up."""

FLOAT32 = "float32"
"""As XNNPACK has it, see the operator ``requantise_float32``."""

TWO_ROUNDINGS = "two_roundings"
"""As LiteRT's reference kernels have it: times a factor of 31 bits to a multiple of 2**-31 of that, halves up; then to
a whole number, halves away from 0."""

HALF_AWAY = "half_away"
"""The sum times the exact factor is rounded once, halves away from 0: LiteRT's reference of a dense layer."""

HALF_EVEN = "half_even"
"""The sum times the exact factor is rounded once, halves to the even one of both neighbours."""

ROUNDINGS = (HALF_UP, FLOAT32, TWO_ROUNDINGS, HALF_AWAY, HALF_EVEN)
"""What a model may ask for, and a core may have; half up every core has."""

BESIDE = {own: (HALF_UP, own) for own in ROUNDINGS} | {
    HALF_UP: (HALF_UP,),
    TWO_ROUNDINGS: (HALF_UP, TWO_ROUNDINGS, HALF_AWAY),
}
"""What a core with each of `ROUNDINGS` can be asked for: multipliers of 31 bits round away from 0 as well."""

FIRST_PLACES = 31
"""After so many bits a product is rounded for the first time, where it is rounded twice."""


def nudged(rounding: str, product: Any, shift: Any) -> Any:
    """What is ``product / 2**shift`` in one of the exact ways, all but `FLOAT32`, once it is rounded half up.

    Whole numbers of 64 bits: arrays, expressions of kernels or text of C++. ``product`` has at most 63 bits with its
    sign, ``shift`` is 1..63.
    """
    sign = product >> 63  # -1 or 0
    if rounding == TWO_ROUNDINGS:  # both roundings are one, half a step of the first further away from 0
        beyond = shift >> FIRST_PLACES.bit_length()
        return product + (sign | 1) * (beyond << FIRST_PLACES - 1)
    if rounding == HALF_AWAY:  # just below a half where it goes down
        return product + sign
    if rounding == HALF_EVEN:
        return product + ((product >> shift & 1) - 1)
    return product
