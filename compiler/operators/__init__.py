"""The operators of the graph IR, one entry each: importing this package registers them all."""

from . import elementwise, index, integer, matrix, move, norm, packed, quantise, reduce, sample, window

__all__ = [
    "elementwise", "index", "integer", "matrix", "move", "norm", "packed", "quantise", "reduce", "sample", "window",
]  # fmt: skip
