"""Resize and Upsample: one axis after the other, by picking (nearest) or by a product with a matrix of weights.

Places are exact fractions of the sizes, or of the scales as they are given in float32: a place half-way between two
pixels is a tie, which the rounding asked for decides.
Integers between others are found in floating point, and truncated as ONNX's reference and onnxruntime do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import is_float
from .node import Converted, Node, converter

_HALF = Fraction(1, 2)
_ALL = (Fraction(0), Fraction(1))


@dataclass(frozen=True)
class _Axis:
    """One axis that is resized: sizes before and after, the factor as given, and a region (as fractions)."""

    size: int
    target: int
    scale: Fraction
    region: tuple[Fraction, Fraction] = _ALL


def _places(axis: _Axis, mode: str) -> list[Fraction]:
    """Where in the input each element of the output lies."""
    if not axis.target:
        return []
    pixels, last = range(axis.target), axis.size - 1
    length = axis.scale * axis.size
    match mode:
        case "asymmetric":
            return [i / axis.scale for i in pixels]
        case "align_corners":
            return [Fraction(0) if length == 1 else i * last / (length - 1) for i in pixels]
        case "tf_half_pixel_for_nn":
            return [(i + _HALF) / axis.scale for i in pixels]
        case "pytorch_half_pixel" if axis.target <= 1:
            return [Fraction(0) for _ in pixels]
        case "half_pixel_symmetric":
            offset = axis.size * (1 - axis.target / length) / 2
            return [offset + (i + _HALF) / axis.scale - _HALF for i in pixels]
        case "tf_crop_and_resize":
            start, end = axis.region
            if axis.target <= 1:
                return [(start + end) * last / 2 for _ in pixels]
            return [start * last + i * (end - start) * last / (axis.target - 1) for i in pixels]
        case "half_pixel" | "pytorch_half_pixel":
            return [(i + _HALF) / axis.scale - _HALF for i in pixels]
    raise ValueError(f"the coordinate transformation {mode!r} is not known")


_NEAREST: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - _HALF),
    "round_prefer_ceil": lambda x: math.floor(x + _HALF),
    "floor": math.floor,
    "ceil": math.ceil,
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
    shrink = min(float(axis.scale), 1.0) if antialias else 1.0
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
        index = [min(max(_NEAREST[rounding](place), 0), axis.size - 1) for place in places]
        result: Expr = node.call("gather", x, Constant(np.array(index, np.int64)), axis=number)
    else:
        cubic = kind == "cubic"
        kernel = _keys(node.number("cubic_coeff_a", -0.75)) if cubic else _triangle
        antialias, exclude = bool(node.integer("antialias", 0)), bool(node.integer("exclude_outside", 0))
        matrix = _weights(axis, np.array(places, np.float64), kernel, 2 if cubic else 1, antialias, exclude)
        # truncation must not take one off where rounding leaves just less than a whole number
        matrix *= 1 + (0 if is_float(node.input(0).dtype) else 32 * float(np.finfo(x.dtype).eps))
        last = len(x.shape) - 1
        perm = [last if i == number else number if i == last else i for i in range(last + 1)]
        turned = node.transpose(x, perm)
        turned = turned if last else node.reshape(turned, (1, axis.size))
        product: Expr = node.call("nn.matmul", turned, node.like(matrix.T, x))
        product = product if last else node.reshape(product, (axis.target,))
        result = node.transpose(product, perm)
    outside = np.array([not 0 <= place <= axis.size - 1 for place in places], bool)
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
    regions = [Fraction(0)] * len(axes) + [Fraction(1)] * len(axes)
    if node.opset >= 11 and node.has(1) and node.string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        given = node.constant(1, "the region").reshape(-1)
        if not np.isfinite(given.astype(np.float64)).all():
            raise node.error("every end of the region must be a finite number")
        regions = [Fraction(float(end)) for end in given]
    result = [_Axis(size, size, Fraction(1)) for size in x.shape]
    sizes = node.known_integers(sizes_at, "the sizes") if sizes_at is not None and node.has(sizes_at) else ()
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if sizes:
        if any(not x.shape[axis] for axis in axes):
            raise node.error(f"{x.tensor_type} has no element, so it has no sizes to be resized to")
        scales = [Fraction(size, x.shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
        if policy != "stretch":
            common = min(scales) if policy == "not_larger" else max(scales)
            scales = [common] * len(axes)
            sizes = tuple(math.floor(common * x.shape[axis] + _HALF) for axis in axes)
    else:
        known = node.attrs.get("scales")
        known = node.constant(scales_at, "the scales").reshape(-1) if known is None else known
        if not all(np.isfinite(scale) and scale > 0 for scale in known):
            raise node.error("every scale must be a finite number above 0")
        scales = [Fraction(float(scale)) for scale in known]
        sizes = tuple(math.floor(x.shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True))
    for i, axis in enumerate(axes):
        result[axis] = _Axis(x.shape[axis], sizes[i], scales[i], (regions[i], regions[len(axes) + i]))
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
        if axis.size != axis.target or axis.scale != 1 or (mode == "tf_crop_and_resize" and axis.region != _ALL):
            real = _resized(node, real, number, axis, mode)
    return node.cast(real, x.dtype)
