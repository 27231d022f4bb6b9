"""The way to a bitstream: steps that are kept, clocks that are met or not; and, in the long run, the real tools."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from weft.boards.errors import BoardError, BuildError
from weft.boards.standalone import flow
from weft.boards.standalone.board import StandaloneBoard, any_board
from weft.boards.standalone.ecp5 import Ecp5
from weft.boards.standalone.family import NETLIST, REPORT
from weft.boards.standalone.flow import build, read_report, yosys_script
from weft.hw import synthesis
from weft.hw.config import CoreConfig
from weft.hw.errors import SynthesisError
from weft.hw.synthesis import tool_name

Report = Callable[[str], None]

ROUTED, BITSTREAM = Ecp5.routed, Ecp5.bitstream


@pytest.fixture
def board() -> StandaloneBoard:
    found = any_board("ulx3s")
    assert isinstance(found, StandaloneBoard)
    return found


def test_a_missing_tool_is_told_before_the_work(
    board: StandaloneBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(package: str) -> str:
        raise synthesis.PackageNotFoundError(package)

    monkeypatch.setattr(synthesis, "version", missing)
    steps: list[str] = []
    with pytest.raises(SynthesisError, match=r"is not installed; hint: .* pip install 'weft\[synth\]'"):
        build(board, tmp_path / "out", progress=steps.append)
    assert not steps
    assert not (tmp_path / "out").exists()


def report(mhz: float) -> str:
    cells = {cell: {"used": 10, "available": 100} for cell in Ecp5.cells.values()}
    return json.dumps({"fmax": {"$glbnet$clk": {"achieved": mhz, "constraint": 50}}, "utilization": cells})


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of the tools: files in their folders, and the names of those that ran. ``fail`` ends with an error."""
    ran: list[str] = []

    def run_tool(folder: Path, package: str, function: str, arguments: list[str], progress: Report, log: Path) -> None:
        ran.append(function)
        log.write_text(f"log of {function}")
        progress("at work")
        assert all(not Path(word).is_absolute() for word in arguments)
        if function == "run_yosys":
            assert (folder / "script.ys").read_text() == yosys_script(Ecp5(), "LFE5U-85F")
            (folder / NETLIST).write_text("netlist")
        elif function == "run_nextpnr_ecp5":
            assert (folder / NETLIST).read_text() == "netlist"
            assert 'LOCATE COMP "crystal" SITE "G2"' in (folder / "pins.lpf").read_text()
            assert arguments[:5] == ["--85k", "--package", "CABGA381", "--speed", "6"]
            (folder / ROUTED).write_text(f"routed at {arguments[arguments.index('--freq') + 1]}")
            (folder / REPORT).write_text(report(61.5))
        elif ran.count("run_ecppack") == 1:
            raise SynthesisError("ecppack failed with status 1")
        else:
            (folder / BITSTREAM).write_bytes(b"bits of " + (folder / ROUTED).read_bytes())

    monkeypatch.setattr(flow, "run_tool", run_tool)
    monkeypatch.setattr(flow, "standalone_verilog", lambda design: f"// {design}")
    return ran


def test_what_was_done_before_a_failure_is_not_done_again(
    tmp_path: Path, tools: list[str], board: StandaloneBoard
) -> None:
    folder, cache = tmp_path / "out", tmp_path / "cache"
    with pytest.raises(SynthesisError, match="ecppack failed"):
        build(board, folder, cache=cache)
    assert {NETLIST, ROUTED, REPORT, "weft_board.v", "core.json", "weft.json"} <= {
        each.name for each in folder.iterdir()
    }
    built = build(board, folder, cache=cache)
    assert tools == ["run_yosys", "run_nextpnr_ecp5", "run_ecppack", "run_ecppack"]
    assert built.path.read_bytes() == b"bits of routed at 50"
    assert (built.asked_mhz, built.mhz, built.used["LUT"]) == (50, 61.5, (10, 100))
    assert CoreConfig.from_json((folder / "core.json").read_text()) == board.default_core
    build(board, folder, mhz=60, cache=cache)
    assert tools[4:] == ["run_yosys", "run_nextpnr_ecp5", "run_ecppack"]  # the top has another PLL


