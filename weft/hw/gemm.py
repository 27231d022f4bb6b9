"""The gemm engine: one ``[batch x block_in] x [block_in x block_out]`` product a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .engine import EngineControl, forward_engine_ports
from .interfaces import EngineSignature, ReadPortSignature, RowsReadPortSignature, WritePortSignature, chunk_bits
from .isa import TAP_COLUMNS, Fault, Opcode, instruction_layout
from .loops import LoopNest, accept_instructions
from .mac_array import MacArray
from .mac_array_packed import mac_array
from .pipelines import ARRAY_STAGE, FORWARDS, GemmStages


class GemmEngine(wiring.Component):
    """Issues one micro-op a cycle, also from one instruction to the next, and never stalls.

    Stages, counted from the issue (:class:`GemmStages`): 1 operands are read; 3 the array takes them; ``add``: the sum
    meets the old accumulator; ``write``: the result is written. The old value is read in stage ``read``, unless one of
    the :data:`FORWARDS` micro-ops before wrote the same entry: then it comes from their results, which makes any
    sequence of indices exact.

    A depthwise micro-op issues a *wave* for each column of ``inp`` that the array has not had; the accumulator side of
    all above belongs to the last of them.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        read_inp = RowsReadPortSignature if config.depthwise else ReadPortSignature
        super().__init__(
            {
                **EngineSignature(config).members,
                "read_inp": Out(read_inp(ceil_log2(config.inp_depth), 8 * config.inp_bytes)),
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
        columns = _Columns(m, config, loops, gemm) if config.depthwise else None
        base = {"dst": gemm.dst, "a": columns.base if columns else gemm.src, "b": gemm.wgt}
        illegal = columns.illegal if columns else 0
        accept_instructions(m, control, loops, levels=gemm.levels, base=base, illegal=illegal)
        with m.If(loops.ready):  # what does not start does not count; `loops.start` comes late
            m.d.sync += [number.eq(control.work.payload.number), zero.eq(gemm.zero)]

        micro_op = loops.micro_ops.payload
        outside, wave, issue = Signal(), Signal(), Signal()
        last = columns.last if columns else 1
        m.d.comb += [
            outside.eq(
                micro_op.dst[ceil_log2(config.acc_depth) :].any()
                | micro_op.a[ceil_log2(config.inp_depth) :].any()
                | micro_op.b[ceil_log2(config.wgt_depth) :].any()
            ),
            wave.eq(loops.micro_ops.valid & ~outside & ~control.halt),
            issue.eq(wave & last),
            loops.micro_ops.ready.eq(last),  # not looking at what stops the engine: nothing is issued after it
            control.failure.valid.eq(loops.micro_ops.valid & outside & ~control.halt),
            control.failure.cause.eq(Fault.INDEX),
            control.failure.number.eq(number),
            control.busy.eq(wave),
        ]
        stages = self._issue(m, micro_op, issue, zero)
        m.submodules.array = array = mac_array(config, platform)
        self._read_operands(m, array, micro_op, wave, stages, columns)
        self._accumulate(m, array, stages)
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
        stages = [_Stage(layout, number) for number in range(1, GemmStages.of(self.config).write + 1)]
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
        return stages

    def _read_operands(
        self, m: Module, array: MacArray, micro_op: Any, wave: Signal, stages: list[_Stage], columns: _Columns | None
    ) -> None:
        """Read the entries of each wave and hand them to the array."""
        index = {name: Signal(len(getattr(self, f"read_{name}").index), reset_less=True) for name in ("inp", "wgt")}
        valids = [stage.valid for stage in stages[:ARRAY_STAGE]]  # without columns, every wave writes
        with m.If(wave):
            m.d.sync += [index["inp"].eq(micro_op.a), index["wgt"].eq(micro_op.b)]
        if columns:
            valids, depthwise = columns.pipeline(m, wave)
            pitch = Signal.like(self.read_inp.pitch, reset_less=True)
            with m.If(wave):
                m.d.sync += [index["inp"].eq(micro_op.a - columns.back), pitch.eq(columns.row_pitch)]
            m.d.comb += [
                self.read_inp.pitch.eq(pitch),
                array.depthwise.eq(depthwise[-1]),
                *(entry.eq(read) for entry, read in zip(array.above, self.read_inp.above, strict=True)),
            ]
        m.d.comb += [
            self.read_inp.enable.eq(valids[0]),
            self.read_inp.index.eq(index["inp"]),
            self.read_wgt.enable.eq(valids[0]),
            self.read_wgt.index.eq(index["wgt"]),
            array.valid.eq(valids[-1]),
            array.inp.eq(self.read_inp.data),
            array.wgt.eq(self.read_wgt.data),
        ]

    def _accumulate(self, m: Module, array: MacArray, stages: list[_Stage]) -> None:
        config = self.config
        at = GemmStages.of(config)
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


class _Columns:
    """Which columns of ``inp`` a depthwise micro-op still has to read, and where they are.

    The loops count with the *last* entry of a micro-op, the one in the last row and column, so that their check of an
    index covers all nine.

    base
        That entry for the first micro-op of the instruction that is offered.
    illegal
        The offered instruction's rows would meet in a bank.
    last
        The wave is its micro-op's last; always, without ``depthwise``.
    back
        From the wave's entry in the last row to the micro-op's last entry.
    """

    def __init__(self, m: Module, config: CoreConfig, loops: LoopNest, gemm: Any) -> None:
        self.depthwise = Signal(name="is_depthwise", reset_less=True)
        self.row_pitch, self.column_pitch = (
            Signal(config.index_bits, name=name, reset_less=True) for name in ("row_pitch", "column_pitch")
        )
        self.base = Signal(config.index_bits + 1, name="last_entry")
        self.illegal = gemm.depthwise & ~gemm.row_pitch[0]
        self.last = Signal(name="last_column")
        self.back = Signal(config.index_bits + 1, name="back")
        column = Signal(range(TAP_COLUMNS), reset_less=True)
        known = Signal(range(TAP_COLUMNS), reset_less=True)  # columns that the next micro-op of a row shares
        stride, step = loops.inner_stride, gemm.column_pitch
        entry = gemm.src + Mux(gemm.depthwise, (gemm.row_pitch + gemm.column_pitch) << 1, 0)
        m.d.comb += [
            self.base.eq(Cat(entry[: config.index_bits], entry[config.index_bits :].any())),
            self.last.eq(~self.depthwise | (column == TAP_COLUMNS - 1)),
            self.back.eq(Mux(self.last, 0, Mux(column == 0, self.column_pitch << 1, self.column_pitch))),
        ]
        with m.If(loops.ready):
            m.d.sync += [
                column.eq(0),
                self.depthwise.eq(gemm.depthwise),
                self.row_pitch.eq(gemm.row_pitch),
                self.column_pitch.eq(gemm.column_pitch),
                known.eq(Mux(stride.b != 0, 0, Mux(stride.a == step, 2, stride.a == step << 1))),
            ]
        with m.Elif(loops.micro_ops.valid):
            m.d.sync += column.eq(Mux(~self.last, column + 1, Mux(loops.inner_goes_on, known, 0)))

    def pipeline(self, m: Module, wave: Signal) -> tuple[list[Signal], list[Signal]]:
        """Whether there is a wave, and whether it is a depthwise one, in the stages from the read to the array."""
        valids = [Signal(name=f"wave{stage}_valid") for stage in range(1, ARRAY_STAGE + 1)]
        modes = [Signal(name=f"wave{stage}_depthwise", reset_less=True) for stage in range(1, ARRAY_STAGE + 1)]
        valid, mode = wave, self.depthwise
        for next_valid, next_mode in zip(valids, modes, strict=True):
            m.d.sync += next_valid.eq(valid)
            with m.If(valid):
                m.d.sync += next_mode.eq(mode)
            valid, mode = next_valid, next_mode
        return valids, modes


class _Stage:
    """Registers of one pipeline stage."""

    def __init__(self, layout: data.StructLayout, number: int) -> None:
        self.valid = Signal(name=f"stage{number}_valid")
        self.content = Signal(layout, reset_less=True, name=f"stage{number}")
