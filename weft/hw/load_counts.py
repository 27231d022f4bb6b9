"""What the fields of a LOAD count: entries, or records of 4-bit weights; and the bytes that they stand for."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .config import CoreConfig
from .isa import Instruction, Load, Scratchpad, Store
from .weight_form import FOUR_BITS

Count = TypeVar("Count", int, npt.NDArray[np.int64])
"""A number, or those of many transfers."""


def takes_records(config: CoreConfig, load: Load) -> bool:
    """True where ``columns`` and ``stride`` count records of 4-bit weights."""
    return bool(config.weight_group) and load.scratchpad is Scratchpad.WGT and load.pad_value == FOUR_BITS


def bytes_each(config: CoreConfig, load: Load) -> int:
    """Bytes in DRAM of what ``columns`` and ``stride`` count."""
    return config.weight_record_bytes if takes_records(config, load) else load.scratchpad.dram_bytes(config)


def entries_each(config: CoreConfig, load: Load) -> int:
    """Scratchpad entries that one of ``columns`` fills."""
    return config.weight_record_entries if takes_records(config, load) else 1


def entries_of(config: CoreConfig, load: Load) -> int:
    """Scratchpad entries written, padding included."""
    rows = load.pad_top + load.rows + load.pad_bottom
    columns = load.pad_left + load.columns + load.pad_right
    return rows * columns * entries_each(config, load)


def granules_reached(config: CoreConfig, rows: Count, columns: Count, stride: Count, entry_bytes: Count) -> Count:
    """Granules of DRAM from the first that a transfer of ``rows`` touches to the one behind its last. An entry may be
    less than a granule, such as a matrix of weights on a core of large batches."""
    return -(-((rows - 1) * stride + columns) * entry_bytes // config.granule_bytes)


def bytes_of(config: CoreConfig, instruction: Instruction) -> int:
    """Bytes of DRAM that an instruction reads or writes."""
    match instruction:
        case Load(rows=rows, columns=columns) as load:
            return rows * columns * bytes_each(config, load)
        case Store(rows=rows, columns=columns):
            return rows * columns * config.out_bytes
        case _:
            return 0
