"""An operator from outside of weft with a meaning in integers: degrees Fahrenheit of degrees Celsius."""

from __future__ import annotations

import numpy as np
from weft.compiler.graph import Call, dtypes, unsupported
from weft.compiler.integers import IntegerForm, Real, Refusal, of_operand, scaled, shifted, uniform
from weft.compiler.operators import broadcasting, elementwise, formula, register


def in_integers(x: Real, node: Call, name: str) -> IntegerForm:
    """A factor and an offset, the same for all channels."""
    degrees = scaled(x, uniform(x, 1.8), name)
    return degrees if isinstance(degrees, Refusal) else shifted(degrees, uniform(degrees, 32.0), name)


register(elementwise(
    "my.fahrenheit", "x", "1.8 x + 32.",
    types=broadcasting(dtypes.FLOATS),
    numpy=lambda x: np.asarray(x * x.dtype.type(1.8) + x.dtype.type(32)),
    lower=formula(lambda x: x * 1.8 + 32.0),
    gradient=unsupported("nobody trains with it"),
    integer=of_operand(in_integers),
))  # fmt: skip
