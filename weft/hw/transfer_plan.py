"""Arithmetic that LOAD and STORE share: how many entries, which bytes, and whether all that is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .bursts import transfer_layout
from .bus import OFFSET_BITS, WINDOW_BITS
from .config import PAD_BITS, STRIDE_BITS, CoreConfig
from .isa import Fault
from .pipelines import PLANNER_PATH
from .transfer_kinds import TransferKind


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

    ``rows`` and ``columns`` count entries (or records) in DRAM: those of the instruction, or 1 x all where rows follow
    each other without a gap on both sides. ``empty``: nothing is written or read in the scratchpad.
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
    """Checks one instruction at a time and works out its transfer, in :data:`PLANNER_CYCLES`, with one multiplier.

    fault, cause
        The request is refused; ``fault`` lasts one cycle, and no plan comes.
    """

    def __init__(self, config: CoreConfig, kinds: Sequence[TransferKind]) -> None:
        self._config = config
        self._kinds = kinds
        self._any_records = any(kind.entries > 1 for kind in kinds)
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
        request = Signal(request_layout(self._config), reset_less=True)
        work = _Registers(self._config, self._kinds)
        steps = self._steps(request, work)
        m.d.sync += work.product.eq(work.factor_a * work.factor_b)
        with m.FSM() as fsm:
            m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.comb += self.requests.ready.eq(1)
                m.d.sync += steps["IDLE"]
                with m.If(self.requests.valid):
                    m.next = "COUNT"
            for state, following in pairwise(PLANNER_PATH[1:]):
                with m.State(state):
                    m.d.sync += steps[state]
                    m.next = following
                    if following == "PLAN":
                        outside = work.misaligned | (work.end > self.window_size)
                        with m.If(work.bad_index | (self.plans.payload.moves & outside)):
                            m.next = "FAULT"
            with m.State("PLAN"):
                m.d.comb += self.plans.valid.eq(1)
                with m.If(self.plans.ready):
                    m.next = "IDLE"
            with m.State("FAULT"):
                m.d.comb += self.fault.eq(1)
                m.next = "IDLE"
        return m

    def _steps(self, request: data.View, work: _Registers) -> dict[str, list[Any]]:
        """What is worked out in each state; the product of two factors is there in the state after the next."""
        plan, offered = self.plans.payload, self.requests.payload

        def by_kind(values: Iterable[Value | int]) -> Value:
            return Array(values)[request.kind]

        def in_bytes(entry_count: Value) -> Value:
            return by_kind(kind.in_bytes(entry_count) for kind in self._kinds)

        def in_entries(count: Value) -> Value:
            return by_kind(kind.in_entries(count) for kind in self._kinds) if self._any_records else count

        bus_log2 = self._config.bus_bytes.bit_length() - 1
        misaligned = by_kind(work.offset[: min(kind.alignment_log2, bus_log2)].any() for kind in self._kinds)
        return {
            "IDLE": [
                request.eq(offered),
                work.factor_a.eq(offered.total_rows),
                work.factor_b.eq(offered.total_columns),
            ],
            "COUNT": [
                work.factor_a.eq(request.rows - 1),
                work.factor_b.eq(request.stride),
                work.offset.eq(request.offset << self._config.granule_bytes.bit_length() - 1),
                plan.moves.eq((request.rows != 0) & (request.columns != 0)),
                work.merge.eq(request.dense & (request.stride == request.columns)),
            ],
            "SPAN": [work.entries.eq(work.product), work.misaligned.eq(misaligned)],
            "SUM": [
                work.span.eq(work.product + request.columns),
                work.index_end.eq(request.index + in_entries(work.entries)),
                plan.empty.eq(work.entries == 0),
                plan.rows.eq(Mux(work.merge, 1, request.rows)),
                plan.columns.eq(Mux(work.merge, work.entries, request.columns)),
            ],
            "BYTES": [
                work.span_bytes.eq(in_bytes(work.span)),
                work.row_length.eq(in_bytes(plan.columns)),
                plan.transfer.row_bytes.eq(in_bytes(request.stride)),
                work.bad_index.eq(work.index_end > by_kind(kind.depth for kind in self._kinds)),
            ],
            "END": [
                work.end.eq(work.offset + work.span_bytes),
                plan.transfer.first.eq(work.offset),
                plan.transfer.final.eq(work.offset + work.row_length - 1),
                plan.transfer.rows.eq(plan.rows),
            ],
            "CHECK": [
                self.cause.eq(Mux(work.bad_index, Fault.INDEX, Mux(work.misaligned, Fault.ALIGNMENT, Fault.WINDOW)))
            ],
        }


class _Registers:
    """What the planner works out on the way."""

    def __init__(self, config: CoreConfig, kinds: Sequence[TransferKind]) -> None:
        widest = max(kind.bytes_log2 for kind in kinds)
        most_entries = max(kind.entries for kind in kinds)
        self.factor_a = Signal(total_bits(config), reset_less=True)
        self.factor_b = Signal(max(STRIDE_BITS, total_bits(config)), reset_less=True)
        self.product = Signal(len(self.factor_a) + len(self.factor_b), reset_less=True)
        self.entries = Signal(2 * total_bits(config), reset_less=True)
        self.index_end = Signal(len(self.entries) + ceil_log2(most_entries) + 1, reset_less=True)
        self.span = Signal(len(self.product) + 1, reset_less=True)  # entries from the first to past the last in DRAM
        self.span_bytes = Signal(len(self.span) + widest, reset_less=True)
        self.end = Signal(max(OFFSET_BITS, len(self.span_bytes)) + 1, reset_less=True)
        self.row_length = Signal(config.count_bits + widest, reset_less=True)
        self.offset = Signal(OFFSET_BITS, reset_less=True)
        self.bad_index = Signal()
        self.misaligned = Signal()
        self.merge = Signal()
