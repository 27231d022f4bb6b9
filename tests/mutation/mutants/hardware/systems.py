"""Faults between cores: the arbiter, the windows of registers, the top of a system."""

from __future__ import annotations

from ..mutant import Mutant

TESTS = ("tests/sim/test_system.py",)
SHARED = ("tests/sim/test_shared_reads.py",)

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
