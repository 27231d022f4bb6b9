"""Weights that a core unpacks from 4 bits: which layers have such, and their records (``docs/isa.md``, "Weights of 4
bits").

The graph knows int8 weights alone. A layer is stored in 4 bits where each group of each output is ``(q - z) * s`` with
``q``, ``z`` and ``s`` in 0..15: then the core computes the same, and so does every other target. So nothing has to say
where weights come from, and no pass has to keep it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .....hw.config import CoreConfig
from ....graph.ir import Array
from .lower import Kernel

PACKED = ("Ko", "Kc", "kernel rows", "kernel columns", "block_out", "block_in")
"""Axes of packed weights."""

MOST = 15
"""The largest code, zero point and scale."""

LOOKED_AT_FIRST = 64
"""Records of which most weights that have no such form show it."""

_LARGEST_SCALE = np.array([MOST, *(max(s for s in range(1, MOST + 1) if n % s == 0) for n in range(1, 129))], np.uint8)
"""For a greatest common divisor the largest scale that divides it; all weights of a group are 0 for 0."""


def in_records(kernel: Kernel, config: CoreConfig) -> Kernel:
    """The kernel with its weights in records of 4 bits, if the core and they have such; else as it is.

    They are those of a product of matrices, or of a convolution of one pixel, whose depth, with the channels that the
    layout adds, is whole groups.
    """
    section = kernel.section
    name = kernel.matrix_weights
    if not config.weight_group or not name or kernel.producers or section.window is None:
        return kernel
    plain = section.window.kernel == (1, 1) and section.kept is None and not section.tapped
    value = next((value for tensor, value in kernel.constants if tensor.name == name), None)
    if not plain or value is None or kernel.pitch_of(name) > 1 or value.ndim != 6:
        return kernel
    entries, (_, depth, *_) = config.weight_record_entries, value.shape
    fits = 2 * entries <= min(config.wgt_depth, config.inp_depth)
    if config.weight_group % kernel.blocks.dram_block or depth % entries or not fits:
        return kernel
    if pairs_of(groups_of(value, entries)) is None:
        return kernel
    return replace(kernel, section=replace(section, records=entries))


def stays_in_groups(before: Array, after: Array, entries: int) -> bool:
    """Whether packed weights, put in another order along their depth, still have the form of 4 bits if they had it."""

    def has_form(weights: Array) -> bool:
        fits = weights.ndim == len(PACKED) and weights.shape[1] % entries == 0
        return fits and pairs_of(groups_of(weights, entries)) is not None

    return has_form(after) or not has_form(before)


def groups_of(weights: Array, entries: int) -> Array:
    """Packed weights ``(Ko, Kc, 1, 1, block_out, block_in)``, whose depth is whole groups of so many entries, as
    ``(records, entries, block_out, block_in)``; a view."""
    return weights.reshape(-1, entries, *weights.shape[-2:])


def pairs_of(groups: Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """Scales and zero points, each ``(records, block_out)``, of groups as :func:`groups_of` gives them; None where some
    group has none."""
    if len(groups) > LOOKED_AT_FIRST and _pairs(groups[:LOOKED_AT_FIRST]) is None:
        return None
    return _pairs(groups)


def _pairs(groups: Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    values: Any = groups.astype(np.int16)
    divisors = np.gcd.reduce(np.gcd.reduce(np.abs(values), axis=3), axis=1)
    scales = _LARGEST_SCALE[divisors]
    low, high = (find(find(values, axis=3), axis=1) // scales for find in (np.min, np.max))
    zeros = np.maximum(-low, 0)
    if (zeros > MOST).any() or (high + zeros > MOST).any():
        return None
    return scales, zeros.astype(np.uint8)


def records_of(weights: Array, config: CoreConfig) -> npt.NDArray[np.uint8]:
    """Packed weights, of which :func:`in_records` says that they have the form, as records ``(records,
    weight_record_bytes)``."""
    groups = groups_of(weights, config.weight_record_entries)
    pairs = pairs_of(groups)
    assert pairs is not None  # `in_records` has asked
    scales, zeros = pairs
    codes = (groups.astype(np.int16) // scales[:, None, :, None] + zeros[:, None, :, None]).astype(np.uint8)
    nibbles = codes.reshape(len(groups), -1)
    records = np.zeros((len(groups), config.weight_record_bytes), np.uint8)
    records[:, : config.block_out] = scales | zeros << 4
    records[:, config.weight_head_bytes :] = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
    return records
