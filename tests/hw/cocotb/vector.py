"""The vector engine: every operation with every flag, operands that have just been written, bad indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from weft.hw.config import LOOP_LEVELS, CoreConfig
from weft.hw.isa import (
    VECTOR_TARGET_BITS,
    Engine,
    Fault,
    Finish,
    Instruction,
    Loop,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    vector_targets,
)
from weft.hw.memories import Memory
from weft.testbench.bench import Bench, core_test
from weft.testbench.memory import Timing

ADD = Vector(op=VectorOp.ADD, dst=0, a=0, b=1)


def flags(config: CoreConfig, op: VectorOp) -> Iterator[dict[str, int]]:
    """Every legal combination of an operation's flags."""
    for zero, target, b_immediate in product((0, 1), vector_targets(config, op), (0, 1)):
        takes_table = not op.accumulates and target is not VectorTarget.TAB
        for table in range(config.tables + 1 if takes_table else 1):
            if not (op is VectorOp.REQUANTISE and b_immediate):
                yield {"zero": zero, "target": target, "b_immediate": b_immediate, "table": table}


def loops(bench: Bench, most: int = 3) -> list[Instruction]:
    """All levels set at random."""
    draw = bench.random.randrange
    return [
        Loop(
            engine=Engine.VECTOR,
            level=level,
            extent=draw(most) + 1,
            dst_stride=draw(3),
            a_stride=draw(3),
            b_stride=draw(3),
        )
        for level in range(LOOP_LEVELS)
    ]


def operands(bench: Bench) -> dict[str, int]:
    """Random immediates and limits."""
    draw = bench.random.randint
    limits = {name: draw(-256, 255) for name in ("zero_point", "low", "high")}
    return {"left_shift": draw(0, 31), **limits}


