"""The exported Verilog: port names that tools recognise, and no memory initialisation."""

from __future__ import annotations

import re

import pytest
from weft.hw.config import TINY
from weft.hw.errors import HardwareError
from weft.hw.mac_array_packed import Multipliers
from weft.hw.verilog import TOP, emit_verilog, fold_repeats, run_yosys


def test_ports_have_the_names_that_tools_recognise() -> None:
    text = emit_verilog(TINY)
    header = re.search(rf"^module {TOP}\((.*?)\);", text, re.DOTALL | re.MULTILINE)
    assert header is not None
    ports = set(re.findall(r"\w+", header.group(1)))
    assert ports >= {"clk", "rst", "interrupt", "m_axi_arvalid", "m_axi_rdata", "m_axi_wstrb", "m_axi_bready"}
    assert ports >= {"s_axil_awaddr", "s_axil_wdata", "s_axil_araddr", "s_axil_rready", "trace_load_started_valid"}
    assert "initial" not in text
    assert re.search(r"reg \[\d+:0\] memory \[511:0\]", text), "the inp scratchpad is not a memory"


def test_multipliers_are_packed_where_asked_for() -> None:
    assert "row_0_outputs_2_product_3" in emit_verilog(TINY, Multipliers.PACKED)


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
