"""Faults between cores: the arbiter, the windows of registers, the top of a system."""

from __future__ import annotations

from ..mutant import Mutant

TESTS = ("tests/sim/test_system.py",)

MUTANTS = (
    Mutant(
        "arbiter-turns-outlive-a-run", "hw/interconnect.py", "state that survives",
        "after.eq(Mux(under_way == 0, self.count - 1, last))", "after.eq(last)", TESTS,
    ),
    Mutant(
        "arbiter-first-core-first", "hw/interconnect.py", "arbitration",
        "candidate = (number + step) % self.count", "candidate = step % self.count", TESTS,
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
        'registers["id"].eq(Cat(of(bus, "id"), Value.cast(number)))', 'registers["id"].eq(of(bus, "id"))', TESTS,
    ),
    Mutant(
        "windows-all-are-of-core-0", "hw/register_windows.py", "address decode",
        "chosen.eq(1 << number)", "chosen.eq(1)", TESTS,
    ),
    Mutant(
        "windows-group-is-all", "hw/register_windows.py", "mask ignored",
        "chosen.eq(members)", "chosen.eq((1 << self.count) - 1)", TESTS,
    ),
    Mutant(
        "system-interrupts-of-core-0", "hw/system.py", "wrong wire",
        "Cat(core.interrupt for core in cores)", "Cat(cores[0].interrupt for core in cores)", TESTS,
    ),
)  # fmt: skip
