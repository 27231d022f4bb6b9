"""The gemm engine: one ``[batch x block_in] x [block_in x block_out]`` product a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .engine import EngineControl, forward_engine_ports
from .interfaces import EngineSignature, ReadPortSignature, WritePortSignature, chunk_bits
from .isa import Fault, Opcode, instruction_layout
from .loops import LoopNest, accept_instructions
from .mac_array import MacArray, array_latency
from .mac_array_packed import mac_array

ARRAY_STAGE = 3
"""Cycles from a micro-op's issue to its operands' arrival at the array: a register, then the scratchpads' two."""

READ_BEFORE_ADD = 3
"""Stages from the read of the old accumulator to its sum: the memory's two, and a register."""

FORWARDS = READ_BEFORE_ADD + 1
"""Micro-ops before this one whose writes its own accumulator read comes too early to see."""


@dataclass(frozen=True)
class Stages:
    """Stages of a micro-op, counted from its issue, in which its accumulator is read, added to and written."""

    read: int
    add: int
    write: int

    @staticmethod
    def of(config: CoreConfig) -> Stages:
        add = ARRAY_STAGE + array_latency(config)
        return Stages(read=add - READ_BEFORE_ADD, add=add, write=add + 1)


class GemmEngine(wiring.Component):
    """Issues one micro-op a cycle, also from one instruction to the next, and never stalls.

    Stages, counted from the issue (:class:`Stages`): 1 operands are read; 3 the array takes them; ``add``: the sum
    meets the old accumulator; ``write``: the result is written. The old value is read in stage ``read``, unless one of
    the :data:`FORWARDS` micro-ops before wrote the same entry: then it comes from their results, which makes any
    sequence of indices exact.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        super().__init__(
            {
                **EngineSignature(config).members,
                "read_inp": Out(ReadPortSignature(ceil_log2(config.inp_depth), 8 * config.inp_bytes)),
                "read_wgt": Out(ReadPortSignature(ceil_log2(config.wgt_depth), 8 * config.wgt_bytes)),
                "read_acc": Out(ReadPortSignature(acc_index, acc_bits)),
                "write_acc": Out(WritePortSignature(acc_index, acc_bits, chunk_bits(config, config.acc_bytes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.control = control = EngineControl(config)
        m.submodules.loops = loops = LoopNest(config)
        forward_engine_ports(m, config, self, control)
        number = Signal.like(control.work.payload.number, reset_less=True)  # of the instruction that issues
        zero = Signal(reset_less=True)
        gemm = instruction_layout(config, Opcode.GEMM)(control.work.payload.word)
        base = {"dst": gemm.dst, "a": gemm.src, "b": gemm.wgt}
        accept_instructions(m, control, loops, levels=gemm.levels, base=base)
        with m.If(loops.ready):  # what does not start does not count; `loops.start` comes late
            m.d.sync += [number.eq(control.work.payload.number), zero.eq(gemm.zero)]

        micro_op = loops.micro_ops.payload
        outside, issue = Signal(), Signal()
        m.d.comb += [
            outside.eq(
                micro_op.dst[ceil_log2(config.acc_depth) :].any()
                | micro_op.a[ceil_log2(config.inp_depth) :].any()
                | micro_op.b[ceil_log2(config.wgt_depth) :].any()
            ),
            issue.eq(loops.micro_ops.valid & ~outside & ~control.halt),
            loops.micro_ops.ready.eq(~outside),  # `halt` comes late; the control starts nothing then
            control.failure.valid.eq(loops.micro_ops.valid & outside & ~control.halt),
            control.failure.cause.eq(Fault.INDEX),
            control.failure.number.eq(number),
            control.busy.eq(issue),
        ]
        stages = self._issue(m, micro_op, issue, zero)
        m.submodules.array = array = mac_array(config, platform)
        self._multiply_accumulate(m, array, stages)
        m.d.comb += [
            control.retire.eq(stages[-1].valid & stages[-1].content.end),
            control.quiet.eq(~Cat(stage.valid for stage in stages).any()),
        ]
        return m

    def _issue(self, m: Module, micro_op: Any, issue: Signal, zero: Signal) -> list[_Stage]:
        """Shift the micro-op's accumulator side down the pipeline; item ``s`` is stage ``s + 1``, the last writes."""
        layout = data.StructLayout(
            {
                "dst": ceil_log2(self.config.acc_depth),
                "end": 1,
                "forward": FORWARDS,  # bit k - 1: the micro-op k cycles before has the same entry; the lowest counts
                "from_zero": 1,
            }
        )
        stages = [_Stage(layout, number) for number in range(1, Stages.of(self.config).write + 1)]
        fresh = Signal(layout)
        from_zero = zero & micro_op.first
        m.d.comb += [
            fresh.dst.eq(micro_op.dst),
            fresh.end.eq(micro_op.end),
            fresh.from_zero.eq(from_zero),
            fresh.forward.eq(
                Cat(stage.valid & (stage.content.dst == fresh.dst) & ~from_zero for stage in stages[:FORWARDS])
            ),
        ]

        valid: Any = issue
        content: Any = fresh
        for stage in stages:
            m.d.sync += stage.valid.eq(valid)
            with m.If(valid):
                m.d.sync += stage.content.eq(content)
            valid, content = stage.valid, stage.content
        index = {name: Signal(len(getattr(self, f"read_{name}").index), reset_less=True) for name in ("inp", "wgt")}
        with m.If(issue):
            m.d.sync += [index["inp"].eq(micro_op.a), index["wgt"].eq(micro_op.b)]
        m.d.comb += [
            self.read_inp.enable.eq(stages[0].valid),
            self.read_inp.index.eq(index["inp"]),
            self.read_wgt.enable.eq(stages[0].valid),
            self.read_wgt.index.eq(index["wgt"]),
        ]
        return stages

    def _multiply_accumulate(self, m: Module, array: MacArray, stages: list[_Stage]) -> None:
        config = self.config
        m.d.comb += [
            array.valid.eq(stages[ARRAY_STAGE - 1].valid),
            array.inp.eq(self.read_inp.data),
            array.wgt.eq(self.read_wgt.data),
        ]
        at = Stages.of(config)
        before_read, read = stages[at.read - 2 : at.read]
        merge, add, write = stages[at.add - 2 : at.write]
        reads = Signal()  # a register: the other readers' grants depend on it
        m.d.sync += reads.eq(before_read.valid & ~before_read.content.from_zero & ~before_read.content.forward.any())
        m.d.comb += [
            self.read_acc.enable.eq(reads),
            self.read_acc.index.eq(read.content.dst),
        ]
        write_delays = [write.valid]
        for _ in range(2):
            delayed = Signal()
            m.d.sync += delayed.eq(write_delays[-1])
            write_delays.append(delayed)

        for lane in range(config.lanes):
            # results[k] was in the write stage k cycles ago.
            results = [Signal(signed(32), reset_less=True, name=f"lane{lane}_result{age}") for age in range(3)]
            old = Signal(signed(32), reset_less=True, name=f"lane{lane}_old")
            with m.If(merge.valid):
                with m.If(merge.content.from_zero):
                    m.d.sync += old.eq(0)
                with m.Elif(merge.content.forward[1]):
                    m.d.sync += old.eq(results[0])
                with m.Elif(merge.content.forward[2]):
                    m.d.sync += old.eq(results[1])
                with m.Elif(merge.content.forward[3]):
                    m.d.sync += old.eq(results[2])
                with m.Else():
                    m.d.sync += old.eq(self.read_acc.data[32 * lane : 32 * lane + 32])
            with m.If(add.valid):
                m.d.sync += results[0].eq(Mux(add.content.forward[0], results[0], old) + array.sums[lane])
            for age in (1, 2):
                with m.If(write_delays[age - 1]):
                    m.d.sync += results[age].eq(results[age - 1])
            m.d.comb += self.write_acc.data[32 * lane : 32 * lane + 32].eq(results[0])
        m.d.comb += [
            self.write_acc.enable.eq(write.valid),
            self.write_acc.index.eq(write.content.dst),
            self.write_acc.mask.eq(~0),
        ]


class _Stage:
    """Registers of one pipeline stage."""

    def __init__(self, layout: data.StructLayout, number: int) -> None:
        self.valid = Signal(name=f"stage{number}_valid")
        self.content = Signal(layout, reset_less=True, name=f"stage{number}")
