"""What every engine does around its work: commands, tokens, sends in order, accounting, trace, faults."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from .config import CoreConfig
from .cycle_class import CycleClass, token_class
from .interfaces import ENGINES, EngineSignature, FaultSignature, command_layout
from .isa import Engine, Fault, Opcode, header_layout
from .pipelines import IN_FLIGHT, NUMBER_BITS


class EngineControl(wiring.Component):
    """Starts, retires and accounts for the instructions of one engine.

    The ports of :class:`EngineSignature` face the core (:func:`forward_engine_ports` passes them through).
    Towards the body:

    work
        An instruction whose tokens are all there and whose send has room. It starts (and its tokens are taken) in the
        cycle with ``work.ready``; the next one may follow in the next cycle. A SYNC never reaches the body.
    offered
        There is an instruction in ``work``, which may still have to wait. No other one starts before it.
    instant
        Of the instruction in ``work``: it has no effects that take time (LOOP), so the body will not ``retire`` it.
    illegal
        Of the instruction in ``work``: the body refuses it. It does not start; the fault is raised once the body is
        ready for it.
    retire
        The oldest started instruction that is not instant has ended: a read in the next cycle sees all it wrote.
    failure
        The body's fault. The core takes the first one.
    halt
        Start no new micro-op or burst: the core has stopped or this engine has failed.
    busy, waiting, quiet
        A micro-op was issued or data moved; else why not (IDLE: the body has no reason to wait); nothing is
        outstanding.

    The core clears an engine by a synchronous reset (``ResetInserter``). Events, activity, progress and fault come one
    cycle late.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                **EngineSignature(config).members,
                "work": Out(stream.Signature(command_layout(config))),
                "offered": Out(1),
                "instant": In(1),
                "illegal": In(1),
                "retire": In(1),
                "failure": In(FaultSignature()),
                "halt": Out(1),
                "busy": In(1),
                "waiting": In(CycleClass),
                "quiet": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal()
        command = Signal(command_layout(self.config), reset_less=True)
        header = header_layout(self.config)(command.word)
        leave = Signal()
        with m.If(self.commands.ready):
            m.d.sync += held.eq(self.commands.valid)
            with m.If(self.commands.valid):
                m.d.sync += command.eq(self.commands.payload)
        m.d.comb += self.commands.ready.eq(~held | leave)

        m.submodules.ledger = ledger = Ledger()
        missing = Signal(ENGINES)
        may_start, is_sync, failed, refused = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            missing.eq(header.wait & ~self.tokens),
            is_sync.eq(header.opcode == Opcode.SYNC),
            self.halt.eq(self.stop | failed),
            may_start.eq(held & ~missing.any() & ledger.room & ~self.halt),
            self.work.payload.eq(command),
            self.offered.eq(held),
            self.work.valid.eq(may_start & ~is_sync & ~self.illegal),
            refused.eq(may_start & ~is_sync & self.illegal & self.work.ready),
            leave.eq(may_start & (is_sync | (self.work.ready & ~self.illegal))),
            self.take.eq(Mux(leave, header.wait, 0)),
            ledger.start.eq(leave),
            ledger.entry.number.eq(command.number),
            ledger.entry.send.eq(header.send),
            ledger.entry.instant.eq(is_sync | self.instant),
            ledger.retire.eq(self.retire),
            self.idle.eq(self.quiet & (self.halt | (~held & ledger.empty))),
        ]
        wiring.connect(m, ledger.send, flipped(self.send))
        m.d.comb += [self.sending.eq(ledger.sending), self.holding.eq(command.number)]

        with m.If(self.failure.valid | refused):
            m.d.sync += failed.eq(1)
        m.d.sync += [
            self.fault.valid.eq(self.failure.valid | refused),
            self.fault.cause.eq(Mux(self.failure.valid, self.failure.cause, Fault.ILLEGAL)),
            self.fault.number.eq(Mux(self.failure.valid, self.failure.number, command.number)),
            self.started.valid.eq(leave),
            self.started.number.eq(command.number),
            self.retired.valid.eq(ledger.retired.valid),
            self.retired.number.eq(ledger.retired.number),
            self.progress.eq(self.busy | leave | ledger.retired.valid | (self.send.valid & self.send.ready)),
        ]
        self._account(m, busy=self.busy | leave, held=held, missing=missing, ledger=ledger)
        return m

    def _account(self, m: Module, *, busy: Signal, held: Signal, missing: Signal, ledger: Ledger) -> None:
        with m.If(busy):
            m.d.sync += self.activity.eq(CycleClass.BUSY)
        with m.Elif(self.waiting != CycleClass.IDLE):
            m.d.sync += self.activity.eq(self.waiting)
        with m.Elif(self.halt):
            m.d.sync += self.activity.eq(CycleClass.IDLE)
        with m.Elif(held & missing.any()):
            for engine in reversed(Engine):  # the last assignment counts
                with m.If(missing[engine]):
                    m.d.sync += self.activity.eq(token_class(engine))
        with m.Elif(ledger.send.valid & (~held | ~ledger.room)):
            m.d.sync += self.activity.eq(CycleClass.SEND)
        with m.Elif(held | ~ledger.empty):
            m.d.sync += self.activity.eq(CycleClass.CONFLICT)
        with m.Else():
            m.d.sync += self.activity.eq(CycleClass.INSTRUCTION)


