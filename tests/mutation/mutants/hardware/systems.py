"""Faults between cores: the arbiter, the windows of registers, the top of a system."""

from __future__ import annotations

from ..mutant import Mutant

TESTS = ("tests/sim/test_system.py",)
SHARED = ("tests/sim/test_shared_reads.py",)
RELAY = ("tests/sim/test_relay.py",)

MUTANTS = (
    Mutant(
        "arbiter-turns-outlive-a-run", "hw/interconnect.py", "state that survives",
        "after.eq(Mux(under_way == 0, count - 1, last))", "after.eq(last)", TESTS,
    ),
    Mutant(
        "arbiter-first-core-first", "hw/interconnect.py", "arbitration",
        "candidate = (number + step) % count", "candidate = step % count", TESTS,
    ),
    Mutant(
        "arbiter-grants-without-room", "hw/interconnect.py", "overflow",
        "takes.eq(free & room & Cat(", "takes.eq(free & Cat(", TESTS,
    ),
    Mutant(
        "arbiter-words-of-any-core", "hw/interconnect.py", "missing order",
        "port.wvalid.eq(bus.wvalid & order.r_rdy)", "port.wvalid.eq(bus.wvalid)", TESTS,
    ),
    Mutant(
        "arbiter-forgets-whose-burst", "hw/interconnect.py", "wrong ID",
        '{"id": Cat(of("id"), Const(number)),', '{"id": of("id"),', TESTS,
    ),
    Mutant(
        "arbiter-loses-an-address", "hw/interconnect.py", "overwritten register",
        'free = ~held | of_port("ready")', "free = Const(1)", TESTS,
    ),
    Mutant(
        "arbiter-counts-no-ends", "hw/interconnect.py", "wrong count",
        "under_way.eq(under_way + takes - ends)", "under_way.eq(under_way + takes)", TESTS,
    ),
    Mutant(
        "arbiter-turn-that-nobody-leaves", "hw/interconnect.py", "wrong count",
        "m.d.sync += left.eq(left - 1)", "pass", TESTS,
    ),
    Mutant(
        "arbiter-turn-goes-on-in-the-next-run", "hw/interconnect.py", "state that survives",
        "goes_on.eq((under_way != 0) & (left != 0) & asks)", "goes_on.eq((left != 0) & asks)", TESTS,
    ),
    Mutant(
        "arbiter-waits-for-whose-turn-it-is", "hw/interconnect.py", "arbitration",
        "goes_on.eq((under_way != 0) & (left != 0) & asks)", "goes_on.eq((under_way != 0) & (left != 0))", TESTS,
    ),
    Mutant(
        "rendezvous-drops-unlike-bursts", "hw/shared_reads.py", "wrong state",
        "m.d.sync += left.eq(left & ~same)", "m.d.sync += left.eq(0)", SHARED,
    ),
    Mutant(
        "rendezvous-serves-a-burst-again", "hw/shared_reads.py", "state that survives",
        "m.d.comb += served.eq(self.members)", "m.d.comb += served.eq(self.members & 1)", SHARED,
    ),
    Mutant(
        "rendezvous-waits-for-all-cores", "hw/shared_reads.py", "deadlock",
        "(self.waits | ~self.running).all()", "self.waits.all()", SHARED,
    ),
    Mutant(
        "rendezvous-waits-for-nobody", "hw/shared_reads.py", "dropped condition",
        "(self.waits | ~self.running).all()", "self.waits.any()", SHARED,
    ),
    Mutant(
        "rendezvous-answers-all-alike", "hw/shared_reads.py", "dropped condition",
        "self.members.eq(left & same)", "self.members.eq(left)", SHARED,
    ),
    Mutant(
        "arbiter-weights-overtake", "hw/interconnect.py", "missing order",
        "~meets & ~(is_weights & shared.waits[number])", "~meets", SHARED,
    ),
    Mutant(
        "arbiter-forgets-who-shares", "hw/interconnect.py", "wrong destination",
        "members.w_data.eq(shared.members)", "members.w_data.eq(1)", SHARED,
    ),
    Mutant(
        "arbiter-shares-past-the-range", "hw/interconnect.py", "off by one",
        "(bus.araddr[page:] < self.shared_stop)", "(bus.araddr[page:] <= self.shared_stop)", SHARED,
    ),
    Mutant(
        "system-running-until-its-answer", "hw/core.py", "wrong signal",
        "self.running.eq(control.counting)", "self.running.eq(control.running)", SHARED,
    ),
    Mutant(
        "relay-waits-for-a-begin", "hw/relay.py", "off by one",
        "~waits[other] | _is_positive(ahead)", "~waits[other] | ~ahead[-1]", RELAY,
    ),
    Mutant(
        "relay-has-room-too-soon", "hw/relay.py", "off by one",
        "~waits[MOST_CORES + other] | _is_positive(has_room)", "~waits[MOST_CORES + other] | ~has_room[-1]", RELAY,
    ),
    Mutant(
        "relay-goes-on-after-a-fault", "hw/relay.py", "dropped condition",
        "self._core(m, core, busy, reached, active & ~halted, begins)",
        "self._core(m, core, busy, reached, active, begins)", RELAY,
    ),
    Mutant(
        "relay-counts-faults", "hw/relay.py", "wrong count",
        "with m.If(self._status(core, Status.DONE)):", "with m.If(1):", RELAY,
    ),
    Mutant(
        "relay-a-reset-halts-nothing", "hw/relay.py", "dropped condition",
        "& self._ends(m, core) & ~self._status(core, Status.DONE)):", "& self._ends(m, core) & 0):", RELAY,
    ),
    Mutant(
        "relay-one-window-more", "hw/relay.py", "off by one",
        "last = slot + 1 == self.slots", "last = slot == self.slots", RELAY,
    ),
    Mutant(
        "relay-begins-beyond-what-is-released", "hw/relay.py", "dropped condition",
        "~busy[core], self.released != ended]", "~busy[core]]", RELAY,
    ),
    Mutant(
        "relay-starts-while-it-runs", "hw/relay.py", "dropped condition",
        "self.control[RelayControl.START.bit_length() - 1] & ~busy.any()",
        "self.control[RelayControl.START.bit_length() - 1]", RELAY,
    ),
    Mutant(
        "relay-stop-is-ignored", "hw/relay.py", "dropped effect",
        "m.d.sync += active.eq(0)", "m.d.sync += active.eq(active)", RELAY,
    ),
    Mutant(
        "relay-window-does-not-move", "hw/core.py", "dropped effect",
        "base + (self.shift << PAGE_BYTES.bit_length() - 1)", "base", RELAY,
    ),
    Mutant(
        "relay-one-turn-more", "hw/relay.py", "off by one",
        "turn.eq(Mux(turn + 1 == self.turns, 0, turn + 1))", "turn.eq(Mux(turn == self.turns, 0, turn + 1))", RELAY,
    ),
    Mutant(
        "relay-begins-in-the-last-turn", "hw/relay.py", "state that survives",
        "m.d.sync += [ended.eq(0), slot.eq(0), shift.eq(0), turn.eq(0)]",
        "m.d.sync += [ended.eq(0), slot.eq(0), shift.eq(0)]", RELAY,
    ),
    Mutant(
        "relay-programs-of-any-core", "hw/relay.py", "address decode",
        "write.en.eq((self.turn_count != 0) & (self.turn[TURN_BITS:] == core))",
        "write.en.eq(self.turn_count != 0)", RELAY,
    ),
    Mutant(
        "relay-turns-outlive-the-relay", "hw/relay.py", "state that survives",
        "self.in_turn[core].eq(busy[core] & (self.turns != 0))", "self.in_turn[core].eq(self.turns != 0)", RELAY,
    ),
    Mutant(
        "relay-one-program-for-all-turns", "hw/core.py", "wrong wire",
        "Mux(self.in_turn, self.turn_offset, offset)", "offset", RELAY,
    ),
    Mutant(
        "relay-counts-of-the-registers", "hw/core.py", "wrong wire",
        "Mux(self.in_turn, self.turn_count, count)", "count", RELAY,
    ),
    Mutant(
        "windows-all-are-of-core-0", "hw/register_windows.py", "address decode",
        "chosen.eq(1 << number)", "chosen.eq(1)", TESTS,
    ),
    Mutant(
        "windows-group-is-all", "hw/register_windows.py", "mask ignored",
        "chosen.eq(self.members)", "chosen.eq((1 << self.count) - 1)", TESTS,
    ),
    Mutant(
        "system-interrupts-of-core-0", "hw/system.py", "wrong wire",
        "Cat(core.interrupt for core in cores)", "Cat(cores[0].interrupt for core in cores)", TESTS,
    ),
)  # fmt: skip
