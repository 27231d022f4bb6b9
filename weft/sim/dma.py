"""LOAD and STORE on NumPy: checks, addresses and copies of ``docs/isa.md``, "DMA"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..hw.config import CoreConfig
from ..hw.isa import Fault, Load, Store
from ..hw.load_counts import bytes_each, entries_of, takes_records
from ..hw.memories import Memory
from .races import Entries
from .state import Bytes, Memories


@dataclass(frozen=True)
class Transfer:
    """A LOAD or STORE in bytes and entries, relative to the DMA window."""

    memory: Memory
    index: int  # first scratchpad entry
    entries: int  # scratchpad entries written (padding included) or read
    entry_bytes: int  # in DRAM, of one entry or of one record of 4-bit weights
    start: int  # bytes from the window's base
    rows: int
    row_bytes: int
    stride_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes that pass the bus."""
        return self.rows * self.row_bytes

    @property
    def end(self) -> int:
        """First byte after the last row, from the window's base."""
        return self.start + (self.rows - 1) * self.stride_bytes + self.row_bytes


def transfer_of(config: CoreConfig, instruction: Load | Store) -> Transfer:
    """Addresses and sizes of an instruction."""
    if isinstance(instruction, Load):
        memory, entry_bytes = instruction.scratchpad.memory, bytes_each(config, instruction)
        entries = entries_of(config, instruction)
    else:
        memory, entry_bytes = Memory.OUT, config.out_bytes
        entries = instruction.rows * instruction.columns
    return Transfer(
        memory=memory,
        index=instruction.index,
        entries=entries,
        entry_bytes=entry_bytes,
        start=instruction.offset * config.granule_bytes,
        rows=instruction.rows if instruction.columns else 0,
        row_bytes=instruction.columns * entry_bytes,
        stride_bytes=instruction.stride * entry_bytes,
    )


def transfer_problem(config: CoreConfig, transfer: Transfer, window_bytes: int) -> tuple[Fault, str] | None:
    """First check of ``docs/isa.md`` that fails, with a text that names the numbers."""
    depth = config.depth(transfer.memory)
    if transfer.index + transfer.entries > depth:
        return Fault.INDEX, (
            f"index {transfer.index} + {transfer.entries} entries is more than the {depth} entries of {transfer.memory}"
        )
    if not transfer.bytes:
        return None
    alignment = alignment_of(config, transfer)
    if transfer.start % alignment:
        return Fault.ALIGNMENT, f"offset is byte {transfer.start:#x}, not a multiple of {alignment} bytes"
    if transfer.end > window_bytes:
        return Fault.WINDOW, (
            f"bytes {transfer.start:#x}..{transfer.end:#x} end outside the window of {window_bytes:#x} bytes"
        )
    return None


def alignment_of(config: CoreConfig, transfer: Transfer) -> int:
    """Bytes of which a transfer's first byte must be a multiple: an entry (what divides a record), or a bus word."""
    return min(transfer.entry_bytes & -transfer.entry_bytes, config.bus_bytes)


def unpack_records(config: CoreConfig, records: Bytes) -> npt.NDArray[np.int8]:
    """``wgt`` entries, int8 ``(n * weight_record_entries, wgt_bytes)``, of ``n`` records of 4-bit weights,
    uint8 ``(n, weight_record_bytes)``: each is the low 8 bits of ``(code - zero point) * scale``."""
    pairs = records[:, None, : config.block_out, None]
    packed = records[:, config.weight_head_bytes :].reshape(
        -1, config.weight_record_entries, config.block_out, config.block_in // 2
    )
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:3], config.block_in)
    weights: npt.NDArray[np.int8] = ((codes - (pairs >> 4)) * (pairs & 15)).view(np.int8)
    return weights.reshape(-1, config.wgt_bytes)


def run_load(memories: Memories, dram: Bytes, window_start: int, instruction: Load, transfer: Transfer) -> Entries:
    """Copy into the scratchpad; returns the entries written. ``window_start`` is a place in ``dram``."""
    memory = memories.array(transfer.memory)
    lanes = memory.shape[1]
    written = slice(transfer.index, transfer.index + transfer.entries)
    if takes_records(memories.config, instruction):
        if transfer.bytes:
            records = _rows_of(dram, window_start, transfer).reshape(-1, transfer.entry_bytes)
            memory[written] = unpack_records(memories.config, records)
        return written
    columns = instruction.pad_left + instruction.columns + instruction.pad_right
    rows = instruction.pad_top + instruction.rows + instruction.pad_bottom
    block = np.full((rows, columns, lanes), instruction.pad_value, memory.dtype)
    if transfer.bytes:
        values = _rows_of(dram, window_start, transfer).view(f"<i{instruction.scratchpad.dram_bits // 8}")
        inner_rows = slice(instruction.pad_top, instruction.pad_top + instruction.rows)
        inner_columns = slice(instruction.pad_left, instruction.pad_left + instruction.columns)
        block[inner_rows, inner_columns] = values.reshape(instruction.rows, instruction.columns, lanes)
    memory[written] = block.reshape(-1, lanes)
    return written


def _rows_of(dram: Bytes, window_start: int, transfer: Transfer) -> Bytes:
    """The bytes that a LOAD reads, ``(rows, row_bytes)``, in an array of their own."""
    source = np.lib.stride_tricks.as_strided(
        dram[window_start + transfer.start :],
        (transfer.rows, transfer.row_bytes),
        (transfer.stride_bytes, 1),
        writeable=False,
    )
    return np.ascontiguousarray(source)


def run_store(memories: Memories, dram: Bytes, window_start: int, transfer: Transfer) -> Entries:
    """Copy from ``out`` to DRAM, row after row; returns the entries read."""
    read = slice(transfer.index, transfer.index + transfer.entries)
    source = memories.out[read].view(np.uint8).reshape(transfer.rows, transfer.row_bytes)
    for row in range(transfer.rows):  # in order: rows may overlap
        start = window_start + transfer.start + row * transfer.stride_bytes
        dram[start : start + transfer.row_bytes] = source[row]
    return read


def granules(config: CoreConfig, transfer: Transfer) -> Entries:
    """DRAM granules of the window that a transfer touches, wholly or not: a weight may be smaller than a granule."""
    size = config.granule_bytes
    if transfer.rows == 1 or transfer.stride_bytes == transfer.row_bytes:
        return slice(transfer.start // size, -(-transfer.end // size)) if transfer.bytes else slice(0, 0)
    starts = transfer.start + np.arange(transfer.rows) * transfer.stride_bytes
    first, last = starts // size, (starts + transfer.row_bytes - 1) // size
    reached = first[:, None] + np.arange((last - first).max() + 1)
    return reached[reached <= last[:, None]]
