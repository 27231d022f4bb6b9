"""Every fault cause on both simulators: the same record, and afterwards the same device runs another program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.isa import (
    FETCH,
    Engine,
    Fault,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Scratchpad,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    encode_unchecked,
    seal,
)
from weft.hw.memories import Memory
from weft.sim.dram import BusErrors, DramModel
from weft.sim.errors import SimulationError
from weft.sim.fsim import FunctionalSimulator
from weft.sim.result import FaultRecord
from weft.sim.rtl import RtlSimulator

from .programs import Simulator, parse

MEMORY = 1 << 16
DATA = 1 << 13
WINDOW = 1 << 14

FINISH = "finish"


@dataclass(frozen=True)
class Scenario:
    """A program that faults: assembly lines, or instruction words that the assembler would refuse."""

    name: str
    program: Sequence[str | int]
    cause: Fault
    engine: int
    number: int
    offset: int = 0
    errors: BusErrors | None = None


def word(instruction: Instruction) -> int:
    """Encoding without the assembler's checks."""
    return encode_unchecked(TINY, instruction)


SCENARIOS = [
    Scenario("opcode zero", [0], Fault.ILLEGAL, FETCH, 0),
    Scenario("reserved bits", ["sync load", seal(TINY, int(Opcode.SYNC) | 1 << 100), FINISH], Fault.ILLEGAL, FETCH, 1),
    Scenario("wrong engine", [word(Gemm(engine=Engine.VECTOR, dst=0, src=0, wgt=0)), FINISH], Fault.ILLEGAL, FETCH, 0),
    Scenario("engine seven", [seal(TINY, int(Opcode.SYNC) | 7 << 3), FINISH], Fault.ILLEGAL, FETCH, 0),
    Scenario("own token", [word(Sync(engine=Engine.GEMM, wait=4)), FINISH], Fault.ILLEGAL, FETCH, 0),
    Scenario("own token sent", [word(Sync(engine=Engine.GEMM, send=4)), FINISH], Fault.ILLEGAL, FETCH, 0),
    Scenario("finish with tokens", [word(Finish(wait=2))], Fault.ILLEGAL, FETCH, 0),
    Scenario(
        "loop extent zero", [word(Loop(engine=Engine.GEMM, level=0, extent=0)), FINISH], Fault.ILLEGAL, Engine.GEMM, 0
    ),
    Scenario(
        "loop level six", [word(Loop(engine=Engine.VECTOR, level=6, extent=1)), FINISH], Fault.ILLEGAL, Engine.VECTOR, 0
    ),
    Scenario(
        "gemm with seven levels", [word(Gemm(levels=7, dst=0, src=0, wgt=0)), FINISH], Fault.ILLEGAL, Engine.GEMM, 0
    ),
    Scenario(
        "vector with seven levels",
        ["sync vector", word(Vector(op=VectorOp.ADD, levels=7, dst=0, a=0)), FINISH],
        Fault.ILLEGAL,
        Engine.VECTOR,
        1,
    ),
    Scenario(
        "vector that accumulates in inp",
        [word(Vector(op=VectorOp.SUM, target=VectorTarget.INP, dst=0, a=0)), FINISH],
        Fault.ILLEGAL,
        Engine.VECTOR,
        0,
    ),
    Scenario(
        "vector with a target that does not exist",
        [word(Vector(op=VectorOp.ADD, target=3, dst=0, a=0)), FINISH],  # type: ignore[arg-type]
        Fault.ILLEGAL,
        Engine.VECTOR,
        0,
    ),
    Scenario(
        "vector op that does not exist",
        [word(Vector(op=7, dst=0, a=0)), FINISH],  # type: ignore[arg-type]
        Fault.ILLEGAL,
        Engine.VECTOR,
        0,
    ),
    Scenario(
        "accumulation into out",
        [word(Vector(op=VectorOp.MAC, target=VectorTarget.OUT, dst=0, a=0)), FINISH],
        Fault.ILLEGAL,
        Engine.VECTOR,
        0,
    ),
    Scenario(
        "requantise with an immediate",
        [word(Vector(op=VectorOp.REQUANTISE, b_immediate=1, dst=0, a=0)), FINISH],
        Fault.ILLEGAL,
        Engine.VECTOR,
        0,
    ),
    Scenario(
        "weights on the wrong engine",
        [word(Load(scratchpad=Scratchpad.WGT, index=0, offset=DATA // 4, rows=1, columns=1)), FINISH],
        Fault.ILLEGAL,
        Engine.LOAD,
        0,
    ),
    Scenario(
        "inputs on the wrong engine",
        [
            word(Load(engine=Engine.LOADW, scratchpad=Scratchpad.INP, index=0, offset=DATA // 4, rows=1, columns=1)),
            FINISH,
        ],
        Fault.ILLEGAL,
        Engine.LOADW,
        0,
    ),
    Scenario(
        "illegal only after its tokens",
        ["sync load send=gemm", word(Gemm(levels=7, dst=0, src=0, wgt=0, wait=1)), FINISH],
        Fault.ILLEGAL,
        Engine.GEMM,
        1,
    ),
    Scenario(
        "load beyond inp",
        [f"load load scratchpad=inp index=500 offset={DATA // 4} rows=3 columns=4 pad_left=1", FINISH],
        Fault.INDEX,
        Engine.LOAD,
        0,
    ),
    Scenario(
        "load beyond wgt",
        [f"load loadw scratchpad=wgt index=256 offset={DATA // 4} rows=0 columns=0 pad_top=1 pad_left=1", FINISH],
        Fault.INDEX,
        Engine.LOADW,
        0,
    ),
    Scenario(
        "store beyond out",
        [f"store store index=127 offset={DATA // 4} rows=1 columns=2", FINISH],
        Fault.INDEX,
        Engine.STORE,
        0,
    ),
    Scenario("gemm beyond wgt", ["gemm gemm dst=0 src=0 wgt=256", FINISH], Fault.INDEX, Engine.GEMM, 0),
    Scenario(
        "gemm beyond acc in its middle",
        ["loop gemm level=0 extent=9 dst_stride=1", "gemm gemm levels=1 dst=250 src=0 wgt=0", FINISH],
        Fault.INDEX,
        Engine.GEMM,
        1,
    ),
    Scenario(
        "vector beyond inp",
        ["loop vector level=0 extent=4 dst_stride=1", "vector vector op=add target=inp levels=1 dst=509 a=0", FINISH],
        Fault.INDEX,
        Engine.VECTOR,
        1,
    ),
    Scenario(
        "vector beyond out", ["vector vector op=add target=out dst=128 a=0", FINISH], Fault.INDEX, Engine.VECTOR, 0
    ),
    Scenario(
        "vector with b below zero", ["vector vector op=add dst=0 a=0 b=-1", FINISH], Fault.INDEX, Engine.VECTOR, 0
    ),
    Scenario(
        "parameters beyond acc", ["vector vector op=requantise dst=0 a=0 b=254", FINISH], Fault.INDEX, Engine.VECTOR, 0
    ),
    Scenario(
        "load outside the window",
        [f"load load scratchpad=inp index=0 offset={WINDOW // 4 - 3} rows=2 columns=2 stride=2", FINISH],
        Fault.WINDOW,
        Engine.LOAD,
        0,
    ),
    Scenario(
        "load far outside the window",
        ["load loadw scratchpad=wgt index=0 offset=268435452 rows=9 columns=3 stride=131071", FINISH],
        Fault.WINDOW,
        Engine.LOADW,
        0,
    ),
    Scenario(
        "store outside the window",
        [f"store store index=0 offset={WINDOW // 4} rows=1 columns=1", FINISH],
        Fault.WINDOW,
        Engine.STORE,
        0,
    ),
    Scenario(
        "program outside the window",
        ["sync load"] * 4 + [FINISH],
        Fault.WINDOW,
        FETCH,
        0,
        offset=WINDOW - 32 & ~63,
    ),
    Scenario(
        "misaligned load",
        [f"load loadw scratchpad=wgt index=0 offset={DATA // 4 + 1} rows=1 columns=1", FINISH],
        Fault.ALIGNMENT,
        Engine.LOADW,
        0,
    ),
    Scenario("misaligned program", ["sync load", FINISH], Fault.ALIGNMENT, FETCH, 0, offset=16),
    Scenario(
        "index before alignment",
        [f"load loadw scratchpad=wgt index=255 offset={DATA // 4 + 1} rows=1 columns=2", FINISH],
        Fault.INDEX,
        Engine.LOADW,
        0,
    ),
    Scenario(
        "alignment before window",
        ["load loadw scratchpad=wgt index=0 offset=268435451 rows=1 columns=2", FINISH],
        Fault.ALIGNMENT,
        Engine.LOADW,
        0,
    ),
    Scenario(
        "read error of load",
        [
            f"load load scratchpad=inp index=0 offset={DATA // 4} rows=1 columns=2",
            f"load load scratchpad=inp index=0 offset={DATA // 4 + 16} rows=1 columns=2",
            FINISH,
        ],
        Fault.BUS_READ,
        Engine.LOAD,
        1,
        errors=BusErrors(DATA + 64, DATA + 128),
    ),
    Scenario(
        "read error of loadw",
        [f"load loadw scratchpad=acc index=0 offset={DATA // 4} rows=4 columns=4 stride=8", FINISH],
        Fault.BUS_READ,
        Engine.LOADW,
        0,
        errors=BusErrors(DATA + 256, DATA + 264),
    ),
    Scenario(
        "read error of fetch", ["sync load"] * 20 + [FINISH], Fault.BUS_READ, FETCH, 16, errors=BusErrors(256, 272)
    ),
    Scenario(
        "write error",
        [f"store store index=0 offset={DATA // 4} rows=3 columns=4 stride=8", FINISH],
        Fault.BUS_WRITE,
        Engine.STORE,
        0,
        errors=BusErrors(DATA + 32, DATA + 40, reads=False),
    ),
    Scenario("token that never comes", ["sync gemm wait=vector", FINISH], Fault.WATCHDOG, Engine.GEMM, 0),
    Scenario(
        "circle of tokens",
        ["sync vector", "sync store wait=loadw send=vector", "sync loadw wait=vector", FINISH],
        Fault.WATCHDOG,
        Engine.LOADW,
        2,
    ),
    Scenario("room that never comes", ["sync load send=store"] * 16 + [FINISH], Fault.WATCHDOG, Engine.LOAD, 15),
    Scenario(
        "room that never comes, with work behind it",
        [*["sync load send=store"] * 16, "sync load", "sync load send=gemm", "sync gemm wait=load", FINISH],
        Fault.WATCHDOG,
        Engine.GEMM,
        18,
    ),
    Scenario(
        "only room is missing, with work behind it",
        [*["sync load send=store"] * 16, "sync load", "sync load send=gemm", FINISH],
        Fault.WATCHDOG,
        Engine.LOAD,
        15,
    ),
    Scenario("no finish", ["sync load", "sync store"], Fault.NO_FINISH, FETCH, 2),
    Scenario("a flipped bit", ["sync load", word(Sync(engine=Engine.GEMM)) ^ 1 << 40, FINISH], Fault.CORRUPT, FETCH, 1),
    Scenario("a flipped check bit", [word(Finish()) ^ 1 << 127], Fault.CORRUPT, FETCH, 0),
    Scenario("a SYNC that became FINISH", [word(Sync(engine=Engine.LOAD)) ^ 1, FINISH], Fault.CORRUPT, FETCH, 0),
    Scenario("empty program", [], Fault.NO_FINISH, FETCH, 0),
]

GOOD = f"""
load load scratchpad=inp index=0 offset={DATA // 4} rows=2 columns=4 stride=4 send=gemm
load loadw scratchpad=wgt index=0 offset={DATA // 4 + 64} rows=1 columns=4 send=gemm
loop gemm level=0 extent=4 a_stride=1 b_stride=1
loop gemm level=1 extent=2 dst_stride=1 a_stride=4
gemm gemm zero=1 levels=2 dst=4 src=0 wgt=0 wait=load,loadw send=vector
loop vector level=0 extent=2 dst_stride=1 a_stride=1
vector vector op=shr target=out b_immediate=1 levels=1 dst=0 a=4 b=6 wait=gemm send=store
store store index=0 offset={DATA // 4 + 512} rows=1 columns=2 wait=vector
finish
"""


def encoded(program: Sequence[str | int]) -> bytes:
    words = [part if isinstance(part, int) else encode_unchecked(TINY, parse(part)[0]) for part in program]
    return b"".join(value.to_bytes(TINY.instruction_bytes, "little") for value in words)


def set_errors(simulator: Simulator, errors: BusErrors | None) -> None:
    if isinstance(simulator, FunctionalSimulator):
        simulator.bus_errors = errors
    else:
        simulator.set_dram(DramModel(latency=20, errors=errors))


def run_words(simulator: Simulator, program: Sequence[str | int], offset: int = 0) -> FaultRecord | None:
    code = np.frombuffer(encoded(program), np.uint8)
    simulator.dram[offset : offset + len(code)] = code
    return simulator.run(offset, len(program), window_bytes=WINDOW).fault


def run_good(simulator: Simulator) -> np.ndarray:
    rng = np.random.default_rng(1)
    simulator.dram[DATA : DATA + 2048] = rng.integers(0, 256, 2048)
    assert run_words(simulator, GOOD.strip().splitlines()) is None
    return simulator.dram[DATA + 2048 : DATA + 2056].view(np.int8).copy()


def expected_good(memory: np.ndarray) -> np.ndarray:
    data = memory[DATA:].view(np.int8).astype(np.int32)
    inp, wgt = data[:32].reshape(2, 16), data[256:320].reshape(4, 4, 4)
    return (inp @ wgt.transpose(0, 2, 1).reshape(16, 4) >> 6).astype(np.int8).reshape(-1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_fault_is_reported_alike_and_the_device_goes_on(
    scenario: Scenario, tiny_rtl: RtlSimulator, tiny_fsim: FunctionalSimulator
):
    expected = FaultRecord(scenario.cause, scenario.engine, scenario.number)
    for simulator in (tiny_fsim, tiny_rtl):
        set_errors(simulator, scenario.errors)
        assert run_words(simulator, scenario.program, scenario.offset) == expected
        set_errors(simulator, None)
        np.testing.assert_array_equal(run_good(simulator), expected_good(simulator.dram))


def test_every_cause_is_provoked():
    assert {scenario.cause for scenario in SCENARIOS} == set(Fault) - {Fault.NONE}


@pytest.mark.parametrize("kind", ["fsim", "rtl"])
def test_micro_ops_before_the_fault_have_taken_effect(kind, tiny_rtl, tiny_fsim):
    simulator = tiny_fsim if kind == "fsim" else tiny_rtl
    simulator.write_scratchpad(Memory.ACC, np.full((256, 4), 5, np.int32))
    simulator.write_scratchpad(Memory.INP, np.full((512, 4), 2, np.int8))
    simulator.write_scratchpad(Memory.WGT, np.full((256, 16), 3, np.int8))
    program = ["loop gemm level=0 extent=9 dst_stride=1", "gemm gemm levels=1 dst=250 src=0 wgt=0", FINISH]
    fault = run_words(simulator, program)
    assert fault == FaultRecord(Fault.INDEX, Engine.GEMM, 1)
    expected = np.full((256, 4), 5)
    expected[250:] = 5 + 4 * 6
    np.testing.assert_array_equal(simulator.read_scratchpad(Memory.ACC), expected)


def test_a_core_that_hangs_is_reset_and_goes_on(tiny_rtl):
    set_errors(tiny_rtl, None)
    patience, tiny_rtl.watchdog = tiny_rtl.watchdog, 0
    try:
        code = np.frombuffer(encoded(["sync gemm wait=load", FINISH]), np.uint8)
        tiny_rtl.dram[: len(code)] = code
        with pytest.raises(SimulationError, match="the core has not finished after 3000 cycles"):
            tiny_rtl.run(0, 2, cycle_limit=3000)
    finally:
        tiny_rtl.watchdog = patience
    np.testing.assert_array_equal(run_good(tiny_rtl), expected_good(tiny_rtl.dram))
