"""Random programs: the functional simulator and the RTL end with the same memories, whatever the memory's timing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES, Case, mismatch, random_case, seeded, shrink
from weft.sim.verilated import RtlSimulator

from .programs import cases

OTHER_SHAPES = [
    replace(TINY, name="batch", batch=2, block_in=8, bus_bits=128),
    replace(TINY, name="tall", block_in=2, block_out=16, acc_banks=1, queue_depth=2, token_depth=1, bus_bits=64),
    replace(TINY, name="wide-bus", block_in=8, block_out=4, acc_banks=2, bus_bits=512, read_outstanding=1),
    replace(TINY, name="long", batch=4, inp_depth=65536, wgt_depth=16, write_outstanding=1),
]


@settings(max_examples=200)
@given(case=cases(TINY))
def test_fsim_equals_rtl(case: Case, tiny_fsim: FunctionalSimulator, tiny_rtl: RtlSimulator):
    note(str(case))
    tiny_rtl.set_dram(case.dram)
    assert mismatch(case, tiny_fsim, tiny_rtl) == ""


def run_seeds(config: CoreConfig, seeds: range) -> None:
    functional = FunctionalSimulator(config, MEMORY_BYTES)
    rtl = RtlSimulator(config, MEMORY_BYTES, watchdog=20_000)
    for seed in seeds:
        case = random_case(config, seeded(seed))
        rtl.set_dram(case.dram)
        assert mismatch(case, functional, rtl) == "", f"program {seed}\n{case}"


def test_fsim_equals_rtl_on_pynq():
    run_seeds(PYNQ, range(50))


@pytest.mark.long
@pytest.mark.parametrize(("config", "count"), [(TINY, 2000), (PYNQ, 200)], ids=["tiny", "pynq"])
def test_campaign(config: CoreConfig, count: int):
    run_seeds(config, range(count))


@pytest.mark.long
@pytest.mark.parametrize("config", OTHER_SHAPES, ids=lambda config: config.name)
def test_other_shapes(config: CoreConfig):
    run_seeds(config, range(300))


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
        return bool(mismatch(case, functional, broken))

    case = next(case for seed in range(50) if fails(case := random_case(TINY, seeded(seed))))
    smallest = shrink(case, fails)
    assert len(smallest.plain) == 1
    assert "store store" in str(smallest)
    assert mismatch(smallest, functional, broken).startswith("dram[65535] is ")


@settings(max_examples=100)
@given(seed=st.integers(0, 10**9))
def test_dropping_instructions_leaves_a_legal_program(seed: int):
    """What shrinking relies on: tokens are derived anew and still order everything."""
    case = random_case(TINY, seeded(seed))
    core = FunctionalSimulator(TINY, MEMORY_BYTES)
    kept = np.random.default_rng(seed).random(len(case.plain)) < 0.5
    smaller = replace(case, plain=tuple(part for part, keep in zip(case.plain, kept, strict=True) if keep))
    result = mismatch(smaller, core, core)
    assert result == "" or "INDEX" in result  # a dropped LOOP changes which entries are touched


def test_equal_seeds_give_equal_programs():
    assert random_case(TINY, seeded(7)) == random_case(TINY, seeded(7))