def test_steps_say_which_they_are_and_where_their_log_is(
    tmp_path: Path, tools: list[str], board: StandaloneBoard
) -> None:
    tools.append("run_ecppack")
    said: list[str] = []
    build(board, tmp_path, cache=tmp_path / "cache", progress=said.append)
    assert said == [
        "writing Verilog",
        f"1 of 3, netlist (log: {tmp_path / 'yosys.log'})",
        "1 of 3, netlist: at work",
        f"2 of 3, placing and routing (log: {tmp_path / 'nextpnr-ecp5.log'})",
        "2 of 3, placing and routing: at work",
        f"3 of 3, bitstream (log: {tmp_path / 'ecppack.log'})",
        "3 of 3, bitstream: at work",
    ]
    other = tmp_path / "other"
    build(board, other, cache=tmp_path / "cache", progress=said.append)
    assert said[7:] == ["writing Verilog"]  # all of it is kept, logs too
    assert (other / "nextpnr-ecp5.log").read_text() == "log of run_nextpnr_ecp5"


def test_what_is_placed_does_not_depend_on_what_is_said_of_the_netlist(
    tmp_path: Path, tools: list[str], board: StandaloneBoard
) -> None:
    """Yosys says in its log how long it took: another run of it, with an equal netlist, must not be placed again."""
    tools.append("run_ecppack")
    cache = tmp_path / "cache"
    build(board, tmp_path / "first", cache=cache)
    for archive in (cache / "board").glob("*.zip"):
        with zipfile.ZipFile(archive) as opened:
            if "yosys.log" in opened.namelist():
                archive.unlink()
                break
    before = len(tools)
    build(board, tmp_path / "second", cache=cache)
    assert tools[before:] == ["run_yosys"]


@pytest.mark.parametrize("failing", ["run_yosys", "run_nextpnr_ecp5", "run_ecppack"])
def test_a_step_that_is_stopped_leaves_its_log_and_no_half_file(
    tmp_path: Path, tools: list[str], board: StandaloneBoard, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.append("run_ecppack")
    whole = flow.run_tool

    def stopped(folder: Path, package: str, function: str, arguments: list[str], progress: Report, log: Path) -> None:
        whole(folder, package, function, arguments, progress, log)
        if function == failing:
            raise KeyboardInterrupt

    monkeypatch.setattr(flow, "run_tool", stopped)
    with pytest.raises(KeyboardInterrupt):
        build(board, tmp_path / "out", cache=tmp_path / "cache")
    made = {"run_yosys": NETLIST, "run_nextpnr_ecp5": ROUTED, "run_ecppack": BITSTREAM}
    order = list(made)
    for function, name in made.items():
        done = order.index(function) < order.index(failing)
        assert (tmp_path / "out" / name).exists() == done
        log = tmp_path / "out" / f"{tool_name(function)}.log"
        assert log.exists() == (done or function == failing)
    monkeypatch.setattr(flow, "run_tool", whole)
    ran = len(tools)
    build(board, tmp_path / "out", cache=tmp_path / "cache")
    assert tools[ran:] == order[order.index(failing) :]


def test_a_clock_that_is_not_met_leaves_no_bitstream(tmp_path: Path, tools: list[str], board: StandaloneBoard) -> None:
    tools.append("run_ecppack")
    build(board, tmp_path, cache=tmp_path / "cache")
    assert (tmp_path / BITSTREAM).exists()
    with pytest.raises(BuildError, match=r"reaches 61\.5 MHz, not the 62\.5 MHz of its clock; hint: --clock 61"):
        build(board, tmp_path, mhz=62.5, cache=tmp_path / "cache")
    assert not (tmp_path / BITSTREAM).exists()
    assert (tmp_path / ROUTED).read_text() == "routed at 62.5"


def test_a_design_that_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, board: StandaloneBoard) -> None:
    with pytest.raises(BoardError, match="a clock of 900 MHz is not possible"):
        build(board, tmp_path / "out", mhz=900)
    assert not (tmp_path / "out").exists()


def test_a_report_without_a_clock_is_an_error() -> None:
    with pytest.raises(BuildError, match="no clock"):
        read_report({"fmax": {}, "utilization": {}}, Ecp5.cells)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ulx3s", "tangmega138k"])
def test_the_bitstream_is_built_and_its_clock_is_met(tmp_path: Path, name: str) -> None:
    """Half an hour and more where nothing is kept."""
    board = any_board(name)
    assert isinstance(board, StandaloneBoard)
    built = build(board, tmp_path, progress=print)
    assert built.mhz >= built.asked_mhz == board.core_clock().mhz
    assert built.path.stat().st_size > 100_000
    assert all(0 < used < most for used, most in built.used.values())
    assert built.used["BRAM18"][0] >= board.memory_bytes // 2048
