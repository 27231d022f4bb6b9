"""Convolutions as products in register tiles: packed data, packed weights, a tile of pixels times output channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Literal, Protocol

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...graph.registry import Anchor, operator_of
from ...tensor import ir as tir
from ...tensor.view import Builder, View
from ..errors import CompileError
from .byte_pairs import PairedWeights, by_pairs
from .convolution_sums import byte_sums, float_sums, grouped_sums, packed_bytes, pair_sums, word_sums
from .fusion import FusedGroup
from .kernels import Array, Kernel, Operands, Tile, finished, lower_members
from .layouts import (
    PAIR,
    PREFERRED_BLOCKS,
    QUAD,
    UINT8_OFFSET,
    Layout,
    brought_into_blocks,
    channel_block,
    filled_block,
    halo_of,
    to_memory,
)
from .narrow_requantise import adds_bias
from .phases import joins_phases
from .placement import Placement, held
from .product import Step
from .single_pixels import as_image, as_row, has_single_pixels
from .winograd import Winograd, tiled_axes, winograd_form, winograd_sums

STEPS: dict[str, Step] = {"float32": "floats", "int8": "bytes", "bfloat16": "pairs"}
"""What is multiplied at a time in convolutions of each type that has a form in register tiles."""

TOGETHER: dict[Step, int] = {"floats": 1, "bytes": QUAD, "pairs": PAIR, "words": PAIR, "elements": QUAD}
"""How many channels that is."""


def is_convolution(call: Call) -> bool:
    """Whether a call is a convolution."""
    entry = operator_of(call)
    return entry is not None and entry.anchor is Anchor.CONVOLUTION


def is_matrix_convolution(call: Call) -> bool:
    """Whether a call is a convolution with constant weights that has a form in register tiles."""
    return (
        is_convolution(call) and isinstance(call.args[1], Constant)
        and call.args[0].dtype in STEPS and not isinstance(call.args[0], Constant)
        and result_block(call) > 0 and not is_token_product(call)
    )  # fmt: skip


def is_token_product(call: Call) -> bool:
    """Whether a call is a convolution of a batch of single pixels of bytes with constant weights, all as wide as the
    kernel: a product of matrices, of which the batch has the rows."""
    if not is_convolution(call) or not isinstance(call.args[1], Constant) or isinstance(call.args[0], Constant):
        return False
    single = all(size == 1 for each in (call.args[0], call.args[1], call) for size in each.shape[2:])
    plain = call.attr("groups") == 1 and not any(call.attr("pads"))
    block = channel_block(call.shape[1])
    return call.args[0].dtype == "int8" and single and plain and call.shape[0] > 1 and block in PREFERRED_BLOCKS


def result_block(call: Call, together: Callable[[int], int] = filled_block) -> int:
    """Channels in a block of a convolution's result: of one group, or of some whole groups; 0 if neither can be. Of one
    group the last block may have channels that nobody uses. ``together``: the channels of a block of so many."""
    channels, groups = call.shape[1], call.attr("groups")
    if groups == 1:
        return together(channels)
    block = channel_block(channels)
    if group_in_block(call, block):
        return block
    data_channels, own = call.args[1].shape[1], channel_block(channels // groups)
    return own if own in PREFERRED_BLOCKS and channel_block(data_channels) in PREFERRED_BLOCKS else 0


def data_block(call: Call, present: int, together: Callable[[int], int] = filled_block) -> int:
    """Channels in a block of a convolution's data; ``present``: those that it has already (0: it is plain);
    ``together``: as in `result_block`."""
    block = result_block(call, together)
    if group_in_block(call, block):
        return block
    multiple = _together(call)
    channels = call.args[1].shape[1]  # of a group
    if present and present % multiple == 0 and (call.attr("groups") == 1 or channels % present == 0):
        return present
    filled = together(channels)  # no block of a group may have channels that nobody uses: the next group begins there
    if multiple == 1 and channels > PREFERRED_BLOCKS[0] and (call.attr("groups") == 1 or channels % filled == 0):
        return filled
    return channel_block(channels, multiple)


def group_in_block(call: Call, block: int) -> int:
    """Channels of a group, where several groups that take as many channels as they make fit into a block; else 0."""
    groups, size = call.attr("groups"), call.args[1].shape[1]
    fits = 1 < size < block and block % size == 0 and size % _together(call) == 0 and block in PREFERRED_BLOCKS
    possible = fits and call.args[0].dtype != "bfloat16"
    return size if groups > 1 and call.shape[1] == groups * size and possible else 0


def _together(call: Call) -> int:
    return TOGETHER[STEPS.get(call.args[0].dtype, "floats")]


def padded_layout(call: Call, block: int) -> Layout:
    """How a convolution wants its data: in such blocks, with its padding around."""
    return Layout(block, halo_of(call.attr("pads")), int(str(call.attrs.get("pad_value", 0))))


def joined_phases(group: FusedGroup) -> tuple[int, int]:
    """How many phases, down and right, a group's convolution makes as channels and writes side by side."""
    down, right = group.root.attr("factors") if joins_phases(group.root) else (1, 1)
    return down, right


