"""Tables in the lanes of the vector engine, through which results pass on their way to their memory."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import TABLE_ENTRIES, CoreConfig

ENTRY_BITS = ceil_log2(TABLE_ENTRIES)
"""Low bits of a result that name an entry of a table, and bits of the entry."""


class VectorTables(wiring.Component):
    """All tables of each lane in a memory of the lane's own; in a cycle it is read or written, in all lanes.

    enable, write
        The lanes' memories are used in this cycle: written, at ``index`` with the low bits of each lane of ``result``;
        or read, where each lane's own low bits of ``result`` say, in table ``table`` (0: the first).
    data
        What was read last, sign-extended; it comes in the next cycle.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.memories = [Memory(shape=ENTRY_BITS, depth=config.tab_depth, init=[]) for _ in range(config.lanes)]
        super().__init__(
            {
                "enable": In(1),
                "write": In(1),
                "index": In(ceil_log2(config.tab_depth)),
                "table": In(ceil_log2(config.tables)),
                "result": In(8 * config.acc_bytes),
                "data": Out(8 * config.acc_bytes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = len(self.result) // self.config.lanes
        # Never both: what a memory shows of an entry that is being written does not count.
        writes, reads = Signal(), Signal()
        m.d.comb += [writes.eq(self.enable & self.write), reads.eq(self.enable & ~self.write)]
        for lane, memory in enumerate(self.memories):
            m.submodules[f"lane_{lane}"] = memory
            write, read = memory.write_port(), memory.read_port()
            low = self.result[width * lane : width * lane + ENTRY_BITS]
            m.d.comb += [
                write.en.eq(writes),
                write.addr.eq(self.index),
                write.data.eq(low),
                read.en.eq(reads),
                read.addr.eq(Cat(low, self.table)),
                self.data[width * lane : width * (lane + 1)].eq(read.data.as_signed()),
            ]
        return m
