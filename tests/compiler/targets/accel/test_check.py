"""The checker refuses every kind of broken program, and names the instructions at fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.check import Range, check_program
from weft.compiler.targets.errors import ProgramError
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Sync,
    Vector,
    VectorOp,
    VectorTarget,
    engine_mask,
)
from weft.hw.programs import assemble, disassemble

from .kernels import compile_function, program_of
from .test_kernels import Case

WINDOW = 1024


def check(*program: Instruction, window: int = WINDOW, constants: tuple[Range, ...] = ()) -> None:
    check_program(TINY, assemble(TINY, [*program, Finish()]), window, constants)


def load(**fields: int) -> Load:
    return Load(**{"scratchpad": Scratchpad.INP, "index": 0, "offset": 0, "rows": 1, "columns": 1, **fields})  # type: ignore[arg-type]


def test_a_race_names_both_instructions_and_the_unit() -> None:
    with pytest.raises(
        ProgramError,
        match=r"race: instruction 1 \(gemm gemm dst=0 src=3 wgt=0\) reads unit 3 of 'inp' and "
        r"instruction 0 \(load load .*\) writes it, with no tokens between them",
    ):
        check(load(columns=4), Gemm(dst=0, src=3, wgt=0))


@pytest.mark.parametrize("other", [Gemm(dst=9, src=3, wgt=0), load(index=1, columns=3)])
@pytest.mark.parametrize("first", [False, True])
def test_results_in_inp_need_tokens(other: Instruction, first: bool) -> None:
    result = Vector(op=VectorOp.ADD, target=VectorTarget.INP, dst=3, a=0)
    program = [other, result] if first else [result, other]
    with pytest.raises(ProgramError, match=r"race: .* unit 3 of 'inp' and .* with no tokens between them"):
        check(*program)
    sender, receiver = program
    check(replace(sender, send=engine_mask([receiver.engine])), replace(receiver, wait=engine_mask([sender.engine])))


def test_a_race_of_any_tap_of_a_depthwise_product_is_found() -> None:
    taps = {6 + 5 * row + 2 * column for row in range(3) for column in range(3)}
    gemm = Gemm(dst=0, src=6, wgt=0, depthwise=1, row_pitch=5, column_pitch=2)
    for entry in range(24):
        code = assemble(PYNQ, [load(index=entry), gemm, Finish()])
        if entry in taps:
            with pytest.raises(
                ProgramError, match=f"gemm dst=0 src=6 .* reads unit {entry} of 'inp' and instruction 0"
            ):
                check_program(PYNQ, code, WINDOW)
        else:
            check_program(PYNQ, code, WINDOW)


def test_tables_are_in_their_memory_and_of_one_engine() -> None:
    """A table is written and used by one engine, so in order without tokens."""
    core = replace(TINY, tables=2)
    fill = Vector(op=VectorOp.ADD, b_immediate=1, levels=1, target=VectorTarget.TAB, dst=256, a=0)
    loop = Loop(engine=Engine.VECTOR, level=0, extent=256, dst_stride=1)
    use = Vector(op=VectorOp.ADD, b_immediate=1, target=VectorTarget.OUT, dst=0, a=0, table=2)
    check_program(core, assemble(core, [loop, fill, use, Finish()]), WINDOW)
    beyond = replace(fill, dst=257)
    with pytest.raises(ProgramError, match=r"instruction 1 .* reaches unit 512 of 'tab', which has 512"):
        check_program(core, assemble(core, [loop, beyond, use, Finish()]), WINDOW)
    with pytest.raises(ProgramError, match="instruction 1: VECTOR: results cannot go to tab: the core has no tables"):
        check_program(TINY, assemble(core, [loop, fill, Finish()]), WINDOW)


def test_the_last_tap_of_a_depthwise_product_has_to_be_in_its_memory() -> None:
    gemm = Gemm(dst=0, src=PYNQ.inp_depth - 19, wgt=0, depthwise=1, row_pitch=7, column_pitch=2)
    check_program(PYNQ, assemble(PYNQ, [gemm, Finish()]), WINDOW)
    with pytest.raises(ProgramError, match=f"reaches unit {PYNQ.inp_depth + 3} of 'inp'"):
        check_program(PYNQ, assemble(PYNQ, [replace(gemm, row_pitch=9), Finish()]), WINDOW)


def test_a_race_in_dram_is_found() -> None:
    with pytest.raises(ProgramError, match=r"0 \(store .* writes unit 8 of 'dram' and instruction 1 \(load"):
        check(Store(index=0, offset=4, rows=1, columns=5), load(offset=8))


def test_reading_what_others_read_is_no_race() -> None:
    check(load(), Load(engine=Engine.LOADW, scratchpad=Scratchpad.ACC8, index=0, offset=0, rows=1, columns=1))


def test_a_chain_of_tokens_through_a_third_engine_orders() -> None:
    store, vector, gemm = Engine.STORE, Engine.VECTOR, Engine.GEMM
    check(
        load(send=engine_mask([vector])),
        Sync(engine=vector, wait=engine_mask([Engine.LOAD]), send=engine_mask([store])),
        Sync(engine=store, wait=engine_mask([vector]), send=engine_mask([gemm])),
        Gemm(dst=0, src=0, wgt=0, wait=engine_mask([store])),
    )


def test_a_deadlock_names_the_blocked_instructions() -> None:
    load_mask, gemm_mask = engine_mask([Engine.LOAD]), engine_mask([Engine.GEMM])
    with pytest.raises(
        ProgramError,
        match=r"deadlock: instruction 0 \(load .*\) waits for gemm; instruction 1 \(gemm .*\) waits for load",
    ):
        check(load(wait=gemm_mask, send=gemm_mask), Gemm(dst=0, src=0, wgt=0, wait=load_mask, send=load_mask))


def test_a_full_queue_that_blocks_fetch_is_a_deadlock() -> None:
    waiting = [Gemm(dst=0, src=0, wgt=0, wait=engine_mask([Engine.LOAD]))] * (TINY.queue_depth + 1)
    with pytest.raises(ProgramError, match="deadlock: instruction 0"):
        check(*waiting, *[load(send=engine_mask([Engine.GEMM]))] * len(waiting))


def test_more_tokens_than_a_counter_holds_is_a_deadlock() -> None:
    sends = [load(send=engine_mask([Engine.GEMM]))] * (TINY.token_depth + 1)
    with pytest.raises(ProgramError, match=r"deadlock: instruction 15 .* cannot send to gemm: 15 tokens are there"):
        check(*sends)


def test_a_token_left_over_is_refused() -> None:
    with pytest.raises(ProgramError, match="1 tokens from 'load' to 'gemm' are left at FINISH"):
        check(load(send=engine_mask([Engine.GEMM])))


@pytest.mark.parametrize(
    ("instruction", "text"),
    [
        (load(index=510, columns=3), r"instruction 0 .* reaches unit 512 of 'inp', which has 512"),
        (Store(index=127, offset=0, rows=2, columns=1), r"reaches unit 128 of 'out', which has 128"),
        (Vector(op=VectorOp.ADD, target=VectorTarget.OUT, dst=200, a=0), r"reaches unit 200 of 'out'"),
        (Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b=254), r"reaches unit 256 of 'acc', which has 256"),
        (load(offset=250, columns=7), r"ends at granule 257, but the window has 256"),
        (load(offset=240, rows=3, columns=1, stride=8), r"ends at granule 257"),
    ],
)
def test_an_access_out_of_its_memory_is_refused(instruction: Instruction, text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        check(instruction)


def test_matrices_smaller_than_addresses_count_are_in_the_window_and_in_order() -> None:
    """On a core of many rows a matrix of weights is half a granule: loads of them were taken to touch nothing."""
    config = replace(TINY, batch=8, block_in=4, block_out=4)
    window = 16 * config.granule_bytes
    loaded = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=10, rows=3, columns=1, stride=5)
    check_program(config, assemble(config, [loaded, Finish()]), window)
    with pytest.raises(ProgramError, match="ends at granule 17, but the window has 16"):
        check_program(config, assemble(config, [replace(loaded, stride=6), Finish()]), window)
    store = Store(index=0, offset=15, rows=1, columns=1)
    with pytest.raises(ProgramError, match="writes unit 15 of 'dram'"):
        check_program(config, assemble(config, [loaded, store, Finish()]), window)


def test_loop_levels_count_towards_the_reach() -> None:
    loop = Loop(engine=Engine.GEMM, level=0, extent=10, dst_stride=30)
    with pytest.raises(ProgramError, match=r"reaches unit 270 of 'acc'"):
        check(loop, Gemm(dst=0, src=0, wgt=0, levels=1))
    loop = Loop(engine=Engine.VECTOR, level=0, extent=30, dst_stride=1)
    with pytest.raises(ProgramError, match=r"reaches unit 519 of 'inp'"):
        check(loop, Vector(op=VectorOp.ADD, target=VectorTarget.INP, dst=490, a=0, levels=1))


def test_writing_constants_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"instruction 0 \(store .*\) writes to constants"):
        check(Store(index=0, offset=20, rows=1, columns=4), constants=(Range(88, 120),))


def test_a_program_without_finish_is_refused() -> None:
    with pytest.raises(ProgramError, match="the program of 1 instructions has no FINISH"):
        check_program(TINY, assemble(TINY, [load()]), WINDOW)


def test_a_damaged_instruction_is_refused_by_number() -> None:
    program = assemble(TINY, [load(), Finish()])
    program[0] = 0
    with pytest.raises(ProgramError, match="instruction 0: the instruction is damaged: its check bits do not fit"):
        check_program(TINY, program, WINDOW)


MODEL = compile_function(Case("residual", TINY, channels=12, filters=12, size=(12, 12)).function(), TINY)
CODE = program_of(MODEL).program
PROGRAM = disassemble(TINY, CODE)
TOKENS = [(number, field, engine) for number, item in enumerate(PROGRAM) for field in ("wait", "send")
          for engine in Engine if getattr(item, field) >> engine & 1]  # fmt: skip


def test_the_unchanged_program_passes() -> None:
    check_program(TINY, CODE, MODEL.core.window_bytes)


@given(st.sampled_from(TOKENS))
@settings(max_examples=40)
def test_a_program_without_one_wait_or_send_is_refused(place: tuple[int, str, Engine]) -> None:
    number, field, engine = place
    mutant = list(PROGRAM)
    mutant[number] = replace(mutant[number], **{field: getattr(mutant[number], field) & ~(1 << engine)})
    with pytest.raises(ProgramError):
        check_program(TINY, assemble(TINY, mutant), MODEL.core.window_bytes)


@given(st.integers(0, len(PROGRAM) - 2), st.sampled_from(["wait", "send"]), st.sampled_from(list(Engine)))
@settings(max_examples=40)
def test_a_program_with_one_more_wait_or_send_is_refused(number: int, field: str, engine: Engine) -> None:
    item = PROGRAM[number]
    if engine == item.engine or getattr(item, field) >> engine & 1:
        return
    mutant = list(PROGRAM)
    mutant[number] = replace(item, **{field: getattr(item, field) | 1 << engine})
    with pytest.raises(ProgramError):
        check_program(TINY, assemble(TINY, mutant), MODEL.core.window_bytes)
