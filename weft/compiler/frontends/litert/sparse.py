"""Constants of which a file holds the elements that are not zero.

The axes of such a tensor, and those of the blocks that some are cut into, are walked in an order of their own. A dense
axis holds every index; a sparse one, in the form that TensorFlow Lite's schema calls CSR, holds for each place of the
axes before it where its indices begin and end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Array
from ..errors import ModelError
from .flatbuffer import Table

INDEX_KINDS = ("", "i", "H", "B")
"""Elements of a vector of indices, by the number of its kind in the schema."""


@dataclass(frozen=True)
class Axis:
    """An axis in the order of the walk: its ``size`` where it is dense; else of each place before it the first of its
    ``indices``, and where the last one ends."""

    size: int
    begins: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True)
class Sparsity:
    """``order``: of each walked axis its number, in which those of blocks come after the tensor's own. ``blocks``: of
    each axis of blocks the tensor's axis that it cuts."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    axes: tuple[Axis, ...]


def sparsity_of(table: Table) -> Sparsity:
    """What a file says of a sparse tensor."""
    return Sparsity(table.integers(0), table.integers(1), tuple(_axis(each) for each in table.tables(2)))


def _axis(table: Table) -> Axis:
    if table.integer(0, "b") == 0:
        return Axis(table.integer(1, "i"))
    return Axis(0, _indices(table, 2), _indices(table, 4))


def _indices(table: Table, slot: int) -> Array:
    kind, vector = table.integer(slot, "B"), table.table(slot + 1)
    found = vector.numbers(0, INDEX_KINDS[kind]) if vector is not None and 0 < kind < len(INDEX_KINDS) else None
    return np.zeros(0, np.int64) if found is None else found.astype(np.int64)


def dense(sparsity: Sparsity, stored: Array, shape: Sequence[int], name: str) -> Array:
    """The whole tensor, zeros where nothing is stored. ModelError for a description that does not fit."""
    rank, walked = len(shape), len(sparsity.order)
    fits = sorted(sparsity.order) == list(range(walked)) and walked == len(sparsity.axes)
    if not fits or walked != rank + len(sparsity.blocks) or any(not 0 <= axis < rank for axis in sparsity.blocks):
        raise _wrong(name, "its axes are not those of its shape")
    sizes = [1] * rank  # of a block, on each axis of the tensor
    for number, axis in zip(sparsity.order, sparsity.axes, strict=True):
        if number >= rank:
            if axis.begins is not None or axis.size <= 0:
                raise _wrong(name, "a block is not dense")
            sizes[sparsity.blocks[number - rank]] *= axis.size
    if len(set(sparsity.blocks)) != len(sparsity.blocks):
        raise _wrong(name, "an axis is cut twice")
    places = np.zeros((1, rank), np.int64)
    for number, axis in zip(sparsity.order, sparsity.axes, strict=True):
        rows, indices = _walked(axis, len(places), math.prod(shape), name)
        places = places[rows]
        on, unit = (number, sizes[number]) if number < rank else (sparsity.blocks[number - rank], 1)
        places[:, on] += indices * unit
    if len(places) != stored.size:
        raise _wrong(name, f"{len(places):,} elements are described, but {stored.size:,} stored")
    if (places < 0).any() or (places >= np.asarray(shape, np.int64)).any():
        raise _wrong(name, "an index is outside of its shape")
    result = np.zeros(tuple(shape), stored.dtype)
    result[tuple(places.T)] = stored
    return result


def _walked(axis: Axis, before: int, most: int, name: str) -> tuple[Array, Array]:
    """Of every place behind an axis the place before it, and the index on it."""
    if axis.begins is None or axis.indices is None:
        if axis.size <= 0 or before * axis.size > most:
            raise _wrong(name, "its axes are larger than its shape")
        return np.repeat(np.arange(before), axis.size), np.tile(np.arange(axis.size), before)
    counts = np.diff(axis.begins)
    if len(counts) != before or (counts < 0).any() or axis.begins[0] != 0 or axis.begins[-1] != len(axis.indices):
        raise _wrong(name, "its indices do not follow each other")
    return np.repeat(np.arange(before), counts), axis.indices


def _wrong(name: str, why: str) -> ModelError:
    return ModelError(f"sparse tensor {name!r}: {why}", hint="is the file damaged?")
