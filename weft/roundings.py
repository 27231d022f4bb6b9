"""How sums are rounded when they are requantised: names that models, cores and docs share (`docs/integers.md`)."""

HALF_UP = "half_up"
"""The sum times the exact factor is rounded once, halves up."""

FLOAT32 = "float32"
"""As XNNPACK has it, see the operator ``requantise_float32``."""

ROUNDINGS = (HALF_UP, FLOAT32)
