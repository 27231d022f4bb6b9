"""The integer contract on packed tensors (see `packed_layout`): what a kernel of the accelerator computes.

int8 operands have the activation layout, int32 operands the accumulator layout. Every operator carries the array's
shape in ``blocks`` = (batch, block_in, block_out). Convolutions and poolings are in `window_operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .... import tensor as te
from ....graph.ir import Array, Attrs, Call, Constant, Expr, Function, TensorType, Var
from ....graph.registry import (
    REQUIRED,
    Accuracy,
    Family,
    Fusion,
    Operator,
    Sample,
    TypeRule,
    call,
    register,
    unsupported,
)
from ....graph.visit import calls
from ....operators import numerics
from ....operators.integer import (
    LOOK_UP_ENTRIES,
    REQUANTISE,
    WEIGHT_RANGE,
    check_requantise_attrs,
    requantise_scalars,
    requantised,
    result_dtype,
)
from ....operators.move import reshaped
from ....operators.reasons import INTEGER_HAS_NO_GRADIENT
from ....operators.samples import sample_of
from ....operators.type_rules import integer, ints, require, require_dtype
from ....tensor import ir as tir
from ....tensor.view import Builder, Index, NotLoweredError, View
from . import packed_layout
from .builder import Accumulated, Formula, PackedBuilder, PackedRule, packed
from .packed_layout import Blocks, blocks_of


def packed_form(op: str) -> str:
    """The name of what computes an operator of the integer contract on packed tensors."""
    return f"packed_{op}"


def plain_form(op: str) -> str:
    """The operator of the integer contract that a packed one computes."""
    return op.removeprefix(packed_form(""))


PACKED: dict[str, Any] = {
    "family": Family.PACKED, "gradient": INTEGER_HAS_NO_GRADIENT, "accuracy": Accuracy.EXACT,
}  # fmt: skip
_ARITHMETIC: dict[str, Any] = {**PACKED, "fusion": Fusion.ELEMENTWISE}

AS_PIXEL = packed_form("as_pixel")

SAMPLE_BLOCKS, SAMPLE_SHAPE = Blocks(2, 4, 8), (3, 9, 4, 6)


def sample_values(shape: tuple[int, ...], dtype: str = "int8") -> Array:
    """Weights of a sample."""
    return np.resize(np.arange(-7, 8), shape).astype(dtype)


def packed_sample(
    op: str, *constants: Array, operands: int = 1, blocks: Blocks = SAMPLE_BLOCKS, **attrs: Any
) -> Sample:
    """A call on packed variables of `SAMPLE_SHAPE`, then constants."""

    def build(dtype: str) -> Call:
        kind = blocks.packed_type(TensorType(SAMPLE_SHAPE, dtype))
        variables = (Var(f"x{number}", kind) for number in range(operands))
        return call(op, *variables, *map(Constant, constants), blocks=blocks.sizes, **attrs)

    return build


def require_packed(x: TensorType, what: str, blocks: Blocks) -> None:
    rows = blocks.input_rows if x.dtype == "int8" else blocks.output_rows
    fits = x.rank == 7 and x.shape[4:] == (rows, blocks.batch, blocks.sub_block)
    require(fits, f"{what} {x} is not packed for {blocks}")


def plain_shape(x: TensorType, blocks: Blocks) -> tuple[int, int, int, int]:
    """(N, C, H, W) with padding."""
    outer, groups, height, width, rows, batch, lanes = x.shape
    return outer * batch, groups * rows * lanes, height, width


def accumulator_shape(x: TensorType, blocks: Blocks) -> tuple[int, ...]:
    return blocks.accumulator_shape(plain_shape(x, blocks))


def _requantise_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, params = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8", "int32")
    require_packed(x, "the input", blocks)
    shape = accumulator_shape(x, blocks)
    wanted, shared = (TensorType((groups, 3, *shape[4:]), "int32") for groups in (shape[1], 1))
    require(params in (wanted, shared), f"the parameters must be {wanted} or {shared}, not {params}")
    dtype = check_requantise_attrs(attrs)
    return blocks.packed_type(TensorType(plain_shape(x, blocks), dtype))


def _as_accumulator(x: Array, blocks: Blocks) -> Array:
    return packed_layout.activation_to_accumulator(x, blocks) if x.dtype == np.int8 else x


def _requantise(x: Array, params: Array, blocks: Sequence[int], **attrs: Any) -> Array:
    shape = blocks_of(blocks)
    bias, multiplier, shift = (params[None, :, i, None, None] for i in range(3))
    result = numerics.requantise(_as_accumulator(x, shape), bias, multiplier, shift, **attrs)
    return packed_layout.accumulator_to_activation(result, shape) if result.dtype == np.int8 else result


def _parameters(params: te.Tensor, index: Index) -> Iterator[tir.Expr]:
    """Bias, multiplier and shift of a lane: those of its channel group, or what all groups share."""
    group = index[1] if params.shape[0] > 1 else tir.Const(0)
    return (params[(group, entry, *index[4:])] for entry in range(3))


def _lower_requantise(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, params = builder.in_accumulator(operands[0]), operands[1]
    scalars, rounding = requantise_scalars(call), str(call.attr("rounding"))

    def formula(index: Index) -> tir.Expr:
        bias, multiplier, shift = _parameters(params, index)
        return requantised(x[index], bias, multiplier, shift, *scalars, rounding=rounding)

    result = builder.stage(x.shape, formula, "requantised", narrow=builder.narrow)
    builder.read_parameters(result, params)
    return result


register(Operator(
    "packed_requantise", "x params", types=_requantise_type, numpy=_requantise, lower=packed(_lower_requantise),
    **_ARITHMETIC, defaults={"blocks": REQUIRED, **REQUANTISE}, sample=packed_sample(
        "packed_requantise",
        packed_layout.pack_parameters(
            sample_values((9,)), np.full(9, 12_345_678), np.arange(24, 33), SAMPLE_BLOCKS
        ),
    ),
    doc="requantise on packed tensors; params (Ko, 3, ro, n, bs) holds bias, multiplier, shift; Ko is 1 "
        "where all groups share them.",
))  # fmt: skip


def _table_type(x: TensorType, table: TensorType, blocks: Blocks, attrs: Attrs) -> TensorType:
    wanted = TensorType((LOOK_UP_ENTRIES, *accumulator_shape(x, blocks)[4:]), "int8")
    require(table == wanted, f"the table must be {wanted}, not {table}")
    return blocks.packed_type(TensorType(plain_shape(x, blocks), result_dtype(attrs)))


def _look_up_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, table = operands
    blocks = blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8", "int32")
    require_packed(x, "the input", blocks)
    return _table_type(x, table, blocks, attrs)


def _look_up(x: Array, table: Array, blocks: Sequence[int], out: str) -> Array:
    shape = blocks_of(blocks)
    entry = _as_accumulator(x, shape).astype(np.uint8).astype(np.int64)
    result = np.take_along_axis(table.reshape(LOOK_UP_ENTRIES, -1), entry.reshape(-1, table[0].size), 0)
    result = result.reshape(entry.shape)
    return packed_layout.accumulator_to_activation(result, shape) if out == "int8" else result.astype(np.int32)


def looked_up(table: te.Tensor | tir.Buffer, value: tir.Expr, lane: Sequence[tir.Expr]) -> tir.Expr:
    """What a lane's table holds for a value: its entry, of int8, at the low 8 bits."""
    return table[(value.astype("uint8").astype("int64"), *lane)]


