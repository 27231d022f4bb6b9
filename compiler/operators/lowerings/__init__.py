"""Graph operators as tensor expressions, for targets that compute on plain scalars and vectors: importing this fills
the registry's ``lower`` slots. Each rule is a function from operands, which are `View`s, to the `View` of the result.
"""

from . import elementwise, integers, matrices, moves, reductions, windows
from .view import Builder, NotLoweredError, View, lower_call

__all__ = [
    "Builder", "NotLoweredError", "View", "elementwise", "integers", "lower_call", "matrices", "moves", "reductions",
    "windows",
]  # fmt: skip
