"""What ``weft test-hw`` finds, and what it says of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from weft.cli import hardware
from weft.cli.app import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.hw.config import TINY
from weft.sim.waves import Waves, wave_format
from weft.testbench import build
from weft.testbench.build import require_cocotb, visible_signals
from weft.testbench.coverage import Coverage, Unreachable, read_hits
from weft.testbench.errors import BenchError
from weft.testbench.parts import FOLDER, files_with, find_parts, outcome_lines, parts_table, waves_line
from weft.testbench.runner import RunOutcome, Settings, TestOutcome
from weft.testbench.simulators import find_simulator


def test_part_is_found_by_name_and_file_by_path() -> None:
    assert find_parts("gemm") == [FOLDER / "gemm.py"]
    assert FOLDER / "core.py" in find_parts(None)
    assert find_parts("my/own.py") == [Path("my/own.py")]


def test_settings_pass_to_the_simulator_whatever_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(config=TINY, seed=4, coverage=Path("build/coverage.json"), long=True)
    expected = Settings(config=TINY, seed=4, coverage=tmp_path / "build" / "coverage.json", long=True)
    assert Settings.from_json(settings.to_json()) == expected
    assert Settings.from_json(Settings(config=TINY, seed=4).to_json()) == Settings(config=TINY, seed=4)


def test_missing_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"there is no part 'gem'; hint: parts: core, .*vector; or name a file"):
        find_parts("gem")
    with pytest.raises(BenchError, match=r"the tests are not installed with the package; hint: run from a checkout"):
        find_parts("gemm", tmp_path)


def test_list_shows_every_test() -> None:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(parts_table(find_parts("store")))
    text = capture.get()
    assert "rows_cross_pages_and_end_within_words" in text
    assert "The store engine: every shape" in text


def test_tests_that_do_not_exist_are_refused_before_a_simulator_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[Path, object]] = []
    outcome = RunOutcome(FOLDER / "store.py", 17, (TestOutcome("good", "", 0.2),), Path("log.txt"), None)
    monkeypatch.setattr(hardware, "run_file", lambda file, *_, **how: (ran.append((file, how["only"])), outcome)[1])
    assert run(app, ["test-hw", "--only", "zzz"], err) == 1
    assert "--only: there is no test whose name contains 'zzz'" in capsys.readouterr().err
    assert run(app, ["test-hw", "missing.py", "--only", "zzz"], err) == 1
    assert "missing.py cannot be read: No such file or directory" in capsys.readouterr().err
    assert not ran
    assert run(app, ["test-hw", "--only", "write_buffer"], err) == 0  # other parts have no such test, and are no error
    assert ran == [(FOLDER / "store.py", "write_buffer")]


def test_files_whose_tests_are_made_while_they_run_may_have_any(tmp_path: Path) -> None:
    made, plain = tmp_path / "made.py", tmp_path / "plain.py"
    made.write_text("@cocotb.parametrize(x=[1, 2])\nasync def adds(dut, x): ...\n")
    plain.write_text("@cocotb.test()\nasync def adds(dut): ...\n")
    assert files_with("x=1", [made, plain]) == [made]
    with pytest.raises(BenchError, match="there is no test whose name contains 'x=1'"):
        files_with("x=1", [plain])
    plain.write_text("async def")
    with pytest.raises(BenchError, match=r"plain\.py is no Python: invalid syntax"):
        files_with("adds", [plain])


def test_failure_says_how_to_repeat_it_and_how_to_look() -> None:
    tests = (TestOutcome("good", "", 0.1), TestOutcome("bad", "acc[3, 1] is 4, but must be 5", 0.2))
    outcome = RunOutcome(FOLDER / "gemm.py", 17, tests, Path("log.txt"), Path("dump.fst"))
    assert outcome_lines(outcome).splitlines() == [
        "gemm: 1 of 2 tests passed",
        "  FAILED bad:",
        "    acc[3, 1] is 4, but must be 5",
        "  again:    weft test-hw gemm --seed 17",
        "  log:      log.txt",
    ]
    assert waves_line(outcome) == "  waveform: surfer dump.fst    # https://surfer-project.org; or: gtkwave dump.fst"
    assert waves_line(replace(outcome, waves=None)) == "  waveform: none: the simulator has left no file"
    elsewhere = replace(outcome, file=Path("my tests.py"), options=("--sim", "icarus"))
    again = "  again:    weft test-hw 'my tests.py' --config pynq --sim icarus --seed 17"
    assert again in outcome_lines(elsewhere, "--config", "pynq").splitlines()


def test_unknown_and_missing_simulators_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"there is no simulator 'icaros'; hint: cocotb drives .*icarus.*verilator"):
        find_simulator("icaros")
    with pytest.raises(BenchError, match="there is no simulator 'ghdl'"):
        find_simulator("ghdl")
    monkeypatch.setenv("PATH", str(tmp_path))
    hint = "iverilog executable not found; hint: apt-get install iverilog"
    with pytest.raises(BenchError, match=f"the simulator 'icarus' is not installed: {hint}"):
        find_simulator("icarus")
    with pytest.raises(BenchError, match=r"the simulator .questa. is not installed: .*; hint: its programs must be on"):
        find_simulator("questa")


@pytest.mark.parametrize(("options", "waves"), [([], ["run_failed"]), (["--no-waves"], []), (["--waves"], [])])
def test_the_reason_comes_before_the_waveform(
    options: list[str],
    waves: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = RunOutcome(FOLDER / "gemm.py", 17, (TestOutcome("bad", "a reason", 0.2),), Path("log.txt"), None)
    called = []

    def repeat(*_: object, **__: object) -> RunOutcome:
        called.append("run_failed")
        assert "a reason" in capsys.readouterr().out
        return replace(outcome, waves=Path("dump.fst"))

    monkeypatch.setattr(hardware, "run_file", lambda *_, **how: (called.clear(), outcome)[1])
    monkeypatch.setattr(hardware, "run_failed", repeat)
    assert run(app, ["test-hw", "gemm", *options], err) == 1
    assert called == waves
    assert ("dump.fst" in capsys.readouterr().out) == bool(waves)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    text = r"cocotb and cocotbext.axi not installed; hint: install: pip install 'weft\[test-hw\]'"
    with pytest.raises(BenchError, match=text):
        require_cocotb()


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("find_libpython.find_libpython", lambda: None)
    text = r"shared library, which is not installed; hint: apt-get install libpython3\.11"
    with pytest.raises(BenchError, match=text):
        require_cocotb()


def test_waveform_is_vcd_where_fst_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    assert wave_format() is Waves.VCD
    monkeypatch.setenv("CXX", "true")
    assert wave_format() is Waves.FST


def test_visible_signals_are_a_control_file() -> None:
    assert 'public_flat_rw -module "weft_core.inp" -var "memory"' in visible_signals().splitlines()


def test_coverage_adds_up_over_files_and_names_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "coverage.json"
    points = {"color": ["red", "green", "blue"]}
    for point in ("red", "green", "red"):
        coverage = Coverage(points)
        coverage.hit("color", point)
        coverage.merge_into(path)
    total = Coverage(points, read_hits(path))
    assert total.hits == {("color", "red"): 2, ("color", "green"): 1}
    assert total.open_points() == [("color", "blue")]
    excuse = (Unreachable("color", "blue", "there is no blue"),)
    assert not total.open_points(excuse)
    assert not total.hit_though_unreachable(excuse)
    total.hit("color", "blue")
    assert total.hit_though_unreachable(excuse) == [("color", "blue")]
    with pytest.raises(KeyError, match="coverage group 'color' has no point 'pink'"):
        total.hit("color", "pink")
