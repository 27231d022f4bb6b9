"""What LOADs and STOREs count, by where they lead: entries of a scratchpad, or records of 4-bit weights. Neither the
timing model nor what plans transfers needs Amaranth to know."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, unique
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from .config import CoreConfig
from .isa import LEGAL_SCRATCHPADS, Engine, Scratchpad
from .memories import Memory

if TYPE_CHECKING:
    from amaranth.hdl import Value


@dataclass(frozen=True)
class TransferKind:
    """What a DMA instruction counts: its bytes in DRAM, and entries that the scratchpad has.

    An entry has a power of two of bytes. A record of 4-bit weights has the sum of two, and fills ``entries`` entries,
    a power of two.
    """

    entry_bytes: int
    depth: int
    entries: int = 1

    @property
    def bytes_log2(self) -> int:
        """The logarithm of its bytes; of a record, rounded up."""
        return (self.entry_bytes - 1).bit_length()

    @property
    def alignment_log2(self) -> int:
        """Of the largest power of two that divides its bytes."""
        return (self.entry_bytes & -self.entry_bytes).bit_length() - 1

    def in_bytes(self, count: Value) -> Value:
        """So many of them, in bytes."""
        bits = [bit for bit in range(self.entry_bytes.bit_length()) if self.entry_bytes >> bit & 1]
        return reduce(add, (count << bit for bit in bits))

    def in_entries(self, count: Value) -> Value:
        """Scratchpad entries that so many of them fill."""
        return count << (self.entries.bit_length() - 1)


@unique
class LoadKind(IntEnum):
    """What a LOAD writes: the engine's own scratchpad, ``acc``, or ``acc`` widened from int8; weights of 4 bits."""

    OWN = 0
    ACC = 1
    ACC8 = 2
    RECORDS = 3


@dataclass(frozen=True)
class LoadTargets:
    """Where a load engine writes: its own scratchpad (``inp`` or ``wgt``) and ``acc``."""

    targets: tuple[Scratchpad, ...]
    """Targets of the engine's LOADs, in the order of :class:`LoadKind`."""

    @staticmethod
    def of(engine: Engine) -> LoadTargets:
        return LoadTargets(LEGAL_SCRATCHPADS[engine])

    @property
    def own(self) -> Memory:
        """The engine's own scratchpad."""
        return self.targets[LoadKind.OWN].memory

    def kinds(self, config: CoreConfig) -> tuple[TransferKind, ...]:
        """What each kind counts in DRAM, in the order of :class:`LoadKind`."""
        plain = tuple(TransferKind(target.dram_bytes(config), config.depth(target.memory)) for target in self.targets)
        if not self.unpacks(config):
            return plain
        return (*plain, TransferKind(config.weight_record_bytes, config.wgt_depth, config.weight_record_entries))

    def unpacks(self, config: CoreConfig) -> bool:
        """True where the engine unpacks weights of 4 bits."""
        return bool(config.weight_group) and self.own is Memory.WGT


@dataclass(frozen=True)
class RecordShape:
    """A record of 4-bit weights in bus words."""

    head_words: int
    entry_words: int  # of 4-bit weights; each fills two bus words of the entry
    entries: int
    block_out: int
    outputs: int  # that the weights of one word belong to
    words_each: int  # of one output; 1 where a word has several outputs

    @staticmethod
    def of(config: CoreConfig) -> RecordShape:
        """The shape on a core with ``weight_group``."""
        weights = 2 * config.bus_bytes
        return RecordShape(
            head_words=config.weight_head_bytes // config.bus_bytes,
            entry_words=config.wgt_bytes // weights,
            entries=config.weight_record_entries,
            block_out=config.block_out,
            outputs=max(1, weights // config.block_in),
            words_each=max(1, config.block_in // weights),
        )
