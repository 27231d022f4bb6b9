"""What registers hold, cycle by cycle: the right signals, in the cycles that were asked for."""

from __future__ import annotations

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.isa import Engine, Finish, Gemm, Load, Scratchpad
from weft.hw.programs import assemble
from weft.sim.errors import SimulationError
from weft.sim.rtl import RtlSimulator
from weft.sim.states import StateRecording, control_file, state_names

PROGRAM = [
    Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=3, send=1 << Engine.GEMM),
    Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=1, send=1 << Engine.GEMM),
    Gemm(dst=0, src=0, wgt=0, wait=1 << Engine.LOAD | 1 << Engine.LOADW),
    Finish(),
]
PLACE, WINDOW = 8192, 1 << 14
CYCLES = "weft_core__DOT__registers__DOT__cycles"


def test_names_are_those_of_registers_and_of_what_arrays_give() -> None:
    text = """\
  wire [3:0] a;
  reg [3:0] \\port$6$0  = 4'h0;
  reg signed [15:0] lane_0;
  reg flag;
  reg [7:0] _0_ = 8'h00;
  reg [151:0] storage [0:0];
  reg [7:0] ring [15:0];
  assign old__data = ring[place];
  assign low = a[0];
"""
    assert state_names(text) == ["_0_", "flag", "lane_0", "old__data", "port$6$0", "storage"]
    # Verilator asks for some names in its own spelling.
    assert 'public_flat_rd -module "*" -var "old___05Fdata"' in control_file(text).splitlines()


def test_states_are_those_of_the_cycles_asked_for() -> None:
    recording = StateRecording([(3, 10), (10, 12), (240, 300)])
    simulator = RtlSimulator(TINY, WINDOW, quick=True, states=recording)
    code = np.frombuffer(assemble(TINY, PROGRAM), np.uint8)
    simulator.dram[PLACE : PLACE + code.size] = code
    first, second = (simulator.run(PLACE, len(PROGRAM)).cycles for _ in range(2))
    assert first is not None
    assert second is not None
    wanted = [*range(3, 12), *range(240, 300)]
    assert 240 < first < 300 < first + second  # the last window reaches into the second run, which begins anew
    words = recording.bits(CYCLES, 0, len(wanted))
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, : len(wanted)]
    found = (bits.astype(np.int64) << np.arange(len(bits))[:, None]).sum(axis=0).tolist()
    assert found == [cycle if cycle < first else cycle - first for cycle in wanted]
    assert recording.places["rst"][1] == 1
    assert not any(name.startswith("__V") for name in recording.places)
    simulator.close_waves()


@pytest.mark.parametrize("windows", [[(5, 5)], [(5, 9), (8, 12)], [(9, 4)]])
def test_windows_ascend(windows: list[tuple[int, int]]) -> None:
    with pytest.raises(SimulationError, match="not in ascending order"):
        StateRecording(windows)