WIDENED: tuple[Step, ...] = ("words", "elements")
"""Steps of bytes that are words by then."""

WORD_BYTES = 2
SUMS = {"floats": float_sums, "bytes": byte_sums, "pairs": pair_sums}


@dataclass(frozen=True)
class ConvolutionTask:
    """What a schedule has to know. The stage ``acc``, of shape (N, tiles, H, W, lanes), adds up; the result is
    (N, tiles, blocks of a tile, H, W, b), with axes of phases before the tiles where there are several, and an axis of
    depth before H in both of a volume.

    ``axes``: of an image 2, of a volume 3. ``row_stride``: elements of the data from one pixel of a tile to the next.
    ``group``: channels of a group where a block holds several groups, else 0. ``step``: what is multiplied. ``paired``:
    whether the bytes of ``acc`` bear sums of pairs in 16 bits; there may be a stage `REST` with others.
    ``weights_a_row``: bytes of all weights, where data is widened to words and each row of it is used for one row of
    the result only; else 0. ``winograd``: how the last axes are computed by twos, if they are. ``pixels``: of a block,
    where data of single pixels is brought together; else 0.
    """

    axes: int
    tile: Tile
    row_stride: int
    group: int
    step: Step
    paired: bool = False
    weights_a_row: int = 0
    winograd: Winograd | None = None
    pixels: int = 0


class ConvolutionSchedule(Protocol):
    """A target's way to compute convolutions."""

    @property
    def pairs(self) -> bool:
        """Whether there is an instruction for values of bfloat16 by twos."""

    def block(self, channels: int) -> int:
        """Channels that lie together, of so many; the last block may have some that nobody uses."""

    def tile(self, width: int, channels: int, block: int, step: Step) -> Tile:
        """For rows of ``width`` pixels and groups of ``channels``; its lanes are whole blocks, and divide a group."""

    def grouped_tile(self, width: int, block: int) -> Tile:
        """Where a block holds several groups; its lanes are one block."""

    @property
    def words(self) -> Literal["", "words", "elements"]:
        """In which steps of words bytes are multiplied that are not multiplied by pairs; none if they stay bytes."""

    def by_pairs(self, tile: Tile, quads: int, rest: int) -> bool:
        """Whether sums of bytes are worth being computed by pairs in 16 bits, for a tile of so many fours of weights of
        which ``rest`` do not bear that and are multiplied twice."""

    def by_twos(self, plan: Winograd, taken: int, made: int) -> Winograd | None:
        """The blocks in which a convolution of so many channels of a group is computed by twos, as words; None where
        that is not worth it."""

    def pixels(self, sizes: Sequence[int], taken: tuple[int, int], channels: int, block: int, step: Step) -> int:
        """Pixels of a block in which data of single pixels is brought together for a result of these ``sizes`` and
        groups of ``channels``; 0 where it is read where it lies. ``taken``: blocks of channels of the data, and
        channels of one. ``step``: for data of this type."""

    def together(self, tile: Tile) -> int:
        """Lanes of a tile for which those that are multiplied twice are found apart."""

    def arrange(self, schedule: te.Schedule, task: ConvolutionTask) -> None:
        """Schedule the kernel."""


