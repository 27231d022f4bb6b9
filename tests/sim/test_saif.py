"""Switching activity: counted by hand in a small waveform, and against the waveform of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from weft.sim.saif import write_saif
from weft.sim.waves import CYCLE_NS, WaveRequest, Waves

from tests.sim.test_waves import changes, simulate

SMALL = """\
$version made by hand $end
$timescale 1ns $end
 $scope module top $end
  $var wire  1 ! clk $end
  $scope module part $end
   $var wire  1 ! clk $end
   $var wire  4 " bus [3:0] $end
   $var wire  8 # memory[2] [7:0] $end
  $upscope $end
 $upscope $end
$enddefinitions $end
#10
0!
b0011 "
b00000000 #
#15
1!
b0110 "
#20
0!
#25
1!
b0010 "
#30
b10000000 #
"""


def activity(path: Path) -> dict[str, tuple[int, int, int]]:
    """Of each bit, under its path: how long it was 0 and 1, and its changes."""
    found, scopes = {}, []
    for line in path.read_text().splitlines():
        if (scope := re.fullmatch(r"\(INSTANCE (\S+)", line)) is not None:
            scopes.append(scope[1])
        elif line == "(NET":
            scopes.append("")
        elif line == ")" and scopes:
            scopes.pop()
        elif (
            bit := re.fullmatch(r"\((\S+) \(T0 (\d+)\) \(T1 (\d+)\) \(TX 0\) \(TC (\d+)\) \(IG 0\)\)", line)
        ) is not None:
            name = "/".join([scope for scope in scopes if scope] + [bit[1].replace("\\", "")])
            found[name] = (int(bit[2]), int(bit[3]), int(bit[4]))
    return found


def test_every_bit_is_counted(tmp_path: Path) -> None:
    (tmp_path / "o.vcd").write_text(SMALL)
    write_saif(tmp_path / "o.vcd", tmp_path / "o.saif")
    text = (tmp_path / "o.saif").read_text()
    assert text.count("(") == text.count(")")
    assert "(TIMESCALE 1 ns)\n(DURATION 20)\n" in text
    assert r"(bus\[2\] " in text
    clock = (10, 10, 3)
    assert activity(tmp_path / "o.saif") == {
        "top/clk": clock,
        "top/part/clk": clock,
        "top/part/bus[0]": (15, 5, 1),
        "top/part/bus[1]": (0, 20, 0),
        "top/part/bus[2]": (10, 10, 2),
        "top/part/bus[3]": (20, 0, 0),
        **{f"top/part/memory[2][{bit}]": (20, 0, int(bit == 7)) for bit in range(8)},
    }


def test_a_run_writes_its_activity_and_no_waveform(tmp_path: Path) -> None:
    (result,) = simulate(tmp_path / "o.saif", 1)
    simulate(tmp_path / "o.vcd", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.saif", "o.vcd"]
    found = activity(tmp_path / "o.saif")
    for name in ("clk", "trace_gemm_started_valid", "m_axi_arvalid"):
        times = [time for time, _ in changes(tmp_path / "o.vcd", name)]
        assert found[f"top/weft_core/{name}"][2] == len(times) - 1
    assert result.cycles is not None
    spans = {(low + high) for low, high, _ in found.values()}
    assert len(spans) == 1
    assert spans.pop() // 1000 in range((result.cycles - 1) * CYCLE_NS, (result.cycles + 1) * CYCLE_NS)
    assert any(name.startswith("top/weft_core/gemm/array/") and count for name, (_, _, count) in found.items())


def test_activity_is_counted_in_a_vcd_file() -> None:
    request = WaveRequest(Path("a/o.saif"))
    assert (request.counts, request.format, request.file) == (True, Waves.VCD, Path("a/o.saif.vcd"))
    request = WaveRequest(Path("a/o.vcd"))
    assert (request.counts, request.format, request.file) == (False, Waves.VCD, Path("a/o.vcd"))


@pytest.mark.parametrize(("head", "scale"), [("1ps", "1 ps"), ("10ns", "10 ns"), ("1us", "1 us")])
def test_the_unit_is_that_of_the_waveform(head: str, scale: str, tmp_path: Path) -> None:
    (tmp_path / "o.vcd").write_text(SMALL.replace("1ns", head))
    write_saif(tmp_path / "o.vcd", tmp_path / "o.saif")
    assert f"(TIMESCALE {scale})" in (tmp_path / "o.saif").read_text()
