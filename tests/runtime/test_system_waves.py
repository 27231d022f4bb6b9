"""Waveforms of a system's device: what runs from then on, with names for the numbers of each core."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from weft.hw.config import PYNQ, TINY
from weft.hw.programs import assemble
from weft.hw.system_config import SystemConfig
from weft.runtime.errors import DeviceError
from weft.runtime.system_device import SimulatedSystem
from weft.sim.result import RunResult
from weft.sim.system_run import CoreProgram, SystemResult
from weft.sim.waves import WaveRequest

from ..sim.test_waves import PROGRAM

PAIR = SystemConfig(cores=(TINY, PYNQ))
WINDOW = 1 << 14


class Simulator:
    """Of the Verilog, that takes no time to build."""

    made: list[WaveRequest | str | None]

    def __init__(self, config: SystemConfig, size: int, *, waves: WaveRequest | None, **_: object) -> None:
        self.dram = np.zeros(size, np.uint8)
        self.made.append(waves)

    def run(self, programs: list[CoreProgram | None], **_: object) -> SystemResult:
        done = RunResult(cycles=1, fault=None, bytes_read=0, bytes_written=0)
        return SystemResult(tuple(each and done for each in programs), (0, 0))

    def close_waves(self) -> None:
        self.made.append("closed")


def test_what_runs_from_then_on_is_shown_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.sim.system_rtl.RtlSystem", Simulator)
    monkeypatch.setattr(Simulator, "made", [], raising=False)
    device = SimulatedSystem(PAIR, "rtl", WINDOW)
    programs: list[CoreProgram | None] = []
    for core, config in enumerate(PAIR.cores):
        code = np.frombuffer(assemble(config, PROGRAM if core == 0 else PROGRAM[-1:]), np.uint8)
        device.window(core).write(8192, code)
        count = len(code) // config.instruction_bytes
        programs.append(CoreProgram(offset=8192, count=count, window_start=core * device.pitch, window_bytes=WINDOW))
    with pytest.raises(DeviceError, match="there is no waveform; hint: ask for one by write_waves, and run a program"):
        device.finish_waves()
    first, second = WaveRequest(tmp_path / "a.vcd"), WaveRequest(tmp_path / "b.vcd")
    device.write_waves(first)
    assert Simulator.made == []  # the usual build is made for nobody
    device.run(programs)
    before = device.read(0, 2 * WINDOW)
    assert device.finish_waves() == (tmp_path / "a.vcd", tmp_path / "a.gtkw")
    device.write_waves(second)
    device.run([programs[0], None])
    assert np.array_equal(device.read(0, 2 * WINDOW), before)
    assert device.finish_waves() == (tmp_path / "b.vcd", tmp_path / "b.gtkw")
    assert Simulator.made == [first, "closed", second, "closed"]
    lines = [(tmp_path / f"a.instructions-{core}.txt").read_text().splitlines() for core in range(2)]
    assert list(map(len, lines)) == [4, 1]
    assert "finish" in lines[1][0].lower()
    assert (tmp_path / "b.instructions-1.txt").read_text().strip() == ""
    view = (tmp_path / "a.gtkw").read_text()
    assert "^3 " + str((tmp_path / "a.instructions-1.txt").resolve()) in view
    assert "top.weft_system.core_1.module.trace_gemm_started_number[23:0]" in view
    device.write_waves(WaveRequest(tmp_path / "c.vcd"))
    device.close()
    assert len(Simulator.made) == 4  # nothing was begun
    with pytest.raises(DeviceError, match="device 'fsim' has no waveform; hint: load the model with device='rtl'"):
        SimulatedSystem(PAIR, "fsim", WINDOW).write_waves(first)
