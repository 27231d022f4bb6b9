"""Runs the cocotb tests of ``tests/hw/cocotb`` and adds up their functional coverage."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from weft.hw.config import TINY, CoreConfig
from weft.hw.memories import Memory
from weft.sim.fuzz_configs import CORNERS
from weft.sim.waves import Waves
from weft.testbench.coverage import Coverage, read_hits
from weft.testbench.errors import BenchError
from weft.testbench.points import core_points, unreachable
from weft.testbench.runner import RunOutcome, Settings, random_seed, run_failed, run_file

FOLDER = Path(__file__).parent / "cocotb"
PARTS = sorted(path.stem for path in FOLDER.glob("*.py"))
GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"

DEPTHWISE = next(core for core in CORNERS if core.depthwise)
TABLES = next(core for core in CORNERS if core.tables)
WEIGHTS = next(core for core in CORNERS if core.weight_group)

Run = Callable[[str], RunOutcome]


@pytest.fixture(scope="module")
def coverage_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("coverage") / "coverage.json"


@pytest.fixture(scope="module")
def run(coverage_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a part, once."""
    outcomes: dict[str, RunOutcome] = {}

    def run_once(part: str) -> RunOutcome:
        if part not in outcomes:
            settings = Settings(config=TINY, seed=1, coverage=coverage_file)
            outcomes[part] = run_file(FOLDER / f"{part}.py", settings, tmp_path_factory.mktemp(part))
        return outcomes[part]

    return run_once


def check(outcome: RunOutcome) -> None:
    assert outcome.passed, f"seed {outcome.seed}, log {outcome.log}\n" + "\n".join(
        f"{test.name}: {test.problem}" for test in outcome.failed
    )


def test_there_is_a_file_for_every_engine() -> None:
    assert set(PARTS) == {"core", "depthwise", "fetch", "gemm", "load", "registers", "store", "tokens", "vector"}


@pytest.mark.parametrize("part", PARTS)
def test_part(run: Run, part: str) -> None:
    check(run(part))


def test_no_point_of_the_coverage_stays_open(run: Run, coverage_file: Path) -> None:
    for part in PARTS:
        run(part)
    coverage = Coverage(core_points(TINY), read_hits(coverage_file))
    Console(width=180).print(coverage.table(unreachable(TINY)))
    assert not coverage.open_points(unreachable(TINY))
    assert not coverage.hit_though_unreachable(unreachable(TINY))


def open_after(part: str, config: CoreConfig, folder: Path) -> list[tuple[str, str]]:
    """The points of coverage of a core that a part's tests leave open."""
    file = folder / "coverage.json"
    check(run_file(FOLDER / f"{part}.py", Settings(config=config, seed=1, coverage=file), folder / "run"))
    coverage = Coverage(core_points(config), read_hits(file))
    Console(width=180).print(coverage.table(unreachable(config)))
    return coverage.open_points(unreachable(config))


@pytest.mark.long
def test_the_depthwise_mode(tmp_path: Path) -> None:
    """On a core that has it; one without refuses it above."""
    assert "depthwise" not in {group for group, _ in open_after("depthwise", DEPTHWISE, tmp_path)}


@pytest.mark.long
def test_tables(tmp_path: Path) -> None:
    """On a core that has them; one without refuses them above."""
    assert not [name for _, name in open_after("vector", TABLES, tmp_path) if "VECTOR" in name or Memory.TAB in name]


@pytest.mark.long
def test_weights_of_4_bits(tmp_path: Path) -> None:
    """On a core that unpacks them."""
    assert not [name for _, name in open_after("load", WEIGHTS, tmp_path) if name.startswith("LOAD")]


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_part_at_length(part: str, tmp_path: Path) -> None:
    check(run_file(FOLDER / f"{part}.py", Settings(config=TINY, seed=random_seed(), long=True), tmp_path))


def guide_example(tmp_path: Path) -> Path:
    """The complete test in the guide, as a file."""
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 20
    file = tmp_path / "my_gemm.py"
    file.write_text(example)
    return file


def test_example_of_the_guide_passes(tmp_path: Path) -> None:
    check(run_file(guide_example(tmp_path), Settings(config=TINY, seed=5), tmp_path / "run"))


