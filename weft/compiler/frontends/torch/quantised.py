"""Quantisation as PT2E writes it (``torchao``'s quantisers): pairs of quantise and dequantise around operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import limits, numpy_dtype
from .site import Site, rule

Number = int | float


def _scalar(site: Site, value: Expr | Number, dtype: str) -> Expr:
    """A scale or a zero point, which is a constant unless it is computed while the model runs."""
    if isinstance(value, Expr) and not value.static:
        return site.reshape(site.cast(value, dtype), ())
    return Constant(np.asarray(_number(site, value)).reshape(()).astype(numpy_dtype(dtype)))


def _number(site: Site, value: Expr | Number) -> Number:
    known = site.known(value, "the scale and the zero point") if isinstance(value, Expr) else np.asarray(value)
    return known.reshape(()).item()  # type: ignore[no-any-return]


@rule("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed.choose_qparams_symmetric.tensor")
def _choose(site: Site, x: Expr, low: int, high: int, eps: float, dtype: str) -> tuple[Expr, Expr]:
    """The scale and the zero point of the range that ``x`` has, both of one element."""
    axes = tuple(range(len(x.shape)))
    bottom = site("minimum", site.call("nn.reduce_min", x, axes=axes), 0)
    top = site("maximum", site.call("nn.reduce_max", x, axes=axes), 0)
    if site.op.endswith("symmetric.tensor"):
        width = site("maximum", site("negative", bottom), top)
        scale = site("maximum", site.cast(site("divide", width, (high - low) / 2), "float32"), eps)
        zero: Expr = site.like(128 if dtype == "uint8" else 0, "int64")
    else:
        step = site("divide", site("subtract", top, bottom), high - low)
        scale = site("maximum", site.cast(step, "float32"), eps)
        below = site("round", site("divide", site.cast(bottom, "float32"), scale))
        exact = site.call("nn.clip", site("subtract", site.like(low, below), below), low=float(low), high=float(high))
        zero = site.cast(exact, "int64")
    return site.reshape(site.cast(scale, "float64"), (1,)), site.reshape(zero, (1,))


@rule("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor",
      "quantized_decomposed.quantize_per_tensor.tensor2")  # fmt: skip
def _quantise(
    site: Site, x: Expr, scale: Expr | Number, zero: Expr | Number, low: int, high: int, dtype: str
) -> Expr:  # fmt: skip
    """A range that is narrower than the type is a clip of the real numbers before."""
    step, offset = _scalar(site, scale, "float32"), _scalar(site, zero, dtype)
    return site.call("quantise", _limited(site, x, step, offset, low, high), step, offset)


def _limited(site: Site, x: Expr, scale: Expr, zero: Expr, low: Expr | int, high: Expr | int) -> Expr:
    least, most = limits(zero.dtype)
    low, high = int(_number(site, low)), int(_number(site, high))
    if (low, high) == (least, most):
        return x
    if low < least or high > most:
        raise site.error(f"the range {low}..{high} is wider than {zero.dtype}")
    x = site.cast(x, "float32")
    if isinstance(scale, Constant) and isinstance(zero, Constant):
        ends = [float(np.float32((end - int(zero.value)) * float(scale.value))) for end in (low, high)]
        return site.call("nn.clip", x, low=ends[0], high=ends[1])
    steps = site.cast(zero, "float32")
    bottom, top = (site("multiply", site("subtract", site.like(end, steps), steps), scale) for end in (low, high))
    return site("minimum", site("maximum", x, bottom), top)


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
