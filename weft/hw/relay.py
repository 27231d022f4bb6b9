"""Cores that start each other: a run of a core begins when those that it waits for have ended, without the host.

:mod:`.relay_plan` says what waits for what. The relay counts the ended runs of each core, and compares counts.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .bus import OFFSET_BITS
from .pipelines import NUMBER_BITS
from .registers import COUNTER_BITS, Kind, Status
from .relay_plan import (
    COUNT_BITS,
    MOST_TURNS,
    SLOT_BITS,
    TURN_BITS,
    RelayControl,
    RelayRegister,
    RelayStatus,
)
from .system_config import MOST_CORES

READ_ONLY = (Kind.STATE, Kind.COUNTER)
"""Kinds of registers that the relay itself changes."""


PROGRAM = data.StructLayout({"offset": OFFSET_BITS, "count": NUMBER_BITS})
"""Where a program lies in a core's window, and its instructions."""


def relay_ports(count: int) -> dict[str, tuple[int, RelayRegister]]:
    """Name of the signal of each register of a relay of ``count`` cores, with its address; of a wide one the lower."""
    return {
        f"{register.signal}_{core}" if register.of_cores else register.signal: (register + 4 * core, register)
        for register in RelayRegister
        if not register.word
        for core in range(count if register.of_cores else 1)
    }


class Relay(wiring.Component):
    """The signals of its registers have the names of :func:`relay_ports`; of a command, bits are one cycle long.

    members
        The cores that take part.
    status_0, status_1, ...
        Bits of each core's STATUS.
    counting
        The cores whose programs run.
    start, shift_0, shift_1, ...
        To each core: begin a run, and where its window begins, in pages behind its window's base.
    in_turn, program_0, program_1, ...
        To each core: whether it runs a program of its turns, and which; from the start to the end.
    interrupt
        As many runs as NOTIFY says have ended, or it has halted and no run is under way.
    """

    def __init__(self, count: int, page_bits: int) -> None:
        self.count = count
        registers = {
            name: (Out if register.kind in READ_ONLY else In)(register.bits)
            for name, (_, register) in relay_ports(count).items()
        }
        cores = {f"status_{core}": In(len(Status)) for core in range(count)}
        shifts = {f"shift_{core}": Out(page_bits) for core in range(count)}
        programs = {f"program_{core}": Out(PROGRAM) for core in range(count)}
        outside = {"members": In(count), "counting": In(count), "start": Out(count), "interrupt": Out(1)}
        turns = {"in_turn": Out(count), **programs}
        super().__init__(registers | cores | shifts | turns | outside)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        active, halted = Signal(), Signal()
        busy = Signal(self.count)
        reached = Signal(self.count)
        begins = self.control[RelayControl.START.bit_length() - 1] & ~busy.any()
        for core in range(self.count):
            self._core(m, core, busy, reached, active & ~halted, begins)
            with m.If(active & self.members[core] & self._status(core, Status.FAULT)):
                m.d.sync += halted.eq(1)
            with m.If(busy[core] & self._ends(m, core) & ~self._status(core, Status.DONE)):
                m.d.sync += halted.eq(1)
        with m.If(self.control[RelayControl.STOP.bit_length() - 1]):
            m.d.sync += active.eq(0)
        with m.Elif(begins):
            m.d.sync += [active.eq(1), halted.eq(0)]
        bits = {RelayStatus.ACTIVE: active, RelayStatus.HALTED: halted, RelayStatus.RUNNING: busy.any()}
        m.d.comb += [
            *(self.status[bit.bit_length() - 1].eq(value) for bit, value in bits.items()),
            self.interrupt.eq(active & (halted & ~busy.any() | (reached | ~self.members).all())),
        ]
        self._time(m, begins)
        return m

    def _status(self, core: int, bit: Status) -> Value:
        status: Value = getattr(self, f"status_{core}")
        return status[bit.bit_length() - 1]

    def _ends(self, m: Module, core: int) -> Value:
        """In the cycle after a core's last one."""
        runs = self._status(core, Status.RUNNING)
        ran = Signal(name=f"ran_{core}")
        m.d.sync += ran.eq(runs)
        return ran & ~runs

    def _core(self, m: Module, core: int, busy: Signal, reached: Signal, goes_on: Value, begins: Value) -> None:
        ended, shift = getattr(self, f"ended_{core}"), getattr(self, f"shift_{core}")
        turn = Signal(TURN_BITS, name=f"turn_{core}")
        self._programs(m, core, turn)
        m.d.comb += self.in_turn[core].eq(busy[core] & (self.turns != 0))
        waits = getattr(self, f"waits_{core}")
        slot = Signal(SLOT_BITS, name=f"slot_{core}")
        ready = Signal(name=f"ready_{core}")
        wanted = [self.members[core], ~busy[core], self.released != ended]
        for other in range(self.count):
            ahead = (getattr(self, f"ended_{other}") - ended)[:COUNT_BITS]
            has_room = (getattr(self, f"ended_{other}") + self.slots - ended)[:COUNT_BITS]
            wanted += [
                ~waits[other] | _is_positive(ahead),
                ~waits[MOST_CORES + other] | _is_positive(has_room),
            ]
        m.d.comb += [
            ready.eq(goes_on & Cat(wanted).all()),
            reached[core].eq(~(ended - self.notify)[COUNT_BITS - 1]),
        ]
        m.d.sync += self.start[core].eq(ready)
        with m.If(ready):
            m.d.sync += busy[core].eq(1)
        with m.If(busy[core] & self._ends(m, core)):
            m.d.sync += busy[core].eq(0)
            with m.If(self._status(core, Status.DONE)):
                last = slot + 1 == self.slots
                m.d.sync += [
                    turn.eq(Mux(turn + 1 == self.turns, 0, turn + 1)),
                    ended.eq(ended + 1),
                    slot.eq(Mux(last, 0, slot + 1)),
                    shift.eq(Mux(last, 0, shift + self.pitch)),
                ]
        with m.If(begins):
            m.d.sync += [ended.eq(0), slot.eq(0), shift.eq(0), turn.eq(0)]

    def _programs(self, m: Module, core: int, turn: Signal) -> None:
        """The programs of a core's turns. What the port shows is that of ``turn`` a cycle before: long before the start
        has ended."""
        memory = Memory(shape=PROGRAM, depth=MOST_TURNS, init=[])
        m.submodules[f"programs_{core}"] = memory
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            read.addr.eq(turn),
            getattr(self, f"program_{core}").eq(read.data),
            write.addr.eq(self.turn[:TURN_BITS]),
            write.data.offset.eq(self.turn_offset),
            write.data.count.eq(self.turn_count),
            write.en.eq((self.turn_count != 0) & (self.turn[TURN_BITS:] == core)),
        ]

    def _time(self, m: Module, begins: Value) -> None:
        """Cycles from the first begin, kept at each end."""
        time, counted = Signal(COUNTER_BITS), Signal(self.count)
        begun = Signal()
        m.d.sync += counted.eq(self.counting)
        with m.If(begins):
            m.d.sync += [time.eq(0), begun.eq(0), self.cycles.eq(0)]
        with m.Elif(begun | self.counting.any()):
            m.d.sync += [begun.eq(1), time.eq(time + 1)]
        with m.If((counted & ~self.counting).any()):
            m.d.sync += self.cycles.eq(time)


def _is_positive(difference: Value) -> Value:
    return (difference != 0) & ~difference[-1]
