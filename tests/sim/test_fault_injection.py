"""Faults of the memory in the middle of a run: reported with their cause, or without effect; never a wrong result."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.programs import assemble
from weft.sim.dram import BusFault, DramModel
from weft.sim.fault_injection import GOOD, KINDS, WATCHDOG_CYCLES, Campaign, Workload
from weft.sim.rtl import RtlSimulator

from .programs import parse
from .test_faults import DATA
from .test_faults import GOOD as PROGRAM

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def simulator() -> RtlSimulator:
    return RtlSimulator(TINY, 1 << 14, watchdog=WATCHDOG_CYCLES)


@pytest.fixture(scope="module")
def workload(simulator: RtlSimulator) -> Workload:
    program = parse(PROGRAM)
    code = assemble(TINY, program)
    simulator.set_dram(DramModel())
    simulator.dram[: len(code)] = code
    simulator.dram[DATA : DATA + 2048] = np.random.default_rng(0).integers(0, 256, 2048)
    before = simulator.dram.copy()
    result = simulator.run(0, len(program))
    assert result.fault is None
    return Workload(0, len(program), before, simulator.dram.copy(), result.cycles or 0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_fault_at_any_moment_is_reported_or_does_nothing(kind, simulator: RtlSimulator, workload: Workload):
    choice = random.Random(kind.name)
    moments = [choice.randrange(workload.cycles) for _ in range(10)]
    found = Campaign(simulator, workload, workload, full_each=1).run(kind, moments, 0, lambda: None)
    assert found.total() == len(moments)
    assert {outcome for outcome, _ in found} <= set(GOOD)
    assert "reported" in {outcome for outcome, _ in found}


def test_a_wrong_result_is_noticed(simulator: RtlSimulator, workload: Workload):
    """The campaign's own check: data that flips in DRAM is a fault that no core can see."""

    def flip_data(simulator: RtlSimulator, workload: Workload, choice: random.Random) -> None:
        simulator.dram[DATA] ^= 1

    kind = replace(KINDS[0], inject=flip_data)
    found = Campaign(simulator, workload, workload, full_each=1).run(kind, [0], 0, lambda: None)
    assert found == {("wrong result called good", ""): 1}


def test_an_unexpected_cause_is_noticed(simulator: RtlSimulator, workload: Workload):
    kind = replace(KINDS[0], causes=frozenset())
    found = Campaign(simulator, workload, workload, full_each=1).run(kind, [0], 0, lambda: None)
    assert found == {("wrong cause", "BUS_READ"): 1}


def test_moments_are_visited_in_their_cycles(simulator: RtlSimulator, workload: Workload):
    simulator.set_dram(DramModel())
    simulator.dram[:] = workload.before
    seen: list[int] = []
    simulator.run(workload.offset, workload.count, moments=(3, 3, 40), visit=seen.append)
    assert seen == [3, 3, 40]


def test_what_is_injected_happens_once(simulator: RtlSimulator, workload: Workload):
    simulator.set_dram(DramModel())
    simulator.dram[:] = workload.before
    simulator.inject(BusFault.WRITE_ERROR)
    assert not simulator.injected
    assert simulator.run(workload.offset, workload.count).fault is not None
    assert simulator.injected
    simulator.dram[:] = workload.before
    assert simulator.run(workload.offset, workload.count).fault is None
    np.testing.assert_array_equal(simulator.dram, workload.after)


@pytest.mark.long
def test_campaign_on_a_convolution():
    """The whole of it, as it is run by hand; it fails where an outcome is bad."""
    command = [sys.executable, str(ROOT / "benchmarks" / "campaigns" / "faults.py"), "--moments", "200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
