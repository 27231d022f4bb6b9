"""Arithmetic that LOAD and STORE share: how many entries, which bytes, and whether all that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .bursts import OFFSET_BITS, WINDOW_BITS, transfer_layout
from .config import PAD_BITS, STRIDE_BITS, CoreConfig
from .isa import Fault


@dataclass(frozen=True)
class TransferKind:
    """A scratchpad as a DMA instruction sees it: bytes of an entry in DRAM, and entries that the scratchpad has."""

    entry_bytes: int
    depth: int

    @property
    def bytes_log2(self) -> int:
        return self.entry_bytes.bit_length() - 1


def total_bits(config: CoreConfig) -> int:
    """Width of a number of rows or columns with the padding on both sides."""
    return max(config.count_bits, PAD_BITS + 1) + 1


def request_layout(config: CoreConfig) -> data.StructLayout:
    """What an instruction asks for; ``total_*`` are with padding, ``dense`` says that there is none."""
    return data.StructLayout(
        {
            "kind": 2,
            "index": config.index_bits,
            "offset": config.dram_bits,
            "rows": config.count_bits,
            "columns": config.count_bits,
            "stride": STRIDE_BITS,
            "total_rows": total_bits(config),
            "total_columns": total_bits(config),
            "dense": 1,
        }
    )


def plan_layout(config: CoreConfig) -> data.StructLayout:
    """An instruction that may run. ``moves``: some bytes move; only then does ``transfer`` mean anything.

    ``rows`` and ``columns`` count entries in DRAM: those of the instruction, or 1 x all where rows follow each other
    without a gap on both sides. ``empty``: nothing is written or read in the scratchpad.
    """
    return data.StructLayout(
        {
            "rows": config.count_bits,
            "columns": config.count_bits,
            "moves": 1,
            "empty": 1,
            "transfer": transfer_layout(config),
        }
    )


class TransferPlanner(wiring.Component):
    """Checks one instruction at a time and works out its transfer, in seven cycles, with one multiplier.

    fault, cause
        The request is refused; ``fault`` lasts one cycle, and no plan comes.
    """

    def __init__(self, config: CoreConfig, kinds: Sequence[TransferKind]) -> None:
        self._config = config
        self._kinds = kinds
        super().__init__(
            {
                "requests": In(stream.Signature(request_layout(config))),
                "plans": Out(stream.Signature(plan_layout(config))),
                "window_size": In(WINDOW_BITS),
                "fault": Out(1),
                "cause": Out(Fault),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        widest = max(kind.bytes_log2 for kind in self._kinds)
        request = Signal(request_layout(config), reset_less=True)
        plan = self.plans.payload
        granule_log2 = config.granule_bytes.bit_length() - 1

        factor_a = Signal(total_bits(config), reset_less=True)
        factor_b = Signal(max(STRIDE_BITS, total_bits(config)), reset_less=True)
        product = Signal(len(factor_a) + len(factor_b), reset_less=True)
        entries = Signal(2 * total_bits(config), reset_less=True)
        index_end = Signal(len(entries) + 1, reset_less=True)
        span = Signal(len(product) + 1, reset_less=True)  # entries from the first to past the last in DRAM
        span_bytes = Signal(len(span) + widest, reset_less=True)
        end = Signal(max(OFFSET_BITS, len(span_bytes)) + 1, reset_less=True)
        row_length = Signal(config.count_bits + widest, reset_less=True)
        offset = Signal(OFFSET_BITS, reset_less=True)
        bad_index = Signal()
        misaligned = Signal()
        merge = Signal()

        def in_bytes(entry_count: Value) -> Value:
            return Array(entry_count << kind.bytes_log2 for kind in self._kinds)[request.kind]

        m.d.sync += product.eq(factor_a * factor_b)
        with m.FSM() as fsm:
            m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.requests.ready.eq(1)
                m.d.sync += [
                    request.eq(self.requests.payload),
                    factor_a.eq(self.requests.payload.total_rows),
                    factor_b.eq(self.requests.payload.total_columns),
                ]
                with m.If(self.requests.valid):
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.sync += [
                    factor_a.eq(request.rows - 1),
                    factor_b.eq(request.stride),
                    offset.eq(request.offset << granule_log2),
                    plan.moves.eq((request.rows != 0) & (request.columns != 0)),
                    merge.eq(request.dense & (request.stride == request.columns)),
                ]
                m.next = "SPAN"
            with m.State("SPAN"):
                m.d.sync += [entries.eq(product), misaligned.eq(self._is_misaligned(request.kind, offset))]
                m.next = "SUM"
            with m.State("SUM"):
                m.d.sync += [
                    span.eq(product + request.columns),
                    index_end.eq(request.index + entries),
                    plan.empty.eq(entries == 0),
                    plan.rows.eq(Mux(merge, 1, request.rows)),
                    plan.columns.eq(Mux(merge, entries, request.columns)),
                ]
                m.next = "BYTES"
            with m.State("BYTES"):
                depth = Array(kind.depth for kind in self._kinds)[request.kind]
                m.d.sync += [
                    span_bytes.eq(in_bytes(span)),
                    row_length.eq(in_bytes(plan.columns)),
                    plan.transfer.row_bytes.eq(in_bytes(request.stride)),
                    bad_index.eq(index_end > depth),
                ]
                m.next = "END"
            with m.State("END"):
                m.d.sync += [
                    end.eq(offset + span_bytes),
                    plan.transfer.first.eq(offset),
                    plan.transfer.final.eq(offset + row_length - 1),
                    plan.transfer.rows.eq(plan.rows),
                ]
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += self.cause.eq(
                    Mux(bad_index, Fault.INDEX, Mux(misaligned, Fault.ALIGNMENT, Fault.WINDOW))
                )
                m.next = "PLAN"
                with m.If(bad_index | (plan.moves & (misaligned | (end > self.window_size)))):
                    m.next = "FAULT"
            with m.State("PLAN"):
                m.d.comb += self.plans.valid.eq(1)
                with m.If(self.plans.ready):
                    m.next = "IDLE"
            with m.State("FAULT"):
                m.d.comb += self.fault.eq(1)
                m.next = "IDLE"
        return m

    def _is_misaligned(self, kind: Value, offset: Value) -> Value:
        bus_log2 = self._config.bus_bytes.bit_length() - 1
        return Array(offset[: min(each.bytes_log2, bus_log2)].any() for each in self._kinds)[kind]
