"""Every field of every instruction at both of its ends: the checker lets pass what the functional simulator runs, and
nothing else. Fields and their ends come from the instruction set's declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.check import check_program
from weft.compiler.targets.errors import ProgramError
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.decode import decode
from weft.hw.errors import InstructionError
from weft.hw.isa import (
    HEADER,
    INSTRUCTION_TYPES,
    Engine,
    Field,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Opcode,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    encode,
    instruction_fields,
    seal,
)
from weft.hw.programs import Code, assemble
from weft.sim.fsim import FunctionalSimulator

SMALL = replace(
    PYNQ, name="small", inp_depth=64, wgt_depth=16, acc_depth=32, out_depth=16, queue_depth=16, tables=2
)  # all modes, and scratchpads so shallow that most ends of fields lie outside
CORES = {core.name: core for core in (TINY, SMALL)}
WINDOW = 8192
PROGRAM = WINDOW - 1024
"""Where the simulator finds the program: the instructions below end before it."""


def bases(config: CoreConfig) -> dict[str, list[Instruction]]:
    """Legal programs; the last instruction of each is the one to be changed."""
    gemm_loop = Loop(engine=Engine.GEMM, level=1, extent=2, dst_stride=1, a_stride=2, b_stride=1)
    vector_loop = Loop(engine=Engine.VECTOR, level=1, extent=3, dst_stride=1, a_stride=2, b_stride=1)
    gemm = Gemm(dst=3, src=4, wgt=1, levels=2)
    add = Vector(op=VectorOp.ADD, dst=2, a=5, b=4, levels=2)
    programs: dict[str, list[Instruction]] = {
        "load": [Load(scratchpad=Scratchpad.INP, index=1, offset=8, rows=2, columns=2, stride=4)],
        "load of weights": [
            Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=1, offset=64, rows=2, columns=1, stride=2)
        ],
        "store": [Store(index=1, offset=8, rows=2, columns=2, stride=4)],
        "gemm": [gemm_loop, gemm],
        "vector": [vector_loop, add],
        "immediate": [vector_loop, replace(add, b_immediate=1)],
        "requantise": [vector_loop, replace(add, op=VectorOp.REQUANTISE, target=VectorTarget.OUT)],
        "sum": [vector_loop, replace(add, op=VectorOp.SUM)],
        "loop of gemm": [gemm, gemm_loop],
        "loop of vector": [add, vector_loop],
        "sync": [Sync(engine=Engine.GEMM)],
        "finish": [Finish()],
    }
    if config.depthwise:
        pitches = {"depthwise": 1, "row_pitch": 5, "column_pitch": 1}
        programs["depthwise"] = [gemm_loop, replace(gemm, **pitches)]
    if config.tables:
        programs["table"] = [vector_loop, replace(add, table=1)]
    return programs


def values(config: CoreConfig, field: Field) -> Iterator[int]:
    """Both ends of a field and their neighbours, zero's neighbours, and those of every scratchpad's end."""
    _, width, signed = field
    low = -(1 << width - 1) if signed else 0
    high = low + (1 << width) - 1
    ends = {low, low + 1, -4, -3, -2, -1, 0, 1, 2, high - 1, high}
    for memory in config.scratchpads:
        ends |= {config.depth(memory) + distance for distance in range(-4, 2)}
    yield from sorted(value for value in ends if low <= value <= high)


def words(config: CoreConfig, program: list[Instruction]) -> list[int]:
    """The program's words; an instruction that follows a loop in the list runs behind it, and uses it."""
    *before, last = program
    ordered = [last, *before] if isinstance(last, Loop) else program
    return [encode(config, instruction) for instruction in [*ordered, Finish()]]


def changed(config: CoreConfig, word: int, name: str, value: int) -> int:
    """The word with one field set, and check bits that fit."""
    position = 0
    for field, width, _ in HEADER + instruction_fields(config, decode(config, word).opcode):
        if field == name:
            mask = (1 << width) - 1
            return seal(config, word & ~(mask << position) | (value & mask) << position)
        position += width
    raise ValueError(name)


def passes(config: CoreConfig, program: Code) -> bool:
    """Whether the checker finds nothing; any error of it but its own is one of the test's."""
    try:
        check_program(config, program, WINDOW)
    except ProgramError:
        return False
    return True


