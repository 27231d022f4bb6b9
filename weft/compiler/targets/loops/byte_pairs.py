"""Which weights bear that the products of pairs are added up in 16 bits, and what is done with the others.

Processors without an instruction for four products of bytes have one for two, uint8 times int8, whose sum is a word
that saturates. It is exact for all data where the positive weights of a pair sum up to at most 128 and the negative
ones to at least -128: 255 times that has 16 bits. Other weights are a sum of two that bear this: they are cut, and what
is cut off is multiplied once more. Weights are known, so this is a proof for all data; it is checked again where a
program comes from a file (`check_program`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .layouts import PAIR

Array = np.ndarray[Any, Any]

LARGEST_SUM = 128
"""Of the weights of a pair with one sign: 255 x 128 = 32,640."""


def bears_pairs(weights: Array) -> bool:
    """Whether all pairs of neighbours in the last axis, of int8, bear sums of their products in 16 bits."""
    if weights.dtype != np.int8 or not weights.ndim or weights.shape[-1] % PAIR:
        return False
    pairs = weights.reshape(-1, PAIR).astype(np.int16)
    positive, negative = np.maximum(pairs, 0).sum(-1), np.minimum(pairs, 0).sum(-1)
    return bool((positive <= LARGEST_SUM).all() and (negative >= -LARGEST_SUM).all())


@dataclass(frozen=True)
class PairedWeights:
    """Packed weights (tiles, *steps, lanes, 4) as a sum of two, both of which bear sums of pairs. ``most``: as large as
    they are given, or cut. ``rest``: (tiles, parts, R, lanes of a part, 4), what was cut off at R steps of each part of
    a tile's lanes, filled up with 0. ``places``: (tiles, parts, R, axes of steps), int32, where these stand."""

    most: Array
    rest: Array
    places: Array


def by_pairs(packed: Array, together: int) -> PairedWeights:
    """Packed weights, int8, as a sum of two that bear sums of pairs. ``together``: lanes of a part of the rest."""
    tiles, *steps, lanes, quad = packed.shape
    pairs = packed.reshape(*packed.shape[:-1], -1, PAIR).astype(np.int16)
    excess = np.where(pairs[..., 0] * pairs[..., 1] > 0, np.abs(pairs.sum(-1)) - LARGEST_SUM, 0).clip(0)
    cut = pairs.copy()
    cut[..., 0] -= np.sign(pairs[..., 0]) * excess  # at least the other one is left of 128
    left = (pairs - cut).astype(np.int8).reshape(tiles, *steps, lanes // together, together, quad)
    left = np.moveaxis(left, -3, 1)  # (tiles, parts, *steps, lanes of a part, 4)
    found: Array = np.asarray(left.any((-2, -1)))
    parts = found.shape[:2]
    count = int(found.reshape(*parts, -1).sum(-1).max(initial=0))
    rest = np.zeros((*parts, count, together, quad), np.int8)
    places = np.zeros((*parts, count, len(steps)), np.int32)
    for part in np.ndindex(*parts):
        at = np.argwhere(found[part])
        places[part][: len(at)] = at
        rest[part][: len(at)] = left[part][found[part]]
    return PairedWeights(cut.astype(np.int8).reshape(packed.shape), rest, places)