@dataclass(frozen=True)
class ConvolutionKernels:
    """Groups whose anchor is a convolution that has a form in register tiles, blocked from data to result."""

    schedule: ConvolutionSchedule
    name: str = "convolution"

    def result_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None or not self.needs_blocks(group.anchor):
            return None
        phases = prod(joined_phases(group))
        if phases > 1:
            return Layout(channel_block(group.root.shape[1]))
        block = result_block(group.anchor, self.schedule.block)
        return Layout(block if may_fill(group, placement, block) else channel_block(group.anchor.shape[1]))

    def data_layout(self, group: FusedGroup, placement: Placement) -> Layout | None:
        if group.anchor is None:
            return None
        present = placement.layout(group.anchor.args[0]).block
        return padded_layout(group.anchor, data_block(group.anchor, present, self.schedule.block))

    def needs_blocks(self, anchor: Call) -> bool:
        return is_matrix_convolution(anchor) and (self.schedule.pairs or anchor.args[0].dtype != "bfloat16")

    def build(self, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, name: str) -> Kernel:
        anchor = group.anchor
        if anchor is None or not isinstance(anchor.args[1], Constant):
            raise CompileError("it has no convolution with constant weights", at=f"kernel {group.name!r}")
        operands = Operands(Builder(), layouts)
        data, data_layout = operands.tensor(anchor.args[0]), layouts[anchor.args[0]]
        block = layout.block
        channels = -(-anchor.shape[1] // block) * block  # the last may be there to fill a block only
        group_channels = group_in_block(anchor, block)
        phases = joined_phases(group)
        weights = filled(anchor.args[1].value, anchor.shape[1], channels, axes=1)
        step, pixels = STEPS[anchor.args[0].dtype], 0
        if group_channels:
            tile = self.schedule.grouped_tile(anchor.shape[-1], block)
        else:
            own = channels // anchor.attr("groups") // prod(phases)
            if has_single_pixels(anchor) and prod(phases) == 1:
                taken = data.shape[1], data_layout.block
                pixels = self.schedule.pixels(anchor.shape[2:], taken, own, block, step)
            row = pixels or anchor.shape[-1], own, block
            tile = self.schedule.tile(*row, step)
        if pixels:
            weights = weights.reshape(*weights.shape[:2], 1, 1)
        sums = grouped_sums if group_channels else SUMS[step]
        paired, form = None, ""
        plan = None
        if step == "bytes" and not (group_channels or pixels or prod(phases) > 1):
            plan = self._by_twos(anchor, weights)
        if plan is not None:
            step = self.schedule.words or step
            tile = self.schedule.tile(plan.positions, *row[1:], step)
            sums, form = partial(winograd_sums, together=TOGETHER[step], plan=plan), winograd_form(plan)
        elif step == "bytes" and not group_channels:
            paired, form = self._paired(packed_bytes(weights, data_layout, tile), tile)
            sums = partial(byte_sums, paired=paired)
            if paired is None and self.schedule.words:
                step = self.schedule.words
                tile = self.schedule.tile(*row, step)
                sums = partial(word_sums, together=TOGETHER[step])
        if pixels:
            flat, near = as_row(anchor, data, data_layout, weights, "int16" if step in WIDENED else data.dtype)
            made = as_image(anchor, sums(flat, operands, near, Layout(data_layout.block), weights, tile))
            row_stride = data.shape[1] * data_layout.block
        else:
            made = sums(anchor, operands, data, data_layout, weights, tile)
            row_stride = (1 if plan is not None else anchor.attr("strides")[-1]) * data_layout.block
        views: dict[Expr, View] = {anchor: made}

        def constant(call: Call, place: int, node: Constant) -> View:
            axis = 0 if len(node.shape) == 1 else 1
            whole = replace(node, value=filled(node.value, anchor.shape[1], channels))
            view = operands.constant(whole, axis if len(node.shape) > axis else None)
            return replace(view, shape=node.shape)

        if data.dtype == "uint8":
            views = without_excess(group, views[anchor], weights[: anchor.shape[1]], operands, constant)
        members = replace(group, members=group.members[:-1]) if prod(phases) > 1 else group
        result = lower_members(members, operands, views, constant)
        tiles = channels // tile.lanes // prod(phases)
        batch, _, *sizes = anchor.shape
        apart = phases if prod(phases) > 1 else ()

        def value(n: tir.Expr, *rest: tir.Expr) -> tir.Expr:
            phase, (o, g, *places, lane) = rest[: len(apart)], rest[len(apart) :]
            first = (phase[0] * phases[1] + phase[1]) * tiles + o if phase else o
            return to_memory(result[(n, first * tile.lanes + g * block + lane, *places)], layout)

        shape = (batch, *apart, tiles, tile.lanes // block, *sizes, block)
        output = te.compute(shape, value, operands.builder.name("out"))
        by_rows = step in WIDENED and prod(weights.shape[2:-1]) == 1 and plan is None and not pixels
        once = weights.size * WORD_BYTES if by_rows else 0
        task = ConvolutionTask(
            len(sizes), tile, row_stride, group_channels, step, paired is not None, once, plan, pixels
        )
        arrange = partial(self.schedule.arrange, task=task)
        kernel = replace(finished(operands, group.root.shape, output, layout, name, arrange), form=form)
        if not apart:
            return kernel
        image, blocks, rows, columns, _ = tir.row_major_strides(layout.shape(group.root.shape))
        strides = (image, rows, columns, blocks * shape[4], blocks, rows * apart[0], columns * apart[1], 1)
        top, left, *_ = group.root.attr("left_out")
        offset = kernel.offset - top * rows - left * columns
        return replace(kernel, windows={output.name: strides}, offset=offset)

    def _by_twos(self, call: Call, weights: Array) -> Winograd | None:
        """How a convolution of bytes is computed by twos, if it is."""
        axes = tiled_axes(call, weights) if self.schedule.words else ()
        made = weights.shape[0] // call.attr("groups")
        return self.schedule.by_twos(Winograd(axes), weights.shape[1], made) if axes else None

    def _paired(self, packed: Array, tile: Tile) -> tuple[PairedWeights | None, str]:
        """Packed weights in two parts, where sums by pairs are worth it; that or why not, where these could be."""
        quads = prod(packed.shape[1:-2])
        if not self.schedule.by_pairs(tile, quads, 0):
            return None, ""
        paired = by_pairs(packed, self.schedule.together(tile))
        rest = paired.rest.shape[2]
        twice = f"{rest} of {quads} fours of weights"
        if self.schedule.by_pairs(tile, quads, rest):
            return paired, f"pairs in 16 bits; {twice} once more"
        return None, f"words; by pairs in 16 bits {twice} once more"


def may_fill(group: FusedGroup, placement: Placement, block: int) -> bool:
    """Whether a kernel can make channels that nobody uses, up to whole blocks: all that it reads beside the data of its
    anchor has them, too, or is brought into such blocks."""
    anchor = group.anchor
    if (anchor or group.root).shape[1] % block == 0:
        return True
    others = {arg for member in group.members if member is not anchor for arg in member.args} & set(group.inputs)

    def has_them(value: Expr) -> bool:
        layout = placement.layout(held(value))
        apart = anchor is None or value != anchor.args[0]
        comes = layout.is_plain and apart and brought_into_blocks(value, group.root, Layout(block))
        return comes or layout.block == block

    return all(has_them(value) for value in others if not isinstance(value, Constant))


def filled(value: Array, channels: int, wanted: int, axes: int | None = None) -> Array:
    """An array of which each axis of ``channels`` elements, of the first ``axes``, has as many as ``wanted``: the last
    repeated. So channels that nobody uses hold no value that the last one does not hold, as an infinity."""
    for axis, size in enumerate(value.shape[:axes]):
        if size == channels != wanted:
            value = value.take(np.minimum(np.arange(wanted), size - 1), axis)
    return value


def without_excess(
    group: FusedGroup, sums: View, weights: Array, operands: Operands,
    constant: Callable[[Call, int, Constant], View],
) -> dict[Expr, View]:  # fmt: skip
    """The sums of data that is held ``UINT8_OFFSET`` too high, less that offset times the sum of the weights. Where a
    requantise alone reads them, it is taken off its bias, and the requantise is among the views, too."""
    anchor = group.anchor
    if anchor is None:
        raise CompileError("it has no convolution", at=f"kernel {group.name!r}")
    excess = weights.astype(np.int64).sum(tuple(range(1, weights.ndim))) * UINT8_OFFSET
    readers = [node for node in group.members if anchor in node.args]
    bias = readers[0].args[1] if len(readers) == 1 and adds_bias(readers[0]) else None
    if anchor is not group.root and isinstance(bias, Constant):
        less = Constant((bias.value.astype(np.int64) - excess).astype(np.int32))  # sums wrap, as the contract's do
        requantise = replace(readers[0], args=(anchor, less, *readers[0].args[2:]))
        views: dict[Expr, View] = {anchor: sums}
        return {**views, readers[0]: lower_members(replace(group, members=(requantise,)), operands, views, constant)}
    known = constant(anchor, 1, Constant(excess.astype(np.int32)))
    return {anchor: View(sums.shape, sums.dtype, lambda index: sums[index] - known[index[1:2]])}