@core_test()
async def every_operation_with_every_flag_and_level(bench: Bench) -> None:
    """Operands are random, some of them small enough to be shift amounts."""
    for op in VectorOp:
        bench.memory.set_timing(Timing.random(bench.random))
        acc = bench.read_scratchpad(Memory.ACC)
        acc[: len(acc) // 2] = np.random.default_rng(bench.random.getrandbits(32)).integers(-40, 41, acc[::2].shape)
        bench.write_scratchpad(Memory.ACC, acc)
        program = loops(bench)
        for levels, choice in product(range(LOOP_LEVELS + 1), flags(bench.config, op)):
            b = bench.random.randint(-40, 40) if choice["b_immediate"] else bench.random.randrange(8)
            program.append(
                Vector(op=op, levels=levels, dst=levels, a=bench.random.randrange(9), b=b, **choice, **operands(bench))
            )
        await bench.check([*program, Finish()])


@core_test()
async def reads_what_it_has_just_written(bench: Bench) -> None:
    """Each operand is the result of 1 to 16 operations before: fetch must wait for it to be written."""
    for op, operand in ((VectorOp.ADD, "a_stride"), (VectorOp.SUB, "b_stride"), (VectorOp.MAC, "dst_stride")):
        program: list[Instruction] = []
        for distance in (1, 2, 3, 4, 5, 15, 16, 17):
            loop = Loop(engine=Engine.VECTOR, level=0, extent=20, dst_stride=1, a_stride=1, b_stride=1)
            program += [
                loop if operand != "dst_stride" else replace(loop, extent=distance),
                Loop(engine=Engine.VECTOR, level=1, extent=2, a_stride=3),
                Vector(op=op, levels=2, dst=distance, a=0 if operand == "a_stride" else 100, b=0),
            ]
        await bench.check([*program, Finish()])


@core_test()
async def reaches_both_ends_of_its_scratchpads(bench: Bench) -> None:
    acc, out = bench.config.acc_depth - 1, bench.config.out_depth - 1
    program = [
        replace(ADD, dst=acc, a=acc, b=0),
        replace(ADD, dst=0, a=0, b=acc),
        replace(ADD, target=VectorTarget.OUT, dst=0, a=acc),
        replace(ADD, target=VectorTarget.OUT, dst=out, a=0),
        Vector(op=VectorOp.REQUANTISE, dst=1, a=acc, b=acc - 2, low=-128, high=127),
    ]
    if bench.config.inp_takes_results:
        to_inp = replace(ADD, target=VectorTarget.INP)
        program += [to_inp, replace(to_inp, dst=bench.config.inp_depth - 1)]
    if bench.config.tables:
        to_tab = replace(ADD, target=VectorTarget.TAB)
        program += [to_tab, replace(to_tab, dst=bench.config.tab_depth - 1)]
        program += [replace(ADD, dst=2, table=1), replace(ADD, dst=3, table=bench.config.tables)]
    await bench.check([*program, Finish()])


@core_test()
async def stops_exactly_at_a_bad_index(bench: Bench) -> None:
    """Operations before the bad one count, that one and all after it do not."""
    config = bench.config
    loop = Loop(engine=Engine.VECTOR, level=0, extent=4, dst_stride=1, a_stride=1, b_stride=1)
    requantise = Vector(op=VectorOp.REQUANTISE, levels=1, dst=3, a=9, b=0, low=-9, high=9)
    for bad in (
        replace(ADD, levels=1, dst=config.acc_depth - 3),
        replace(ADD, levels=1, a=config.acc_depth - 1),
        replace(ADD, levels=1, b=config.acc_depth),
        replace(ADD, levels=1, b=-1),
        replace(ADD, levels=1, target=VectorTarget.OUT, dst=config.out_depth - 2),
        *(
            replace(ADD, levels=1, target=VectorTarget.INP, dst=config.inp_depth - 2)
            for _ in range(config.inp_takes_results)
        ),
        *(replace(ADD, levels=1, target=VectorTarget.TAB, dst=config.tab_depth - 2) for _ in range(config.tables)),
        replace(requantise, b=config.acc_depth - 4),
    ):
        fault = await bench.check_fault([loop, ADD, bad, ADD, Finish()], precise=True)
        assert (fault.cause, fault.engine, fault.number) == (Fault.INDEX, Engine.VECTOR, 2)
    unused = Vector(op=VectorOp.SUM, dst=0, a=1, b=-1)
    await bench.check([unused, replace(ADD, b_immediate=1, b=-1), Finish()])


BAD_TABLES = (
    replace(ADD, target=VectorTarget.TAB, table=1),
    *(Vector(op=op, dst=0, a=0, table=1) for op in VectorOp if op.accumulates),
)


@core_test()
async def looks_up_what_it_has_just_written(bench: Bench) -> None:
    """An entry of a table is written 1 to 5 operations before a result is looked up there, and then another value."""
    if not bench.config.tables:
        return
    immediate = Vector(op=VectorOp.ADD, b_immediate=1, dst=0, a=0)
    program: list[Instruction] = [replace(immediate, op=VectorOp.MUL, b=0, dst=1), replace(immediate, dst=1, a=1, b=3)]
    for between in range(5):
        others = [replace(immediate, dst=20 + number, b=number) for number in range(between)]
        look = replace(immediate, dst=8 + between, a=1, table=1, target=VectorTarget.OUT)
        for a in (2, 3):
            fill = replace(immediate, target=VectorTarget.TAB, dst=3, a=a)
            program += [fill, *others, look, replace(look, target=VectorTarget.ACC, dst=8 * a + between)]
    await bench.check([*program, Finish()])


@core_test()
async def refuses_operations_without_a_meaning(bench: Bench) -> None:
    targets = range(1 << VECTOR_TARGET_BITS)
    refused = ((op, target) for op in VectorOp for target in targets if target not in vector_targets(bench.config, op))
    for bad in (
        *(Vector(op=op, target=target, dst=0, a=0) for op, target in refused),  # type: ignore[arg-type]
        Vector(op=VectorOp.REQUANTISE, b_immediate=1, dst=0, a=0),
        Vector(op=7, dst=0, a=0),  # type: ignore[arg-type]
        Vector(op=15, dst=0, a=0),  # type: ignore[arg-type]
        *(bad_table for bad_table in BAD_TABLES if bench.config.tables),
        replace(ADD, levels=7),
        Loop(engine=Engine.VECTOR, level=7, extent=1),
        Loop(engine=Engine.VECTOR, level=0, extent=0),
    ):
        fault = await bench.check_fault([Sync(engine=Engine.VECTOR), ADD, bad, Finish()], precise=True)
        assert (fault.cause, fault.engine, fault.number) == (Fault.ILLEGAL, Engine.VECTOR, 2)
