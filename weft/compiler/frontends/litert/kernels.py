"""LiteRT's sets of kernels, whose integers differ in how they round. A model is read as one of them computes it."""

from __future__ import annotations

from ....roundings import FLOAT32, HALF_AWAY, HALF_UP, TWO_ROUNDINGS

DEFAULT = "default"
"""What LiteRT's interpreter takes by itself: XNNPACK's where these take an operator."""

REFERENCE = "reference"
"""What TensorFlow Lite Micro computes, and Arm's Ethos-U."""

KERNELS = (DEFAULT, REFERENCE)

_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL", "MUL", "MEAN")

_ROUNDINGS = {
    DEFAULT: dict.fromkeys(_PRODUCTS, FLOAT32),
    REFERENCE: {**dict.fromkeys(_PRODUCTS, TWO_ROUNDINGS), "FULLY_CONNECTED": HALF_AWAY},
}


def rounding_of(kernels: str, op: str) -> str:
    """How a set of kernels rounds the sums of an operator."""
    return _ROUNDINGS[kernels].get(op, HALF_UP)
