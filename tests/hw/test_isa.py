"""Encoding, decoding, assembly text and the RTL layout are four views of one declaration."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.hw import columns, isa, programs
from weft.hw.assembly import format_instruction, parse_instruction
from weft.hw.columns import instructions_of
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.hw.decode import decode
from weft.hw.errors import InstructionError
from weft.hw.instruction_checksum import check_bits, seal_words, sealed
from weft.hw.isa import Engine, Opcode, Scratchpad, VectorOp
from weft.hw.load_counts import bytes_each, entries_of
from weft.hw.memories import SCRATCHPADS, Memory
from weft.hw.weight_form import FOUR_BITS

PAGE = Path(__file__).parents[2] / "docs" / "isa.md"

FLOAT32 = replace(PYNQ, name="float32", rounding="float32")

CONFIGS = [
    TINY,
    PYNQ,
    WIDE,
    replace(PYNQ, inp_depth=65536),
    replace(PYNQ, batch=2, block_in=8, bus_bits=512, depthwise=0),
    replace(PYNQ, tables=2),
    replace(TINY, tables=16),
    replace(TINY, tables=16, rounding="float32"),
    FLOAT32,
]


@st.composite
def instructions(draw: st.DrawFn, config: CoreConfig) -> isa.Instruction:
    opcode = draw(st.sampled_from(list(Opcode)))
    engine = draw(st.sampled_from(isa.LEGAL_ENGINES[opcode]))
    values: dict[str, Any] = {"engine": engine}
    for name, width, signed in isa.instruction_fields(config, opcode):
        values[name] = draw(
            st.integers(-(1 << width - 1), (1 << width - 1) - 1) if signed else st.integers(0, (1 << width) - 1)
        )
    for name in ("wait", "send"):
        values[name] = 0 if opcode is Opcode.FINISH else draw(st.integers(0, 31)) & ~(1 << engine)
    match opcode:
        case Opcode.LOOP:
            values["level"] %= isa.LOOP_LEVELS
            values["extent"] = max(1, values["extent"])
        case Opcode.LOAD:
            values["scratchpad"] = draw(st.sampled_from(isa.LEGAL_SCRATCHPADS[engine]))
        case Opcode.GEMM:
            values["levels"] %= isa.LOOP_LEVELS + 1
            if values.get("depthwise"):
                values["row_pitch"] |= 1
        case Opcode.VECTOR:
            values["levels"] %= isa.LOOP_LEVELS + 1
            values["op"] = draw(st.sampled_from(list(VectorOp)))
            values["target"] = draw(st.sampled_from(isa.vector_targets(config, values["op"])))
            values["b_immediate"] &= values["op"] is not VectorOp.REQUANTISE
            takes_table = not values["op"].accumulates and values["target"] is not isa.VectorTarget.TAB
            if "table" in values:
                values["table"] = values["table"] % (config.tables + 1) if takes_table else 0
    return isa.INSTRUCTION_TYPES[opcode](**values)


configs_and_instructions = st.sampled_from(CONFIGS).flatmap(
    lambda config: st.tuples(st.just(config), instructions(config))
)


@given(configs_and_instructions)
def test_an_encoded_instruction_decodes_to_itself(case: tuple[CoreConfig, isa.Instruction]) -> None:
    config, instruction = case
    word = isa.encode(config, instruction)
    assert word < 1 << config.instruction_bits
    assert decode(config, word) == instruction


@given(configs_and_instructions)
def test_assembly_text_reads_back(case: tuple[CoreConfig, isa.Instruction]) -> None:
    _, instruction = case
    assert parse_instruction(format_instruction(instruction)) == instruction


@given(configs_and_instructions)
def test_the_layout_of_the_rtl_shows_the_same_fields(case: tuple[CoreConfig, isa.Instruction]) -> None:
    config, instruction = case
    layout = isa.instruction_layout(config, instruction.opcode)
    assert layout.size == config.instruction_bits
    view = layout.const(None)
    word = isa.encode(config, instruction)
    view = layout.from_bits(word)
    for name, _, _ in isa.HEADER + isa.instruction_fields(config, instruction.opcode):
        assert int(view[name]) == int(getattr(instruction, name)), name


@given(st.sampled_from(CONFIGS).flatmap(lambda config: st.tuples(st.just(config), st.lists(instructions(config)))))
def test_a_program_is_its_instructions_one_by_one(case: tuple[CoreConfig, list[isa.Instruction]]) -> None:
    config, program = case
    words = [isa.encode(config, each).to_bytes(config.instruction_bytes, "little") for each in program]
    assert programs.assemble(config, program).tobytes() == b"".join(words)


@given(
    st.sampled_from(CONFIGS).flatmap(lambda config: st.tuples(st.just(config), st.lists(instructions(config)))),
    st.data(),
)
def test_tokens_of_a_program_are_those_of_its_instructions(
    case: tuple[CoreConfig, list[isa.Instruction]], data: st.DataObject
) -> None:
    config, program = case
    masks = st.integers(0, (1 << len(Engine)) - 1)
    tokens = [(0, 0) if isinstance(each, isa.Finish) else data.draw(st.tuples(masks, masks)) for each in program]
    own = [replace(each, wait=wait, send=send) for each, (wait, send) in zip(program, tokens, strict=True)]
    masks_of = np.array(tokens, np.int64).reshape(-1, 2).T
    kinds = columns.in_columns(config, program)
    if kinds is None:
        return
    kinds = {opcode: columns.Columns(each.numbers, {**each.fields, "wait": masks_of[0, each.numbers],
                                                    "send": masks_of[1, each.numbers]})
             for opcode, each in kinds.items()}  # fmt: skip
    told = []
    for make in (lambda: programs.assemble_columns(config, kinds), lambda: programs.assemble(config, own)):
        try:
            told.append(make().tobytes())
        except InstructionError as error:
            told.append(str(error).encode())
    assert told[0] == told[1]


@given(st.sampled_from(CONFIGS).flatmap(lambda config: st.tuples(st.just(config), st.lists(instructions(config)))))
def test_columns_are_the_fields_of_all_instructions(case: tuple[CoreConfig, list[isa.Instruction]]) -> None:
    config, program = case
    columns = programs.columns_of(config, programs.assemble(config, program))
    assert sorted(number for each in columns.values() for number in each.numbers.tolist()) == list(range(len(program)))
    for opcode, each in columns.items():
        for place, number in enumerate(each.numbers.tolist()):
            assert program[number].opcode is opcode
            fields = {name: column[place] for name, column in each.fields.items()}
            assert fields == {name: getattr(program[number], name) for name in fields}
    assert instructions_of(columns) == program


@given(st.sampled_from(CONFIGS), st.integers(min_value=0), st.booleans())
def test_columns_are_refused_as_words_are(config: CoreConfig, number: int, sound: bool) -> None:
    word = number % (1 << config.instruction_bits)
    word = isa.seal(config, word) if sound else word
    code = np.frombuffer(word.to_bytes(config.instruction_bytes, "little"), np.uint8)
    told = []
    for read in (programs.disassemble, programs.columns_of):
        try:
            read(config, code)
            told.append("")
        except InstructionError as error:
            told.append(str(error))
    assert told[0] == told[1]


@given(configs_and_instructions, st.data())
def test_free_fields_make_nothing_illegal(case: tuple[CoreConfig, isa.Instruction], data: st.DataObject) -> None:
    config, instruction = case
    for name, width, signed in isa.instruction_fields(config, instruction.opcode):
        if name in isa.FREE_FIELDS:
            low = -(1 << width - 1) if signed else 0
            changed = replace(instruction, **{name: data.draw(st.integers(low, low + (1 << width) - 1))})
            assert not isa.body_problem(config, changed)


@pytest.mark.parametrize("change", [{"index": 1 << 40}, {"index": 1 << 70}, {"index": -1}, {"pad_top": 1 << 20}])
def test_a_value_that_does_not_fit_is_named_among_many(change: dict[str, int]) -> None:
    load = isa.Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=1)
    with pytest.raises(InstructionError, match=f"Load: {next(iter(change))} is "):
        programs.assemble(TINY, [load, replace(load, **change)])


@given(st.sampled_from((4, 8, 16, 32)), st.lists(st.integers(min_value=0), min_size=1))
def test_many_words_are_sealed_as_one(size: int, numbers: list[int]) -> None:
    """Also of sizes whose check bits begin inside of a byte."""
    free = 8 * size - check_bits(8 * size)
    numbers = [number & (1 << free) - 1 for number in numbers]
    raw = b"".join(number.to_bytes(size, "little") for number in numbers)
    words = seal_words(np.frombuffer(raw, np.uint8).reshape(-1, size))
    assert words.tobytes() == b"".join(sealed(number, 8 * size).to_bytes(size, "little") for number in numbers)


@given(st.sampled_from(CONFIGS), st.integers(min_value=0))
def test_any_word_decodes_or_is_refused(config: CoreConfig, number: int) -> None:
    word = isa.seal(config, number)
    try:
        instruction = decode(config, word)
    except InstructionError:
        return
    assert isa.encode(config, instruction) == word


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (isa.Gemm(dst=2048, src=0, wgt=0), r"Gemm: dst is 2048, but must be in 0\.\.2047"),
        (isa.Gemm(dst=0, src=0, wgt=0, levels=7), "Gemm: 7 loop levels, but there are 6"),
        (
            isa.Gemm(dst=0, src=0, wgt=0, depthwise=1, row_pitch=6),
            "Gemm: row_pitch is 6, but must be odd: rows in the same bank of inp cannot be read at once",
        ),
        (isa.Gemm(dst=0, src=0, wgt=0, wait=4), "Gemm: wait names the instruction's own engine 'gemm'"),
        (isa.Loop(engine=Engine.LOAD, level=0, extent=1), "Loop: LOOP cannot run on engine 'load'"),
        (isa.Loop(engine=Engine.GEMM, level=6, extent=1), "Loop: loop level 6 does not exist; there are 6"),
        (isa.Loop(engine=Engine.GEMM, level=0, extent=0), "Loop: loop extent is 0"),
        (
            isa.Load(scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=1),
            "engine 'load' cannot write scratchpad WGT",
        ),
        (
            isa.Vector(op=VectorOp.MAC, dst=0, a=0, target=isa.VectorTarget.OUT),
            "MAC accumulates and cannot write to out",
        ),
        (isa.Vector(op=VectorOp.REQUANTISE, dst=0, a=0, b_immediate=1), "REQUANTISE takes its parameters from acc"),
        (
            isa.Vector(op=VectorOp.MAX_ACCUMULATE, dst=0, a=0, target=isa.VectorTarget.INP),
            "MAX_ACCUMULATE accumulates and cannot write to inp",
        ),
        (
            isa.Vector(op=VectorOp.SHR, dst=0, a=0, target=isa.VectorTarget.TAB),
            "Vector: results cannot go to tab: the core has no tables",
        ),
        (isa.Finish(wait=1), "FINISH takes no tokens, but wait is 0x1"),
    ],
)
def test_an_illegal_instruction_is_refused_by_name(instruction: isa.Instruction, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        isa.encode(PYNQ, instruction)


RECORDS = isa.Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=3, offset=66, rows=2, columns=3, stride=9,
                   pad_value=FOUR_BITS)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pad_value": 3}, r"pad_value is 3, but weights have 0 \(of 8 bits\) or 4 \(of 4 bits\)"),
        ({"pad_value": -4}, "pad_value is -4, but weights have 0"),
        ({"pad_bottom": 1}, "weights of 4 bits take no padding"),
    ],
)
def test_loads_of_4_bit_weights_have_one_form(change: dict[str, int], message: str) -> None:
    core = replace(PYNQ, weight_group=64)
    assert decode(core, isa.encode(core, RECORDS)) == RECORDS
    assert (entries_of(core, RECORDS), bytes_each(core, RECORDS)) == (2 * 3 * 4, 528)
    assert (entries_of(PYNQ, RECORDS), bytes_each(PYNQ, RECORDS)) == (6, 256)  # there pad_value is what padding has
    wrong = replace(RECORDS, **change)  # type: ignore[arg-type]
    with pytest.raises(InstructionError, match=message):
        isa.encode(core, wrong)
    with pytest.raises(InstructionError, match=message):
        decode(core, isa.encode_unchecked(core, wrong))
    assert decode(PYNQ, isa.encode(PYNQ, wrong)) == wrong
    others = replace(wrong, scratchpad=Scratchpad.ACC)
    assert decode(core, isa.encode(core, others)) == others


def test_a_core_without_the_depthwise_mode_has_none_of_its_fields() -> None:
    gemm = isa.Gemm(dst=3, src=4, wgt=5, zero=1, depthwise=1, row_pitch=7, column_pitch=1)
    with pytest.raises(InstructionError, match="core 'tiny' has no depthwise mode; hint: a configuration with"):
        isa.encode(TINY, gemm)
    plain = replace(gemm, depthwise=0, row_pitch=0, column_pitch=0)
    without = replace(PYNQ, depthwise=0)
    assert isa.encode(PYNQ, plain) == isa.encode(without, plain)  # programs of before are what they were
    with pytest.raises(InstructionError, match="GEMM: reserved bits are set"):
        decode(without, isa.encode(PYNQ, gemm))


def test_a_depthwise_gemm_reads_nine_entries() -> None:
    gemm = isa.Gemm(dst=0, src=0, wgt=0, depthwise=1, row_pitch=15, column_pitch=2)
    assert gemm.src_offsets == (0, 2, 4, 15, 17, 19, 30, 32, 34)
    assert replace(gemm, depthwise=0).src_offsets == (0,)


WITH_TABLES = replace(PYNQ, name="tables", tables=4)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (isa.Vector(op=VectorOp.ADD, dst=0, a=0, table=5), r"Vector: table 5 does not exist; the tables are 1\.\.4"),
        (isa.Vector(op=VectorOp.ADD, dst=0, a=0, table=8), r"Vector: table 8 does not exist; the tables are 1\.\.4"),
        (isa.Vector(op=VectorOp.SUM, dst=0, a=0, table=1), "SUM accumulates: its results pass through no table"),
        (isa.Vector(op=VectorOp.ADD, dst=0, a=0, table=1, target=isa.VectorTarget.TAB), "go to tab pass through no"),
        (isa.Vector(op=VectorOp.MAC, dst=0, a=0, target=isa.VectorTarget.TAB), "MAC accumulates and cannot write to t"),
    ],
)
def test_an_illegal_use_of_tables_is_refused_by_name(instruction: isa.Instruction, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        isa.encode(WITH_TABLES, instruction)


def test_a_core_without_tables_has_no_field_for_them() -> None:
    vector = isa.Vector(op=VectorOp.REQUANTISE, dst=3, a=4, b=5, left_shift=31, target=isa.VectorTarget.OUT, table=3)
    with pytest.raises(InstructionError, match="Vector: core 'pynq' has no tables; hint: a configuration with table"):
        isa.encode(PYNQ, vector)
    plain = replace(vector, table=0)
    assert isa.encode(WITH_TABLES, plain) == isa.encode(PYNQ, plain)  # programs of before are what they were
    with pytest.raises(InstructionError, match="VECTOR: reserved bits are set"):
        decode(PYNQ, isa.encode(WITH_TABLES, vector))


def test_a_core_that_does_not_round_in_float32_has_no_field_for_it() -> None:
    vector = isa.Vector(op=VectorOp.REQUANTISE, dst=3, a=4, b=5, left_shift=31, rounding=1)
    with pytest.raises(
        InstructionError,
        match="'pynq' rounds half up alone; hint",
    ):
        isa.encode(PYNQ, vector)
    plain = replace(vector, rounding=0)
    assert isa.encode(FLOAT32, plain) == isa.encode(PYNQ, plain)  # programs of before are what they were
    with pytest.raises(InstructionError, match="VECTOR: reserved bits are set"):
        decode(PYNQ, isa.encode(FLOAT32, vector))


def test_a_vector_instruction_may_read_all_of_its_table() -> None:
    vector = isa.Vector(op=VectorOp.ADD, dst=0, a=0, table=3)
    assert vector.table_entries == range(512, 768)
    assert not replace(vector, table=0).table_entries


@pytest.mark.parametrize("depth", [16, 2048, 65536])
def test_every_number_of_tables_leaves_the_instructions_their_size(depth: int) -> None:
    """VECTOR, with its fields for table and rounding, is never what makes instructions longer than they are."""
    for block, tables in product((2, 16, 128), (1, 2, 4, 8, 16)):
        core = CoreConfig(
            block_in=block,
            block_out=2,
            inp_depth=depth,
            wgt_depth=16,
            acc_depth=16,
            out_depth=16,
            tables=tables,
            rounding="float32",
        )
        assert core.index_bits >= (core.tab_depth - 1).bit_length()
        assert isa.instruction_layout(core, Opcode.VECTOR).size == core.instruction_bits


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0, "no instruction has opcode 0"),
        (Opcode.FINISH | 1 << 119, "FINISH: reserved bits are set"),
        (Opcode.SYNC | 7 << 3, "SYNC: engine is 7, which does not exist"),
        (Opcode.VECTOR | Engine.VECTOR << 3 | 3 << 24, "VECTOR: results cannot go to tab: the core has no tables"),
    ],
)
def test_a_word_that_means_nothing_is_refused(word: int, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        decode(PYNQ, isa.seal(PYNQ, word))


@given(configs_and_instructions, st.data())
def test_one_two_or_three_flipped_bits_are_seen(case: tuple[CoreConfig, isa.Instruction], data: st.DataObject) -> None:
    config, instruction = case
    flipped = data.draw(st.sets(st.integers(0, config.instruction_bits - 1), min_size=1, max_size=3))
    word = isa.encode(config, instruction) ^ sum(1 << bit for bit in flipped)
    with pytest.raises(InstructionError, match="the instruction is damaged: its check bits do not fit"):
        decode(config, word)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemn dst=0", "no instruction is called 'gemn'; hint: one of: finish, gemm"),
        ("gemm gemm dst=0 source=1", "gemm has no field 'source=1'"),
        ("vector vector op=divide dst=0 a=0", "unknown vectorop 'divide'"),
        ("gemm gemm dst=zero src=0 wgt=0", "gemm: dst is 'zero', which is not a number"),
        ("gemm gemm dst=0", "missing 2 required keyword-only arguments: 'src' and 'wgt'"),
    ],
)
def test_assembly_errors_show_the_word(text: str, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        parse_instruction(text)


@pytest.mark.parametrize(("config", "legal"), [(PYNQ, True), (replace(PYNQ, block_in=8, depthwise=0), False)])
@pytest.mark.parametrize("op", VectorOp)
def test_results_go_to_inp_where_its_entries_are_those_of_results(
    config: CoreConfig, legal: bool, op: VectorOp
) -> None:
    instruction = isa.Vector(op=op, dst=0, a=0, target=isa.VectorTarget.INP)
    word = isa.encode_unchecked(config, instruction)
    if legal and not op.accumulates:
        assert decode(config, isa.encode(config, instruction)) == instruction == decode(config, word)
        return
    message = "accumulates and cannot write to inp" if op.accumulates else "have 8 channels, those of results 16"
    with pytest.raises(InstructionError, match=message):
        isa.encode(config, instruction)
    with pytest.raises(InstructionError, match=message):
        decode(config, word)


def test_disassembly_names_the_instruction_that_is_broken() -> None:
    program = programs.assemble(PYNQ, [isa.Sync(engine=Engine.GEMM), isa.Finish()])
    program[16:] = 0
    with pytest.raises(InstructionError, match="instruction 1: no instruction has opcode 0"):
        programs.disassemble(PYNQ, program)


def test_docs_name_the_users_of_every_scratchpad() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): (row[3].strip(), row[4].strip()) for row in rows if len(row) == 6}
    for memory in (*SCRATCHPADS, Memory.TAB):
        users = isa.MEMORY_USERS[memory]
        readers = sorted({*users.readers, *([Engine.GEMM] if memory is Memory.ACC else [])})
        names = (", ".join(isa.ENGINE_NAMES[engine] for engine in engines) for engines in (users.writers, readers))
        assert documented[memory] == tuple(names)