def is_requantised(function: Function) -> bool:
    """Whether a packed function ends with a requantise, perhaps through a table: what can go to ``inp``."""
    return isinstance(function.body, Call) and str(function.body.op).startswith(packed_form("requantise"))


def tables_of(function: Function) -> set[Expr]:
    """The tables of a packed function, which all channels share."""
    return {node.args[-1] for node in calls(function.body) if str(node.op).endswith("look_up")}


def _lower_look_up(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, table = builder.in_accumulator(operands[0]), builder.table(operands[1])

    def formula(index: Index) -> tir.Expr:
        return looked_up(table, x[index], index[4:])

    return builder.stage(x.shape, formula, "looked_up", narrow=builder.narrow)


register(Operator(
    "packed_look_up", "x table", types=_look_up_type, numpy=_look_up, lower=packed(_lower_look_up), **_ARITHMETIC,
    defaults={"blocks": REQUIRED, "out": "int8"}, sample=packed_sample(
        "packed_look_up", packed_layout.pack_table(np.arange(-128, 128, dtype=np.int8)[::-1], SAMPLE_BLOCKS),
    ),
    doc="look_up on packed tensors; table (256, ro, n, bs) holds what each lane gives for 0..127, then -128..-1.",
))  # fmt: skip


def _requantise_look_up_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, params, table = operands
    narrow = {**dict(attrs), "left_shift": 0}
    _requantise_type((x, params), Attrs({**narrow, "out": "int8"}))
    return _table_type(x, table, blocks_of(attrs["blocks"]), attrs)


def _requantise_look_up(x: Array, params: Array, table: Array, blocks: Sequence[int], out: str, **attrs: Any) -> Array:
    return _look_up(_requantise(x, params, blocks, left_shift=0, out="int32", **attrs), table, blocks, out)


def _lower_requantise_look_up(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    x, params, table = builder.in_accumulator(operands[0]), operands[1], builder.table(operands[2])
    scalars, rounding = (call.attr("zero_point"), call.attr("low"), call.attr("high")), str(call.attr("rounding"))

    def formula(index: Index) -> tir.Expr:
        bias, multiplier, shift = _parameters(params, index)
        narrow = requantised(x[index], bias, multiplier, shift, *scalars, rounding=rounding)
        return looked_up(table, narrow, index[4:])

    result = builder.stage(x.shape, formula, "requantised", narrow=builder.narrow)
    builder.read_parameters(result, params)
    return result


register(Operator(
    "packed_requantise_look_up", "x params table", types=_requantise_look_up_type, numpy=_requantise_look_up,
    lower=packed(_lower_requantise_look_up), **_ARITHMETIC, defaults={
        "blocks": REQUIRED, **{name: value for name, value in REQUANTISE.items() if name != "left_shift"}
    },
    sample=packed_sample(
        "packed_requantise_look_up",
        packed_layout.pack_parameters(
            sample_values((9,)), np.full(9, 12_345_678), np.arange(24, 33), SAMPLE_BLOCKS
        ),
        packed_layout.pack_table(np.arange(-128, 128, dtype=np.int8)[::-1], SAMPLE_BLOCKS),
    ),
    doc="packed_look_up of an 8-bit packed_requantise, in one step.",
))  # fmt: skip


def _accumulator_type(name: str) -> TypeRule:
    def rule(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
        blocks = blocks_of(attrs["blocks"])
        shapes = []
        for operand in operands:
            require_dtype(operand, "an operand", "int8", "int32")
            require_packed(operand, "operand", blocks)
            shapes.append(accumulator_shape(operand, blocks))
        require(len(set(shapes)) == 1, f"operands differ in shape: {', '.join(map(str, operands))}")
        if name:
            integer(attrs, name, *WEIGHT_RANGE)
        return TensorType(shapes[0], "int32")

    return rule


def _wide(x: Array, blocks: Sequence[int]) -> Array:
    return _as_accumulator(x, blocks_of(blocks)).astype(np.int64)


def _repeating_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    blocks, shapes = blocks_of(attrs["blocks"]), []
    for operand in operands:
        require_dtype(operand, "an operand", "int8", "int32")
        require_packed(operand, "operand", blocks)
        shapes.append(accumulator_shape(operand, blocks))
    a, b = shapes
    fits = (b[0], *b[4:]) == (a[0], *a[4:]) and b[1] in (1, a[1]) and b[2:4] in ((1, 1), a[2:4])
    require(fits, f"{operands[1]} does not repeat into {operands[0]}")
    return TensorType(a, "int32")


def _repeated(x: Accumulated, shape: Sequence[int]) -> Formula:
    """Reads ``x``, of which some axes have one entry for all of ``shape``."""

    def read(index: Index) -> tir.Expr:
        sizes = zip(index, x.shape, shape, strict=True)
        return x[tuple(tir.Const(0) if size == 1 < whole else each for each, size, whole in sizes)]

    return read


def _combined(wish: str, combine: Callable[[tir.Expr, tir.Expr], tir.Expr]) -> PackedRule:
    def rule(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
        a, b = (builder.in_accumulator(operand) for operand in operands)
        read = _repeated(b, a.shape)
        result = builder.stage(a.shape, lambda index: combine(a[index], read(index)), wish, narrow=builder.narrow)
        _over_operand(builder, result, operands[0])
        return result

    return rule


def _immediate(attribute: str, formula: Callable[[tir.Expr, int], tir.Expr]) -> PackedRule:
    def rule(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
        x, value = builder.in_accumulator(operands[0]), call.attr(attribute)
        result = builder.stage(x.shape, lambda index: formula(x[index], value), "scaled", narrow=builder.narrow)
        _over_operand(builder, result, operands[0])
        return result

    return rule


def _over_operand(builder: PackedBuilder, result: te.Tensor, operand: te.Tensor) -> None:
    """Of a layer that is nothing but elementwise, write a result over what it is computed of, where nothing reads that
    again. The first one has room of its own, so that two operands of a later one lie in different banks of ``acc``."""
    alone = builder.window is None and len(builder.vector) > 1 and not builder.narrow
    if alone and operand.name in builder.ending:
        builder.in_place.append((result.name, builder.in_accumulator(operand).name))


def _maximum_immediate(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    """Over its operand where nothing reads that again: a table as ramps is a row of these. Not over sums of a window,
    which are those of a whole tile, while this is overwritten part by part."""
    x, value = builder.in_accumulator(operands[0]), call.attr("value")
    result = builder.stage(x.shape, lambda index: te.maximum(x[index], value), "scaled", narrow=builder.narrow)
    if not builder.narrow and operands[0].name in builder.ending and x.name != builder.reduce:
        builder.in_place.append((result.name, x.name))
    return result


def _multiply_accumulate(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    accumulator, x = (builder.in_accumulator(operand) for operand in operands)
    weight = call.attr("weight")
    # Sums of a window are of a whole tile, while this is overwritten part by part; others may be read again.
    if accumulator.name == builder.reduce or operands[0].name not in builder.ending:
        tile = accumulator
        scaled = builder.stage(tile.shape, lambda index: tile[index] * 1, "scaled", narrow=False)
        accumulator = builder.in_accumulator(scaled)
    result = builder.stage(
        accumulator.shape, lambda index: accumulator[index] + x[index] * weight, "accumulated", narrow=False
    )
    builder.in_place.append((result.name, accumulator.name))
    return result


register(Operator(
    "packed_multiply", "a b", types=_repeating_type, **_ARITHMETIC, defaults={"blocks": REQUIRED},
    numpy=lambda a, b, blocks: numerics.wrap_int32(_wide(a, blocks) * _wide(b, blocks)),
    lower=packed(_combined("product", lambda a, b: a * b)),
    sample=packed_sample("packed_multiply", operands=2),
    doc="a * b, int32; b may have one entry for all pixels, or for all channel groups.",
))  # fmt: skip
register(Operator(
    "packed_add", "a b", types=_repeating_type, **_ARITHMETIC, defaults={"blocks": REQUIRED},
    numpy=lambda a, b, blocks: numerics.wrap_int32(_wide(a, blocks) + _wide(b, blocks)),
    lower=packed(_combined("sum", lambda a, b: a + b)), sample=packed_sample("packed_add", operands=2),
    doc="a + b, int32; b may repeat as in packed_multiply.",
))  # fmt: skip
register(Operator(
    "packed_multiply_immediate", "x", types=_accumulator_type("weight"), **_ARITHMETIC,
    numpy=lambda x, weight, blocks: numerics.wrap_int32(_wide(x, blocks) * weight),
    lower=packed(_immediate("weight", lambda x, value: x * value)),
    defaults={"blocks": REQUIRED, "weight": REQUIRED}, sample=packed_sample("packed_multiply_immediate", weight=100),
    doc="x * weight, int32.",
))  # fmt: skip
register(Operator(
    "packed_subtract_immediate", "x", types=_accumulator_type("value"), **_ARITHMETIC,
    numpy=lambda x, value, blocks: numerics.wrap_int32(_wide(x, blocks) - value),
    lower=packed(_immediate("value", lambda x, value: x - value)),
    defaults={"blocks": REQUIRED, "value": REQUIRED}, sample=packed_sample("packed_subtract_immediate", value=5),
    doc="x - value, int32.",
))  # fmt: skip
register(Operator(
    "packed_maximum_immediate", "x", types=_accumulator_type("value"), **_ARITHMETIC,
    numpy=lambda x, value, blocks: np.maximum(_wide(x, blocks), value).astype(np.int32),
    lower=packed(_maximum_immediate),
    defaults={"blocks": REQUIRED, "value": REQUIRED}, sample=packed_sample("packed_maximum_immediate", value=3),
    doc="max(x, value), int32.",
))  # fmt: skip
register(Operator(
    "packed_multiply_accumulate", "accumulator x", types=_accumulator_type("weight"), **_ARITHMETIC,
    numpy=lambda accumulator, x, weight, blocks: numerics.wrap_int32(
        _wide(accumulator, blocks) + _wide(x, blocks) * weight
    ),
    lower=packed(_multiply_accumulate), defaults={"blocks": REQUIRED, "weight": REQUIRED},
    sample=packed_sample("packed_multiply_accumulate", operands=2, weight=-7),
    doc="accumulator + x * weight, int32.",
))  # fmt: skip


def _concat_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    blocks = blocks_of(attrs["blocks"])
    first = operands[0]
    for operand in operands:
        require_dtype(operand, "an operand", "int8")
        require_packed(operand, "operand", blocks)
        require(
            (operand.shape[0], *operand.shape[2:]) == (first.shape[0], *first.shape[2:]),
            f"{first} and {operand} do not fit together",
        )
    return TensorType((first.shape[0], sum(operand.shape[1] for operand in operands), *first.shape[2:]), "int8")


def _as_pixel_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, blocks = operands[0], blocks_of(attrs["blocks"])
    require_dtype(x, "the input", "int8")
    require_packed(x, "the input", blocks)
    require(blocks.batch == 1, f"images of {blocks} do not lie one after another")
    return blocks.packed_type(TensorType((1, x.size, 1, 1), "int8"))


def _as_pixel_read(builder: PackedBuilder, call: Call, operands: tuple[te.Tensor, ...]) -> te.Tensor:
    if operands[0].shape != call.shape:
        raise NotLoweredError("only a parameter of a function can be read as one pixel")
    return operands[0]


def _pack_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    require_dtype(operands[0], "the input", "int8")
    return blocks_of(attrs["blocks"]).packed_type(operands[0])


def _unpack_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    x, blocks, shape = operands[0], blocks_of(attrs["blocks"]), attrs["shape"]
    require_dtype(x, "the input", "int8")
    plain = TensorType(ints(attrs, "shape", len(shape) if isinstance(shape, tuple) else 0), "int8")
    require(blocks.packed_type(plain) == x, f"{x} is not the packed form of {plain}")
    return plain


register(Operator(
    "packed_concat", "x*", types=_concat_type, numpy=lambda *xs, blocks: np.concatenate(xs, axis=1), **PACKED,
    fusion=Fusion.LAYOUT, lower=unsupported("the linker places its operands side by side, or copies them"),
    defaults={"blocks": REQUIRED}, sample=packed_sample("packed_concat", operands=2),
    doc="Channels one after another: a matter of placement only.",
))  # fmt: skip

register(Operator(
    AS_PIXEL, "x", types=_as_pixel_type, numpy=lambda x, blocks: x.reshape(1, -1, 1, 1, *x.shape[4:]), **PACKED,
    fusion=Fusion.LAYOUT, lower=packed(_as_pixel_read), defaults={"blocks": REQUIRED},
    sample=packed_sample(AS_PIXEL, blocks=Blocks(1, 4, 8)),
    doc="An activation as one image of one pixel, whose channels are its bytes as they lie.",
))  # fmt: skip

_HOST: dict[str, Any] = {**PACKED, "family": Family.HOST, "fusion": Fusion.LAYOUT, "passive": True}


def _lower_pack(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    """Channels and images are filled up once, where there are too few, so that the rest moves elements only."""
    x, blocks = operands[0], blocks_of(call.attr("blocks"))
    shape = plain_shape(call.tensor_type, blocks)
    batch, channels, height, width = packed_layout.spatial(x.shape)
    wide = reshaped(x, (batch, channels, height, width))
    if shape != wide.shape:
        wide = builder.stored(_filled(wide, shape), "filled")

    def moved(index: Index) -> tir.Expr:
        outer, group, row, column, entry, image, lane = index
        channel = (group * blocks.input_rows + entry) * blocks.sub_block + lane
        return wide[(outer * blocks.batch + image, channel, row, column)]

    return View(call.shape, x.dtype, moved)


def _filled(x: View, shape: tuple[int, int, int, int]) -> View:
    """The view with 0 behind its images and its channels."""

    def read(index: Index) -> tir.Expr:
        inside = [place < old for place, old, new in zip(index, x.shape, shape, strict=True) if old < new]
        return tir.select(reduce(lambda a, b: a & b, inside), x[index], tir.Const(0, x.dtype))

    return View(shape, x.dtype, read)


def _lower_unpack(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
    x, blocks = operands[0], blocks_of(call.attr("blocks"))

    def moved(index: Index) -> tir.Expr:
        image, channel, row, column = index
        place = channel // blocks.dram_block, row, column, channel // blocks.sub_block % blocks.input_rows
        return x[(image // blocks.batch, *place, image % blocks.batch, channel % blocks.sub_block)]

    return reshaped(View(packed_layout.spatial(call.shape), x.dtype, moved), call.shape)


register(Operator(
    "pack", "x", types=_pack_type, numpy=lambda x, blocks: packed_layout.pack_activation(x, blocks_of(blocks)), **_HOST,
    lower=_lower_pack, defaults={"blocks": REQUIRED},
    sample=sample_of("pack", SAMPLE_SHAPE, blocks=SAMPLE_BLOCKS.sizes),
    doc="(N, C, H, W) or (N, C) int8 -> the activation layout; padding holds 0.",
))  # fmt: skip
register(Operator(
    "unpack", "x", types=_unpack_type, numpy=lambda x, blocks, shape: packed_layout.unpack(x, shape), **_HOST,
    lower=_lower_unpack, defaults={"blocks": REQUIRED, "shape": REQUIRED},
    sample=packed_sample("unpack", shape=SAMPLE_SHAPE), doc="The activation layout -> shape.",
))  # fmt: skip
