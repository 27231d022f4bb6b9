"""How tensors lie in the accelerator's memory.

With bs = min(block_in, block_out), bd = max(block_in, block_out), n = batch:

- an *activation* (N, C, H, W) int8 is (No, Cd, H, W, r, n, bs) with No = ceil(N/n), Cd = ceil(C/bd), r = bd/bs;
  channel c stands at cd, ri, si with c = (cd * r + ri) * bs + si;
- an *accumulator* tensor, int32, is (No, Ko, H, W, ro, n, bs) with ro = block_out/bs, Ko = Cd * bd/block_out;
- convolution weights (O, C, KH, KW) are (Ko, Kc, KH, KW, block_out, block_in) with Kc = Cd * bd/block_in;
- weights of groups within a block (block_in = block_out) are (Ko, KH, KW, block_out, block_in): of every channel block
  the matrix with its groups on the diagonal;
- depthwise weights are (Ko, KH, KW, ro, n, bs), repeated over n;
- those of the depthwise mode (batch 1, block_in = block_out) are (Ko, TH, TW, block_out, block_in): for each three rows
  by three columns of taps a matrix whose row 4*kh + kw has tap (kh, kw) of all channels;
- the parameters of a requantise are one array (Ko, 3, ro, n, bs) int32: bias, multiplier, shift, repeated over n; where
  all channel groups have the same, (1, 3, ro, n, bs);
- a table is (256, ro, n, bs) int8: for each number as an unsigned byte what every lane gives for it.

So the last axes of every array are one entry of a scratchpad, and int8 always means the activation layout and int32
the accumulator layout. A tensor (N, C) is stored like (N, C, 1, 1). What padded channels and batch lanes hold is
deterministic, and no result depends on it: their weights are zero. On cores with n > bd the matrices of weights are
spread where the linker places them (`matrix_pitch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....hw.config import CoreConfig
from .....hw.isa import TAP_COLUMNS, TAP_ROW_OUTPUTS, TAP_ROWS
from ....graph.ir import Array, GraphError, TensorType

PACKABLE_RANKS = (2, 4)
"""Of the tensors that have an activation layout."""


def is_packable(x: TensorType) -> bool:
    """Whether a tensor has an activation layout: the core works on int8 elements, of which there must be some."""
    return x.rank in PACKABLE_RANKS and x.dtype == "int8" and 0 not in x.shape


@dataclass(frozen=True)
class Blocks:
    """The array's shape: one matrix product is [batch x block_in] x [block_in x block_out]."""

    batch: int
    block_in: int
    block_out: int

    def __post_init__(self) -> None:
        for name in ("batch", "block_in", "block_out"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise GraphError(f"{name} must be a power of two, not {value}")

    @staticmethod
    def of(core: CoreConfig) -> Blocks:
        """The blocks of a core's array."""
        return Blocks(core.batch, core.block_in, core.block_out)

    @property
    def sub_block(self) -> int:
        """Channels in one entry of the input and output scratchpads (bs)."""
        return min(self.block_in, self.block_out)

    @property
    def dram_block(self) -> int:
        """Channels that are stored together (bd): the unit to which channel counts are rounded up."""
        return max(self.block_in, self.block_out)

    @property
    def input_rows(self) -> int:
        """Pieces of ``sub_block`` channels that make one pixel of ``dram_block`` (r)."""
        return self.dram_block // self.sub_block

    @property
    def input_entry_rows(self) -> int:
        """Rows of an entry of the input scratchpad."""
        return self.block_in // self.sub_block

    @property
    def output_rows(self) -> int:
        """Rows of an accumulator entry (ro)."""
        return self.block_out // self.sub_block

    @property
    def input_parts(self) -> int:
        """Entries of the input scratchpad that hold one pixel of ``dram_block`` channels."""
        return self.dram_block // self.block_in

    @property
    def output_parts(self) -> int:
        """Entries of the accumulator and of the output scratchpad that hold one pixel of ``dram_block`` channels."""
        return self.dram_block // self.block_out

    @property
    def product_block(self) -> int:
        """Channels at a time of a product of two computed tensors, where so many pixels of so many channels, as they
        lie, are a matrix; 0 where they are none."""
        return self.block_in if self.batch == 1 and self.block_in == self.block_out else 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(batch, block_in, block_out): the attribute ``blocks`` of packed operators."""
        return self.batch, self.block_in, self.block_out

    def activation_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Packed shape of an int8 tensor of ``shape`` (N, C, H, W) or (N, C)."""
        batch, channels, height, width = spatial(shape)
        return (
            -(-batch // self.batch), -(-channels // self.dram_block), height, width,
            self.input_rows, self.batch, self.sub_block,
        )  # fmt: skip

    def accumulator_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Packed shape of an int32 tensor of ``shape`` (N, C, H, W) or (N, C)."""
        batch, channels, height, width = spatial(shape)
        groups = -(-channels // self.dram_block) * (self.dram_block // self.block_out)
        return (-(-batch // self.batch), groups, height, width, self.output_rows, self.batch, self.sub_block)

    def packed_type(self, plain: TensorType) -> TensorType:
        """Type of the packed form of an int8 or int32 tensor."""
        if plain.dtype == "int8":
            return TensorType(self.activation_shape(plain.shape), "int8")
        return TensorType(self.accumulator_shape(plain.shape), plain.dtype)


def blocks_of(value: object) -> Blocks:
    """`Blocks` from the attribute ``blocks`` of a packed operator."""
    if not isinstance(value, tuple) or len(value) != 3 or not all(isinstance(item, int) for item in value):
        raise GraphError(f"blocks must be (batch, block_in, block_out), not {value!r}")
    return Blocks(*(int(str(item)) for item in value))


def spatial(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(N, C, H, W) of a shape (N, C) or (N, C, H, W)."""
    if len(shape) == 2:
        return shape[0], shape[1], 1, 1
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    raise GraphError(f"only (N, C) and (N, C, H, W) tensors can be packed, not {tuple(shape)}")


def _pad_axis(x: Array, axis: int, multiple: int) -> Array:
    missing = -x.shape[axis] % multiple
    if not missing:
        return x
    return np.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


def _pack(x: Array, batch: int, groups_of: int, rows: int, lanes: int) -> Array:
    x = _pad_axis(_pad_axis(x.reshape(spatial(x.shape)), 0, batch), 1, groups_of)
    n, c, h, w = x.shape
    split = x.reshape(n // batch, batch, c // (rows * lanes), rows, lanes, h, w)
    return np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4))


def _unpack(x: Array) -> Array:
    """(No, G, H, W, rows, n, lanes) -> (No*n, G*rows*lanes, H, W)."""
    outer, groups, h, w, rows, batch, lanes = x.shape
    return x.transpose(0, 5, 1, 4, 6, 2, 3).reshape(outer * batch, groups * rows * lanes, h, w)


def pack_activation(x: Array, blocks: Blocks) -> Array:
    """(N, C, H, W) or (N, C) -> (No, Cd, H, W, r, n, bs); padding holds 0."""
    return _pack(x, blocks.batch, blocks.dram_block, blocks.input_rows, blocks.sub_block)


def pack_accumulator(x: Array, blocks: Blocks) -> Array:
    """(N, C, H, W) or (N, C) -> (No, Ko, H, W, ro, n, bs); padding holds 0."""
    return _pack(x, blocks.batch, blocks.dram_block, blocks.output_rows, blocks.sub_block)


def unpack_padded(x: Array) -> Array:
    """A packed tensor of either layout -> (N, C, H, W) with its padding."""
    return _unpack(x)


def unpack(x: Array, shape: Sequence[int]) -> Array:
    """A packed tensor of either layout -> ``shape``, without padding."""
    batch, channels, _, _ = spatial(shape)
    return np.ascontiguousarray(_unpack(x)[:batch, :channels]).reshape(shape)


def dense_weights(w: Array, groups: int) -> Array:
    """Weights of a convolution in groups (O, C/groups, KH, KW) as those of a plain one (O, C, KH, KW), with zeros."""
    if groups == 1:
        return w
    out, group_in = w.shape[:2]
    split = w.reshape(groups, out // groups, group_in, *w.shape[2:])
    full = np.zeros((groups, out // groups, groups, *split.shape[2:]), w.dtype)
    own = np.arange(groups)
    full[own, :, own] = split
    return full.reshape(out, groups * group_in, *w.shape[2:])


def pack_weights(w: Array, blocks: Blocks) -> Array:
    """(O, C, KH, KW) -> (Ko, Kc, KH, KW, block_out, block_in), zero padded."""
    w = _pad_axis(_pad_axis(w, 0, blocks.dram_block), 1, blocks.dram_block)
    o, c, kh, kw = w.shape
    split = w.reshape(o // blocks.block_out, blocks.block_out, c // blocks.block_in, blocks.block_in, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def unpack_weights(w: Array) -> Array:
    """(Ko, Kc, KH, KW, block_out, block_in) -> (O, C, KH, KW) with padding."""
    ko, kc, kh, kw, block_out, block_in = w.shape
    return w.transpose(0, 4, 1, 5, 2, 3).reshape(ko * block_out, kc * block_in, kh, kw)


def matrix_pitch(blocks: Blocks) -> int:
    """Entries of ``wgt`` from one matrix of weights to the next in DRAM. More than one where an entry is smaller than
    the unit of addresses (`CoreConfig.granule_bytes`): a load begins at any matrix."""
    return max(1, blocks.batch // blocks.dram_block)


def spread_matrices(w: Array, pitch: int) -> Array:
    """Matrices (..., block_out, block_in) as they lie so far apart, with zeros between."""
    return w if pitch == 1 else _pad_axis(w, w.ndim - 2, pitch * w.shape[-2])


def groups_fit_blocks(groups: int, out_channels: int, group_in: int, blocks: Blocks) -> bool:
    """Whether each of ``groups`` groups of a convolution reads and writes channels of one block, in the same place."""
    square = blocks.block_in == blocks.block_out
    return square and groups * group_in == out_channels and blocks.block_in % group_in == 0


def pack_grouped_weights(w: Array, blocks: Blocks) -> Array:
    """(O, C/groups, KH, KW), of groups that fit blocks -> (Ko, KH, KW, block_out, block_in), zero padded."""
    out, group_in, kernel_h, kernel_w = w.shape
    block = blocks.block_in
    full = np.zeros((out, block, kernel_h, kernel_w), w.dtype)
    channel = np.arange(out)[:, None]
    full[channel, channel // group_in * group_in % block + np.arange(group_in)] = w
    split = _pad_axis(full, 0, block).reshape(-1, block, block, kernel_h, kernel_w)
    return np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2))


def _lanes(values: Array, blocks: Blocks) -> Array:
    """(C, ...) -> (Ko, ..., ro, n, bs): one value a channel, repeated over the batch lanes."""
    values = _pad_axis(values, 0, blocks.dram_block)
    split = values.reshape(-1, blocks.output_rows, blocks.sub_block, *values.shape[1:])
    inner = range(3, split.ndim)
    moved = split.transpose(0, *inner, 1, 2)[..., None, :]
    repeated = np.broadcast_to(moved, (*moved.shape[:-2], blocks.batch, blocks.sub_block))
    return np.ascontiguousarray(repeated)


def pack_depthwise_weights(w: Array, blocks: Blocks) -> Array:
    """(C, 1, KH, KW) -> (Ko, KH, KW, ro, n, bs), zero padded."""
    return _lanes(w[:, 0], blocks)


def unpack_depthwise_weights(w: Array) -> Array:
    """(Ko, KH, KW, ro, n, bs) -> (C, 1, KH, KW) with padding."""
    ko, kh, kw, rows, _, lanes = w.shape
    return w[..., 0, :].transpose(0, 3, 4, 1, 2).reshape(ko * rows * lanes, 1, kh, kw)


def pack_depthwise_taps(w: Array, blocks: Blocks) -> Array:
    """(C, 1, KH, KW) -> (Ko, TH, TW, block_out, block_in), zero padded: of each channel three rows by three columns of
    taps, of which tap (kh, kw) is row ``4 * kh + kw``."""
    split = _pad_axis(w[:, 0], 0, blocks.block_in)
    split = _pad_axis(_pad_axis(split, 1, TAP_ROWS), 2, TAP_COLUMNS)
    _, kernel_h, kernel_w = split.shape
    split = split.reshape(-1, blocks.block_in, kernel_h // TAP_ROWS, TAP_ROWS, kernel_w // TAP_COLUMNS, TAP_COLUMNS)
    split = _pad_axis(split.transpose(0, 2, 4, 3, 5, 1), 4, TAP_ROW_OUTPUTS)
    taps = split.reshape(*split.shape[:3], TAP_ROWS * TAP_ROW_OUTPUTS, blocks.block_in)
    return np.pad(taps, [*[(0, 0)] * 3, (0, blocks.block_out - taps.shape[3]), (0, 0)])


def unpack_depthwise_taps(w: Array) -> Array:
    """(Ko, TH, TW, block_out, block_in) -> (C, 1, 3*TH, 3*TW) with padding."""
    groups, rows, columns, _, block_in = w.shape
    taps = w[:, :, :, : TAP_ROWS * TAP_ROW_OUTPUTS].reshape(groups, rows, columns, TAP_ROWS, TAP_ROW_OUTPUTS, block_in)
    plain = taps[..., :TAP_COLUMNS, :].transpose(0, 5, 1, 3, 2, 4)
    return plain.reshape(groups * block_in, 1, rows * TAP_ROWS, columns * TAP_COLUMNS)


def pack_parameters(bias: Array, multiplier: Array, shift: Array, blocks: Blocks) -> Array:
    """Three arrays (C,) -> (Ko, 3, ro, n, bs) int32, or (1, 3, ro, n, bs) where all channel groups have the same.

    A padded channel has bias 0, multiplier 0, shift 1.
    """
    together = np.stack([bias, multiplier, shift], axis=1).astype(np.int32)
    missing = -len(bias) % blocks.dram_block
    together = np.concatenate([together, np.tile(np.array([[0, 0, 1]], np.int32), (missing, 1))])
    packed = _lanes(together, blocks)
    return packed[:1] if (packed == packed[:1]).all() else packed


def pack_table(table: Array, blocks: Blocks) -> Array:
    """256 int8 results, that of -128 first -> (256, ro, n, bs) int8, in the order of unsigned bytes: the same for every
    lane."""
    lanes = (blocks.output_rows, blocks.batch, blocks.sub_block)
    rotated = np.roll(table, -(len(table) // 2))
    return np.ascontiguousarray(np.broadcast_to(rotated[:, None, None, None], (len(table), *lanes)))


def activation_to_accumulator(x: Array, blocks: Blocks) -> Array:
    """The activation layout -> the accumulator layout, same values."""
    outer, groups, h, w, entries, batch, lanes = x.shape
    parts = entries // blocks.output_rows
    split = x.reshape(outer, groups, h, w, parts, blocks.output_rows, batch, lanes)
    moved = split.transpose(0, 1, 4, 2, 3, 5, 6, 7)
    return moved.reshape(outer, groups * parts, h, w, blocks.output_rows, batch, lanes)


def accumulator_to_activation(x: Array, blocks: Blocks) -> Array:
    """The accumulator layout -> the activation layout, same values."""
    outer, groups, h, w, rows, batch, lanes = x.shape
    parts = blocks.input_rows // blocks.output_rows
    split = x.reshape(outer, groups // parts, parts, h, w, rows, batch, lanes)
    moved = split.transpose(0, 1, 3, 4, 2, 5, 6, 7)
    return np.ascontiguousarray(moved.reshape(outer, groups // parts, h, w, parts * rows, batch, lanes))
