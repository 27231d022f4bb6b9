"""What instructions touch: as the functional simulator does it, which looks for races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.model import CompiledModel
from weft.hw.isa import Engine, Gemm, Loop
from weft.hw.memories import Memory
from weft.hw.programs import disassemble
from weft.runtime.device import FsimDevice
from weft.sim.races import RaceDetector
from weft.view.accesses import accesses, nests


def places(entries: Any, size: int = 1 << 24) -> set[int]:
    return set(range(size)[entries]) if isinstance(entries, slice) else set(entries.ravel().tolist())


def test_accesses_are_those_of_the_simulator(digits: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[int, Memory, bool], set[int]] = {}
    original = RaceDetector.access

    def access(self: Any, engine: Engine, memory: Memory, entries: Any, *, write: bool) -> None:
        number = self._numbers[engine][-1]
        seen.setdefault((number, memory, write), set()).update(places(entries))
        original(self, engine, memory, entries, write=write)

    monkeypatch.setattr(RaceDetector, "access", access)
    (step,) = digits.programs
    with weft.load(digits, FsimDevice(digits.config, check_races=True)) as module:
        module.run({each.name: np.zeros(each.shape, each.dtype) for each in digits.inputs})
    instructions = disassemble(digits.config, step.program)
    mine: dict[tuple[int, Memory, bool], set[int]] = {}
    for number, (instruction, nest) in enumerate(zip(instructions, nests(instructions), strict=True)):
        for memory, entries, kind in accesses(digits.config, instruction, nest):
            mine.setdefault((number, memory, kind != "read"), set()).update(places(entries))
    # The simulator counts granules of DRAM from its own beginning: compared are their distances.
    for found in (seen, mine):
        for key, entries in found.items():
            if key[1] is Memory.DRAM:
                first = min(entries, default=0)
                found[key] = {entry - first for entry in entries}
    assert {key for key in mine if mine[key]} == {key for key in seen if seen[key]}
    assert {key: sorted(each)[:4] for key, each in mine.items() if each != seen[key]} == {}


def test_loops_are_those_that_were_set_last() -> None:
    program = [
        Loop(engine=Engine.GEMM, level=0, extent=4, dst_stride=1, b_stride=2),
        Loop(engine=Engine.GEMM, level=1, extent=3, a_stride=5),
        Loop(engine=Engine.VECTOR, level=0, extent=9),
        Gemm(dst=0, src=0, wgt=0, levels=1),
        Gemm(dst=0, src=0, wgt=0, levels=2),
    ]
    assert nests(program)[3:] == [((4, 1, 0, 2),), ((3, 0, 5, 0), (4, 1, 0, 2))]
    assert nests(program)[:3] == [(), (), ()]
