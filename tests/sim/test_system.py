"""Several cores: the RTL is the functional simulator to the byte and the timing model to the cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.footprint import Intervals
from weft.hw.isa import Fault
from weft.hw.programs import assemble
from weft.hw.register_windows import GROUP_MEMBERS, GROUP_WINDOW, WINDOW_BYTES
from weft.hw.registers import MAGIC, Register
from weft.hw.system_config import SystemConfig
from weft.sim.dram import BusErrors, DramModel
from weft.sim.errors import SharedBytesError, SimulationError
from weft.sim.fuzz import MEMORY_BYTES
from weft.sim.fuzz_system import (
    NARROW,
    compare_kind,
    compare_system,
    fill,
    memory_bytes,
    predicted,
    random_system,
    random_system_case,
)
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import CoreProgram, SystemResult
from weft.sim.system_timing import predict_system
from weft.sim.timing import predict
from weft.sim.timing_ports import TimedProgram

from .programs import parse

MIXED = SystemConfig(name="mixed", cores=(TINY, NARROW, TINY), ports=(0, 0, 1), weights=(3, 1, 1))
"""Two unlike cores behind an arbiter, where the turns of one have three bursts, and one with a port of its own."""

STALE = "the timing model no longer follows the interconnect: compare sim/timing_shared.h with hw/interconnect.py"

COPY = """
load load scratchpad=acc index=0 offset={source} rows=1 columns=8 stride=8 send=vector
loop vector level=0 extent=8 dst_stride=1 a_stride=1
vector vector op=add b_immediate=1 levels=1 dst=0 a=0 b=1 target=out wait=load send=store
store store index=0 offset={target} rows=1 columns=8 stride=8 wait=vector
finish
"""


TWO_COPIES = """
load load scratchpad=acc index=0 offset=2048 rows=1 columns=8 stride=8 send=vector
loop vector level=0 extent=8 dst_stride=1 a_stride=1
vector vector op=add b_immediate=1 levels=1 dst=0 a=0 b=1 target=out wait=load send=store
store store index=0 offset=2500 rows=1 columns=8 stride=8 wait=vector
loop vector level=0 extent=64 dst_stride=0 a_stride=0
vector vector op=add b_immediate=1 levels=1 dst=0 a=0 b=1 target=out send=store
store store index=0 offset=2600 rows=1 columns=8 stride=8 wait=vector
finish
"""


@pytest.fixture(scope="module")
def rtl() -> RtlSystem:
    return RtlSystem(MIXED, memory_bytes(3))


@pytest.fixture(scope="module")
def functional() -> FunctionalSystem:
    return FunctionalSystem(MIXED, memory_bytes(3))


def copies(
    simulator: FunctionalSystem | RtlSystem, places: list[tuple[int, int]], size: int
) -> list[CoreProgram | None]:
    """A program for each core that reads at one granule of the memory and writes at another; all share a window."""
    programs: list[CoreProgram | None] = []
    for core, (source, target) in enumerate(places):
        config = simulator.config.cores[core]
        code = assemble(config, parse(COPY.format(source=source, target=target)))
        simulator.dram[core * 1024 :][: len(code)] = code
        programs.append(CoreProgram(offset=core * 1024, count=len(code) // config.instruction_bytes, window_start=0,
                                    window_bytes=size))  # fmt: skip
    return programs


def test_random_programs_on_all_cores_are_equal_to_the_byte_and_to_the_cycle(
    rtl: RtlSystem, functional: FunctionalSystem
) -> None:
    waited = 0
    for seed in range(40):
        case = random_system_case(MIXED, seed)
        assert not compare_system(case, functional, rtl), f"seed {seed}; {STALE}"
        starts = [0] * 3
        alone = predict(
            TINY, assemble(TINY, case.cases[0].instructions), case.dram, offset=case.cases[0].program_offset
        )
        together = predicted(case, MIXED, SystemResult((None,) * 3, tuple(starts))).cores[0]
        assert together is not None
        waited += (together.cycles or 0) - (alone.cycles or 0)
    assert waited > 1000  # the cores do meet at the arbiter


def test_random_programs_with_banks_and_faults_are_equal_too() -> None:
    rtl, functional = RtlSystem(MIXED, memory_bytes(3)), FunctionalSystem(MIXED, memory_bytes(3))
    for seed in range(1000, 1040):
        assert not compare_kind(MIXED, seed, functional, rtl), f"seed {seed}; {STALE}"


@pytest.mark.long
@pytest.mark.parametrize("number", range(8))
def test_random_systems(number: int) -> None:
    """Of one to eight cores, alike and unlike, on any ports, with shared reads or without: 63 programs each."""
    system = random_system(number)
    size = memory_bytes(len(system.cores))
    rtl, functional = RtlSystem(system, size), FunctionalSystem(system, size)
    for seed in range(63):
        assert not compare_kind(system, seed, functional, rtl), f"{system.to_json()} seed {seed}; {STALE}"


def test_random_systems_have_every_number_of_cores_and_their_ports() -> None:
    systems = [random_system(number) for number in range(64)]
    assert {len(each.cores) for each in systems} == set(range(1, 9))
    assert {each.shared_reads for each in systems} == {False, True}
    assert any(1 < each.port_count < len(each.cores) for each in systems)
    assert any(len(set(each.cores)) == 2 for each in systems)


def test_turns_begin_anew_where_nothing_is_under_way(rtl: RtlSystem) -> None:
    """Core 1 starts later and later: in one of these runs it first asks in the cycle in which core 0 asks again."""
    memory = DramModel(latency=20)
    rtl.set_dram(memory)
    programs = copies(rtl, [(2048, 2200), (2048, 2300), (2048, 2400)], 1 << 14)
    for start in range(10, 90):
        first, second, _ = programs
        assert first is not None
        assert second is not None
        got = rtl.run([first, replace(second, start=start), None])
        timed = [
            TimedProgram(
                code=rtl.dram[each.offset :][: each.count * TINY.instruction_bytes].copy(), offset=each.offset, start=at
            )
            for each, at in zip((first, second), got.starts[:2], strict=True)
        ]
        model = predict_system(MIXED, [*timed, None], memory)
        assert [core and core.cycles for core in got.cores] == [core and core.cycles for core in model.cores], start


def test_turns_of_writes_begin_anew_too(rtl: RtlSystem) -> None:
    """Core 0 writes twice. In one of these runs core 1, which starts later and later, writes in the cycle in which core
    0 writes again, with nothing of its first write under way: core 0 goes first, though it was the last."""
    memory = DramModel(latency=1)
    rtl.set_dram(memory)
    _, once, _ = copies(rtl, [(2048, 2200), (2048, 2300), (2048, 2400)], 1 << 14)
    assert once is not None
    code = assemble(TINY, parse(TWO_COPIES))
    rtl.dram[: len(code)] = code
    twice = replace(once, offset=0, count=len(code) // TINY.instruction_bytes)
    for start in range(40, 90):
        got = rtl.run([twice, replace(once, start=start), None])
        timed = [
            TimedProgram(code=code, offset=0, start=got.starts[0]),
            TimedProgram(
                code=rtl.dram[once.offset :][: once.count * NARROW.instruction_bytes].copy(), offset=once.offset,
                start=got.starts[1],
            ),
        ]  # fmt: skip
        model = predict_system(MIXED, [*timed, None], memory)
        cycles = [core and core.cycles for core in got.cores]
        assert cycles == [core and core.cycles for core in model.cores], start


def test_what_the_model_skips_does_not_matter() -> None:
    system = SystemConfig(cores=(TINY,) * 4)
    for seed in range(30):
        case = random_system_case(system, seed)
        programs = [
            TimedProgram(code=assemble(TINY, part.instructions), offset=part.program_offset, start=start)
            for part, start in zip(case.cases, case.starts, strict=True)
        ]
        quick = predict_system(system, programs, case.dram)
        assert quick == predict_system(system, programs, case.dram, every_cycle=True), f"seed {seed}"


def test_a_core_with_a_port_of_its_own_takes_the_cycles_that_it_takes_alone() -> None:
    system = SystemConfig(cores=(TINY, TINY), ports=(0, 1))
    case = random_system_case(system, 5)
    codes = [assemble(TINY, part.instructions) for part in case.cases]
    result = predict_system(system, [TimedProgram(code=code) for code in codes], case.dram)
    assert [core.cycles for core in result.cores if core] == [predict(TINY, code, case.dram).cycles for code in codes]


def test_cores_that_do_not_run_change_nothing(rtl: RtlSystem) -> None:
    case = random_system_case(MIXED, 7)
    rtl.set_dram(case.dram)
    programs = fill(case, rtl)
    code = assemble(NARROW, case.cases[1].instructions)
    got = rtl.run([None, programs[1], None])
    model = predict_system(MIXED, [None, TimedProgram(code=code, offset=programs[1].offset), None], case.dram)
    assert got.cores[0] is got.cores[2] is model.cores[0] is None
    assert got.cycles == model.cycles == (got.cores[1] and got.cores[1].cycles)


def test_each_core_has_its_registers_in_its_window_and_the_group_those_of_all(rtl: RtlSystem) -> None:
    assert [rtl.read_register(core * WINDOW_BYTES + Register.MAGIC) for core in range(4)] == [MAGIC] * 3 + [0]
    rtl.write_register(GROUP_MEMBERS, 0b101)
    rtl.write_register(GROUP_WINDOW + Register.WATCHDOG, 1234)
    rtl.write_register(WINDOW_BYTES + Register.WATCHDOG, 77)
    assert rtl.read_register(GROUP_MEMBERS) == 0b101
    assert [rtl.read_register(core * WINDOW_BYTES + Register.WATCHDOG) for core in range(3)] == [1234, 77, 1234]


def test_a_fault_stops_its_core_alone_and_the_next_run_is_right() -> None:
    rtl, functional = RtlSystem(MIXED, memory_bytes(3)), FunctionalSystem(MIXED, memory_bytes(3))
    case = random_system_case(MIXED, 11)
    end = 2 * MEMORY_BYTES
    rtl.set_dram(replace(case.dram, errors=BusErrors(0, end)))  # core 0 cannot even fetch
    got = rtl.run(fill(case, rtl))
    assert list(got.faults) == [0]
    assert got.faults[0].fault is not None
    assert got.faults[0].fault.cause is Fault.BUS_READ
    functional.run(fill(case, functional))
    assert np.array_equal(rtl.dram[end:], functional.dram[end:])  # what the others made


@pytest.mark.parametrize("make", [FunctionalSystem, RtlSystem])
def test_cores_may_read_the_same_bytes(make: Callable[..., FunctionalSystem | RtlSystem]) -> None:
    system = make(MIXED, 1 << 14, **({"quick": True} if make is RtlSystem else {}))
    system.dram[8192:8320] = np.arange(32, dtype="<i4").view(np.uint8)
    results = system.run(copies(system, [(2048, 2200), (2048, 2210), (2048, 2220)], 1 << 14))
    assert not results.faults
    for target in (2200, 2210, 2220):
        assert system.dram[4 * target :][:32].tolist() == list(range(1, 33))


@pytest.mark.parametrize(
    ("places", "byte", "pair"),
    [([(2048, 2200), (2200, 2300), (2048, 2400)], 8800, (0, 1)),  # core 1 reads what core 0 writes
     ([(2048, 2200), (2048, 2300), (2048, 2307)], 9228, (1, 2)),  # both write one entry
     ([(2048, 256), (2048, 2300), (2048, 2400)], 1024, (0, 1))],  # core 0 writes core 1's program
)  # fmt: skip
def test_programs_that_touch_each_others_bytes_are_refused(
    places: list[tuple[int, int]], byte: int, pair: tuple[int, int]
) -> None:
    system = FunctionalSystem(MIXED, 1 << 14)
    with pytest.raises(SharedBytesError) as caught:
        system.run(copies(system, places, 1 << 14))
    assert (caught.value.byte, caught.value.writer, caught.value.other) == (byte, *pair)


def test_intervals_are_sets() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        starts = rng.integers(0, 40, (2, 5))
        ends = starts + rng.integers(0, 6, (2, 5))
        members = [
            {n for low, high in zip(*each, strict=True) for n in range(low, high)}
            for each in zip(starts, ends, strict=True)
        ]
        first, second = (Intervals.of(a, b) for a, b in zip(starts, ends, strict=True))
        assert first.common(second) == min(members[0] & members[1], default=None)


def test_what_cannot_be_run_is_refused_with_its_place() -> None:
    system = FunctionalSystem(MIXED, 1 << 14)
    with pytest.raises(SimulationError, match="2 programs for 3 cores"):
        system.run([None, None])
    with pytest.raises(SimulationError, match="no core has a program"):
        system.run([None, None, None])
    code = assemble(TINY, parse("finish"))
    programs = [TimedProgram(code=code), TimedProgram(code=code), None]
    with pytest.raises(SimulationError, match="no jitter"):
        predict_system(MIXED, programs, DramModel(jitter=3))
    stuck = assemble(TINY, parse("sync gemm wait=load\nfinish"))
    with pytest.raises(SimulationError, match="does not end"):
        predict_system(MIXED, [TimedProgram(code=stuck), TimedProgram(code=code), None])
