"""The vector engine: lane-by-lane operations on accumulator entries."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out, connect, flipped
from amaranth.utils import ceil_log2

from ..roundings import HALF_UP
from .config import CoreConfig
from .cycle_class import CycleClass
from .engine import EngineControl, forward_engine_ports
from .interfaces import (
    ArbitratedReadPortSignature,
    EngineSignature,
    WritePortSignature,
    chunk_bits,
)
from .isa import VECTOR_TARGET_BITS, Fault, Opcode, VectorOp, VectorTarget, instruction_layout, vector_targets
from .loops import LoopNest, accept_instructions, micro_op_layout
from .skid_buffer import SkidBuffer
from .vector_fetch import OperandFetch, task_layout
from .vector_lanes import VectorLanes
from .vector_results import DISTANCES, QUERIES, VectorResults, narrow_write_ports


class VectorEngine(wiring.Component):
    """Up to one micro-op a cycle: loops, operand fetch, lanes, results.

    Fetch alone decides when a micro-op is issued; from there to the results nothing waits (:class:`OperandFetch`,
    :class:`VectorLanes`, :class:`VectorResults`). Results wait for their write port; fetch issues only while there is
    room for them.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.results = VectorResults(config)
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        read = ArbitratedReadPortSignature(acc_index, acc_bits)
        super().__init__(
            {
                **EngineSignature(config).members,
                "read_a": Out(read),
                "read_b": Out(read),
                "read_d": Out(read),
                "write_acc": Out(WritePortSignature(acc_index, acc_bits, chunk_bits(config, config.acc_bytes))),
                **narrow_write_ports(config),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.control = control = EngineControl(config)
        m.submodules.loops = loops = LoopNest(config)
        m.submodules.fetch = fetch = OperandFetch(config)
        m.submodules.lanes = lanes = VectorLanes(config)
        m.submodules.results = results = self.results
        forward_engine_ports(m, config, self, control)
        self._accept(m, control, loops, fetch)

        for name in ("read_a", "read_b", "read_d"):
            request, port = getattr(fetch, name), getattr(self, name)
            m.d.comb += [port.enable.eq(request.enable), port.index.eq(request.index), request.ready.eq(port.ready)]
        for name in ("load_a", "load_b", "load_immediate", "load_multiplier", "load_shift", "load_d", "immediate"):
            m.d.comb += getattr(lanes, name).eq(getattr(fetch, name))
        m.d.comb += [
            lanes.a_data.eq(self.read_a.data),
            lanes.b_data.eq(self.read_b.data),
            lanes.d_data.eq(self.read_d.data),
            lanes.issue.eq(fetch.issue),
            lanes.order.eq(fetch.order),
            results.issue.eq(fetch.issue),
            results.destination.eq(fetch.destination),
            *(results.newest[number].eq(fetch.newest[number]) for number in range(len(DISTANCES))),
            *(results.query[query].eq(fetch.query[query]) for query in range(len(QUERIES))),
            *(fetch.matches[query].eq(results.matches[query]) for query in range(len(QUERIES))),
            fetch.found.eq(results.found),
            fetch.freed.eq(results.freed),
            fetch.room.eq(results.room),
            results.result_valid.eq(lanes.result_valid),
            results.result.eq(lanes.result),
            fetch.halt.eq(control.halt),
            control.retire.eq(results.retire),
            control.quiet.eq(results.empty),
            control.busy.eq(fetch.issue | fetch.moving),
            control.failure.valid.eq(fetch.outside & ~control.halt),
            control.failure.cause.eq(Fault.INDEX),
            control.failure.number.eq(fetch.number),
        ]
        with m.If(fetch.occupied & ~control.halt):
            m.d.comb += control.waiting.eq(CycleClass.CONFLICT)
        connect(m, results.write_acc, flipped(self.write_acc))
        for port_name in narrow_write_ports(config):
            connect(m, getattr(results, port_name), flipped(getattr(self, port_name)))
        return m

    def _accept(self, m: Module, control: EngineControl, loops: LoopNest, fetch: OperandFetch) -> None:
        config = self.config
        vector = instruction_layout(config, Opcode.VECTOR)(control.work.payload.word)
        requantises, accumulates, targets = Signal(), Signal(), Signal(1 << VECTOR_TARGET_BITS)
        with m.Switch(vector.op):
            for op in VectorOp:
                with m.Case(op):
                    legal = sum(1 << target for target in vector_targets(config, op))
                    m.d.comb += [targets.eq(legal), accumulates.eq(int(op.accumulates))]
        m.d.comb += requantises.eq(vector.op == VectorOp.REQUANTISE)
        # An entry number that the index cannot hold, or a negative one, is beyond every memory: the guard bit says so.
        beyond = vector.b[config.index_bits :].any() if config.index_bits < len(vector.b) else Const(0)
        illegal = ~targets.bit_select(vector.target, 1) | (requantises & vector.b_immediate)
        if config.tables:
            takes_none = accumulates | (vector.target == VectorTarget.TAB)
            illegal |= (vector.table > config.tables) | (takes_none & (vector.table != 0))
        accept_instructions(
            m,
            control,
            loops,
            levels=vector.levels,
            base={"dst": vector.dst, "a": vector.a, "b": Cat(vector.b[: config.index_bits], beyond)},
            illegal=illegal,
            drained=~fetch.occupied & ~loops.micro_ops.valid,
        )
        reads_b = ~vector.b_immediate & (~accumulates | (vector.op == VectorOp.MAC))
        task = Signal(task_layout(config), reset_less=True)
        with m.If(loops.ready):  # what does not start does not count; `loops.start` comes late
            m.d.sync += [
                task.order.op.eq(vector.op),
                task.order.zero_point.eq(vector.zero_point),
                task.order.low.eq(vector.low),
                task.order.high.eq(vector.high),
                task.order.left_shift.eq(vector.left_shift),
                *([task.order.rounding.eq(vector.rounding)] if config.rounding != HALF_UP else []),
                task.number.eq(control.work.payload.number),
                task.immediate.eq(vector.b),
                task.b_immediate.eq(vector.b_immediate),
                task.b_entry.eq(reads_b),
                task.b_parameters.eq(requantises),
                task.accumulates.eq(accumulates),
                task.zero.eq(vector.zero),
                task.to_acc.eq(vector.target == VectorTarget.ACC),
                task.to_inp.eq(vector.target == VectorTarget.INP),
            ]
            if config.tables:
                m.d.sync += [
                    task.to_tab.eq(vector.target == VectorTarget.TAB),
                    task.by_table.eq(vector.table != 0),
                    task.table.eq(vector.table - 1),
                ]
        # The loops run up to one micro-op ahead of fetch, also into the next instruction: its task must not come early.
        m.submodules.skid = skid = SkidBuffer(
            data.StructLayout({"micro_op": micro_op_layout(config), "task": task_layout(config)})
        )
        m.d.comb += [
            skid.input.valid.eq(loops.micro_ops.valid),
            skid.input.payload.micro_op.eq(loops.micro_ops.payload),
            skid.input.payload.task.eq(task),
            loops.micro_ops.ready.eq(skid.input.ready),
            fetch.micro_ops.valid.eq(skid.output.valid),
            fetch.micro_ops.payload.eq(skid.output.payload.micro_op),
            fetch.task.eq(skid.output.payload.task),
            skid.output.ready.eq(fetch.micro_ops.ready),
        ]
