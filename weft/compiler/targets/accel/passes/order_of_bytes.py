"""Rows that a dense layer reads where they lie: its weights change places, and not the row.

What a layer of the core makes lies in blocks of channels, image by image and pixel by pixel. Where a dense layer reads
all of it as one row, as behind the heads of an attention that has one token, reshapes and transposes stand between, and
the host would move every element. But the weights are constant: those of each channel are put where that channel's byte
lies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....graph import Call, Expr, Function, TensorType, Var, call
from ....graph.visit import substitute
from ..operators import packed_layout
from ..operators.operators import AS_PIXEL
from ..operators.packed_layout import Blocks
from .channel_moves import LARGEST, move_of, moved_by
from .place_concat import Gaps


def moves_before(value: Expr) -> tuple[Expr, list[Call]]:
    """What the moves before ``value`` move, and these moves in their order."""
    moves: list[Call] = []
    while isinstance(value, Call) and move_of(value) is not None:
        moves.insert(0, value)
        value = value.args[0]
    return value, moves


def order_of_bytes(source: Expr, moves: Sequence[Call], blocks: Blocks) -> Gaps | None:
    """Where the channels of one row, which ``moves`` make of ``source``, lie in its packed form; None where they are no
    such row."""
    row = moves[-1].shape
    if blocks.batch != 1 or len(row) != 4 or (row[0], *row[2:]) != (1, 1, 1):
        return None
    packed = blocks.packed_type(source.tensor_type)
    if packed.size > LARGEST or 0 in source.shape:
        return None
    places = packed_layout.unpack(np.arange(packed.size).reshape(packed.shape), source.shape)
    marked = places + packed.size  # what a move fills in is none of them
    for move in moves:
        marked = moved_by(move, marked)
    order = marked.reshape(-1) - packed.size
    if order.min() < 0 or len(np.unique(order)) < len(order):
        return None
    return Gaps((1, packed.size, 1, 1), order)


def reading_as_pixel(function: Function, place: int, source: Expr, blocks: Blocks) -> Function:
    """A packed function that reads its operand ``place``, one row, as the bytes of ``source``."""
    param = function.params[place]
    lies = Var(param.name, TensorType(source.shape, param.dtype))
    row = call(AS_PIXEL, lies, blocks=blocks.sizes)
    params = tuple(lies if each == param else each for each in function.params)
    return Function(params, substitute(function.body, {param: row}), function.attrs, function.span)
