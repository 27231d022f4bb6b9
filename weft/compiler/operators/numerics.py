"""NumPy meanings of the integer contract (docs/integers.md): what the hardware computes, bit for bit.

Accumulators are int32 and wrap. All functions are vectorised; a layer of ResNet-50 takes well under a second.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...roundings import HALF_UP
from ..graph.dtypes import EXACT_IN_FLOAT32
from ..graph.ir import Array
from ..graph.rounding import rounded_shift

Int32 = NDArray[np.int32]

MULTIPLIER_BITS = 24
SHIFT_RANGE = (1, 56)
"""Of a requantise: any sum of 32 bits times a multiplier of 24 is below 2^55, so 56 make 0 of it."""
MAX_LEFT_SHIFT = 23
INT9 = (-256, 255)


def wrap_int32(value: Array) -> Int32:
    """The low 32 bits of integers of any width, as int32."""
    return value.astype(np.int64).astype(np.int32)


def output_size(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Number of positions of a window along one axis; 0 or less when the window does not fit."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def pad_spatial(x: Array, pads: Sequence[int], value: int | float | str) -> Array:
    """Pad the last axes: ``pads`` holds what comes before each, then after (images: top, left, bottom, right)."""
    if not any(pads):
        return x
    count = len(pads) // 2
    sizes = list(zip(pads[:count], pads[count:], strict=True))
    return np.pad(x, [(0, 0)] * (x.ndim - count) + sizes, constant_values=value)


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For every kernel position: the elements of padded ``x`` that it meets, as a view (..., OH, OW).

    Windows slide over the last ``len(kernel)`` axes.
    """
    sizes = x.shape[x.ndim - len(kernel) :]
    axes = list(zip(sizes, kernel, strides, dilations, strict=True))
    counts = [output_size(size, k, stride, 0, 0, dilation) for size, k, stride, dilation in axes]
    for position in itertools.product(*(range(k) for k in kernel)):
        picked: list[Any] = [...]
        for i, count, (_, _, stride, dilation) in zip(position, counts, axes, strict=True):
            picked.append(slice(i * dilation, i * dilation + (count - 1) * stride + 1, stride))
        yield position, x[tuple(picked)]


def convolve(
    x: Array,
    w: Array,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    pad_value: float,
    dtype: type[np.floating],
) -> Array:
    """Convolution in floating point: x (N, C, ...), w (O, C/groups, ...) -> (N, O, ...) of ``dtype``."""
    padded = pad_spatial(x, pads, pad_value).astype(dtype)
    kernels = w.astype(dtype)
    batch, channels = x.shape[:2]
    out_channels, group_in, *kernel = w.shape
    group_out = out_channels // groups
    result: Array | None = None
    shape: tuple[int, ...] = ()
    for position, window in windows(padded, kernel, strides, dilations):
        shape = window.shape[2:]
        place: Any = (slice(None), slice(None), *position)
        weights = kernels[place]
        if group_in == 1 and group_out == 1:
            term = window * weights.reshape(1, channels, *(1 for _ in kernel))
        else:
            columns = window.reshape(batch, groups, group_in, math.prod(shape))
            term = np.matmul(weights.reshape(1, groups, group_out, group_in), columns)
        result = term if result is None else np.add(result, term, out=result)
    if result is None:
        raise ValueError("a convolution needs a kernel of at least one element")
    return result.reshape(batch, out_channels, *shape)


def convolve_integers(
    x: Array,
    w: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    pad_value: int,
) -> Int32:
    """Integer convolution, exact, wrapped to int32. The arithmetic runs in floating point where that is exact."""
    depth = int(np.prod(w.shape[1:]))
    bound = depth * 128 * 128
    if bound <= EXACT_IN_FLOAT32:
        exact: Array = convolve(x, w, strides, pads, dilations, groups, pad_value, np.float32)
    else:
        exact = convolve(x, w, strides, pads, dilations, groups, pad_value, np.float64)
    return wrap_int32(exact)