BROKEN = """
from cocotb.triggers import ClockCycles
from weft.hw.isa import Finish
from weft.testbench.bench import Bench, core_test

@core_test()
async def finds_a_wrong_byte(bench: Bench) -> None:
    await bench.check([Finish()])
    bench.dram[77] ^= 1
    bench.compare([Finish()])

@core_test()
async def finds_an_answer_that_nobody_asked_for(bench: Bench) -> None:
    bench.dut.m_axi_rvalid.value = 1
    await ClockCycles(bench.dut.clk, 1)
    bench.dut.m_axi_rvalid.value = 0
    await ClockCycles(bench.dut.clk, 1)

@core_test()
async def passes(bench: Bench) -> None:
    pass
"""


def test_failures_say_what_was_wrong(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    outcome = run_file(file, Settings(config=TINY, seed=3), tmp_path / "run")
    problems = {test.name: test.problem for test in outcome.failed}
    assert set(problems) == {"finds_a_wrong_byte", "finds_an_answer_that_nobody_asked_for"}
    byte, answer = problems["finds_a_wrong_byte"], problems["finds_an_answer_that_nobody_asked_for"]
    assert re.search(r"dram\[77\] is \d+, but must be \d+; 1 elements differ after", byte)
    assert re.search(r"cycle \d+, m_axi_r: data with ID 0: read data follow their request", answer)
    assert "seed 3" in outcome.log.read_text()


@pytest.mark.parametrize(("part", "only"), [("store", "rows_cross_pages"), ("tokens", "waits_for_all")])
def test_a_part_in_short_on_icarus(part: str, only: str, tmp_path: Path) -> None:
    """Four states: what was never written, or is not reset, shows as a value that is no number."""
    outcome = run_file(FOLDER / f"{part}.py", Settings(config=TINY, seed=1), tmp_path, only=only, simulator="icarus")
    check(outcome)
    assert len(outcome.tests) == 1


def test_failure_on_icarus_is_named_and_leaves_a_waveform(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    settings = Settings(config=TINY, seed=3)
    outcome = run_file(file, settings, tmp_path / "run", simulator="icarus")
    assert outcome.waves is None
    problems = {test.name: test.problem for test in outcome.failed}
    assert set(problems) == {"finds_a_wrong_byte", "finds_an_answer_that_nobody_asked_for"}
    assert re.search(r"dram\[77\] is \d+, but must be \d+; 1 elements differ after", problems["finds_a_wrong_byte"])
    again = run_failed(outcome, settings, tmp_path / "run", simulator="icarus")
    assert again.tests == outcome.tests
    assert again.waves is not None
    assert again.waves.parent == tmp_path / "run"
    assert again.waves.stat().st_size > 1000


SHAPES = """
import numpy as np
import pytest
from weft.testbench.bench import Bench, core_test
from weft.testbench.errors import BenchError

@core_test()
async def wrong_shapes_are_named(bench: Bench) -> None:
    right = bench.read_scratchpad("acc")
    bench.write_scratchpad("acc", right)
    for wrong in (right[1:], right[:, 1:], right.T, right.astype(np.int64), right.tolist()):
        with pytest.raises(BenchError, match="write_scratchpad.'acc'.: int"):
            bench.write_scratchpad("acc", wrong)
    with pytest.raises(BenchError, match="no scratchpad 'accu'; hint: it has inp, wgt, acc, out"):
        bench.write_scratchpad("accu", right)
"""


def test_wrong_shapes_for_a_scratchpad_are_named(tmp_path: Path) -> None:
    file = tmp_path / "shapes.py"
    file.write_text(SHAPES)
    check(run_file(file, Settings(config=TINY, seed=3), tmp_path / "run", simulator="icarus"))


@pytest.mark.long
def test_failure_leaves_a_waveform_of_the_test_that_failed(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    settings = Settings(config=TINY, seed=3)
    outcome = run_failed(run_file(file, settings, tmp_path / "run"), settings, tmp_path / "run")
    assert len(outcome.tests) == 3
    assert outcome.waves is not None
    assert outcome.waves.suffix in (f".{Waves.FST}", f".{Waves.VCD}")
    assert outcome.waves.stat().st_size > 1000


def test_file_without_tests_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("")
    with pytest.raises(BenchError, match=r"empty\.py ran no test; the log .*log\.txt ends with"):
        run_file(file, Settings(config=TINY, seed=0), tmp_path / "run")
    with pytest.raises(BenchError, match=r"there is no file .*missing\.py"):
        run_file(tmp_path / "missing.py", Settings(config=TINY, seed=0), tmp_path / "run")
