"""Reads that cores share: one read of the memory for all, the bytes that each asked for, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.isa import Fault
from weft.hw.programs import assemble
from weft.hw.register_windows import GROUP_WINDOW, SHARED_START, SHARED_STOP
from weft.hw.system_config import SystemConfig
from weft.sim.dram import BusErrors, DramModel
from weft.sim.errors import SimulationError
from weft.sim.fuzz_system import NARROW, compare_system, fill, memory_bytes, random_system_case, timed
from weft.sim.rtl import BASE_ADDRESS
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import CoreProgram
from weft.sim.system_timing import predict_system
from weft.sim.timing_ports import TimedProgram

from .programs import parse
from .test_system import MIXED

SHARING = SystemConfig(name="sharing", cores=(TINY, TINY, NARROW), shared_reads=True)
"""Two alike cores and one that is not, on one port."""

ALL = range(memory_bytes(3))

STALE = "the timing model no longer follows hw/shared_reads.py: compare sim/timing_rendezvous.h"

WEIGHTS = "load loadw scratchpad=wgt index=0 offset={offset} rows=1 columns={columns} stride=8\n"
MEMORY = DramModel(latency=20)


@pytest.fixture(scope="module")
def rtl() -> RtlSystem:
    return RtlSystem(SHARING, memory_bytes(3))


@pytest.fixture(scope="module")
def functional() -> FunctionalSystem:
    return FunctionalSystem(SHARING, memory_bytes(3))


def programs_of(rtl: RtlSystem, texts: list[str | None]) -> tuple[list[CoreProgram | None], list[TimedProgram | None]]:
    """Programs in one window, to run and to predict."""
    run: list[CoreProgram | None] = []
    predicted: list[TimedProgram | None] = []
    for core, text in enumerate(texts):
        config = SHARING.cores[core]
        code = assemble(config, parse(text)) if text else np.zeros(0, np.uint8)
        offset = 8192 * core
        rtl.dram[offset:][: len(code)] = code
        count = len(code) // config.instruction_bytes
        run.append(CoreProgram(offset=offset, count=count, window_start=0, window_bytes=1 << 16) if text else None)
        predicted.append(TimedProgram(code=code, offset=offset) if text else None)
    return run, predicted


def cycles_of(rtl: RtlSystem, texts: list[str | None], shared: range = ALL) -> list[int | None]:
    """Of each core, by the RTL; the timing model says the same."""
    rtl.set_dram(MEMORY)
    run, predicted = programs_of(rtl, texts)
    got = [core and core.cycles for core in rtl.run(run, shared=shared).cores]
    said = [core and core.cycles for core in predict_system(SHARING, predicted, MEMORY, shared=shared).cores]
    assert got == said, STALE
    return got


def test_random_programs_are_equal_to_the_byte_and_to_the_cycle(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    """Every fourth seed shares nothing, one has unlike programs, one alike programs, one both."""
    for seed in range(48):
        case = random_system_case(SHARING, seed)
        assert not compare_system(case, functional, rtl), f"seed {seed}; {STALE}"


def test_what_the_model_skips_does_not_matter() -> None:
    system = SystemConfig(cores=(TINY,) * 4, shared_reads=True)
    shared = 0
    for seed in range(40):
        case = random_system_case(system, seed)
        programs = timed(case, case.starts)
        quick = predict_system(system, programs, case.dram, shared=case.shared)
        assert quick == predict_system(system, programs, case.dram, shared=case.shared, every_cycle=True), (
            f"seed {seed}"
        )
        shared += sum(use.bursts_shared for use in quick.port_use if use is not None)
    assert shared > 200


def test_where_nothing_is_shared_cores_take_what_they_take_without_the_hardware() -> None:
    plain = SystemConfig(cores=(TINY,) * 3)
    for seed in range(10):
        case = random_system_case(plain, seed)
        programs = timed(case, case.starts)
        expected = predict_system(plain, programs, case.dram)
        assert predict_system(replace(plain, shared_reads=True), programs, case.dram) == expected, f"seed {seed}"


def test_one_read_answers_all_cores() -> None:
    """Twelve bursts of weights on a slow memory: three cores take little longer than one."""
    slow = DramModel(latency=20, bytes_per_cycle=1)
    text = "".join(WEIGHTS.format(offset=4096 + 32 * number, columns=16) for number in range(12)) + "finish"
    code = assemble(TINY, parse(text))
    system = replace(SHARING, cores=(TINY,) * 3)
    programs = [TimedProgram(code=code, offset=8192 * core) for core in range(3)]
    alone = predict_system(system, [programs[0], None, None], slow).cycles
    apart = predict_system(system, programs, slow).cycles
    together = predict_system(system, programs, slow, shared=ALL)
    assert alone is not None
    assert apart is not None
    assert together.cycles is not None
    fetched = len(code)  # of its own program each reads alone, a byte a cycle
    assert apart > 2.9 * alone
    assert together.cycles < alone + 2 * fetched + 200
    assert all(use is not None and use.bursts_shared >= 12 for use in together.port_use)


def test_nobody_waits_for_a_core_that_has_ended_or_does_not_run(rtl: RtlSystem) -> None:
    weights = WEIGHTS.format(offset=4096, columns=4) * 3 + "finish"
    assert cycles_of(rtl, [weights, "finish", "finish"])
    assert cycles_of(rtl, [None, weights, "finish"])
    assert cycles_of(rtl, [weights, weights, None])
    more = WEIGHTS.format(offset=4096, columns=4) * 20 + "finish"
    assert cycles_of(rtl, [weights, more, weights])


def test_unlike_reads_are_each_read_alone(rtl: RtlSystem) -> None:
    texts: list[str | None] = [
        "".join(WEIGHTS.format(offset=4096 + 32 * ((core + 1) * number), columns=2) for number in range(8)) + "finish"
        for core in range(3)
    ]
    assert cycles_of(rtl, texts)
    texts[1] = "".join(WEIGHTS.format(offset=4096 + 32 * number, columns=3) for number in range(8)) + "finish"
    assert cycles_of(rtl, texts)  # one address, other lengths


def test_only_pages_in_the_range_are_shared(rtl: RtlSystem) -> None:
    """The first load of the program lies before the range, the last behind it, and order is kept."""
    granule = TINY.granule_bytes
    pages = [2, 5, 4, 6, 5, 2]
    text = "".join(WEIGHTS.format(offset=page * 4096 // granule, columns=4) for page in pages) + "finish"
    _, predicted = programs_of(rtl, [text, text, None])
    for shared, expected in ((range(4 * 4096, 6 * 4096), 3), (range(2 * 4096, 7 * 4096), 6), (range(0), 0)):
        cycles_of(rtl, [text, text, None], shared)
        use = predict_system(SHARING, predicted, MEMORY, shared=shared).port_use[0]
        assert use is not None
        assert use.bursts_shared == expected


def test_a_core_that_faults_while_others_wait_holds_nobody_up() -> None:
    """Core 0 faults at an error of the memory: in its first read, or in the middle, its burst of weights waiting."""
    rtl, functional = RtlSystem(SHARING, memory_bytes(3)), FunctionalSystem(SHARING, memory_bytes(3))
    for seed in (2, 6, 14, 18):  # alike programs, most of their weights in one place
        case = random_system_case(SHARING, seed)
        own = case.programs()[0][1]
        first = own.window_start + own.offset
        for start in (first, first + 8 * TINY.instruction_bytes):
            rtl.set_dram(replace(case.dram, errors=BusErrors(start, first + 4096)))
            got = rtl.run(fill(case, rtl), shared=case.shared)
            functional.run(fill(case, functional))
            if start > first and not got.faults:
                continue  # a program of fewer instructions
            assert list(got.faults) == [0], f"seed {seed}"
            assert got.faults[0].fault is not None
            assert got.faults[0].fault.cause is Fault.BUS_READ
            others = slice(2 * (len(functional.dram) // 4), None)
            assert np.array_equal(rtl.dram[others], functional.dram[others]), f"seed {seed}"
        after = random_system_case(SHARING, seed + 1)
        rtl.set_dram(after.dram)
        result = rtl.run(fill(after, rtl), shared=after.shared)
        functional.run(fill(after, functional))
        model = predict_system(SHARING, timed(after, result.starts), after.dram, shared=after.shared)
        assert [core and core.cycles for core in result.cores] == [core and core.cycles for core in model.cores]


def test_an_error_of_a_shared_read_is_every_members(rtl: RtlSystem) -> None:
    weights = WEIGHTS.format(offset=10000, columns=4) + "finish"
    run, _ = programs_of(rtl, [weights, weights, "finish"])
    where = 10000 * TINY.granule_bytes
    rtl.set_dram(replace(MEMORY, errors=BusErrors(where, where + 64)))
    got = rtl.run(run, shared=ALL)
    rtl.set_dram(MEMORY)
    assert sorted(got.faults) == [0, 1]
    assert {each.fault.cause for each in got.faults.values() if each.fault} == {Fault.BUS_READ}


def test_a_core_that_hangs_is_ended_by_its_watchdog_and_the_others_go_on() -> None:
    rtl = RtlSystem(SHARING, memory_bytes(3), watchdog=2000)
    work = WEIGHTS.format(offset=4096, columns=16) * 20
    run, _ = programs_of(rtl, [work + "finish", "sync gemm wait=load\nfinish", None])
    got = rtl.run(run, shared=ALL)
    assert got.cores[1] is not None
    assert got.cores[1].fault is not None
    assert got.cores[1].fault.cause is Fault.WATCHDOG
    assert got.cores[0] is not None
    # It waits for core 1 as long as that runs, and its own watchdog began to count later.
    assert got.cores[0].fault is None
    assert (got.cores[0].cycles or 0) > 2000


def test_the_range_is_in_registers_of_the_system(rtl: RtlSystem) -> None:
    rtl.run(programs_of(rtl, ["finish", None, None])[0], shared=range(8192, 20480))
    first = BASE_ADDRESS // 4096
    assert [rtl.read_register(each) for each in (SHARED_START, SHARED_STOP)] == [first + 2, first + 5]
    rtl.run(programs_of(rtl, ["finish", None, None])[0])
    assert rtl.read_register(SHARED_START) == rtl.read_register(SHARED_STOP)
    assert SHARED_START > GROUP_WINDOW


def test_what_cannot_be_shared_is_refused() -> None:
    code = assemble(TINY, parse("finish"))
    programs = [TimedProgram(code=code), None, None]
    with pytest.raises(SimulationError, match="'mixed' shares no reads"):
        predict_system(MIXED, programs, shared=range(4096))
    for bad in (range(100), range(-4096, 4096), range(4096, 8192 + 64)):
        with pytest.raises(SimulationError, match="only whole pages of 4096 bytes"):
            predict_system(SHARING, programs, shared=bad)
    with pytest.raises(SimulationError, match="must be a range of bytes"):
        predict_system(SHARING, programs, shared=(0, 4096))  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="must be a range of bytes"):
        predict_system(SHARING, programs, shared=range(0, 8192, 2))
