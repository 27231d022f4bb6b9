"""The doctor's programs are legal on every core, reach every engine, and say what they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from weft.boards.doctor_core import register_masks
from weft.boards.doctor_findings import describe_difference, exchanges, stuck_bits
from weft.boards.doctor_programs import LOST, Trial, copies, engine_trials, of_program, single_instructions, streams
from weft.hw.bus import PAGE_BYTES
from weft.hw.config import PYNQ, TINY, WIDE, CoreConfig
from weft.hw.isa import Engine, Fault, Finish, Load, Opcode, Store, Vector, VectorOp, VectorTarget
from weft.hw.programs import assemble, disassemble
from weft.hw.registers import Kind, Register
from weft.sim.dma import transfer_of
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz_configs import campaign_config
from weft.sim.rtl import RtlSimulator

CORES = [
    TINY,
    PYNQ,
    WIDE,
    replace(PYNQ, address_bits=40, burst_beats=16),
    *(campaign_config(each) for each in range(8)),
]


def trials(config: CoreConfig) -> list[Trial]:
    return [copies(config), *engine_trials(config), *(each.trial for each in streams(config))]


@pytest.mark.parametrize("config", CORES, ids=lambda config: config.name)
def test_trials_are_legal_on_every_core(config: CoreConfig) -> None:
    for trial in trials(config):
        simulator = FunctionalSimulator(config, trial.window.size, check_races=trial.count < 60)
        simulator.dram[:] = trial.window
        result = simulator.run(0, trial.count)
        assert result.fault is None, trial.name
        assert not any((result.tokens_left or {}).values())
    assert {each.expected[0] for each in single_instructions(config)} == {single_instructions(config)[0].expected[0]}


def test_the_rtl_leaves_what_is_expected() -> None:
    for trial in [*trials(TINY), of_program("empty", TINY, []), *single_instructions(TINY)]:
        simulator = RtlSimulator(TINY, trial.window.size)
        simulator.dram[:] = trial.window
        assert simulator.run(0, trial.count).fault == trial.expected[0]
        np.testing.assert_array_equal(simulator.dram, trial.expected[1])


def test_a_program_that_waits_for_ever_ends_by_the_watchdog() -> None:
    trial = of_program("lost", TINY, [LOST, Finish()])
    fault = trial.expected[0]
    assert fault is not None
    assert (fault.cause, fault.engine) == (Fault.WATCHDOG, Engine.LOAD)


def test_tables_are_tried_where_a_core_has_them() -> None:
    core = replace(TINY, tables=2)
    plain, with_tables = ({each.name: each for each in engine_trials(config)} for config in (TINY, core))
    assert with_tables["vector"].expected[0] is None
    vectors = [each for each in disassemble(core, with_tables["vector"].code) if isinstance(each, Vector)]
    assert {each.table for each in vectors} == {0, 1, 2}
    assert with_tables["gemm"].code.tobytes() == plain["gemm"].code.tobytes()


@pytest.mark.parametrize("rounding", ["float32", "half_away", "half_even"])
def test_halves_are_tried_where_a_core_rounds_some_of_them_down(rounding: str) -> None:
    core = replace(TINY, rounding=rounding)
    (trial,) = (each for each in engine_trials(core) if each.name == "vector")
    assert trial.expected[0] is None
    tried = [each for each in disassemble(core, trial.code) if isinstance(each, Vector) and each.rounding]
    assert [each.op for each in tried] == [VectorOp.REQUANTISE]
    otherwise = [replace(each, rounding=0) if isinstance(each, Vector) else each
                 for each in disassemble(core, trial.code)]  # fmt: skip
    simulator = FunctionalSimulator(core, trial.window.size)
    simulator.dram[:] = trial.window
    simulator.dram[: len(trial.code)] = assemble(core, otherwise)
    simulator.run(0, trial.count)
    assert (simulator.dram[len(trial.code) :] != trial.expected[1][len(trial.code) :]).sum() > 4


def test_every_engine_and_every_byte_lane_is_tried() -> None:
    for trial in engine_trials(TINY):
        used = {each.engine for each in disassemble(TINY, trial.code) if each.opcode is not Opcode.FINISH}
        assert Engine[trial.name.upper()] in used
        assert (trial.expected[1] != trial.window).any()
    (products,) = (trial for trial in engine_trials(TINY) if trial.name == "gemm")
    vectors = [each for each in disassemble(TINY, products.code) if isinstance(each, Vector)]
    assert VectorTarget.INP in {each.target for each in vectors}
    changed = np.flatnonzero(copies(TINY).expected[1] != copies(TINY).window)
    assert set(changed % TINY.bus_bytes) == set(range(TINY.bus_bytes))
    moved = [each for each in disassemble(TINY, copies(TINY).code) if isinstance(each, (Load, Store))]
    for kind in (Load, Store):
        transfers = [transfer_of(TINY, each) for each in moved if isinstance(each, kind)]
        for edge in (TINY.bus_bytes, TINY.burst_beats * TINY.bus_bytes, PAGE_BYTES):
            crossing = [each for each in transfers if each.start // edge != (each.start + each.row_bytes - 1) // edge]
            assert any(each.start % edge and (edge < PAGE_BYTES or each.start // edge) for each in crossing), (
                kind,
                edge,
            )
        assert {each.start % TINY.bus_bytes for each in transfers} == set(range(0, TINY.bus_bytes, TINY.granule_bytes))


def test_streams_have_bursts_of_their_length() -> None:
    for stream in streams(TINY):
        simulator = RtlSimulator(TINY, stream.trial.window.size)
        simulator.dram[:] = stream.trial.window
        result = simulator.run(0, stream.trial.count)
        moved = result.bytes_written if stream.writes else result.bytes_read - stream.trial.code.size
        assert stream.bytes <= moved <= stream.bytes + 64
    assert {each.words for each in streams(TINY)} == {1, 2, 4, 8, 16, 32, 64}


def test_the_bits_of_settings_are_those_of_the_rtl() -> None:
    simulator = RtlSimulator(TINY, 4096)
    for register, mask in register_masks(TINY).items():
        for value in (0, 0xFFFF_FFFF):
            simulator.write_register(register, value)
            assert simulator.read_register(register) == value & mask, register
    assert register_masks(replace(TINY, address_bits=40))[Register.WINDOW_BASE_HI] == 0xFF
    assert set(register_masks(TINY)) == {each for each in Register if each.kind is Kind.SETTING}


# Findings


def window(seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, 256, np.uint8)


def test_no_difference_is_no_finding() -> None:
    assert describe_difference(window(0), window(1), window(1), 8) == ""


def test_differences_have_their_reasons() -> None:
    before, expected = window(0), window(0)
    expected[64:192] = window(1)[64:192]
    swap = expected.reshape(-1, 8)[:, [4, 1, 2, 3, 0, 5, 6, 7]].reshape(-1)
    swapped = np.where(expected != before, swap, before)
    stuck = expected.copy()
    stuck[64:192].reshape(-1, 8)[:, 3] &= 0xFE
    beside = expected.copy()
    beside[200] ^= 1
    odd = expected.copy()
    odd[100] ^= 0x81
    for found, text in (
        (before, "nothing that the core wrote is there"),
        (swapped, "byte 0 of a bus word comes from byte 4, byte 4 of a bus word comes from byte 0"),
        (stuck, "bit 0 of byte 3 of a bus word is always 0"),
        (beside, "bytes beside those that the core should write have changed"),
        (odd, f"1 bytes differ; the first is byte 0x64 of the window: {odd[100]:#04x}, not {expected[100]:#04x}"),
    ):
        assert text in describe_difference(before, expected, found, 8)


def test_every_exchange_is_another_one() -> None:
    for bus_bytes in (8, 16, 64):
        found = exchanges(bus_bytes)
        assert all(sorted(lanes) == list(range(bus_bytes)) for lanes in found.values())
        assert (np.arange(bus_bytes) != np.array(list(found.values()))).any(axis=1).all()


def test_a_stuck_bit_is_found_by_what_arrives() -> None:
    sent = [each.code for each in single_instructions(TINY)]
    for bit, value in ((20, 1), (47, 0), (47, 1), (63, 0)):
        wired = [np.unpackbits(code.reshape(-1, 8), axis=1, bitorder="little")[:, bit] for code in sent]
        arrivals = [(code, bool((bits == value).all())) for code, bits in zip(sent, wired, strict=True)]
        assert stuck_bits(arrivals, 8) == [(bit // 8, bit % 8, value)]
    assert stuck_bits([(code, False) for code in sent], 8) == []
    assert stuck_bits([(code, True) for code in sent], 8) == []
