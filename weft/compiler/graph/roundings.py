"""How a quantise rounds the whole-number sums of a product: names for its attribute ``rounding``."""

EXACT_SUMS = "exact"
"""The sum times the exact factor is rounded once."""

FLOAT32 = "float32"
"""As XNNPACK has it, see the operator ``requantise_float32``."""

ROUNDINGS = (EXACT_SUMS, FLOAT32)
