"""Waveforms of the RTL: the cycles in them are those of the core's counter, and the numbers have names beside them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.hw.config import TINY
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import ENGINE_NAMES, Engine, Finish, Gemm, Load, Scratchpad
from weft.hw.programs import assemble
from weft.runtime.device import RtlDevice
from weft.runtime.errors import DeviceError
from weft.sim import waves
from weft.sim.errors import BuildError, SimulationError
from weft.sim.result import RunResult
from weft.sim.rtl import RtlSimulator
from weft.sim.waves import CYCLE_NS, WaveRequest, Waves

BOTH = 1 << Engine.LOAD | 1 << Engine.LOADW
PROGRAM = [
    Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=3, send=1 << Engine.GEMM),
    Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=1, send=1 << Engine.GEMM),
    Gemm(dst=0, src=0, wgt=0, wait=BOTH),
    Finish(),
]
PLACE, WINDOW = 8192, 1 << 14


def changes(path: Path, name: str, inside: str = "") -> list[tuple[int, int]]:
    """Times (ns) and values of a signal of the core in a VCD file, or of what stands in this instance."""
    text = path.read_text()
    head, _, body = text.partition("$enddefinitions $end")
    scale = re.search(r"\$timescale\s+(\w+)\s+\$end", head)
    assert scale is not None
    picoseconds = {"1ps": 1, "1ns": 1000}[scale[1]]
    head = head[head.index(f"$scope module {inside} $end") :] if inside else head
    code = re.search(rf"\$var \w+ +\d+ (\S+) {name}(?: \[\d+:0\])? \$end", head)
    assert code is not None, name
    found, now = [], 0
    for line in body.split("\n"):
        if line.startswith("#"):
            now = int(line[1:]) * picoseconds // 1000
        elif line.startswith("b") and line.endswith(f" {code[1]}"):
            found.append((now, int(line[1:].split()[0], 2)))
        elif line[:1] in "01" and line[1:] == code[1]:
            found.append((now, int(line[0])))
    return found


def high_in(path: Path, name: str, inside: str = "") -> list[int]:
    """Cycles in the middle of which a signal of one bit is high."""
    result, since = [], None
    for now, value in [*changes(path, name, inside), (-1, 0)]:
        if value and since is None:
            since = now
        elif not value and since is not None:
            end = now if now >= 0 else since
            result += range((since + CYCLE_NS - 1) // CYCLE_NS, max(end - 1, since) // CYCLE_NS + 1)
            since = None
    return result


def simulate(path: Path, runs: int, first: int = 0, stop: int | None = None) -> list[RunResult]:
    """Run the program some times with a waveform."""
    simulator = RtlSimulator(TINY, WINDOW, waves=WaveRequest(path, first, stop))
    code = np.frombuffer(assemble(TINY, PROGRAM), np.uint8)
    simulator.dram[PLACE : PLACE + code.size] = code
    results = [simulator.run(PLACE, len(PROGRAM), trace=True) for _ in range(runs)]
    simulator.close_waves()
    return results


def test_cycles_are_those_of_the_core(tmp_path: Path) -> None:
    """Two programs: the second begins where the first has ended."""
    path = tmp_path / "all.vcd"
    first, second = simulate(path, 2)
    assert first.cycles is not None
    for engine in (Engine.LOAD, Engine.LOADW, Engine.GEMM):
        starts = []
        for result, begin in ((first, 0), (second, first.cycles)):
            assert result.trace is not None
            events = result.trace.events
            starts += (events["start"][events["engine"] == engine] + begin).tolist()
        assert len(starts) == 2
        assert high_in(path, f"trace_{ENGINE_NAMES[engine]}_started_valid") == starts
    edges = [now for now, value in changes(path, "clk") if value]
    assert edges[0] % CYCLE_NS == 0
    assert edges[-1] == (first.cycles + (second.cycles or 0)) * CYCLE_NS


def test_only_the_cycles_that_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "some.vcd"
    simulate(path, 1, 40, 60)
    times = [int(each) for each in re.findall(r"^#(\d+)$", path.read_text(), re.MULTILINE)]
    per_cycle = CYCLE_NS * (1000 if "1ps" in path.read_text() else 1)
    assert times[0] == 40 * per_cycle + per_cycle // 2
    assert times[-1] == 60 * per_cycle


def test_a_device_writes_what_explains_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.vcd"

    class Simulator:
        def __init__(self, config: object, window: int, **options: object) -> None:
            self.dram = np.zeros(window, np.uint8)
            opened.append(options["waves"])

        def run(self, *_: object, **__: object) -> RunResult:
            return RunResult(cycles=1, fault=None, bytes_read=0, bytes_written=0)

        def close_waves(self) -> None:
            opened.append("closed")

    opened: list[object] = []
    monkeypatch.setattr("weft.sim.rtl.RtlSimulator", Simulator)
    request = WaveRequest(path)
    device = RtlDevice(TINY)
    device.write_waves(request)
    with pytest.raises(DeviceError, match="there is no waveform; hint: ask for one before the window, and run"):
        device.finish_waves()
    device.allocate(WINDOW)
    code = np.frombuffer(assemble(TINY, PROGRAM), np.uint8)
    device.write(PLACE, code)
    device.execute(PLACE, len(PROGRAM), False)
    device.execute(PLACE + code.size // 4 * 2, 2, False)
    assert device.finish_waves() == (path, tmp_path / "o.gtkw")
    assert opened == [request, "closed"]
    device.allocate(WINDOW)
    assert opened[-1] is None  # one window, one file
    classes = (tmp_path / "o.classes.txt").read_text().splitlines()
    assert f"{CycleClass.BUSY.value:X} BUSY" in classes
    lines = (tmp_path / "o.instructions.txt").read_text().splitlines()
    assert [line[:10] for line in lines] == ["000000 0: ", "000001 1: ", "000002 2: ", "000003 3: "]
    assert "load" in lines[0].lower()
    assert "|" in lines[0]
    assert "|" not in lines[3]
    view = (tmp_path / "o.gtkw").read_text()
    assert f'[dumpfile] "{path}"' in view
    for name in ENGINE_NAMES:
        if name != "fetch":
            assert f"trace_{name}_activity[3:0]" in view or name not in {ENGINE_NAMES[each] for each in Engine}
    again = RtlDevice(TINY)
    again.write_waves(request)
    again.allocate(WINDOW)
    again.write(PLACE, code)
    again.execute(PLACE, len(PROGRAM), False)
    opened.clear()
    again.allocate(0)  # as at the end of a module: the file is whole, and no other model is built for nothing
    assert opened == ["closed"]
    assert again.finish_waves() == (path, tmp_path / "o.gtkw")
    assert opened == ["closed"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--waves", "o.vcd"], "error: device 'fsim' has no waveform; hint: --device rtl"),
        (
            ["--device", "rtl", "--waves", "o.txt"],
            "error: waveform 'o.txt' is neither .vcd nor .fst, nor activity, .saif",
        ),
        (["--device", "rtl", "--from", "3"], "error: --from and --to are cycles of a waveform"),
        (["--device", "rtl", "--waves", "o.vcd", "--from", "9", "--to", "9"], "error: no cycle is in 9..9"),
        (["--device", "rtl", "--waves", "no/o.vcd"], "error: no/o.vcd: No such file or directory"),
    ],
)
def test_what_has_no_waveform_is_refused_at_once(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    assert run(app, ["run", "m.onnx", *words], err) == 1
    assert capfd.readouterr().err.startswith(why)


def test_fst_without_its_libraries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "wave_format", lambda: Waves.VCD)
    with pytest.raises(
        BuildError, match=r"cannot be compiled against here; hint: apt-get install liblz4-dev zlib1g-dev"
    ):
        WaveRequest(Path("o.fst"))
    with pytest.raises(SimulationError, match="no cycle is in"):
        WaveRequest(Path("o.vcd"), 5, 5)
