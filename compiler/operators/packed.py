"""The integer contract on packed tensors (see `packed_layout`): what a kernel of the accelerator computes.

int8 operands have the activation layout, int32 operands the accumulator layout. Every operator carries the array's
shape in ``blocks`` = (batch, block_in, block_out).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.ir import Array, Attrs, TensorType
from ..graph.registry import INTEGER_HAS_NO_GRADIENT, NOT_LOWERED, REQUIRED, Fusion, register, unsupported
from . import numerics, packed_layout
from .integer import (
    check_requantise_attrs,
    integer,
    ints,
    pool_type,
    require,
    require_dtype,
    window_type,
)
from .packed_layout import Blocks, blocks_of

FILLED_BY_TARGETS = unsupported("the compute rules of the targets fill this in when they are imported")


def _require_packed(x: TensorType, what: str, blocks: Blocks) -> None:
    rows = blocks.input_rows if x.dtype == "int8" else blocks.output_rows
    fits = x.rank == 7 and x.shape[4:] == (rows, blocks.batch, blocks.sub_block)
    require(fits, f"{what} {x} is not packed for {blocks}")


def _plain_shape(x: TensorType, blocks: Blocks) -> tuple[int, int, int, int]:
    """(N, C, H, W) with padding."""
    outer, groups, height, width, rows, batch, lanes = x.shape
    return outer * batch, groups * rows * lanes, height, width


def _accumulator_shape(x: TensorType, blocks: Blocks) -> tuple[int, ...]:
    return blocks.accumulator_shape(_plain_shape(x, blocks))


def _conv_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the weights", "int8")
    _require_packed(x, "the input", blocks)
    integer(attrs, "pad_value", -128, 127)
    wanted = (x.shape[1] * blocks.dram_block // blocks.block_in, blocks.block_out, blocks.block_in)
    require(w.rank == 6 and (w.shape[1], *w.shape[4:]) == wanted, f"weights {w} do not fit {x} and {blocks}")
    out_h, out_w = window_type(
        x.shape[2:4], w.shape[2:4], ints(attrs, "strides", 2), ints(attrs, "pads", 4), ints(attrs, "dilations", 2)
    )
    shape = (x.shape[0], w.shape[0], out_h, out_w, blocks.output_rows, blocks.batch, blocks.sub_block)
    return TensorType(shape, "int32")


def _conv(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    plain = numerics.conv2d(packed_layout.unpack_padded(x), packed_layout.unpack_weights(w), groups=1, **attrs)
    return packed_layout.pack_accumulator(plain, Blocks(*blocks))


def _depthwise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the weights", "int8")
    _require_packed(x, "the input", blocks)
    integer(attrs, "pad_value", -128, 127)
    shape = _accumulator_shape(x, blocks)
    require(w.rank == 6 and (w.shape[0], *w.shape[3:]) == (shape[1], *shape[4:]), f"weights {w} do not fit {x}")
    out_h, out_w = window_type(
        x.shape[2:4], w.shape[1:3], ints(attrs, "strides", 2), ints(attrs, "pads", 4), ints(attrs, "dilations", 2)
    )
    return TensorType((*shape[:2], out_h, out_w, *shape[4:]), "int32")


def _depthwise(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    plain = packed_layout.unpack_padded(x)
    result = numerics.conv2d(plain, packed_layout.unpack_depthwise_weights(w), groups=plain.shape[1], **attrs)
    return packed_layout.pack_accumulator(result, Blocks(*blocks))


def _grouped_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the weights", "int8")
    _require_packed(x, "the input", blocks)
    integer(attrs, "pad_value", -128, 127)
    require(blocks.block_in == blocks.block_out, f"groups within a block need a square array, not {blocks}")
    wanted = (x.shape[1], blocks.block_out, blocks.block_in)
    require(w.rank == 5 and (w.shape[0], *w.shape[3:]) == wanted, f"weights {w} do not fit {x} and {blocks}")
    out_h, out_w = window_type(
        x.shape[2:4], w.shape[1:3], ints(attrs, "strides", 2), ints(attrs, "pads", 4), ints(attrs, "dilations", 2)
    )
    shape = _accumulator_shape(x, blocks)
    return TensorType((*shape[:2], out_h, out_w, *shape[4:]), "int32")


def _grouped(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    groups, kernel_h, kernel_w, block_out, block_in = w.shape
    weights = w.transpose(0, 3, 4, 1, 2).reshape(groups * block_out, block_in, kernel_h, kernel_w)
    plain = numerics.conv2d(packed_layout.unpack_padded(x), weights, groups=groups, **attrs)
    return packed_layout.pack_accumulator(plain, Blocks(*blocks))


def _pool_type(dtype: str) -> Any:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, blocks = operands[0], blocks_of(attrs["blocks"])
        require_dtype(x, "the input", "int8")
        _require_packed(x, "the input", blocks)
        plain = pool_type(TensorType(_plain_shape(x, blocks), "int8"), attrs, dtype)
        return blocks.packed_type(plain)

    return rule


def _max_pool(x: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    pooled = numerics.max_pool(packed_layout.unpack_padded(x), pad_value=-128, **attrs)
    return packed_layout.pack_activation(pooled, Blocks(*blocks))


def _sum_pool(x: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    return packed_layout.pack_accumulator(numerics.sum_pool(packed_layout.unpack_padded(x), **attrs), Blocks(*blocks))


def _requantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, params = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8", "int32")
    _require_packed(x, "the input", blocks)
    shape = _accumulator_shape(x, blocks)
    wanted = TensorType((shape[1], 3, *shape[4:]), "int32")
    require(params == wanted, f"the parameters must be {wanted}, not {params}")
    dtype = check_requantise_attrs(attrs)
    return blocks.packed_type(TensorType(_plain_shape(x, blocks), dtype))


def _as_accumulator(x: Array, blocks: Blocks) -> Array:
    return packed_layout.activation_to_accumulator(x, blocks) if x.dtype == np.int8 else x


def _requantise(x: Array, params: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    shape = Blocks(*blocks)
    bias, multiplier, shift = (params[None, :, i, None, None] for i in range(3))
    result = numerics.requantise(_as_accumulator(x, shape), bias, multiplier, shift, **attrs)
    return packed_layout.accumulator_to_activation(result, shape) if result.dtype == np.int8 else result


def _accumulator_type(name: str) -> Any:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        blocks = blocks_of(attrs["blocks"])
        shapes = []
        for operand in operands:
            require_dtype(operand, "an operand", "int8", "int32")
            _require_packed(operand, "operand", blocks)
            shapes.append(_accumulator_shape(operand, blocks))
        require(len(set(shapes)) == 1, f"operands differ in shape: {', '.join(map(str, operands))}")
        if name:
            integer(attrs, name, -(1 << 24), (1 << 24) - 1)
        return TensorType(shapes[0], "int32")

    return rule


def _wide(x: Array, blocks: Sequence[int]) -> Array:
    return _as_accumulator(x, Blocks(*blocks)).astype(np.int64)


def _concat_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    blocks = blocks_of(attrs["blocks"])
    first = operands[0]
    for operand in operands:
        require_dtype(operand, "an operand", "int8")
        _require_packed(operand, "operand", blocks)
        require(
            (operand.shape[0], *operand.shape[2:]) == (first.shape[0], *first.shape[2:]),
            f"{first} and {operand} do not fit together",
        )
    return TensorType((first.shape[0], sum(operand.shape[1] for operand in operands), *first.shape[2:]), "int8")


def _pack_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", "int8")
    return blocks_of(attrs["blocks"]).packed_type(operands[0])


def _unpack_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, blocks, shape = operands[0], blocks_of(attrs["blocks"]), attrs["shape"]
    require_dtype(x, "the input", "int8")
    plain = TensorType(ints(attrs, "shape", len(shape) if isinstance(shape, tuple) else 0), "int8")
    require(blocks.packed_type(plain) == x, f"{x} is not the packed form of {plain}")
    return plain


_COMMON: dict[str, Any] = {"gradient": INTEGER_HAS_NO_GRADIENT, "lower": FILLED_BY_TARGETS, "blocks": REQUIRED}
_WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0)}

register(
    "packed_conv2d", "x w", types=_conv_type, numpy=_conv, fusion=Fusion.ANCHOR, **_COMMON, **_WINDOW,
    doc="conv2d on packed tensors, weights (Ko, Kc, KH, KW, block_out, block_in).", dilations=(1, 1), pad_value=0,
)
register(
    "packed_depthwise_conv2d", "x w", types=_depthwise_type, numpy=_depthwise, fusion=Fusion.ANCHOR, **_COMMON,
    **_WINDOW, doc="Depthwise conv2d on packed tensors, weights (Ko, KH, KW, ro, n, bs).", dilations=(1, 1),
    pad_value=0,
)
register(
    "packed_grouped_conv2d", "x w", types=_grouped_type, numpy=_grouped, fusion=Fusion.ANCHOR, **_COMMON, **_WINDOW,
    doc="conv2d whose groups lie within channel blocks, on packed tensors, weights (Ko, KH, KW, block_out, block_in).",
    dilations=(1, 1), pad_value=0,
)
register(
    "packed_max_pool", "x", types=_pool_type("int8"), numpy=_max_pool, fusion=Fusion.ANCHOR, **_COMMON, **_WINDOW,
    doc="max_pool on packed tensors.", kernel=REQUIRED, dilations=(1, 1),
)
register(
    "packed_sum_pool", "x", types=_pool_type("int32"), numpy=_sum_pool, fusion=Fusion.ANCHOR, **_COMMON, **_WINDOW,
    doc="sum_pool on packed tensors.", kernel=REQUIRED, pad_value=0,
)
register(
    "packed_requantise", "x params", types=_requantise_type, numpy=_requantise, fusion=Fusion.ELEMENTWISE, **_COMMON,
    doc="requantise on packed tensors; params (Ko, 3, ro, n, bs) holds bias, multiplier, shift.",
    zero_point=0, low=-128, high=127, left_shift=0, out="int8",
)
register(
    "packed_multiply", "a b", types=_accumulator_type(""), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda a, b, blocks: numerics.wrap_int32(_wide(a, blocks) * _wide(b, blocks)), doc="a * b, int32.",
)
register(
    "packed_multiply_immediate", "x", types=_accumulator_type("weight"), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda x, weight, blocks: numerics.wrap_int32(_wide(x, blocks) * weight), weight=REQUIRED,
    doc="x * weight, int32.",
)
register(
    "packed_subtract_immediate", "x", types=_accumulator_type("value"), fusion=Fusion.ELEMENTWISE, **_COMMON,
    numpy=lambda x, value, blocks: numerics.wrap_int32(_wide(x, blocks) - value), value=REQUIRED,
    doc="x - value, int32.",
)
register(
    "packed_multiply_accumulate", "accumulator x", types=_accumulator_type("weight"), fusion=Fusion.ELEMENTWISE,
    **_COMMON, weight=REQUIRED, doc="accumulator + x * weight, int32.",
    numpy=lambda accumulator, x, weight, blocks: numerics.wrap_int32(
        _wide(accumulator, blocks) + _wide(x, blocks) * weight
    ),
)
register(
    "packed_concat", "x*", types=_concat_type, numpy=lambda *xs, blocks: np.concatenate(xs, axis=1),
    fusion=Fusion.LAYOUT, **_COMMON, doc="Channels one after another: a matter of placement only.",
)
_HOST: dict[str, Any] = {**_COMMON, "lower": NOT_LOWERED, "fusion": Fusion.HOST}
register(
    "pack", "x", types=_pack_type, numpy=lambda x, blocks: packed_layout.pack_activation(x, Blocks(*blocks)), **_HOST,
    doc="(N, C, H, W) or (N, C) int8 -> the activation layout; padding holds 0.",
)
register(
    "unpack", "x", types=_unpack_type, numpy=lambda x, blocks, shape: packed_layout.unpack(x, shape), **_HOST,
    shape=REQUIRED, doc="The activation layout -> shape.",
)
