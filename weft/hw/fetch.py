"""Fetch: reads the program, refuses damaged and illegal instructions, and puts each into the queue of its engine."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bursts import BurstCutter
from .bus import FETCH_BUFFER_WORDS, OFFSET_BITS, WINDOW_BITS, fetch_burst_beats
from .config import PROGRAM_ALIGNMENT, CoreConfig
from .instruction_check_gates import PARTS, is_damaged, partial_parities
from .instruction_checksum import check_bits
from .interfaces import ENGINES, FaultSignature, command_layout
from .isa import LEGAL_ENGINES, Engine, Fault, Opcode, header_layout, instruction_layout
from .pipelines import NUMBER_BITS
from .read_dma import ReadBuffer, ReadClientSignature, word_layout


class Fetch(wiring.Component):
    """Instruction fetch: one instruction every ``instruction_bits / bus_bits`` cycles, but at most one in two.

    offset, count
        The program: byte offset into the window and number of instructions. Must not change while running.
    window_size
        Bytes of the window.
    start
        Runs the program; one cycle long.
    stop
        The core has faulted: put nothing into a queue any more.
    commands[e]
        Queue of engine ``e``.
    finished
        FINISH has been reached; nothing more will be put into a queue. Stays until reset.
    waiting, number
        Waits for memory, for instruction ``number`` (for the watchdog).
    progress
        Something moved in this cycle.
    fault
        One cycle late, as that of an engine.
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        super().__init__(
            {
                "client": Out(ReadClientSignature(config)),
                "offset": In(OFFSET_BITS),
                "count": In(NUMBER_BITS),
                "window_size": In(WINDOW_BITS),
                "start": In(1),
                "stop": In(1),
                "commands": Out(stream.Signature(command_layout(config))).array(ENGINES),
                "finished": Out(1),
                "waiting": Out(1),
                "number": Out(NUMBER_BITS),
                "progress": Out(1),
                "fault": Out(FaultSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.cutter = cutter = BurstCutter(config, fetch_burst_beats(config))
        m.submodules.buffer = buffer = ReadBuffer(config, FETCH_BUFFER_WORDS)
        m.submodules.unpacker = unpacker = InstructionUnpacker(config)
        connect(m, cutter.bursts, buffer.bursts)
        connect(m, buffer.client, flipped(self.client))
        connect(m, buffer.words, unpacker.words)

        bytes_log2 = config.instruction_bytes.bit_length() - 1
        no_more = Signal()  # all instructions are dispatched: a register, since much follows from whether one is taken
        end = Signal(range((1 << OFFSET_BITS) + (1 << NUMBER_BITS) * config.instruction_bytes))
        instruction = Signal(config.instruction_bits, reset_less=True)
        read_error = Signal()
        parities = Signal(PARTS * check_bits(config.instruction_bits), reset_less=True)
        legal = header_is_legal(m, config, instruction)
        header = data.View(header_layout(config), instruction)
        queue_ready = Signal()
        transfer = cutter.transfers.payload

        m.d.comb += [
            self.fault.number.eq(self.number),
            transfer.first.eq(self.offset),
            transfer.final.eq(end - 1),
            transfer.rows.eq(1),
        ]
        for engine in Engine:
            m.d.comb += [
                self.commands[engine].payload.word.eq(instruction),
                self.commands[engine].payload.number.eq(self.number),
            ]
        with m.Switch(header.engine):
            for engine in Engine:
                with m.Case(engine):
                    m.d.comb += queue_ready.eq(self.commands[engine].ready)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [self.number.eq(0), no_more.eq(0), end.eq(self.offset + (self.count << bytes_log2))]
                with m.If(self.start):
                    m.next = "CHECK"
            with m.State("CHECK"):
                self._check(m, end, cutter.transfers)
            with m.State("WAIT"):
                with m.If(self.stop):
                    m.next = "DONE"
                with m.Elif(no_more):
                    self._fail(m, Fault.NO_FINISH)
                with m.Elif(unpacker.instructions.valid):
                    m.d.comb += [unpacker.instructions.ready.eq(1), self.progress.eq(1)]
                    m.d.sync += [
                        instruction.eq(unpacker.instructions.payload.data),
                        read_error.eq(unpacker.instructions.payload.error),
                        parities.eq(partial_parities(unpacker.instructions.payload.data)),
                    ]
                    m.next = "DISPATCH"
                with m.Else():
                    m.d.comb += self.waiting.eq(1)
            with m.State("DISPATCH"):
                with m.If(self.stop):
                    m.next = "DONE"
                with m.Elif(read_error):
                    self._fail(m, Fault.BUS_READ)
                with m.Elif(is_damaged(parities)):
                    self._fail(m, Fault.CORRUPT)
                with m.Elif(~legal):
                    self._fail(m, Fault.ILLEGAL)
                with m.Elif(header.opcode == Opcode.FINISH):
                    m.d.comb += self.progress.eq(1)
                    m.d.sync += self.finished.eq(1)
                    m.next = "DONE"
                with m.Else():
                    self._dispatch(m, header, queue_ready, no_more)
            with m.State("DONE"):
                # What was read beyond FINISH arrives and is dropped.
                m.d.comb += unpacker.instructions.ready.eq(1)
                m.d.sync += self.fault.valid.eq(0)
        return m

    def _check(self, m: Module, end: Signal, transfers: Any) -> None:
        """Ask for the program where it lies in the window as it must."""
        m.d.comb += self.progress.eq(1)
        with m.If(self.offset[: (PROGRAM_ALIGNMENT - 1).bit_length()] != 0):
            self._fail(m, Fault.ALIGNMENT)
        with m.Elif(end > self.window_size):
            self._fail(m, Fault.WINDOW)
        with m.Elif(self.count == 0):
            self._fail(m, Fault.NO_FINISH)
        with m.Else():
            m.d.comb += transfers.valid.eq(1)
            m.next = "WAIT"

    def _fail(self, m: Module, cause: Fault) -> None:
        """Raise a fault; the program ends."""
        m.d.sync += [self.fault.valid.eq(1), self.fault.cause.eq(cause)]
        m.next = "DONE"

    def _dispatch(self, m: Module, header: data.View, queue_ready: Signal, no_more: Signal) -> None:
        """Offer the instruction to the queue of its engine; go on once it is taken."""
        for engine in Engine:
            m.d.comb += self.commands[engine].valid.eq(header.engine == engine)
        with m.If(queue_ready):
            m.d.comb += self.progress.eq(1)
            m.d.sync += [self.number.eq(self.number + 1), no_more.eq(self.number + 1 == self.count)]
            m.next = "WAIT"


def header_is_legal(m: Module, config: CoreConfig, instruction: Value) -> Value:
    """What ``isa.header_problem`` says, in gates: opcode, engine, own tokens, reserved bits."""
    header = data.View(header_layout(config), instruction)
    legal = Signal()
    own = Signal(8)
    m.d.comb += own.eq(1 << header.engine)
    with m.Switch(header.opcode):
        for opcode in Opcode:
            view = data.View(instruction_layout(config, opcode), instruction)
            with m.Case(opcode):
                engine_fits = Cat(header.engine == engine for engine in LEGAL_ENGINES[opcode]).any()
                tokens = header.wait | header.send
                forbidden = tokens.any() if opcode is Opcode.FINISH else (tokens & own[:ENGINES]).any()
                m.d.comb += legal.eq(engine_fits & ~forbidden & ~view.reserved.any())
    return legal


class InstructionUnpacker(wiring.Component):
    """Turns bus words into instructions, whichever is wider; ``error`` is that of the instruction's last word: behind a
    word that the memory refused all are marked (`ReadBuffer`)."""

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        payload = data.StructLayout({"data": config.instruction_bits, "error": 1})
        super().__init__(
            {"words": In(stream.Signature(word_layout(config))), "instructions": Out(stream.Signature(payload))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, wide = self._config.bus_bits, self._config.instruction_bits
        words, instructions = self.words, self.instructions
        if bus >= wide:
            part = Signal(range(max(2, bus // wide)))
            m.d.comb += [
                instructions.payload.data.eq(words.payload.data.word_select(part, wide)),
                instructions.payload.error.eq(words.payload.error),
                instructions.valid.eq(words.valid),
                words.ready.eq(instructions.ready & (part == bus // wide - 1)),
            ]
            if bus > wide:
                with m.If(instructions.valid & instructions.ready):
                    m.d.sync += part.eq(part + 1)
            return m
        parts = wide // bus
        gathered = Signal(wide - bus, reset_less=True)
        part = Signal(range(parts))
        last = part == parts - 1
        m.d.comb += [
            instructions.payload.data.eq(Cat(gathered, words.payload.data)),
            instructions.payload.error.eq(words.payload.error),
            instructions.valid.eq(words.valid & last),
            words.ready.eq(instructions.ready | ~last),
        ]
        with m.If(words.valid & words.ready):
            m.d.sync += [
                gathered.eq(Cat(gathered, words.payload.data)[bus:]),
                part.eq(part + 1),
            ]
        return m
