"""Load engine: strided copies from memory into a scratchpad; built twice, for activations and for weights."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bursts import BurstCutter
from .bus import WINDOW_BITS, buffer_beats
from .config import CoreConfig
from .cycle_class import CycleClass
from .engine import EngineControl, forward_engine_ports
from .interfaces import EngineSignature
from .isa import Engine, Fault, Opcode, Scratchpad, instruction_layout
from .layout_fifo import LayoutFifo
from .load_writer import LoadWriter, write_layout, write_ports
from .pipelines import LOADS_IN_FLIGHT, NUMBER_BITS
from .read_dma import ReadBuffer, ReadClientSignature
from .transfer_kinds import LoadKind, LoadTargets
from .transfer_plan import TransferPlanner
from .weight_form import FOUR_BITS


class LoadEngine(wiring.Component):
    """Engine ``load`` or ``loadw``: asks for the bursts of several LOADs ahead of writing the data of the first.

    own, acc
        Write ports of the engine's scratchpad (``inp`` or ``wgt``) and of the accumulator memory.
    window_size
        Bytes of the DMA window; must not change while running.
    """

    def __init__(self, config: CoreConfig, engine: Engine) -> None:
        self._config = config
        self._engine = engine
        self._targets = targets = LoadTargets.of(engine)
        super().__init__(
            {
                **EngineSignature(config).members,
                "client": Out(ReadClientSignature(config)),
                **write_ports(config, targets),
                "window_size": In(WINDOW_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.control = control = EngineControl(config)
        m.submodules.planner = planner = TransferPlanner(config, self._targets.kinds(config))
        m.submodules.cutter = cutter = BurstCutter(config)
        m.submodules.buffer = buffer = ReadBuffer(config, buffer_beats(config))
        m.submodules.writer = writer = LoadWriter(config, self._targets)
        m.submodules.loads = loads = LayoutFifo(write_layout(config), LOADS_IN_FLIGHT)
        forward_engine_ports(m, config, self, control)
        connect(m, cutter.bursts, buffer.bursts)
        connect(m, buffer.client, flipped(self.client))
        connect(m, buffer.words, writer.words)
        connect(m, loads.output, writer.loads)
        connect(m, writer.own, flipped(self.own))
        connect(m, writer.acc, flipped(self.acc))

        load, number = self._request(m, control, planner)
        plan = planner.plans.payload
        issue = Signal()
        m.d.comb += [
            planner.window_size.eq(self.window_size),
            issue.eq(planner.plans.valid & ~control.halt & loads.input.ready & (cutter.transfers.ready | ~plan.moves)),
            planner.plans.ready.eq(issue),
            loads.input.valid.eq(issue),
            cutter.transfers.valid.eq(issue & plan.moves),
            cutter.transfers.payload.eq(plan.transfer),
        ]
        self._describe(m, loads.input.payload, load, number, plan)

        m.d.comb += [
            writer.halt.eq(control.halt),
            control.retire.eq(writer.retire),
            control.failure.valid.eq(planner.fault | writer.failed),
            # What the writer works on is older.
            control.failure.cause.eq(Mux(writer.failed, Fault.BUS_READ, planner.cause)),
            control.failure.number.eq(Mux(writer.failed, writer.number, number)),
            control.busy.eq(writer.moves),
            control.quiet.eq(planner.idle & ~loads.output.valid & writer.idle),
        ]
        with m.If(writer.waits_for_port):
            m.d.comb += control.waiting.eq(CycleClass.CONFLICT)
        with m.Elif(writer.waits_for_memory):
            m.d.comb += control.waiting.eq(CycleClass.MEMORY)
        return m

    def _request(self, m: Module, control: EngineControl, planner: TransferPlanner) -> tuple[data.View, Signal]:
        """Hand the instruction that starts to the planner; return it as kept while it is being planned."""
        config = self._config
        layout = instruction_layout(config, Opcode.LOAD)
        starting = data.View(layout, control.work.payload.word)
        kinds = dict(zip(self._targets.targets, LoadKind, strict=False))  # RECORDS have no scratchpad of their own
        request = planner.requests.payload
        m.d.comb += control.illegal.eq(1)
        with m.Switch(starting.scratchpad):
            for scratchpad, kind in kinds.items():
                with m.Case(scratchpad):
                    m.d.comb += [control.illegal.eq(0), request.kind.eq(kind)]
        pads = (starting.pad_top, starting.pad_bottom, starting.pad_left, starting.pad_right)
        if self._targets.unpacks(config):
            with m.If((starting.scratchpad == Scratchpad.WGT) & (starting.pad_value != 0)):
                is_padded = ~request.dense
                m.d.comb += control.illegal.eq((starting.pad_value != FOUR_BITS) | is_padded)
                m.d.comb += request.kind.eq(LoadKind.RECORDS)
        m.d.comb += [
            request.index.eq(starting.index),
            request.offset.eq(starting.offset),
            request.rows.eq(starting.rows),
            request.columns.eq(starting.columns),
            request.stride.eq(starting.stride),
            request.total_rows.eq(starting.pad_top + starting.rows + starting.pad_bottom),
            request.total_columns.eq(starting.pad_left + starting.columns + starting.pad_right),
            request.dense.eq(~(pads[0] | pads[1] | pads[2] | pads[3]).any()),
            planner.requests.valid.eq(control.work.valid),
            control.work.ready.eq(planner.requests.ready),
        ]
        load = Signal(layout, reset_less=True)
        number = Signal(NUMBER_BITS, reset_less=True)
        with m.If(control.work.valid & control.work.ready):
            m.d.sync += [load.eq(starting), number.eq(control.work.payload.number)]
        return load, number

    def _describe(self, m: Module, write: data.View, load: data.View, number: Signal, plan: data.View) -> None:
        """What the writer needs; rows without data count as padding."""
        config = self._config
        kinds = self._targets.kinds(config)
        bus_log2 = config.bus_bytes.bit_length() - 1
        kind = Signal(LoadKind)
        with m.Switch(load.scratchpad):
            with m.Case(Scratchpad.ACC):
                m.d.comb += kind.eq(LoadKind.ACC)
            with m.Case(Scratchpad.ACC8):
                m.d.comb += kind.eq(LoadKind.ACC8)
        columns = plan.columns
        if self._targets.unpacks(config):
            records = kinds[LoadKind.RECORDS]
            with m.If((load.scratchpad == Scratchpad.WGT) & (load.pad_value != 0)):
                m.d.comb += kind.eq(LoadKind.RECORDS)
            columns = Mux(kind == LoadKind.RECORDS, records.in_entries(plan.columns), plan.columns)
        positions = Array(plan.transfer.first[each.bytes_log2 : max(each.bytes_log2, bus_log2)] for each in kinds)
        steps = Array(load.stride[: max(0, bus_log2 - each.bytes_log2)] for each in kinds)
        m.d.comb += [
            write.number.eq(number),
            write.kind.eq(kind),
            write.empty.eq(plan.empty),
            write.index.eq(load.index),
            write.top.eq(Mux(plan.moves, load.pad_top, load.pad_top + load.rows)),
            write.rows.eq(Mux(plan.moves, plan.rows, 0)),
            write.bottom.eq(load.pad_bottom),
            write.width.eq(load.pad_left + load.columns + load.pad_right),
            write.left.eq(load.pad_left),
            write.columns.eq(columns),
            write.right.eq(load.pad_right),
            write.pad_value.eq(load.pad_value),
            write.position.eq(positions[kind]),
            write.step.eq(steps[kind]),
        ]