def runs(config: CoreConfig, program: Code) -> bool:
    """Whether the functional simulator ends without a fault and with no token left."""
    core = FunctionalSimulator(config, WINDOW, check_races=False)
    core.dram[PROGRAM : PROGRAM + len(program)] = program
    result = core.run(PROGRAM, len(program) // config.instruction_bytes)
    return result.fault is None and not result.tokens_left


def faults(config: CoreConfig) -> list[tuple[str, str]]:
    """Each base with each field of the instruction that it is about."""
    return [
        (base, name)
        for base, program in bases(config).items()
        for name, _, _ in HEADER + instruction_fields(config, program[-1].opcode)
    ]


def field_of(config: CoreConfig, opcode: Opcode, name: str) -> Field:
    return next(field for field in HEADER + instruction_fields(config, opcode) if field[0] == name)


@pytest.mark.parametrize("core", CORES)
def test_every_kind_of_instruction_is_changed(core: str) -> None:
    config = CORES[core]
    programs = bases(config)
    assert {program[-1].opcode for program in programs.values()} == set(INSTRUCTION_TYPES)
    for base, program in programs.items():
        code = code_of(config, words(config, program))
        assert passes(config, code), base
        assert runs(config, code), base


@pytest.mark.parametrize(
    ("core", "base", "name"), [(c, b, n) for c, config in CORES.items() for b, n in faults(config)]
)
def test_the_checker_lets_pass_what_the_simulator_runs(core: str, base: str, name: str) -> None:
    config = CORES[core]
    program = bases(config)[base]
    code = words(config, program)
    place = 0 if isinstance(program[-1], Loop) else len(program) - 1
    for value in values(config, field_of(config, program[-1].opcode, name)):
        mutant = [*code[:place], changed(config, code[place], name, value), *code[place + 1 :]]
        binary = code_of(config, mutant)
        assert passes(config, binary) == runs(config, binary), f"{base}: {name} = {value}"


@given(st.data())
@settings(max_examples=100)
def test_so_does_it_with_several_fields_at_their_ends(data: st.DataObject) -> None:
    config = CORES[data.draw(st.sampled_from(sorted(CORES)), "core")]
    base = data.draw(st.sampled_from(sorted(bases(config))), "base")
    program = bases(config)[base]
    code = words(config, program)
    place = 0 if isinstance(program[-1], Loop) else len(program) - 1
    fields = instruction_fields(config, program[-1].opcode)
    for name, width, signed in data.draw(st.lists(st.sampled_from(fields), max_size=4)) if fields else []:
        value = data.draw(st.sampled_from(list(values(config, (name, width, signed)))), name)
        code[place] = changed(config, code[place], name, value)
        try:
            decode(config, code[place])
        except InstructionError:
            break  # further fields are looked up by the opcode of a legal word
    binary = code_of(config, code)
    assert passes(config, binary) == runs(config, binary)


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("extent", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["load", "store"])
def test_a_transfer_of_nothing_begins_in_its_memory_too(kind: str, extent: str, beyond: int) -> None:
    """The core looks at where a transfer ends before it looks at how much it is."""
    config = CORES["small"]  # whose indices reach further than its memories
    depth = config.out_depth if kind == "store" else config.inp_depth
    index = depth + beyond
    if kind == "store":
        empty: Load | Store = Store(index=index, offset=0, rows=1, columns=1, stride=1)
    else:
        empty = Load(scratchpad=Scratchpad.INP, index=index, offset=0, rows=1, columns=1, stride=1)
    binary = assemble(config, [replace(empty, **{extent: 0}), Finish()])
    assert passes(config, binary) == runs(config, binary) == (not beyond)


@pytest.mark.parametrize("op", [VectorOp.ADD, VectorOp.REQUANTISE])
@pytest.mark.parametrize("b", [-4, -1])
def test_a_negative_index_is_refused_by_its_number(op: VectorOp, b: int) -> None:
    code = assemble(TINY, [Vector(op=op, dst=0, a=0, b=b), Finish()])
    with pytest.raises(ProgramError, match=rf"instruction 0 .* reaches unit {b} of 'acc', which has 256"):
        check_program(TINY, code, WINDOW)


def test_a_negative_index_behind_a_load_is_no_error_of_numpys() -> None:
    load = Load(scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=1, columns=8)
    code = assemble(TINY, [load, Vector(op=VectorOp.REQUANTISE, dst=100, a=100, b=-1), Finish()])
    with pytest.raises(ProgramError, match="reaches unit -1 of 'acc'"):
        check_program(TINY, code, WINDOW)


def code_of(config: CoreConfig, program: list[int]) -> Code:
    raw = b"".join(word.to_bytes(config.instruction_bytes, "little") for word in program)
    return np.frombuffer(raw, np.uint8)
