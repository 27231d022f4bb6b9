"""Convolutions and poolings of the integer contract on packed tensors: each starts a kernel of the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....hw.isa import TAP_COLUMNS, TAP_ROW_OUTPUTS, TAP_ROWS
from .... import tensor as te
from ....graph.ir import Array, Attrs, Call, TensorType, Var
from ....graph.registry import REQUIRED, Anchor, Fusion, Operator, TypeRule, call, register
from ....operators import numerics
from ....operators.integer import product_of_images
from ....operators.type_rules import integer, ints, pool_type, require, require_dtype, window_type
from ....tensor import ir as tir
from ....tensor.view import Index
from . import packed_layout
from .builder import Accumulated, PackedBuilder, PackedRule, Window, packed, padded_copy, window_of
from .operators import (
    PACKED,
    SAMPLE_BLOCKS,
    accumulator_shape,
    packed_sample,
    plain_shape,
    require_packed,
    sample_values,
)
from .packed_layout import Blocks, blocks_of

_SQUARE = Blocks(2, 4, 4)
_WINDOW: dict[str, Any] = {"blocks": REQUIRED, "strides": (1, 1), "pads": (0, 0, 0, 0)}
_CONVOLUTION: dict[str, Any] = {
    **PACKED, "fusion": Fusion.ANCHOR, "anchor": Anchor.CONVOLUTION,
    "defaults": {**_WINDOW, "dilations": (1, 1), "pad_value": 0},
}  # fmt: skip
_POOL: dict[str, Any] = {**PACKED, "fusion": Fusion.ANCHOR, "anchor": Anchor.POOL}


def _product_blocks(x: TensorType, w: TensorType, attrs: Attrs) -> Blocks:
    """The blocks of what multiplies packed entries with weights."""
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8")
    require_dtype(w, "the weights", "int8")
    require_packed(x, "the input", blocks)
    return blocks


def _convolution_blocks(x: TensorType, w: TensorType, attrs: Attrs) -> Blocks:
    """The blocks of a packed convolution, after the checks that its three forms share."""
    integer(attrs, "pad_value", -128, 127)
    return _product_blocks(x, w, attrs)


def _convolution_outputs(x: TensorType, kernel: tuple[int, ...], attrs: Attrs) -> tuple[int, ...]:
    """Height and width of the output."""
    return window_type(
        x.shape[2:4], kernel, ints(attrs, "strides", 2), ints(attrs, "pads", 4), ints(attrs, "dilations", 2)
    )


def _conv_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = _convolution_blocks(x, w, attrs)
    wanted = (x.shape[1] * blocks.dram_block // blocks.block_in, blocks.block_out, blocks.block_in)
    require(w.rank == 6 and (w.shape[1], *w.shape[4:]) == wanted, f"weights {w} do not fit {x} and {blocks}")
    out_h, out_w = _convolution_outputs(x, w.shape[2:4], attrs)
    shape = (x.shape[0], w.shape[0], out_h, out_w, blocks.output_rows, blocks.batch, blocks.sub_block)
    return TensorType(shape, "int32")


def _conv(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    plain = numerics.convolve_integers(
        packed_layout.unpack_padded(x), packed_layout.unpack_weights(w), groups=1, **attrs
    )
    return packed_layout.pack_accumulator(plain, blocks_of(blocks))


def _lower_conv(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, w = operands
    blocks = builder.blocks
    _, kc, kernel_h, kernel_w, _, _ = w.shape
    window = window_of(call.attrs, (kernel_h, kernel_w))
    rows, sub = blocks.block_in // blocks.sub_block, blocks.sub_block
    data = padded_copy(builder, x, window, rows, call.attr("pad_value"), "int8")
    axes = [te.reduce_axis(kc, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw"),
            te.reduce_axis(rows, "rk"), te.reduce_axis(sub, "sk")]  # fmt: skip
    k, kh, kw, rk, sk = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, k, *window.place(y, x, kh, kw), rk, n, sk)]
        weight = w[ko, k, kh, kw, ro * sub + so, rk * sub + sk]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce, builder.input_groups = call, builder.name("acc"), kc
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


register(Operator(
    "packed_conv2d", "x w", types=_conv_type, numpy=_conv, lower=packed(_lower_conv), **_CONVOLUTION,
    sample=packed_sample("packed_conv2d", packed_layout.pack_weights(sample_values((6, 9, 3, 2)), SAMPLE_BLOCKS),
                         pads=(1, 0, 1, 1), pad_value=3),
    doc="conv2d on packed tensors, weights (Ko, Kc, KH, KW, block_out, block_in).",
))  # fmt: skip


def _product_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = _product_blocks(x, w, attrs)
    require_packed(w, "the other operand", blocks)
    require(blocks.batch == 1 and blocks.block_in == blocks.block_out,
            f"a product of computed tensors needs a square array and a batch of 1, not {blocks}")  # fmt: skip
    fits = w.shape[:2] == x.shape[:2] and w.shape[3] == 1 and w.shape[2] % blocks.block_out == 0
    require(fits, f"{w} is no operand of a product with {x}: (N, C, a multiple of {blocks.block_out}, 1)")
    groups = -(-integer(attrs, "outputs", 1, w.shape[2]) // blocks.block_out)
    return TensorType((x.shape[0], groups, *x.shape[2:]), "int32")


def _product(x: Array, w: Array, blocks: Sequence[int], depth: int, outputs: int) -> Array:
    sizes = blocks_of(blocks)
    groups = -(-outputs // sizes.block_out) * sizes.block_out
    plain = product_of_images(packed_layout.unpack_padded(x), packed_layout.unpack_padded(w), groups)
    return packed_layout.pack_accumulator(plain, sizes)


def _lower_product(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    """``w`` is seen as matrices: (N, C groups, output groups, block_out, block_in), the same bytes."""
    x, w = operands
    window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    data = padded_copy(builder, x, window, 1, 0, "int8")
    axes = [te.reduce_axis(w.shape[1], "kc"), te.reduce_axis(1, "kh"), te.reduce_axis(1, "kw"),
            te.reduce_axis(1, "rk"), te.reduce_axis(builder.blocks.block_in, "sk")]  # fmt: skip
    k, kh, kw, rk, sk = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, k, *window.place(y, x, kh, kw), rk, n, sk)]
        weight = w[no, k, ko, ro * builder.blocks.block_out + so, rk * builder.blocks.block_in + sk]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce, builder.input_groups = call, builder.name("acc"), w.shape[1]
    builder.own_matrices = True
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


_IMAGES = Blocks(1, 4, 4)

register(Operator(
    "packed_product", "x w", types=_product_type, numpy=_product, lower=packed(_lower_product), **PACKED,
    fusion=Fusion.ANCHOR, anchor=Anchor.CONVOLUTION,
    defaults={"blocks": REQUIRED, "depth": REQUIRED, "outputs": REQUIRED},
    sample=lambda dtype: call(
        "packed_product", *(Var(name, _IMAGES.packed_type(TensorType(shape, "int8")))
                            for name, shape in (("x", (2, 7, 3, 2)), ("w", (2, 7, 8, 1)))),
        blocks=_IMAGES.sizes, depth=7, outputs=6,
    ),
    doc="product on packed tensors; w has whole matrices, so a multiple of block_out outputs.",
))  # fmt: skip


def _windowed(
    builder: PackedBuilder, call: Call, data: Accumulated, window: Window,
    reduction: Callable[[tir.Expr, Index, te.ReduceAxis, te.ReduceAxis], te.Reduction],
) -> te.Tensor:  # fmt: skip
    """A reduction over the window of every element of the accumulator layout."""
    kh, kw = te.reduce_axis(window.kernel[0], "kh"), te.reduce_axis(window.kernel[1], "kw")
    shape = builder.accumulator_shape(call.shape)

    def value(index: Index) -> te.Reduction:
        no, ko, y, x, ro, n, so = index
        return reduction(data[(no, ko, *window.place(y, x, kh, kw), ro, n, so)], index, kh, kw)

    builder.anchor, builder.reduce = call, builder.name("acc")
    return te.compute(*builder.lies(shape, value), builder.reduce)


def _depthwise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = _convolution_blocks(x, w, attrs)
    shape = accumulator_shape(x, blocks)
    require(w.rank == 6 and (w.shape[0], *w.shape[3:]) == (shape[1], *shape[4:]), f"weights {w} do not fit {x}")
    out_h, out_w = _convolution_outputs(x, w.shape[1:3], attrs)
    return TensorType((*shape[:2], out_h, out_w, *shape[4:]), "int32")


def _depthwise(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    plain = packed_layout.unpack_padded(x)
    result = numerics.convolve_integers(
        plain, packed_layout.unpack_depthwise_weights(w), groups=plain.shape[1], **attrs
    )
    return packed_layout.pack_accumulator(result, blocks_of(blocks))


def _lower_depthwise(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, w = operands
    window = window_of(call.attrs, (w.shape[1], w.shape[2]))
    data = padded_copy(builder, x, window, builder.blocks.output_rows, call.attr("pad_value"), "int32")
    builder.weights = builder.name("weights")
    weights = te.compute(w.shape, lambda *index: w[index].astype("int32"), builder.weights)
    return _windowed(builder, call, data, window, lambda value, index, kh, kw: te.sum(
        value * weights[index[1], kh, kw, index[4], index[5], index[6]], [kh, kw]))  # fmt: skip


register(Operator(
    "packed_depthwise_conv2d", "x w", types=_depthwise_type, numpy=_depthwise, lower=packed(_lower_depthwise),
    **_CONVOLUTION, sample=packed_sample(
        "packed_depthwise_conv2d", packed_layout.pack_depthwise_weights(sample_values((9, 1, 3, 2)), SAMPLE_BLOCKS),
        strides=(2, 1),
    ),
    doc="Depthwise conv2d on packed tensors, weights (Ko, KH, KW, ro, n, bs).",
))  # fmt: skip


def _grouped_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = _convolution_blocks(x, w, attrs)
    require(blocks.block_in == blocks.block_out, f"groups within a block need a square array, not {blocks}")
    wanted = (x.shape[1], blocks.block_out, blocks.block_in)
    require(w.rank == 5 and (w.shape[0], *w.shape[3:]) == wanted, f"weights {w} do not fit {x} and {blocks}")
    out_h, out_w = _convolution_outputs(x, w.shape[1:3], attrs)
    shape = accumulator_shape(x, blocks)
    return TensorType((*shape[:2], out_h, out_w, *shape[4:]), "int32")


def _grouped(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    groups, kernel_h, kernel_w, block_out, block_in = w.shape
    weights = w.transpose(0, 3, 4, 1, 2).reshape(groups * block_out, block_in, kernel_h, kernel_w)
    plain = numerics.convolve_integers(packed_layout.unpack_padded(x), weights, groups=groups, **attrs)
    return packed_layout.pack_accumulator(plain, blocks_of(blocks))


def _lower_grouped(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, w = operands
    _, kernel_h, kernel_w, _, block = w.shape
    window = window_of(call.attrs, (kernel_h, kernel_w))
    data = padded_copy(builder, x, window, 1, call.attr("pad_value"), "int8")
    axes = [te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw"),
            te.reduce_axis(1, "rk"), te.reduce_axis(block, "sk")]  # fmt: skip
    kh, kw, rk, sk = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, ko, *window.place(y, x, kh, kw), rk, n, sk)]
        weight = w[ko, kh, kw, ro * block + so, rk * block + sk]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce = call, builder.name("acc")
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


register(Operator(
    "packed_grouped_conv2d", "x w", types=_grouped_type, numpy=_grouped, lower=packed(_lower_grouped), **_CONVOLUTION,
    sample=packed_sample(
        "packed_grouped_conv2d", packed_layout.pack_grouped_weights(sample_values((9, 2, 3, 2)), _SQUARE),
        blocks=_SQUARE,
    ),
    doc="conv2d whose groups lie within channel blocks, on packed tensors, weights (Ko, KH, KW, block_out, block_in).",
))  # fmt: skip


def _tapped_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, w = operands
    blocks = _convolution_blocks(x, w, attrs)
    require(blocks.batch == 1 and blocks.block_in == blocks.block_out >= TAP_ROWS * TAP_ROW_OUTPUTS,
            f"an array of {blocks} has no depthwise mode")  # fmt: skip
    wanted = (x.shape[1], blocks.block_out, blocks.block_in)
    require(w.rank == 5 and (w.shape[0], *w.shape[3:]) == wanted, f"weights {w} do not fit {x} and {blocks}")
    out_h, out_w = _convolution_outputs(x, (TAP_ROWS * w.shape[1], TAP_COLUMNS * w.shape[2]), attrs)
    shape = accumulator_shape(x, blocks)
    return TensorType((*shape[:2], out_h, out_w, *shape[4:]), "int32")


def _tapped(x: Array, w: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    plain = packed_layout.unpack_padded(x)
    result = numerics.convolve_integers(plain, packed_layout.unpack_depthwise_taps(w), groups=plain.shape[1], **attrs)
    return packed_layout.pack_accumulator(result, blocks_of(blocks))


def _lower_tapped(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, w = operands
    _, rows, columns, _, _ = w.shape
    window = window_of(call.attrs, (TAP_ROWS * rows, TAP_COLUMNS * columns))
    data = padded_copy(builder, x, window, 1, call.attr("pad_value"), "int8")
    axes = [te.reduce_axis(rows, "th"), te.reduce_axis(columns, "tw"),
            te.reduce_axis(TAP_ROWS, "kh"), te.reduce_axis(TAP_COLUMNS, "kw")]  # fmt: skip
    th, tw, kh, kw = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, ko, *window.place(y, x, th * TAP_ROWS + kh, tw * TAP_COLUMNS + kw), ro, n, so)]
        weight = w[ko, th, tw, kh * TAP_ROW_OUTPUTS + kw, so]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce, builder.tapped = call, builder.name("acc"), True
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


_TAPPED = Blocks(1, 16, 16)

register(Operator(
    "packed_tapped_conv2d", "x w", types=_tapped_type, numpy=_tapped, lower=packed(_lower_tapped), **_CONVOLUTION,
    sample=packed_sample(
        "packed_tapped_conv2d", packed_layout.pack_depthwise_taps(sample_values((9, 1, 3, 2)), _TAPPED),
        blocks=_TAPPED, strides=(2, 1), pads=(0, 1, 0, 1),
    ),
    doc="Depthwise conv2d in the array's depthwise mode, on packed tensors, weights (Ko, TH, TW, block_out, block_in): "
        "windows of 3*TH x 3*TW.",
))  # fmt: skip


def _pool_type(dtype: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        x, blocks = operands[0], blocks_of(attrs["blocks"])
        require_dtype(x, "the input", "int8")
        require_packed(x, "the input", blocks)
        plain = pool_type(TensorType(plain_shape(x, blocks), "int8"), attrs, dtype)
        return blocks.packed_type(plain)

    return rule


def _max_pool(x: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    pooled = numerics.max_pool(packed_layout.unpack_padded(x), pad_value=-128, **attrs)
    return packed_layout.pack_activation(pooled, blocks_of(blocks))


def _sum_pool(x: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    return packed_layout.pack_accumulator(numerics.sum_pool(packed_layout.unpack_padded(x), **attrs), blocks_of(blocks))


def _lower_pool(pad_value: str | int, reduction: Callable[..., te.Reduction]) -> PackedRule:
    def rule(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
        window = window_of(call.attrs, call.attr("kernel"))
        pad = pad_value if isinstance(pad_value, int) else call.attr(pad_value)
        data = padded_copy(builder, operands[0], window, builder.blocks.output_rows, pad, "int32")
        return _windowed(builder, call, data, window, lambda value, index, kh, kw: reduction(value, [kh, kw]))

    return rule


register(Operator(
    "packed_max_pool", "x", types=_pool_type("int8"), numpy=_max_pool, lower=packed(_lower_pool(-128, te.max)), **_POOL,
    defaults={**_WINDOW, "kernel": REQUIRED, "dilations": (1, 1)},
    sample=packed_sample("packed_max_pool", kernel=(3, 2), pads=(1, 0, 1, 1)), doc="max_pool on packed tensors.",
))  # fmt: skip
register(Operator(
    "packed_sum_pool", "x", types=_pool_type("int32"), numpy=_sum_pool, lower=packed(_lower_pool("pad_value", te.sum)),
    **_POOL, defaults={**_WINDOW, "kernel": REQUIRED, "pad_value": 0},
    sample=packed_sample("packed_sum_pool", kernel=(3, 2), strides=(2, 1), pad_value=-2),
    doc="sum_pool on packed tensors.",
))  # fmt: skip
