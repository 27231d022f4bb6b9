"""Waveforms of several cores: their cycles are those of the timing model, however the cores are started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from weft.hw.bus import PAGE_BYTES
from weft.hw.config import TINY
from weft.hw.isa import ENGINE_NAMES, Engine
from weft.hw.programs import assemble
from weft.hw.relay_plan import RelayPlan
from weft.hw.system_config import SystemConfig
from weft.sim.dram import DramModel
from weft.sim.result import RunResult
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_run import CoreProgram
from weft.sim.system_timing import predict_system
from weft.sim.timing_ports import TimedProgram
from weft.sim.waves import WaveRequest

from .test_waves import PLACE, PROGRAM, high_in

PAIR = SystemConfig(cores=(TINY, TINY), relay=True)
WINDOW = 4 * PAGE_BYTES
CODE = np.frombuffer(assemble(TINY, PROGRAM), np.uint8)
ENGINES = (Engine.LOAD, Engine.LOADW, Engine.GEMM)


@pytest.fixture
def system(tmp_path: Path) -> RtlSystem:
    made = RtlSystem(PAIR, 2 * WINDOW, quick=True, waves=WaveRequest(tmp_path / "pair.vcd"))
    for core in range(2):
        made.dram[core * WINDOW + PLACE :][: CODE.size] = CODE
    return made


def program(core: int, start: int = 0) -> CoreProgram:
    return CoreProgram(offset=PLACE, count=len(PROGRAM), window_start=core * WINDOW, window_bytes=WINDOW, start=start)


def predicted(starts: Sequence[int]) -> list[RunResult]:
    timed = [TimedProgram(code=CODE, offset=PLACE, window_start=core * WINDOW, start=start)
             for core, start in enumerate(starts)]  # fmt: skip
    found = predict_system(PAIR, timed, DramModel.of(TINY), trace=True).cores
    return [each for each in found if each is not None]


def begun(result: RunResult, engine: Engine) -> list[int]:
    """Cycles of the core's own in which instructions begin."""
    assert result.trace is not None
    events = result.trace.events
    return sorted(events["start"][events["engine"] == engine].tolist())


def test_cycles_are_those_of_the_timing_model(system: RtlSystem, tmp_path: Path) -> None:
    """Both cores at once, and then one after the other: the second run begins where the first has ended."""
    wanted: dict[tuple[int, Engine], list[int]] = {(core, engine): [] for core in range(2) for engine in ENGINES}
    ended = 0
    for apart in (0, 30):
        done = system.run([program(0), program(1, apart)])
        assert done.starts == (0, apart)
        for core, result in enumerate(predicted(done.starts)):
            for engine in ENGINES:
                wanted[core, engine] += [ended + done.starts[core] + each for each in begun(result, engine)]
        ended += max(start + (each.cycles or 0) for start, each in zip(done.starts, done.cores, strict=True) if each)
    system.close_waves()
    for (core, engine), cycles in wanted.items():
        name = f"trace_{ENGINE_NAMES[engine]}_started_valid"
        assert high_in(tmp_path / "pair.vcd", name, f"core_{core}") == cycles


def test_cores_that_start_each_other_are_shown_from_the_first_cycle_to_the_last(
    system: RtlSystem, tmp_path: Path
) -> None:
    """Also where the host has windows to fill between: what runs beside that is shown, too."""
    plan = RelayPlan.pipeline(2, 2, WINDOW)
    done = system.relay(plan, [[program(0)], [program(0)]], 3, host=lambda number: None)
    system.close_waves()
    name = f"trace_{ENGINE_NAMES[Engine.LOAD]}_started_valid"
    for core in range(2):
        shown = high_in(tmp_path / "pair.vcd", name, f"core_{core}")
        assert len(shown) == 3
        for first, span in zip(shown, done.spans[core], strict=True):
            assert first - span.start in (begun(predicted((0, 0))[0], Engine.LOAD)[0] + late for late in range(9))
    assert high_in(tmp_path / "pair.vcd", name, "core_0")[0] == begun(predicted((0, 0))[0], Engine.LOAD)[0]
