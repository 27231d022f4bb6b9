"""Store engine: strided copies from ``out`` to memory."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bursts import BurstCutter
from .bus import WINDOW_BITS
from .config import CoreConfig
from .cycle_class import CycleClass
from .engine import EngineControl, forward_engine_ports
from .interfaces import EngineSignature, ReadPortSignature
from .isa import Fault, Opcode, instruction_layout
from .layout_fifo import LayoutFifo
from .pipelines import ENTRIES_AHEAD, NUMBER_BITS, STORES_IN_FLIGHT
from .transfer_kinds import TransferKind
from .transfer_plan import TransferPlanner
from .write_dma import WriteClientSignature, strobed_word_layout


def rows_layout(config: CoreConfig) -> data.StructLayout:
    """Entries to read from ``index``, and the rows of ``columns`` entries into which they are packed.

    ``position``: place of the first row's first entry in its bus word, in entries; ``step`` from row to row.
    """
    position = (config.bus_bytes - 1).bit_length()
    return data.StructLayout(
        {
            "index": config.index_bits,
            "rows": config.count_bits,
            "columns": config.count_bits,
            "position": position,
            "step": position,
        }
    )


class StoreEngine(wiring.Component):
    """Engine ``store``: a STORE retires when the memory has acknowledged all its bursts.

    out
        Read port of the ``out`` scratchpad.
    window_size
        Bytes of the DMA window; must not change while running.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                **EngineSignature(config).members,
                "client": Out(WriteClientSignature(config)),
                "out": Out(ReadPortSignature(max(1, (config.out_depth - 1).bit_length()), 8 * config.out_bytes)),
                "window_size": In(WINDOW_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.control = control = EngineControl(config)
        kind = TransferKind(config.out_bytes, config.out_depth)
        m.submodules.planner = planner = TransferPlanner(config, [kind])
        m.submodules.cutter = cutter = BurstCutter(config)
        m.submodules.rows = rows = LayoutFifo(rows_layout(config), 2)
        m.submodules.packer = packer = EntryPacker(config)
        pending_layout = data.StructLayout({"number": NUMBER_BITS, "moves": 1})
        m.submodules.pending = pending = LayoutFifo(pending_layout, STORES_IN_FLIGHT)
        forward_engine_ports(m, config, self, control)
        connect(m, cutter.bursts, flipped(self.client.bursts))
        connect(m, rows.output, packer.rows)
        connect(m, packer.words, flipped(self.client.words))
        connect(m, packer.out, flipped(self.out))

        store, number = self._request(m, control, planner)
        plan = planner.plans.payload
        issue = Signal()
        bus_log2 = config.bus_bytes.bit_length() - 1
        place_bits = max(0, bus_log2 - kind.bytes_log2)
        m.d.comb += [
            issue.eq(
                planner.plans.valid
                & ~control.halt
                & pending.input.ready
                & ((cutter.transfers.ready & rows.input.ready) | ~plan.moves)
            ),
            planner.plans.ready.eq(issue),
            pending.input.valid.eq(issue),
            pending.input.payload.number.eq(number),
            pending.input.payload.moves.eq(plan.moves),
            cutter.transfers.valid.eq(issue & plan.moves),
            cutter.transfers.payload.eq(plan.transfer),
            rows.input.valid.eq(issue & plan.moves),
            rows.input.payload.index.eq(store.index),
            rows.input.payload.rows.eq(plan.rows),
            rows.input.payload.columns.eq(plan.columns),
            rows.input.payload.position.eq(plan.transfer.first[kind.bytes_log2 : kind.bytes_log2 + place_bits]),
            rows.input.payload.step.eq(store.stride[:place_bits]),
        ]

        self._acknowledge(m, control, planner, packer, pending, number)
        return m

    def _request(self, m: Module, control: EngineControl, planner: TransferPlanner) -> tuple[data.View, Signal]:
        """Hand the instruction that starts to the planner; return it as kept while it is being planned."""
        config = self._config
        starting = data.View(instruction_layout(config, Opcode.STORE), control.work.payload.word)
        store = Signal(instruction_layout(config, Opcode.STORE), reset_less=True)
        number = Signal(NUMBER_BITS, reset_less=True)
        request = planner.requests.payload
        m.d.comb += [
            *(
                getattr(request, name).eq(getattr(starting, name))
                for name in ("index", "offset", "rows", "columns", "stride")
            ),
            request.total_rows.eq(starting.rows),
            request.total_columns.eq(starting.columns),
            request.dense.eq(1),
            planner.requests.valid.eq(control.work.valid),
            control.work.ready.eq(planner.requests.ready),
            planner.window_size.eq(self.window_size),
        ]
        with m.If(control.work.valid & control.work.ready):
            m.d.sync += [store.eq(starting), number.eq(control.work.payload.number)]
        return store, number

    def _acknowledge(
        self,
        m: Module,
        control: EngineControl,
        planner: TransferPlanner,
        packer: EntryPacker,
        pending: LayoutFifo,
        number: Signal,
    ) -> None:
        """Retire each STORE with the response of its last burst; tell faults, and what the engine waits for."""
        # STOREs whose last burst is acknowledged; the memory answers in order.
        ended = Signal(range(STORES_IN_FLIGHT + 1))
        ends = Signal()
        retire = Signal()
        oldest = pending.output.payload
        acknowledgement = self.client.acknowledgement
        refused = Signal()
        m.d.comb += [
            refused.eq(self.client.acknowledged & acknowledgement.error),
            ends.eq(self.client.acknowledged & acknowledgement.last & ~acknowledgement.error),
            retire.eq(pending.output.valid & (~oldest.moves | (ended != 0))),
            pending.output.ready.eq(retire),
            control.retire.eq(retire),
            control.failure.valid.eq(planner.fault | refused),
            control.failure.cause.eq(Mux(refused, Fault.BUS_WRITE, planner.cause)),
            control.failure.number.eq(Mux(refused, oldest.number, number)),
            control.busy.eq(packer.moves),
            control.quiet.eq(planner.idle & ~pending.output.valid),
        ]
        m.d.sync += ended.eq(ended + ends - (retire & oldest.moves))
        with m.If(packer.waits_for_port):
            m.d.comb += control.waiting.eq(CycleClass.CONFLICT)
        with m.Elif(pending.output.valid):
            m.d.comb += control.waiting.eq(CycleClass.MEMORY)


class EntryPacker(wiring.Component):
    """Reads entries and makes bus words of them: one word or one entry a cycle, whichever is more cycles.

    moves
        An entry or a word is packed in this cycle.
    waits_for_port
        Entries have been read but have not come yet.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "rows": In(stream.Signature(rows_layout(config))),
                "words": Out(stream.Signature(strobed_word_layout(config))),
                "out": Out(ReadPortSignature(max(1, (config.out_depth - 1).bit_length()), 8 * config.out_bytes)),
                "moves": Out(1),
                "waits_for_port": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.entries = entries = fifo.SyncFIFOBuffered(width=8 * config.out_bytes, depth=ENTRIES_AHEAD)
        rows = Signal(rows_layout(config), reset_less=True)
        columns_left = Signal(config.count_bits)
        rows_left = Signal(config.count_bits)  # after this one
        reading = Signal()
        row_ends = Signal()
        enabled = Signal(2)  # reads whose data is on its way
        ahead = Signal(range(ENTRIES_AHEAD + 1))
        put, taken = Signal(), Signal()
        position = Signal.like(rows.position, reset_less=True)

        m.d.comb += [
            self.rows.ready.eq(~reading),
            self.out.enable.eq(reading & (ahead != ENTRIES_AHEAD)),
            self.out.index.eq(rows.index),
            row_ends.eq(columns_left == 1),
            put.eq(enabled[1]),
            entries.w_data.eq(self.out.data),
            entries.w_en.eq(put),
            self.waits_for_port.eq((ahead != 0) & ~entries.r_rdy),
        ]
        m.d.sync += [enabled.eq(Cat(self.out.enable, enabled)), ahead.eq(ahead + self.out.enable - taken)]
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += [
                rows.eq(self.rows.payload),
                columns_left.eq(self.rows.payload.columns),
                rows_left.eq(self.rows.payload.rows - 1),
                position.eq(self.rows.payload.position),
                reading.eq(1),
            ]
        with m.If(self.out.enable):
            m.d.sync += [rows.index.eq(rows.index + 1), columns_left.eq(columns_left - 1), position.eq(position + 1)]
            with m.If(row_ends):
                m.d.sync += [
                    columns_left.eq(rows.columns),
                    rows_left.eq(rows_left - 1),
                    rows.position.eq(rows.position + rows.step),
                    position.eq(rows.position + rows.step),
                    reading.eq(rows_left != 0),
                ]
        m.d.comb += entries.r_en.eq(taken)
        if config.out_bytes >= config.bus_bytes:
            self._split(m, entries, taken)
        else:
            # Beside each entry goes its place in its word, and whether a row ends with it.
            m.submodules.places = places = fifo.SyncFIFOBuffered(width=len(position) + 1, depth=ENTRIES_AHEAD)
            m.d.comb += [
                places.w_data.eq(Cat(position, row_ends)),
                places.w_en.eq(self.out.enable),
                places.r_en.eq(taken),
            ]
            self._gather(m, entries, taken, places.r_data[:-1], places.r_data[-1])
        return m

    def _split(self, m: Module, entries: fifo.SyncFIFOBuffered, taken: Signal) -> None:
        """A word a cycle from entries at least as wide as the bus."""
        parts = self._config.out_bytes // self._config.bus_bytes
        part = Signal(range(max(2, parts)))
        m.d.comb += [
            self.words.valid.eq(entries.r_rdy),
            self.words.payload.data.eq(entries.r_data.word_select(part, self._config.bus_bits)),
            self.words.payload.strobe.eq(~0),
            self.moves.eq(self.words.valid & self.words.ready),
            taken.eq(self.moves & (part == parts - 1)),
        ]
        with m.If(self.moves):
            m.d.sync += part.eq(Mux(part == parts - 1, 0, part + 1))

    def _gather(self, m: Module, entries: fifo.SyncFIFOBuffered, taken: Signal, place: Signal, last: Signal) -> None:
        """An entry a cycle into words; where a row begins or ends within a word, the strobes leave the rest out."""
        count = self._config.bus_bytes // self._config.out_bytes
        place = place[: (count - 1).bit_length()]
        slots = [Signal(8 * self._config.out_bytes, name=f"slot{number}", reset_less=True) for number in range(count)]
        filled = Signal(count)
        complete = Signal()
        before = Signal(count)
        m.d.comb += [
            self.words.valid.eq(complete),
            self.words.payload.data.eq(Cat(slots)),
            self.words.payload.strobe.eq(Cat(bit.replicate(self._config.out_bytes) for bit in filled)),
            taken.eq(entries.r_rdy & (~complete | self.words.ready)),
            before.eq(Mux(complete, 0, filled)),
            self.moves.eq(taken),
        ]
        with m.If(taken):
            m.d.sync += [
                Array(slots)[place].eq(entries.r_data),
                filled.eq(before | (1 << place)),
                complete.eq(last | (place == count - 1)),
            ]
        with m.Elif(complete & self.words.ready):
            m.d.sync += [complete.eq(0), filled.eq(0)]
