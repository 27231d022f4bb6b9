"""The instruction set over the field: with known numbers it is what the functional simulator does."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.isa import Engine, Finish, Gemm, Instruction, Load, Scratchpad, Store, Vector, VectorOp
from weft.hw.memories import Memory
from weft.hw.programs import assemble
from weft.hw.weight_form import FOUR_BITS
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import PROGRAM_BYTES, Case, random_case, seeded
from weft.sim.fuzz_compare import fill
from weft.verify.errors import NotProvedError
from weft.verify.field import Elements, halves, join, of_int, to_int
from weft.verify.keyed import Keys
from weft.verify.machine import Machine

SMALL = 1 << 20


class KnownKeys(Keys):
    """Functions of known numbers give known numbers."""

    def hashed(self, x: Elements, name: str, *parameters: int | Elements) -> Elements:
        numbers = to_int(x)
        if name == "low 8 bits":
            return of_int(numbers.astype(np.int8))
        assert name == "shifted right"
        (amount,) = parameters
        return of_int(numbers.astype(np.int32).astype(np.int64) >> to_int(np.asarray(amount)))


class KnownWindow:
    """Bytes of DRAM, all of which may be read and written."""

    def __init__(self, dram: np.ndarray) -> None:
        self.dram = dram

    def read(self, start: int, rows: int, row_bytes: int, stride: int, item: int) -> tuple[np.ndarray, bool]:
        found = np.stack([self.dram[start + n * stride :][:row_bytes] for n in range(rows)])
        return found.view(f"<i{item}").astype(np.int64), True

    def store(self, start: int, rows: Elements, stride: int, number: int) -> None:
        for n, row in enumerate(to_int(rows)):
            self.dram[start + n * stride :][: len(row)] = row.astype(np.int8).view(np.uint8)


def _is_linear(instruction: Instruction) -> bool:
    """Whether known numbers stay known numbers."""
    if not isinstance(instruction, Vector):
        return True
    shifts_unknown = instruction.op is VectorOp.SHR and not instruction.b_immediate
    extreme = instruction.op.name.startswith(("MAX", "MIN"))
    return not (instruction.table or shifts_unknown or extreme or instruction.op is VectorOp.REQUANTISE)


def _machine_of(config: CoreConfig, simulator: FunctionalSimulator, dram: np.ndarray) -> Machine:
    machine = Machine(config, KnownWindow(dram), KnownKeys(0))  # type: ignore[arg-type]
    memories = simulator.memories
    lanes = machine._matrix_rows(of_int(memories.array(Memory.INP).reshape(config.depth(Memory.INP), -1)))
    machine.inp[...] = halves(lanes)
    machine.wgt[...] = memories.array(Memory.WGT).reshape(machine.wgt.shape)
    acc = memories.array(Memory.ACC).reshape(config.depth(Memory.ACC), -1).astype(np.int64)
    machine.acc[...] = of_int(acc)
    machine.low[...], machine.high[...] = acc.min(1, keepdims=True), acc.max(1, keepdims=True)
    machine.size[...] = np.maximum(np.abs(acc).max(1, keepdims=True), 1)
    machine.out[...] = of_int(memories.array(Memory.OUT).reshape(config.depth(Memory.OUT), -1))
    return machine


def _case(config: CoreConfig, seed: int) -> Case | None:
    case = random_case(config, seeded(seed), most_instructions=25)
    plain = tuple(each for each in case.plain if _is_linear(each))
    legal = Case(config, plain, case.data_seed, case.token_seed, 0, case.program_offset, case.dram)
    return legal if plain and case.program_offset + PROGRAM_BYTES <= legal.window_bytes else None


WEIGHTS = replace(TINY, name="weights", weight_group=32)


@pytest.mark.parametrize("config", [TINY, PYNQ, WEIGHTS], ids=lambda config: config.name)
def test_random_programs_on_known_numbers_give_what_the_simulator_gives(config: CoreConfig) -> None:
    compared = 0
    for seed in range(40):
        case = _case(config, seed)
        if case is None:
            continue
        simulator = FunctionalSimulator(config, case.window_bytes, check_races=False)
        place, length = fill(case, simulator)
        machine = _machine_of(config, simulator, simulator.dram.copy())
        try:
            machine.run(case.instructions, lambda number: None)
        except NotProvedError:
            continue  # factors of more than 25 bits, or numbers that grow beyond what the field tells apart
        assert simulator.run(place, length).fault is None
        memories = simulator.memories
        acc = memories.array(Memory.ACC).reshape(machine.acc.shape)
        assert (to_int(machine.acc).astype(np.int32) == acc).all(), f"seed {seed}"
        inp = machine._matrix_rows(of_int(memories.array(Memory.INP).reshape(config.depth(Memory.INP), -1)))
        assert (to_int(join(machine.inp)).astype(np.int8) == to_int(inp)).all(), f"seed {seed}"
        out = memories.array(Memory.OUT).reshape(machine.out.shape)
        assert (to_int(machine.out).astype(np.int8) == out).all(), f"seed {seed}"
        assert (machine.window.dram == simulator.dram).all(), f"seed {seed}"  # type: ignore[attr-defined]
        compared += 1
    assert compared >= 8


def _run(*instructions: Instruction) -> Machine:
    machine = Machine(TINY, KnownWindow(np.zeros(1 << 16, np.uint8)), Keys(0))  # type: ignore[arg-type]
    machine.run([*instructions, Finish()], lambda number: None)
    return machine


def _scaled(by: int, count: int) -> list[Instruction]:
    return [Vector(op=VectorOp.MUL, b_immediate=1, dst=0, a=0, b=by) for _ in range(count)]


def test_numbers_that_wrap_the_prime_are_refused() -> None:
    """2^61 times a value is the value itself modulo the prime, but 0 in 32 bits."""
    load = Load(scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=0, columns=0, pad_top=1, pad_left=1, pad_value=5)
    with pytest.raises(NotProvedError, match="grow so large"):
        _run(load, *_scaled(1 << 21, 3))


def test_4_bit_weights_are_those_of_the_simulator_and_must_be_constants() -> None:
    core = replace(PYNQ, weight_group=64)
    load = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=4, offset=33, rows=2, columns=2, stride=3,
                pad_value=FOUR_BITS)  # fmt: skip
    dram = np.random.default_rng(0).integers(0, 256, 1 << 16).astype(np.uint8)
    simulator = FunctionalSimulator(core, len(dram))
    simulator.dram[:] = dram
    simulator.dram[: 2 * core.instruction_bytes] = assemble(core, [load, Finish()])
    assert simulator.run(0, 2).fault is None
    window = KnownWindow(simulator.dram.copy())
    machine = Machine(core, window, Keys(0))  # type: ignore[arg-type]
    machine.run([load, Finish()], lambda number: None)
    assert (machine.wgt[4:20].reshape(16, -1) == simulator.memories.wgt[4:20]).all()
    computed = patch.object(window, "read", lambda *place: (KnownWindow.read(window, *place)[0], False))
    with computed, pytest.raises(NotProvedError, match="weights of 4 bits that are not constants"):
        machine.run([load, Finish()], lambda number: None)


def test_a_shift_by_what_is_not_known_is_refused() -> None:
    with pytest.raises(NotProvedError, match="shift by a number"):
        _run(Vector(op=VectorOp.SHR, dst=0, a=0, b=1))


def test_factors_that_may_have_more_than_25_bits_are_refused() -> None:
    with pytest.raises(NotProvedError, match="25 bits"):
        _run(Vector(op=VectorOp.MUL, dst=0, a=0, b=1))


@pytest.mark.parametrize("instruction", [
    Gemm(dst=TINY.depth(Memory.ACC), src=0, wgt=0),
    Vector(op=VectorOp.ADD, dst=0, a=0, b=-1),
    Load(scratchpad=Scratchpad.INP, index=TINY.depth(Memory.INP), offset=0, rows=1, columns=1),
    Store(index=TINY.depth(Memory.OUT) - 1, offset=0, rows=1, columns=2),
], ids=lambda each: type(each).__name__)  # fmt: skip
def test_indices_outside_are_refused(instruction: Instruction) -> None:
    with pytest.raises(NotProvedError, match="it reaches entries"):
        _run(instruction)


def test_a_program_without_an_end_is_refused() -> None:
    machine = Machine(TINY, KnownWindow(np.zeros(64, np.uint8)), Keys(0))  # type: ignore[arg-type]
    with pytest.raises(NotProvedError, match="FINISH"):
        machine.run([], lambda number: None)
