"""Cores that start each other: the RTL is the functional simulator to the byte and the timing model to the cycle."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from weft.hw.bus import PAGE_BYTES
from weft.hw.errors import PlanError
from weft.hw.isa import Fault
from weft.hw.pipelines import HANDOVER_CYCLES
from weft.hw.programs import assemble
from weft.hw.register_windows import GROUP_WINDOW, WINDOW_BYTES
from weft.hw.registers import Control, Register, Status
from weft.hw.relay_plan import RelayControl, RelayPlan, RelayRegister, RelayStatus
from weft.sim.dram import BusErrors, DramModel
from weft.sim.errors import SharedBytesError, SimulationError
from weft.sim.fuzz_relay import compare_relay, random_relay_case, relay_memory_bytes
from weft.sim.relay_fsim import run_relay
from weft.sim.relay_run import RelayResult
from weft.sim.relay_timing import predict_relay, spans_of
from weft.sim.relay_waits import by_core, waits_between
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import CoreProgram
from weft.sim.timing_ports import TimedProgram, predict_relayed

from .programs import parse
from .test_system import COPY, MIXED

RELAY = replace(MIXED, name="relay", relay=True)
STALE = "the timing model no longer follows the relay: compare sim/timing_relay.h with hw/relay.py"
NOBODY: frozenset[int] = frozenset()
PAIR_BYTES, PROGRAMS = 64, 2048
"""Of what a core hands to the next one; and where programs begin in a window."""
CYCLES = 200_000
"""Many more than all that runs here takes together."""


class Bounded(RtlSystem):
    """Cores that wait for ever are seen at once."""

    def relay(self, *given: Any, **more: Any) -> RelayResult:
        return super().relay(*given, cycle_limit=CYCLES, **more)


@pytest.fixture(scope="module")
def rtl() -> RtlSystem:
    return Bounded(RELAY, relay_memory_bytes(3), quick=True)


@pytest.fixture(scope="module")
def functional() -> FunctionalSystem:
    return FunctionalSystem(RELAY, relay_memory_bytes(3))


def chain(
    simulator: FunctionalSystem | RtlSystem, slots: int
) -> tuple[list[list[CoreProgram]], list[list[TimedProgram]]]:
    """Programs that add 1 to what the core before has left, in each of ``slots`` windows of a page."""
    programs, timed = [], []
    for core, config in enumerate(RELAY.cores):
        granule, offset = config.granule_bytes, PROGRAMS + 256 * core
        text = COPY.format(source=256 * core // granule, target=256 * (core + 1) // granule)
        code = assemble(config, parse(text))
        for slot in range(slots):
            simulator.dram[slot * PAGE_BYTES + offset :][: len(code)] = code
        count = len(code) // config.instruction_bytes
        programs.append([CoreProgram(offset=offset, count=count, window_start=0, window_bytes=PAGE_BYTES)])
        timed.append([TimedProgram(code=code, offset=offset)])
    for slot in range(slots):
        simulator.dram[slot * PAGE_BYTES :][:PAIR_BYTES] = np.arange(PAIR_BYTES) + slot
    return programs, timed


def test_random_programs_and_plans_are_equal_to_the_byte_and_to_the_cycle(
    rtl: RtlSystem, functional: FunctionalSystem
) -> None:
    for seed in range(16):
        difference = compare_relay(random_relay_case(RELAY, seed), functional, rtl)
        assert not difference, f"{STALE}; seed {seed}: {difference}"


def test_a_pipeline_hands_on_without_the_host(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    memory = DramModel(latency=20, bytes_per_cycle=8)
    rtl.set_dram(memory)
    for simulator in (rtl, functional):
        simulator.dram[:] = 0
    programs, timed = chain(rtl, 2)
    plan = RelayPlan.pipeline(3, 2, PAGE_BYTES)
    got = rtl.relay(plan, programs, 5)
    chain(functional, 2)
    run_relay(functional, plan, programs, 5)
    assert np.array_equal(rtl.dram[: 2 * PAGE_BYTES], functional.dram[: 2 * PAGE_BYTES])
    assert functional.dram[PAGE_BYTES + 768 :][:64].any()
    assert got.ended == (5, 5, 5)
    assert got.cycles == got.spans[2][4].stop
    for core in (1, 2):
        for mine, before in zip(got.spans[core], got.spans[core - 1], strict=True):
            assert mine.start >= before.stop + HANDOVER_CYCLES
    assert got.spans[1][0].start == got.spans[0][0].stop + HANDOVER_CYCLES
    assert got.spans[0][2].start == got.spans[2][0].stop + HANDOVER_CYCLES  # room in the first window again
    for every_cycle in (False, True):
        assert predict_relay(RELAY, plan, timed, 5, memory, every_cycle=every_cycle).spans == got.spans, STALE
    apart = replace(RELAY, ports=(0, 1, 2), weights=())
    alone, stepped = predict_relay(apart, plan, timed, 5, memory), predict_relayed(apart, plan, timed, 5, memory)
    assert alone == stepped


def ring(simulator: FunctionalSystem | RtlSystem) -> tuple[list[list[CoreProgram]], list[list[TimedProgram]]]:
    """Of each core two programs in one window of a page: to what it has itself it adds 1, and puts that elsewhere; then
    the same with what the core before has put there, so that each depends on all of the turn before."""
    programs: list[list[CoreProgram]] = []
    timed: list[list[TimedProgram]] = []
    for core, config in enumerate(RELAY.cores):
        own, codes = [], []
        for turn, (source, target) in enumerate([(core, 3 + core), (3 + (core + 2) % 3, core)]):
            granule, offset = config.granule_bytes, PROGRAMS + 256 * (2 * core + turn)
            text = COPY.format(source=256 * source // granule, target=256 * target // granule)
            code = assemble(config, parse(text))
            simulator.dram[offset:][: len(code)] = code
            count = len(code) // config.instruction_bytes
            own.append(CoreProgram(offset=offset, count=count, window_start=0, window_bytes=PAGE_BYTES))
            codes.append(TimedProgram(code=code, offset=offset))
        simulator.dram[256 * core :][:PAIR_BYTES] = np.arange(PAIR_BYTES) + 50 * core
        programs.append(own)
        timed.append(codes)
    return programs, timed


def test_turns_begin_once_all_have_ended_the_one_before(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    memory, plan = DramModel(latency=20, bytes_per_cycle=8), RelayPlan.barrier(3)
    rtl.set_dram(memory)
    for simulator in (rtl, functional):
        simulator.dram[:] = 0
    programs, timed = ring(rtl)
    got = rtl.relay(plan, programs, 4)
    ring(functional)
    run_relay(functional, plan, programs, 4)
    assert np.array_equal(rtl.dram, functional.dram)
    assert not np.array_equal(functional.dram[:PAIR_BYTES], np.arange(PAIR_BYTES))
    assert got.ended == (4, 4, 4)
    for before, after in pairwise(zip(*got.spans, strict=True)):
        begun = max(span.stop for span in before) + HANDOVER_CYCLES
        assert [span.start for span in after] == [begun] * 3
    for every_cycle in (False, True):
        assert predict_relay(RELAY, plan, timed, 4, memory, every_cycle=every_cycle).spans == got.spans, STALE
    apart = replace(RELAY, ports=(0, 1, 2), weights=())
    alone, stepped = predict_relay(apart, plan, timed, 4, memory), predict_relayed(apart, plan, timed, 4, memory)
    assert alone == stepped
    # A start by the host runs the programs of the registers again.
    for simulator in (rtl, functional):
        simulator.run([own[1] for own in programs])
    assert np.array_equal(rtl.dram, functional.dram)


def test_a_turn_that_reads_what_the_same_turn_writes_is_found(functional: FunctionalSystem) -> None:
    programs, _ = ring(functional)
    free = RelayPlan((NOBODY,) * 3, (NOBODY,) * 3)
    with pytest.raises(SharedBytesError):
        run_relay(functional, free, programs, 2)
    for own in programs[:2]:
        own.reverse()
    with pytest.raises(SharedBytesError):
        run_relay(functional, RelayPlan.barrier(3), programs, 2)


def test_a_fault_ends_all_and_the_next_relay_is_right(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    plan = RelayPlan.pipeline(3, 2, PAGE_BYTES)
    second = PAGE_BYTES + PROGRAMS + 256  # core 1's program in the second window
    rtl.set_dram(replace(DramModel(), errors=BusErrors(second, second + 1, writes=False)))
    programs, _ = chain(rtl, 2)
    got = rtl.relay(plan, programs, 6)
    assert {core: last.fault and last.fault.cause for core, last in got.faults.items()} == {1: Fault.BUS_READ}
    assert got.ended[1] == 1  # its second run has the window with the fault
    faulted = got.spans[1][1].stop
    assert all(span.start <= faulted + HANDOVER_CYCLES for spans in got.spans for span in spans)
    assert [len(spans) for spans in got.spans] == [
        got.ended[0],
        2,
        got.ended[2],
    ]  # all others ended what they had begun
    assert all(ended < 6 for ended in got.ended)
    rtl.set_dram(DramModel())
    for simulator in (rtl, functional):
        simulator.dram[:] = 0
        chain(simulator, 2)
    assert rtl.relay(plan, programs, 4).ended == (4, 4, 4)
    run_relay(functional, plan, programs, 4)
    assert np.array_equal(rtl.dram, functional.dram)
    functional.dram[second:][:64] = 0
    done = run_relay(functional, plan, programs, 6)
    assert done.ended[1] == 1
    assert list(done.faults) == [1]


def test_a_core_that_is_reset_halts_the_relay_and_a_faulted_one_is_not_started(rtl: RtlSystem) -> None:
    rtl.set_dram(DramModel(latency=200))
    programs, _ = chain(rtl, 1)
    assert rtl.relay(RelayPlan((NOBODY,) * 3, (NOBODY,) * 3), programs, 1).ended == (1, 1, 1)
    rtl.write_register(RelayRegister.RELEASED, 50)
    rtl.write_register(RelayRegister.NOTIFY, 50)
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.START)
    assert RelayStatus.RUNNING in RelayStatus(rtl.read_register(RelayRegister.RELAY_STATUS))
    rtl.write_register(WINDOW_BYTES + Register.CONTROL, Control.RESET)
    while RelayStatus.RUNNING in (status := RelayStatus(rtl.read_register(RelayRegister.RELAY_STATUS))):
        pass
    assert status == RelayStatus.ACTIVE | RelayStatus.HALTED
    ended = [rtl.read_register(RelayRegister.ENDED + 4 * core) for core in range(3)]
    assert max(ended) < 50
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.START)
    assert rtl.read_register(RelayRegister.ENDED + 4) <= 1
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.STOP)
    while RelayStatus.RUNNING in RelayStatus(rtl.read_register(RelayRegister.RELAY_STATUS)):
        pass
    stopped = [rtl.read_register(RelayRegister.ENDED + 4 * core) for core in range(3)]
    for _ in range(20):
        assert [rtl.read_register(RelayRegister.ENDED + 4 * core) for core in range(3)] == stopped
    assert Status.IDLE in Status(rtl.read_register(Register.STATUS))


def test_runs_may_be_released_while_others_go_on(rtl: RtlSystem) -> None:
    rtl.set_dram(DramModel())
    programs, _ = chain(rtl, 2)
    plan = RelayPlan.pipeline(3, 2, PAGE_BYTES)
    rtl.relay(plan, programs, 2)
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.START)
    for runs in (2, 3, 7):
        for register in (RelayRegister.RELEASED, RelayRegister.NOTIFY):
            rtl.write_register(register, runs)
        assert not rtl.read_register(RelayRegister.RELAY_STATUS) & RelayStatus.HALTED
        for _ in range(2000):
            rtl.read_register(RelayRegister.RELAY_STATUS)
        assert [rtl.read_register(RelayRegister.ENDED + 4 * core) for core in range(3)] == [runs] * 3
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.STOP)
    assert rtl.read_register(GROUP_WINDOW + 0xF00) == 0


def test_a_start_while_cores_run_does_nothing(rtl: RtlSystem) -> None:
    rtl.set_dram(DramModel())
    programs, _ = chain(rtl, 2)
    rtl.relay(RelayPlan.pipeline(3, 2, PAGE_BYTES), programs, 2)
    for register in (RelayRegister.RELEASED, RelayRegister.NOTIFY):
        rtl.write_register(register, 6)
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.START)
    for _ in range(1000):
        if rtl.read_register(RelayRegister.ENDED) >= 2:
            break
    for _ in range(10):  # the next runs have begun
        rtl.read_register(RelayRegister.RELAY_STATUS)
    assert rtl.read_register(RelayRegister.RELAY_STATUS) & RelayStatus.RUNNING
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.START)
    assert rtl.read_register(RelayRegister.ENDED) >= 2
    for _ in range(2000):
        rtl.read_register(RelayRegister.RELAY_STATUS)
    assert [rtl.read_register(RelayRegister.ENDED + 4 * core) for core in range(3)] == [6] * 3
    rtl.write_register(RelayRegister.RELAY_CONTROL, RelayControl.STOP)


def test_a_host_refills_windows_while_others_are_under_way(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    rtl.set_dram(DramModel())
    plan, results = RelayPlan.pipeline(3, 2, PAGE_BYTES), []
    for simulator in (rtl, functional):
        simulator.dram[:] = 0
        programs, _ = chain(simulator, 2)
        taken: list[np.ndarray] = []

        def host(number: int, memory: np.ndarray = simulator.dram, taken: list[np.ndarray] = taken) -> None:
            window = memory[number % 2 * PAGE_BYTES :][:PAGE_BYTES]
            taken.append(window[768:832].copy())
            window[:PAIR_BYTES] = np.arange(PAIR_BYTES) + number + 2

        if isinstance(simulator, RtlSystem):
            done = simulator.relay(plan, programs, 7, host=host)
            # It does not wait for the host where there is another window to work on.
            assert done.spans[0][3].start < done.spans[2][2].stop
        else:
            done = run_relay(simulator, plan, programs, 7, host)
        assert done.ended == (7, 7, 7)
        assert len({each.tobytes() for each in taken}) == 7
        results.append(taken)
    assert np.array_equal(*results)


def test_runs_at_once_may_not_touch_each_others_bytes(functional: FunctionalSystem) -> None:
    programs, _ = chain(functional, 1)
    apart = (NOBODY,) * 3
    with pytest.raises(SharedBytesError, match="core 0 writes byte 0x100 of the memory, which core 1 reads"):
        run_relay(functional, RelayPlan(apart, apart), programs, 1)
    ordered = tuple(frozenset({core - 1} if core else ()) for core in range(3))
    run_relay(functional, RelayPlan(ordered, apart), programs, 1)
    with pytest.raises(SharedBytesError, match=r"core \d writes byte 0x100 of the memory, which core \d reads"):
        run_relay(functional, RelayPlan(ordered, apart), programs, 3)  # core 0 goes on to its next run
    run_relay(functional, RelayPlan(ordered, (frozenset({2}), *apart[1:])), programs, 3)


def test_what_cannot_be_relayed_is_refused(rtl: RtlSystem, functional: FunctionalSystem) -> None:
    programs, timed = chain(functional, 2)
    circle = RelayPlan((frozenset({1}), frozenset({0}), NOBODY), (NOBODY,) * 3)
    plan = RelayPlan.pipeline(3, 2, PAGE_BYTES)

    def each(wanted: RelayPlan, first: int) -> list[RelayResult]:
        return [
            call()
            for call in (
                lambda: run_relay(functional, wanted, programs[:first], 1),
                lambda: rtl.relay(wanted, programs[:first], 1),
                lambda: predict_relay(RELAY, wanted, timed[:first], 1),
            )
        ]

    with pytest.raises(PlanError, match="cores 0, 1 wait for each other"):
        each(circle, 3)
    with pytest.raises(SimulationError, match="a plan for 3 cores and programs of 2 for a system of 3"):
        each(plan, 2)
    with pytest.raises(SimulationError, match="the cores of 'mixed' do not start each other; hint: give its"):
        predict_relay(MIXED, plan, timed, 1)
    with pytest.raises(SimulationError, match="knows no jitter and no reordering"):
        predict_relay(RELAY, plan, timed, 1, DramModel(jitter=3))
    with pytest.raises(SimulationError, match="is not inside the memory"):
        rtl.relay(replace(plan, pitch=1 << 30), programs, 2)
    with pytest.raises(PlanError, match="programs: the cores have 2, 1, 1 programs, but each needs as many as the"):
        run_relay(functional, plan, [programs[0] * 2, *programs[1:]], 2)
    moved = [replace(own[0], window_start=PAGE_BYTES) for own in programs]
    with pytest.raises(SimulationError, match="core 0: the program of turn 1 has another window than the first one"):
        rtl.relay(plan, [[own[0], other] for own, other in zip(programs, moved, strict=True)], 2)


def test_who_waited_for_whom() -> None:
    """A pipeline of three, by hand: 10, 30 and 20 cycles, two windows."""
    plan = RelayPlan.pipeline(3, 2, PAGE_BYTES)
    spans = spans_of(plan, ((10,), (30,), (20,)), 3)
    assert spans == (
        (range(10), range(30, 40), range(120, 130)),
        (range(30, 60), range(80, 110), range(150, 180)),
        (range(80, 100), range(130, 150), range(200, 220)),
    )
    first, second, third = map(by_core, waits_between(plan, spans))
    assert first == {0: 40, 2: 60}  # room in the window of the first item, which core 2 leaves at 100
    assert second == {1: 60, 0: 10 + 20}
    assert third == {2: 60, 1: 60 + 10 + 30}
