"""The far end of the vector engine: results wait for their write port, and sources are checked against them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .interfaces import WritePortSignature, chunk_bits
from .pipelines import slots_of
from .vector_tables import VectorTables

QUERIES = {"a": 0, "b": 0, "b1": 1, "b2": 2, "d": 0}
"""Sources of a micro-op, and how far each lies behind the index that is asked for: ``b1`` and ``b2`` are the second and
third parameter of REQUANTISE."""


DISTANCES = sorted(set(QUERIES.values()))


def target_members(config: CoreConfig) -> dict[str, int]:
    """Where a result goes, as members of a layout: ``acc``, ``inp``, ``tab`` or none of them (``out``); and by way of
    which table, where there are tables."""
    members = {"to_acc": 1, "to_inp": 1}
    return members | {"to_tab": 1, "by_table": 1, "table": ceil_log2(config.tables)} if config.tables else members


def destination_layout(config: CoreConfig) -> data.StructLayout:
    """Where the result of a micro-op goes, and whether it is the last of its instruction."""
    return data.StructLayout({"index": config.index_bits, **target_members(config), "end": 1})


def narrow_write_ports(config: CoreConfig) -> dict[str, Any]:
    """Members of a component that writes results as int8: ``write_out``, and ``write_inp`` where that is possible."""
    bits = 8 * config.out_bytes
    ports = {"write_out": Out(WritePortSignature(ceil_log2(config.out_depth), bits, bits))}
    if config.inp_takes_results:
        chunk = chunk_bits(config, config.inp_bytes)
        ports["write_inp"] = Out(WritePortSignature(ceil_log2(config.inp_depth), bits, chunk))
    return ports


class VectorResults(wiring.Component):
    """Micro-ops from their issue until their result is written, in order.

    issue, destination
        A micro-op is issued (only while ``room``); its result comes later with ``result_valid``, in the same order.
    newest
        ``destination.index``, less each distance in :data:`DISTANCES`: what it is compared with comes late.
    query, matches
        Bit ``s`` of ``matches[i]``: slot ``s`` is still to be written after this cycle, to the entry of acc that lies
        as far behind ``query[i]`` as ``QUERIES`` says.
    found
        Bit ``i``: ``matches[i]`` is not empty.
    freed
        Bit ``s``: slot ``s`` is written in this cycle; a read in the next cycle sees it.
    retire
        The last micro-op of an instruction is written in this cycle.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.slots = slots_of(config)
        self.tables = VectorTables(config) if config.tables else None
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        super().__init__(
            {
                "issue": In(1),
                "destination": In(destination_layout(config)),
                "newest": In(config.index_bits).array(len(DISTANCES)),
                "room": Out(1),
                "query": In(config.index_bits).array(len(QUERIES)),
                "matches": Out(self.slots).array(len(QUERIES)),
                "found": Out(len(QUERIES)),
                "freed": Out(self.slots),
                "empty": Out(1),
                "retire": Out(1),
                "result_valid": In(1),
                "result": In(acc_bits),
                "write_acc": Out(WritePortSignature(acc_index, acc_bits, chunk_bits(config, config.acc_bytes))),
                **narrow_write_ports(config),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.waiting = waiting = SyncFIFO(width=8 * self.config.acc_bytes, depth=self.slots)
        layout = destination_layout(self.config)
        slots = [Signal(layout, reset_less=True, name=f"slot{number}") for number in range(self.slots)]
        used = Signal(self.slots)
        # Next slot to fill, next slot whose result leaves the FIFO, slot of the result at the write ports.
        to_issue, to_take, to_write = (
            Signal(range(self.slots), name=f"to_{verb}") for verb in ("issue", "take", "write")
        )

        # What is asked for comes late, so what it is compared with is ready: each slot's index less the distances.
        index_bits = self.config.index_bits
        indices = {distance: [Signal(index_bits, reset_less=True) for _ in slots] for distance in DISTANCES}
        indices[0] = [slot.index for slot in slots]
        newest = dict(zip(DISTANCES, self.newest, strict=True))
        filled = Signal(self.slots)
        with m.If(self.issue):
            m.d.comb += filled.eq(1 << to_issue)
            m.d.sync += to_issue.eq(to_issue + 1)
        for number, slot in enumerate(slots):
            with m.If(filled[number]):
                m.d.sync += slot.eq(self.destination)
                for distance in indices.keys() - {0}:
                    m.d.sync += indices[distance][number].eq(newest[distance])
        count = Signal(range(self.slots + 1))
        written = Signal()
        m.d.sync += [
            used.eq((used & ~self.freed) | filled),
            count.eq(count + self.issue - written),
            self.room.eq(count < self.slots - 1),  # one early, because it is registered
        ]
        m.d.comb += self.empty.eq(count == 0)

        for distance, query, matches, found in zip(QUERIES.values(), self.query, self.matches, self.found, strict=True):
            is_newest = self.destination.to_acc & (newest[distance] == query)
            older = Signal(self.slots)
            for number, (slot, index) in enumerate(zip(slots, indices[distance], strict=True)):
                m.d.comb += [
                    older[number].eq(used[number] & slot.to_acc & (index == query)),
                    matches[number].eq((filled[number] & is_newest) | (older[number] & ~self.freed[number])),
                ]
            # `issue` and `written` are late: not by way of `matches`, and `written` only chooses.
            left = Mux(written, (older & ~(1 << to_write)[: self.slots]).any(), older.any())
            m.d.comb += found.eq((self.issue & is_newest) | left)

        offered = Signal()
        destination = Signal(layout, reset_less=True)
        result = Signal(8 * self.config.acc_bytes, reset_less=True)
        take = Signal()
        next_slot = Array(slot.as_value() for slot in slots)[to_take]
        m.d.comb += [
            waiting.w_en.eq(self.result_valid),
            waiting.w_data.eq(self.result),
            written.eq(offered & (~destination.to_acc | self.write_acc.ready)),
            take.eq(waiting.r_rdy & (~offered | written)),
            waiting.r_en.eq(take),
            self.retire.eq(written & destination.end),
        ]
        with m.If(take):
            m.d.sync += [
                offered.eq(1),
                destination.as_value().eq(next_slot),
                result.eq(waiting.r_data),
                to_write.eq(to_take),
                to_take.eq(to_take + 1),
            ]
        with m.Elif(written):
            m.d.sync += offered.eq(0)
        with m.If(written):
            m.d.comb += self.freed.eq(1 << to_write)

        to_out, shown = offered & ~destination.to_acc & ~destination.to_inp, result
        if self.tables is not None:
            m.submodules.tables = tables = self.tables
            taken = data.View(layout, next_slot)
            m.d.comb += [
                tables.enable.eq(take),
                tables.write.eq(taken.to_tab),
                tables.index.eq(taken.index),
                tables.table.eq(taken.table),
                tables.result.eq(waiting.r_data),
            ]
            # What the tables show stands beside `result`, so they take no cycle; and what goes to them is written by
            # the time it is offered, before the next result is looked up.
            to_out, shown = to_out & ~destination.to_tab, Mux(destination.by_table, tables.data, result)
        m.d.comb += [
            self.write_acc.enable.eq(offered & destination.to_acc),
            self.write_acc.index.eq(destination.index),
            self.write_acc.mask.eq(~0),
            self.write_acc.data.eq(shown),
            self.write_out.enable.eq(to_out),
        ]
        if self.config.inp_takes_results:
            m.d.comb += self.write_inp.enable.eq(offered & destination.to_inp)
        narrow = Cat(shown[32 * lane : 32 * lane + 8] for lane in range(self.config.lanes))
        for port in (getattr(self, name) for name in narrow_write_ports(self.config)):
            m.d.comb += [port.index.eq(destination.index), port.mask.eq(~0), port.data.eq(narrow)]
        return m
