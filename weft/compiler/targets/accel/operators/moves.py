"""Entries that change places: whatever moves pixels of whole channel blocks, as one operator on packed tensors.

Window partitions, rolls, transposes, slices, pads and concatenations in any order are one list: for each entry of the
result, in the order in which they lie, the number of the one that it holds, or of what it is filled with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from ....graph.ir import Array, Attrs, Call, Constant, Function, TensorType, Var
from ....graph.registry import REQUIRED, Fusion, Operator, call, operator_of, register, unsupported
from ....operators.type_rules import ints, require, require_dtype
from .operators import PACKED, SAMPLE_BLOCKS, SAMPLE_SHAPE, require_packed
from .packed_layout import Blocks, blocks_of

MOVE = "packed_move"
_LARGEST = 127


def entry_of_fill(value: int | Array) -> Any:
    """The number, below 0, of an entry that holds an int8 value in all lanes."""
    return value - _LARGEST - 1


def fill_of_entry(number: int | Array) -> Any:
    """The value of an entry of `entry_of_fill`."""
    return number + _LARGEST + 1


def move_call(name: str, entries: Array, operands: Sequence[Var], blocks: Blocks, shape: tuple[int, ...]) -> Call:
    """``entries``: int32, one for each entry of the packed ``shape``. Numbers count the operands' entries, one operand
    after another."""
    numbers = Constant(entries.astype(np.int32), f"{name}.entries")
    return call(MOVE, numbers, *operands, blocks=blocks.sizes, shape=shape)


def entries_of(function: Function) -> Array | None:
    """The entries of a function that is a move; None of all others."""
    body = function.body
    if not isinstance(body, Call) or body.op != MOVE or not isinstance(body.args[0], Constant):
        return None
    return body.args[0].value


def is_linked(function: Function) -> bool:
    """Whether a primitive function has no kernel, because the linker places or copies what it gives: of any number of
    operands."""
    entry = operator_of(function.body)
    return entry is not None and entry.is_variadic


def is_renaming(entries: Array, operands: Sequence[tuple[int, ...]]) -> bool:
    """Whether a move only gives the bytes of its one operand, of a packed shape, another shape."""
    if len(operands) != 1 or len(entries) != prod(operands[0][:-2]):
        return False
    return bool(np.array_equal(entries, np.arange(len(entries))))


def first_entries(operands: Sequence[tuple[int, ...]]) -> list[int]:
    """Of operands of these packed shapes, the number of the first entry of each, and of the one behind all."""
    return [0, *accumulate(prod(shape[:-2]) for shape in operands)]


def _move_type(operands: Sequence[TensorType], attrs: Attrs) -> TensorType:
    entries, *data = operands
    blocks, shape = blocks_of(attrs["blocks"]), ints(attrs, "shape", 7)
    require(blocks.block_in == blocks.block_out, f"entries of {blocks} do not move as a whole")
    for operand in data:
        require_dtype(operand, "an operand", "int8")
        require_packed(operand, "operand", blocks)
    made = TensorType(shape, "int8")
    require_packed(made, "the result", blocks)
    require(entries == TensorType((prod(shape[:-2]),), "int32"), f"{entries} is not a number for each entry of {made}")
    return made


def _move(entries: Array, *operands: Array, blocks: Sequence[int], shape: tuple[int, ...]) -> Array:
    lanes = shape[-2:]
    fills = np.arange(-_LARGEST - 1, _LARGEST + 1, dtype=np.int8).reshape(-1, 1, 1)
    every = np.concatenate([np.broadcast_to(fills, (len(fills), *lanes)), *(x.reshape(-1, *lanes) for x in operands)])
    moved: Array = every[entries + len(fills)].reshape(shape)
    return moved


_SAMPLE = Blocks(SAMPLE_BLOCKS.batch, SAMPLE_BLOCKS.block_in, SAMPLE_BLOCKS.block_in)


def _sample(dtype: str) -> Call:
    kind = _SAMPLE.packed_type(TensorType(SAMPLE_SHAPE, dtype))
    operands = Var("x0", kind), Var("x1", kind)
    entries = np.arange(kind.size // prod(kind.shape[-2:]))[::-1] - 5
    return move_call("move", entries, operands, _SAMPLE, kind.shape)


register(Operator(
    MOVE, "entries x*", types=_move_type, numpy=_move, **PACKED, fusion=Fusion.LAYOUT,
    lower=unsupported("the linker copies its entries"), defaults={"blocks": REQUIRED, "shape": REQUIRED},
    sample=_sample,
    doc="Entries in other places: for each of the result the number of an operand's, one operand after another, or "
        "v - 128 for one that holds v.",
))  # fmt: skip
