"""Random programs: the functional simulator and the RTL end with the same memories, whatever the memory's timing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.isa import Engine, Fault, Load, Scratchpad, Store, Sync, Vector, VectorOp, VectorTarget
from weft.hw.load_counts import takes_records
from weft.hw.mac_array_packed import Multipliers
from weft.roundings import ROUNDINGS
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES, Case, IllegalPart, random_case, seeded
from weft.sim.fuzz_compare import compare
from weft.sim.fuzz_configs import campaign_config, campaign_multipliers
from weft.sim.fuzz_illegal import illegal_case
from weft.sim.fuzz_store import read_case, write_case
from weft.sim.rtl import RtlSimulator
from weft.sim.shrink import is_sound, shrink

from tests.effort import few

from .programs import cases

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
CAMPAIGN_CORES = range(44)
TABLES = replace(TINY, name="tables", tables=2)
OTHERWISE = [replace(TINY, name=each, rounding=each) for each in ROUNDINGS if each != "half_up"]
WEIGHTS = replace(TINY, name="weights", weight_group=32)
SHORT_BURSTS = replace(TINY, name="short-bursts", batch=2, burst_beats=4, read_outstanding=4, write_outstanding=2)


@settings(max_examples=200)
@given(case=cases(TINY))
def test_fsim_equals_rtl(case: Case, tiny_fsim: FunctionalSimulator, tiny_rtl: RtlSimulator):
    note(str(case))
    assert compare(case, tiny_fsim, tiny_rtl).difference == ""


def run_seeds(config: CoreConfig, seeds: range, multipliers: Multipliers = Multipliers.PLAIN) -> None:
    functional = FunctionalSimulator(config, MEMORY_BYTES)
    rtl = RtlSimulator(config, MEMORY_BYTES, watchdog=5_000, multipliers=multipliers)
    for seed in seeds:
        case = illegal_case(config, seeded(seed)) if seed % 4 == 3 else random_case(config, seeded(seed))
        assert compare(case, functional, rtl).difference == "", f"program {seed}\n{case}"


def test_fsim_equals_rtl_on_pynq():
    run_seeds(PYNQ, range(50))


def test_fsim_equals_rtl_on_a_core_with_packed_multipliers_and_short_bursts():
    run_seeds(SHORT_BURSTS, range(60), Multipliers.PACKED)


def test_fsim_equals_rtl_on_a_core_with_tables():
    run_seeds(TABLES, range(200))


@pytest.mark.parametrize("config", few(OTHERWISE, 1), ids=lambda config: config.name)
def test_fsim_equals_rtl_on_a_core_that_may_round_otherwise(config: CoreConfig):
    run_seeds(config, range(120))


@pytest.mark.parametrize("config", OTHERWISE, ids=lambda config: config.name)
def test_programs_for_a_core_that_may_round_otherwise_round_both_ways(config: CoreConfig):
    counts = Counter[int]()
    for seed in range(300):
        for instruction in random_case(config, seeded(seed)).plain:
            if isinstance(instruction, Vector) and instruction.op is VectorOp.REQUANTISE:
                counts[instruction.rounding] += 1
    assert counts[0] > 30
    assert counts[1] > 30


def test_fsim_equals_rtl_on_a_core_with_4_bit_weights():
    run_seeds(WEIGHTS, range(120))


def test_programs_for_a_core_with_4_bit_weights_load_both_forms():
    counts = Counter[bool]()
    for seed in range(100):
        for instruction in random_case(WEIGHTS, seeded(seed)).plain:
            if isinstance(instruction, Load) and instruction.scratchpad is Scratchpad.WGT and instruction.rows:
                counts[takes_records(WEIGHTS, instruction)] += instruction.columns > 0
    assert counts[False] > 20
    assert counts[True] > 30


def test_programs_for_a_core_with_tables_write_and_use_them():
    counts = Counter[str]()
    for seed in range(100):
        for instruction in random_case(TABLES, seeded(seed)).plain:
            if isinstance(instruction, Vector):
                counts["written"] += instruction.target is VectorTarget.TAB
                counts[f"{instruction.target.name} by table {instruction.table}"] += 1
    assert counts["written"] > 50
    assert all(counts[f"{target} by table {table}"] > 10 for target in ("ACC", "OUT", "INP") for table in range(3))


def test_both_stop_alike_at_what_is_wrong(tiny_fsim: FunctionalSimulator, tiny_rtl: RtlSimulator):
    causes = Counter[Fault]()
    for seed in range(150):
        case = illegal_case(TINY, seeded(seed))
        found = compare(case, tiny_fsim, tiny_rtl)
        assert found.difference == "", f"program {seed}\n{case}"
        if found.subject.fault is not None:
            causes[found.subject.fault.cause] += 1
    assert set(causes) == set(Fault) - {Fault.NONE}


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_failed_once(path: Path):
    case, story = read_case(path)
    functional = FunctionalSimulator(case.config, MEMORY_BYTES)
    rtl = RtlSimulator(case.config, MEMORY_BYTES, watchdog=5_000)
    assert compare(case, functional, rtl).difference == "", story


@pytest.mark.long
@pytest.mark.parametrize(("config", "count"), [(TINY, 2000), (PYNQ, 200)], ids=["tiny", "pynq"])
def test_campaign(config: CoreConfig, count: int):
    run_seeds(config, range(count))


@pytest.mark.long
@pytest.mark.parametrize("core", CAMPAIGN_CORES)
def test_other_cores(core: int):
    run_seeds(campaign_config(core), range(100), campaign_multipliers(core))


def test_the_cores_of_a_campaign_are_all_different():
    assert len({campaign_config(number).hash64 for number in CAMPAIGN_CORES}) == len(CAMPAIGN_CORES)
    assert {campaign_config(number).bus_bits for number in CAMPAIGN_CORES} == {64, 128, 256, 512}
    assert {campaign_config(number).tables for number in CAMPAIGN_CORES} == {0, 1, 2, 4, 8, 16}
    assert {campaign_config(number).weight_group for number in CAMPAIGN_CORES} == {0, 32, 64, 128}
    assert {campaign_config(number).rounding for number in CAMPAIGN_CORES} == {*ROUNDINGS}


class Broken(FunctionalSimulator):
    """Forgets one element of one store."""

    def run(self, offset, count, **options):
        result = super().run(offset, count, **options)
        if result.bytes_written:
            self.dram[-1] ^= 1
        return result


def test_a_difference_is_found_and_shrinks_to_the_instruction_at_fault():
    functional, broken = FunctionalSimulator(TINY, MEMORY_BYTES), Broken(TINY, MEMORY_BYTES)

    def fails(case: Case) -> bool:
        return bool(compare(case, functional, broken).difference)

    case = next(case for seed in range(50) if fails(case := random_case(TINY, seeded(seed))))
    smallest = shrink(case, fails)
    assert len(smallest.plain) == 1
    store = smallest.plain[0]
    assert isinstance(store, Store)
    assert (store.rows, store.columns, store.index) == (1, 1, 0)
    assert len(str(smallest).splitlines()) == 5
    assert smallest.dram.jitter == 0
    assert compare(smallest, functional, broken).difference.startswith("dram[65535] is ")


class Careless(FunctionalSimulator):
    """Goes on behind a fault, for one byte."""

    def run(self, offset, count, **options):
        result = super().run(offset, count, **options)
        if result.fault is not None:
            self.dram[-1] ^= 1
        return result


def test_a_write_after_a_fault_is_found():
    functional, careless = FunctionalSimulator(TINY, MEMORY_BYTES), Careless(TINY, MEMORY_BYTES)
    for seed in range(40):
        case = illegal_case(TINY, seeded(seed))
        found = compare(case, functional, careless)
        assert bool(found.difference) == (found.subject.fault is not None), str(case)


@settings(max_examples=100)
@given(seed=st.integers(0, 10**9))
def test_dropping_instructions_leaves_a_legal_program(seed: int):
    """What shrinking relies on: tokens are derived anew and still order everything."""
    case = random_case(TINY, seeded(seed))
    core = FunctionalSimulator(TINY, MEMORY_BYTES)
    kept = np.random.default_rng(seed).random(len(case.plain)) < 0.5
    smaller = replace(case, plain=tuple(part for part, keep in zip(case.plain, kept, strict=True) if keep))
    if is_sound(smaller):  # a dropped LOOP changes which entries are touched
        assert compare(smaller, core, core).difference == ""


@settings(max_examples=50)
@given(seed=st.integers(0, 10**9), illegal=st.booleans())
def test_a_stored_case_reads_back(seed: int, illegal: bool, tmp_path_factory: pytest.TempPathFactory):
    case = (illegal_case if illegal else random_case)(TINY, seeded(seed))
    path = tmp_path_factory.mktemp("stored") / "case.json"
    write_case(path, case, "why")
    assert read_case(path) == (case, "why")


def test_a_wrong_instruction_stays_in_its_place_when_others_are_dropped():
    case = random_case(TINY, seeded(3))
    place = len(case.plain) // 2
    case = replace(case, wrong=(IllegalPart(place, Sync(engine=Engine.GEMM), flips=1 << 20, damaged=True),))
    core = FunctionalSimulator(TINY, MEMORY_BYTES)

    def fails(smaller: Case) -> bool:
        fault = compare(smaller, core, core).subject.fault
        return fault is not None and fault.cause is Fault.CORRUPT

    smallest = shrink(case, fails)
    assert not smallest.plain
    assert smallest.wrong[0].place == 0


def test_equal_seeds_give_equal_programs():
    assert random_case(TINY, seeded(7)) == random_case(TINY, seeded(7))
    assert illegal_case(TINY, seeded(7)) == illegal_case(TINY, seeded(7))