def unfold(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    pad_value: int,
) -> Array:
    """What a window meets as channels: (N, C, H, W) -> (N, KH*KW*C, OH, OW), channel ``(i*KW + j)*C + c``.

    The result lies in memory with its channels last: so this, and packing it, copy runs of bytes and not single ones.
    """
    pixels = np.ascontiguousarray(pad_spatial(x, pads, pad_value).transpose(0, 2, 3, 1))
    reach = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    met = np.lib.stride_tricks.sliding_window_view(pixels, tuple(reach), axis=(1, 2))
    met = met[:, :: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]]
    windowed = np.ascontiguousarray(met.transpose(0, 1, 2, 4, 5, 3))
    return windowed.reshape(*windowed.shape[:3], -1).transpose(0, 3, 1, 2)


def max_pool(
    x: Array,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    pad_value: float,
) -> Array:
    """Maximum over windows, in the element type of ``x``."""
    result: Array | None = None
    for _, window in windows(pad_spatial(x, pads, pad_value), kernel, strides, dilations):
        result = window.copy() if result is None else np.maximum(result, window, out=result)
    if result is None:
        raise ValueError("a pooling window needs at least one element")
    return result


def sum_pool(x: Array, *, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], pad_value: int) -> Int32:
    """Sum over windows, int32."""
    padded = pad_spatial(x, pads, pad_value)
    out_h = output_size(padded.shape[-2], kernel[0], strides[0], 0, 0)
    out_w = output_size(padded.shape[-1], kernel[1], strides[1], 0, 0)
    result = np.zeros((*x.shape[:-2], out_h, out_w), np.int32)
    for _, window in windows(padded, kernel, strides, (1, 1)):
        result += window
    return result


def requantise(
    x: Array,
    bias: Array,
    multiplier: Array,
    shift: Array,
    *,
    zero_point: int,
    low: int,
    high: int,
    left_shift: int,
    out: str,
    rounding: str = HALF_UP,
) -> Array:
    """``clamp(((x + bias) * multiplier + half >> shift) + zero_point) << left_shift``; parameters broadcast with x.
    ``rounding``: exact, as this has it, or as float32 does."""
    t = x.astype(np.int32) + bias.astype(np.int32)  # wraps
    rounded = rounded_shift(t, multiplier, shift, rounding)
    value = np.clip(rounded + zero_point, low, high) << left_shift
    return wrap_int32(value) if out == "int32" else value.astype(np.int8)


def requantise_float32(x: Array, bias: Array, scale: Array, *, zero_point: int, low: int, high: int) -> Array:
    """``clamp(round(float32(x + bias) * scale) + zero_point)``, int8: the sum, which wraps to 32 bits, and its product
    with a scale of float32 are rounded to float32, then the product to a whole number, all halves to even."""
    sums = (x.astype(np.int32) + bias.astype(np.int32)).astype(np.float32)
    limited = np.clip(sums * scale.astype(np.float32), np.float32(low - zero_point), np.float32(high - zero_point))
    return np.asarray((np.rint(limited).astype(np.int32) + zero_point).astype(np.int8))


def quantise_multiplier(real: Array) -> tuple[Int32, Int32]:
    """Write each real factor as ``multiplier / 2**shift``, the multiplier normalised to [2**23, 2**24) in magnitude.

    Factors smaller than 2**-33 lose mantissa bits (the shift ends at 56) down to zero.
    Raises `ValueError` when a factor is 2**23 or more in magnitude, or not finite.
    """
    real = np.atleast_1d(np.asarray(real, np.float64))
    if not np.all(np.isfinite(real)):
        raise ValueError("a requantise factor is not a finite number")
    _, exponent = np.frexp(real)  # |real| = m * 2**exponent with 0.5 <= m < 1
    shift = MULTIPLIER_BITS - exponent.astype(np.int64)
    shift = np.where(real == 0, SHIFT_RANGE[0], np.minimum(shift, SHIFT_RANGE[1]))
    multiplier = np.rint(np.ldexp(real, shift.astype(np.int32))).astype(np.int64)
    carried = np.abs(multiplier) == 1 << MULTIPLIER_BITS  # rounding up left the mantissa's range
    multiplier = np.where(carried, multiplier // 2, multiplier)
    shift = np.where(carried, shift - 1, shift)
    if np.any(shift < SHIFT_RANGE[0]):
        worst = real[int(np.argmin(shift))]
        raise ValueError(f"a requantise factor of {worst:g} is too large: the largest is below 2**23")
    return multiplier.astype(np.int32), shift.astype(np.int32)
