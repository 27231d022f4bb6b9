"""Quantisation as PT2E writes it (``torchao``'s quantisers): pairs of quantise and dequantise around operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import limits, numpy_dtype
from .site import Site, rule

Number = int | float


def _scalar(site: Site, value: Expr | Number, dtype: str) -> Constant:
    known = site.known(value, "the scale and the zero point") if isinstance(value, Expr) else value
    return Constant(np.asarray(known).reshape(()).astype(numpy_dtype(dtype)))


@rule("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor",
      "quantized_decomposed.quantize_per_tensor.tensor2")  # fmt: skip
def _quantise(
    site: Site, x: Expr, scale: Expr | Number, zero: Expr | Number, low: int, high: int, dtype: str
) -> Expr:  # fmt: skip
    """A range that is narrower than the type is a clip of the real numbers before."""
    step, offset = _scalar(site, scale, "float32"), _scalar(site, zero, dtype)
    return site.call("quantise", _limited(site, x, step, offset, low, high), step, offset)


def _limited(site: Site, x: Expr, scale: Constant, zero: Constant, low: int, high: int) -> Expr:
    least, most = limits(zero.dtype)
    bottom, top = (_scalar(site, bound, "int64") if isinstance(bound, Expr) else bound for bound in (low, high))
    low, high = (int(b.value) if isinstance(b, Constant) else int(b) for b in (bottom, top))
    if (low, high) == (least, most):
        return x
    if low < least or high > most:
        raise site.error(f"the range {low}..{high} is wider than {zero.dtype}")
    ends = [float(np.float32((end - int(zero.value)) * float(scale.value))) for end in (low, high)]
    return site.call("nn.clip", site.cast(x, "float32"), low=ends[0], high=ends[1])


@rule("quantized_decomposed.dequantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.tensor",
      "quantized_decomposed.dequantize_per_tensor.tensor2")  # fmt: skip
def _dequantise(
    site: Site, x: Expr, scale: Expr | Number, zero: Expr | Number, low: int, high: int, dtype: str, **_: Any
) -> Expr:
    result = site.call("dequantise", x, _scalar(site, scale, "float32"), _scalar(site, zero, x.dtype))
    return site.cast(result, site.dtype)


def _per_channel(site: Site, scales: Expr, zeros: Expr | None, dtype: str) -> tuple[Constant, Constant]:
    steps = site.known(scales, "the scales").astype(np.float32)
    offsets = np.zeros(steps.shape, np.int64) if zeros is None else site.known(zeros, "the zero points")
    return Constant(steps), Constant(offsets.astype(numpy_dtype(dtype)))


@rule("quantized_decomposed.dequantize_per_channel.default")
def _dequantise_channels(
    site: Site, x: Expr, scales: Expr, zeros: Expr | None, axis: int, low: int, high: int, dtype: str, **_: Any
) -> Expr:
    steps, offsets = _per_channel(site, scales, zeros, x.dtype)
    return site.cast(site.call("dequantise", x, steps, offsets, axis=site.axis(axis, len(x.shape))), site.dtype)


@rule("quantized_decomposed.quantize_per_channel.default")
def _quantise_channels(
    site: Site, x: Expr, scales: Expr, zeros: Expr | None, axis: int, low: int, high: int, dtype: str
) -> Expr:
    steps, offsets = _per_channel(site, scales, zeros, dtype)
    result: Expr = site.call("quantise", x, steps, offsets, axis=site.axis(axis, len(x.shape)))
    least, most = limits(dtype)
    if low > least:
        result = site("maximum", result, low)
    return site("minimum", result, high) if high < most else result
