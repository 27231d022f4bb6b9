"""Proof about the gemm pipeline: any sequence of indices accumulates as if executed one micro-op after another."""

from __future__ import annotations

from unittest.mock import patch

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from weft.hw import gemm, pipelines
from weft.hw.config import LOOP_LEVELS, CoreConfig
from weft.hw.isa import Opcode, instruction_layout
from weft.hw.loops import INDICES, micro_op_layout
from weft.hw.mac_array import MacArray, sum_bits
from weft.hw.scratchpad import Scratchpad

from .harness import Harness, Inside
from .prover import Mutant, Proof
from .queues import NARROW


class FreeLoops(wiring.Component):
    """In place of ``LoopNest``: micro-ops whenever and with whatever indices the surroundings like."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        base = dict.fromkeys(INDICES, config.index_bits + 1)
        super().__init__(
            {
                "ready": Out(1),
                "set": In(1),
                "loop": In(instruction_layout(config, Opcode.LOOP)),
                "start": In(1),
                "levels": In(range(LOOP_LEVELS + 1)),
                "base": In(data.StructLayout(base)),
                "micro_ops": Out(stream.Signature(micro_op_layout(config))),
                "any_micro_op": In(micro_op_layout(config)),
                "any_valid": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.ready.eq(1),
            self.micro_ops.payload.eq(self.any_micro_op),
            self.micro_ops.valid.eq(self.any_valid),
        ]
        return m


class FreeSums(MacArray):
    """In place of the array: any sums in any cycle, the same in all lanes."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config)
        self.any_sum = Signal(signed(sum_bits(config)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [lane.eq(self.any_sum) for lane in self.sums]
        return m


def stage_layout() -> data.StructLayout:
    """As in ``GemmEngine._issue``."""
    return data.StructLayout(
        {"dst": ceil_log2(NARROW.acc_depth), "end": 1, "forward": pipelines.FORWARDS, "from_zero": 1}
    )


def free_gemm(harness: Harness, driven: tuple[str, ...]) -> tuple[gemm.GemmEngine, Inside, FreeLoops, FreeSums]:
    """The gemm engine of :data:`NARROW` under proof, with free micro-ops and free sums."""
    loops, array = FreeLoops(NARROW), FreeSums(NARROW)
    with patch.object(gemm, "LoopNest", lambda _: loops), patch.object(gemm, "mac_array", lambda *_: array):
        engine = gemm.GemmEngine(NARROW)
        inside = harness.add("engine", engine, driven=driven)
    harness.m.d.comb += [
        loops.any_micro_op.eq(harness.free("micro_op", micro_op_layout(NARROW))),
        loops.any_valid.eq(harness.free("micro_op_valid")),
        array.any_sum.eq(harness.free("any_sum", array.any_sum.shape())),
    ]
    return engine, inside, loops, array


def forwarding() -> Harness:
    """One accumulator entry, chosen freely, holds after every write what sequential execution gives."""
    harness = Harness()
    m = harness.m
    config = NARROW
    engine, inside, _, array = free_gemm(harness, driven=("read_acc",))
    memory = Scratchpad(config.acc_depth, 8 * config.acc_bytes, 8 * config.acc_bytes)
    rows = harness.add_elaboratable("acc", memory).rows("memory")
    wiring.connect(m, engine.read_acc, memory.read)
    m.d.comb += [
        memory.write.enable.eq(engine.write_acc.enable),
        memory.write.index.eq(engine.write_acc.index),
        memory.write.data.eq(engine.write_acc.data),
        memory.write.mask.eq(1),
    ]

    # Sequential execution of the micro-ops on one entry (in lane 0), in the order in which they reach the adder.
    add, write = (pipelines.ARRAY_STAGE + pipelines.array_latency(config) + stage for stage in (0, 1))
    adds, writes = (data.View(stage_layout(), inside[f"stage{stage}"]) for stage in (add, write))
    entry = harness.constant("entry", ceil_log2(config.acc_depth))
    expected = Signal(signed(32))
    stored = Signal(32)
    m.d.comb += stored.eq(Array(rows)[entry])
    with m.If(inside[f"stage{add}_valid"] & (adds.dst == entry)):
        m.d.sync += expected.eq(Mux(adds.from_zero, 0, expected) + array.any_sum)
    is_written = inside[f"stage{write}_valid"] & (writes.dst == entry)
    written = engine.write_acc.data[:32]
    harness.prove(~is_written | (written == expected.as_unsigned()), "what_is_written")
    harness.prove(is_written | (stored == expected.as_unsigned()), "what_is_stored")
    return harness


PROOFS = [
    Proof(
        "gemm-forwarding",
        "any sequence of micro-ops, gaps included, leaves in any accumulator entry what one after another gives",
        forwarding,
        Mutant("gemm", "old.eq(results[2])", "old.eq(results[1])"),
        depth=9,
        mutant_depth=15,
    ),
]