class Ledger(wiring.Component):
    """Started instructions in program order, until each has retired and its tokens are sent.

    ``start`` enters one (only while ``room``); ``retire`` reports the oldest that is not instant as done; instant ones
    are done once all before them are. A ring with three pointers: next to start, next to retire, next to send.
    """

    def __init__(self) -> None:
        self.entry_layout = data.StructLayout({"number": NUMBER_BITS, "send": ENGINES, "instant": 1})
        super().__init__(
            {
                "start": In(1),
                "entry": In(self.entry_layout),
                "room": Out(1),
                "retire": In(1),
                "retired": Out(wiring.Signature({"valid": Out(1), "number": Out(NUMBER_BITS)})),
                "send": Out(stream.Signature(ENGINES)),
                "sending": Out(NUMBER_BITS),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One bit more than the ring's index tells a full ring from an empty one.
        pointers = (Signal(range(2 * IN_FLIGHT), name=f"to_{verb}") for verb in ("start", "retire", "send"))
        to_start, to_retire, to_send = pointers
        m.submodules.ring = ring = Memory(shape=self.entry_layout, depth=IN_FLIGHT, init=[])
        write, retiring, sending = ring.write_port(), ring.read_port(domain="comb"), ring.read_port(domain="comb")
        index = slice(0, len(to_start) - 1)

        room = Signal(init=1)  # registered, one entry early: the decision to start is the engine's longest path
        used = Signal.like(to_start)
        m.d.comb += used.eq(to_start - to_send)
        m.d.sync += room.eq(used < IN_FLIGHT - 1)
        m.d.comb += [
            self.room.eq(room),
            write.addr.eq(to_start[index]),
            write.en.eq(self.start),
            write.data.eq(self.entry),
        ]
        m.d.sync += to_start.eq(to_start + self.start)

        done = Signal(range(IN_FLIGHT + 1))  # reported by `retire`, not yet passed by to_retire
        started, instant = Signal(), Signal()
        m.d.comb += [
            retiring.addr.eq(to_retire[index]),
            started.eq(to_retire != to_start),
            instant.eq(retiring.data.instant),
            self.retired.valid.eq(started & (instant | self.retire | (done != 0))),
            self.retired.number.eq(retiring.data.number),
        ]
        with m.If(self.retired.valid):
            m.d.sync += to_retire.eq(to_retire + 1)
        with m.If(self.retire):  # which comes late, so it only chooses
            m.d.sync += done.eq(Mux(started & ~instant, done, done + 1))
        with m.Elif(started & ~instant & (done != 0)):
            m.d.sync += done.eq(done - 1)

        pending = Signal()
        m.d.comb += [
            sending.addr.eq(to_send[index]),
            pending.eq(to_send != to_retire),
            self.send.payload.eq(sending.data.send),
            self.sending.eq(sending.data.number),
            self.send.valid.eq(pending & sending.data.send.any()),
            self.empty.eq(to_send == to_start),
        ]
        m.d.sync += to_send.eq(to_send + (pending & (self.send.ready | ~sending.data.send.any())))
        return m


def forward_engine_ports(m: Module, config: CoreConfig, outer: wiring.Component, inner: EngineControl) -> None:
    """Connect the :class:`EngineSignature` members of an engine to those of its control."""
    for name, member in EngineSignature(config).members.items():
        outside, inside = getattr(outer, name), getattr(inner, name)
        if not member.is_port:
            wiring.connect(m, flipped(outside), inside)
        elif member.flow is Out:
            m.d.comb += outside.eq(inside)
        else:
            m.d.comb += inside.eq(outside)
