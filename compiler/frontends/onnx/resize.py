"""Resize and Upsample: one axis after the other, by picking (nearest) or by a product with a matrix of weights.

Integers between others are found in floating point, and truncated as ONNX's reference and onnxruntime do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import is_float
from .node import Converted, Node, converter


@dataclass(frozen=True)
class _Axis:
    """One axis that is resized: sizes before and after, the factor as given, and a region (as fractions)."""

    size: int
    target: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def _places(axis: _Axis, mode: str) -> Array:
    """Where in the input each element of the output lies."""
    i = np.arange(axis.target, dtype=np.float64)
    length = axis.scale * axis.size
    match mode:
        case "asymmetric":
            return np.asarray(i / axis.scale)
        case "align_corners":
            return i * 0 if length == 1 else np.asarray(i * (axis.size - 1) / (length - 1))
        case "tf_half_pixel_for_nn":
            return np.asarray((i + 0.5) / axis.scale)
        case "pytorch_half_pixel" if axis.target <= 1:
            return np.asarray(i * 0)
        case "half_pixel_symmetric":
            offset = axis.size / 2 * (1 - axis.target / length)
            return np.asarray(offset + (i + 0.5) / axis.scale - 0.5)
        case "tf_crop_and_resize":
            start, end = axis.region
            if axis.target <= 1:
                return np.asarray(i * 0 + 0.5 * (start + end) * (axis.size - 1))
            return np.asarray(start * (axis.size - 1) + i * (end - start) * (axis.size - 1) / (axis.target - 1))
        case "half_pixel" | "pytorch_half_pixel":
            return np.asarray((i + 0.5) / axis.scale - 0.5)
    raise ValueError(f"the coordinate transformation {mode!r} is not known")


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.asarray(np.ceil(x - 0.5)),
    "round_prefer_ceil": lambda x: np.asarray(np.floor(x + 0.5)),
    "floor": lambda x: np.asarray(np.floor(x)),
    "ceil": lambda x: np.asarray(np.ceil(x)),
}


def _triangle(d: Array) -> Array:
    return np.asarray(np.clip(1 - np.abs(d), 0, 1))


def _keys(a: float) -> Callable[[Array], Array]:
    """The cubic convolution kernel (Keys, 1981)."""

    def kernel(d: Array) -> Array:
        d = np.abs(d)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return kernel


def _weights(
    axis: _Axis, places: Array, kernel: Callable[[Array], Array], reach: int, antialias: bool, exclude_outside: bool
) -> Array:
    """(target, size): what each element of the input adds to each of the output; places outside hold the edge."""
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    taps = math.ceil(reach / shrink)
    near = np.floor(places)[:, None] + np.arange(-taps, taps + 2)
    weights = kernel((near - places[:, None]) * shrink)
    if exclude_outside:
        weights = np.where((near >= 0) & (near < axis.size), weights, 0.0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    result = np.zeros((axis.target, axis.size))
    rows = np.broadcast_to(np.arange(axis.target)[:, None], near.shape)
    np.add.at(result, (rows, np.clip(near, 0, axis.size - 1).astype(np.int64)), weights)
    return result


def _resized(node: Node, x: Expr, number: int, axis: _Axis, mode: str) -> Expr:
    """``x`` with one axis resized."""
    places = _places(axis, mode)
    kind = node.string("mode", "nearest")
    if kind == "nearest":
        rounding = node.string("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
        if rounding not in _NEAREST:
            raise node.error(f"the rounding {rounding!r} is not known")
        index = np.clip(_NEAREST[rounding](places), 0, axis.size - 1).astype(np.int64)
        result: Expr = node.call("gather", x, Constant(index), axis=number)
    else:
        cubic = kind == "cubic"
        kernel = _keys(node.number("cubic_coeff_a", -0.75)) if cubic else _triangle
        antialias, exclude = bool(node.integer("antialias", 0)), bool(node.integer("exclude_outside", 0))
        matrix = _weights(axis, places, kernel, 2 if cubic else 1, antialias, exclude)
        # truncation must not take one off where rounding leaves just less than a whole number
        matrix *= 1 + (0 if is_float(node.input(0).dtype) else 32 * float(np.finfo(x.dtype).eps))
        last = len(x.shape) - 1
        perm = [last if i == number else number if i == last else i for i in range(last + 1)]
        turned = node.transpose(x, perm)
        turned = turned if last else node.reshape(turned, (1, axis.size))
        product: Expr = node.call("nn.matmul", turned, node.like(matrix.T, x))
        product = product if last else node.reshape(product, (axis.target,))
        result = node.transpose(product, perm)
    outside = (places < 0) | (places > axis.size - 1)
    if mode != "tf_crop_and_resize" or not outside.any():
        return result
    shape = [-1 if i == number else 1 for i in range(len(x.shape))]
    value = node.like(node.number("extrapolation_value", 0.0), x)
    return node.call("nn.where", Constant(outside.reshape(shape)), value, result)


def _targets(node: Node, x: Expr) -> list[_Axis]:
    """How each axis is resized."""
    rank = len(x.shape)
    named = node.integers("axes")
    axes = [axis % rank for axis in named] if named is not None else list(range(rank))
    scales_at, sizes_at = (1, None) if node.opset < 11 else (2, 3)
    regions = np.array([0.0] * len(axes) + [1.0] * len(axes))
    if node.opset >= 11 and node.has(1) and node.string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        regions = node.constant(1, "the region").astype(np.float64).reshape(-1)
    result = [_Axis(size, size, 1.0) for size in x.shape]
    sizes = node.known_integers(sizes_at, "the sizes") if sizes_at is not None and node.has(sizes_at) else ()
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    scales: list[float]
    if sizes:
        scales = [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        if policy != "stretch":
            common = min(scales) if policy == "not_larger" else max(scales)
            scales = [common] * len(axes)
            sizes = tuple(int(np.floor(common * x.shape[axis] + 0.5)) for axis in axes)
    else:
        known = node.attrs.get("scales")
        known = node.constant(scales_at, "the scales").reshape(-1) if known is None else known
        scales = [float(scale) for scale in known]
        sizes = tuple(math.floor(x.shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True))
    for i, axis in enumerate(axes):
        region = (float(regions[i]), float(regions[len(axes) + i]))
        result[axis] = _Axis(x.shape[axis], sizes[i], scales[i], region)
    return result


@converter("Resize", "Upsample")
def _resize(node: Node) -> Converted:
    x = node.input(0)
    mode = node.string("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    real = x
    if x.dtype in ("float16", "bfloat16"):
        real = node.cast(x, "float32")
    elif node.string("mode", "nearest") != "nearest" and not is_float(x.dtype):
        real = node.cast(x, "float32" if x.dtype in ("int8", "uint8") else "float64")
    for number, axis in enumerate(_targets(node, x)):
        if axis.size != axis.target or axis.scale != 1 or (mode == "tf_crop_and_resize" and axis.region != (0.0, 1.0)):
            real = _resized(node, real, number, axis, mode)
    return node.cast(real, x.dtype)
