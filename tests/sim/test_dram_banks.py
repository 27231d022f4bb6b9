"""A DRAM with banks: the RTL is the model to the cycle, and the commands keep the rules of the standards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import numpy.typing as npt
import pytest
from weft.hw.config import TINY
from weft.hw.programs import assemble
from weft.hw.system_config import SystemConfig
from weft.sim.dram import DramModel
from weft.sim.dram_interface import BURST, COMMAND, DramCommand
from weft.sim.dram_kinds import DRAM_KINDS, BankedDram, DramKind, parse_dram_kind
from weft.sim.dram_rules import MOST_POSTPONED, STANDARDS, broken_rules
from weft.sim.dram_stream import serve
from weft.sim.errors import SimulationError
from weft.sim.fuzz import MEMORY_BYTES, Case, random_case, seeded
from weft.sim.fuzz_system import NARROW, SystemCase, banked, compare_system, memory_bytes, random_system_case, timed
from weft.sim.rtl import RtlSimulator
from weft.sim.system_fsim import FunctionalSystem
from weft.sim.system_rtl import RtlSystem
from weft.sim.system_timing import predict_system
from weft.sim.timing import predict, predict_details

from benchmarks.systems import dram_peer

MIXED = SystemConfig(name="mixed", cores=(TINY, NARROW, TINY), ports=(0, 0, 1))
"""Two unlike cores behind an arbiter, and one with a port of its own."""

STALE = "sim/harness_memory.h and sim/timing_memory.h no longer ask sim/dram_banks.h in the same cycles"

BUS_BYTES = 8


def with_banks(case: Case, seed: int) -> Case:
    """The case on a DRAM of some kind, beside a core of some clock."""
    return replace(case, dram=banked(case.dram, seed))


def stream(seed: int, count: int = 400) -> npt.NDArray[np.void]:
    """Bursts near each other and far apart, in time and in place."""
    rng = np.random.default_rng(seed)
    bursts = np.zeros(count, BURST)
    gap = rng.choice([0, 1, 3, 40, 400], count, p=[0.5, 0.2, 0.2, 0.08, 0.02])
    bursts["cycle"] = np.cumsum(gap)
    spread = int(rng.choice([1 << 12, 1 << 16, 1 << 24]))
    bursts["address"] = rng.integers(0, spread // BUS_BYTES, count) * BUS_BYTES
    bursts["beats"] = rng.choice([1, 2, 8, 16, 32], count)
    bursts["write"] = rng.random(count) < rng.choice([0.0, 0.1, 0.5])
    return bursts


def crowded(kind: DramKind) -> npt.NDArray[np.void]:
    """Short bursts to many rows, and reads behind writes: every time of a kind is what something waits for."""
    rng = np.random.default_rng(3)
    parts = []
    for reads_in_ten in (10, 5, 0):
        for rows in (1, 2, 3, 8, 4096):
            part = np.zeros(300, BURST)
            bank = np.arange(300) % kind.banks if rows == 4096 else rng.integers(0, kind.banks, 300)
            line = rng.integers(0, rows, 300) * kind.banks + bank
            part["address"] = line * kind.row_bytes + rng.integers(0, 4, 300) * kind.access_bytes
            part["beats"] = 1
            part["write"] = rng.integers(0, 10, 300) >= reads_in_ten
            parts.append(part)
    bursts = np.concatenate(parts)
    bursts["cycle"] = np.cumsum(rng.choice([0, 0, 0, 1, 2, 3, 30], len(bursts)))
    return bursts


@pytest.fixture(scope="module")
def rtl() -> RtlSimulator:
    return RtlSimulator(TINY, MEMORY_BYTES)


def test_the_rtl_takes_the_cycles_of_the_model_on_all_kinds(rtl: RtlSimulator) -> None:
    kinds, refreshes, conflicts = set(), 0, 0
    for seed in range(60):
        case = with_banks(random_case(TINY, seeded(seed)), seed)
        code = assemble(TINY, case.instructions)
        start = case.window_start + case.program_offset
        rtl.dram[start : start + len(code)] = code
        rtl.set_dram(case.dram)
        got = rtl.run(case.program_offset, len(case.instructions), window_start=case.window_start)
        model = predict(TINY, code, case.dram, offset=case.program_offset, window_start=case.window_start)
        assert got.cycles == model.cycles, f"seed {seed}: {STALE}"
        assert got.counters == model.counters, f"seed {seed}"
        assert got.dram == model.dram, f"seed {seed}"
        assert got.dram is not None
        assert case.dram.banks is not None
        kinds.add(case.dram.banks.kind.name)
        refreshes += got.dram.refreshes
        conflicts += got.dram.conflicts
    assert kinds == set(DRAM_KINDS)
    assert min(refreshes, conflicts) > 2  # both do happen


def system_case(system: SystemConfig, seed: int) -> SystemCase:
    """The random case of a seed on a DRAM that all ports share."""
    case = random_system_case(system, seed)
    return replace(case, dram=banked(case.dram, seed))


def test_the_rtl_of_a_system_takes_the_cycles_of_the_model() -> None:
    size = memory_bytes(3)
    rtl, functional = RtlSystem(MIXED, size), FunctionalSystem(MIXED, size)
    for seed in range(40):
        assert not compare_system(system_case(MIXED, seed), functional, rtl), f"seed {seed}; {STALE}"


@pytest.mark.parametrize(
    "system",
    [
        SystemConfig(cores=(TINY,) * 4, ports=(0, 1, 2, 3)),
        SystemConfig(cores=(TINY,) * 4, ports=(0, 0, 1, 2)),
        SystemConfig(cores=(TINY,) * 3, ports=(0, 0, 1), shared_reads=True),
    ],
    ids=["own ports", "one shared port", "shared reads"],
)
def test_what_the_model_of_a_system_skips_does_not_matter(system: SystemConfig) -> None:
    slower = 0
    for seed in range(20):
        case = system_case(system, seed)
        programs = timed(case, case.starts)
        quick, slow = (
            predict_system(system, programs, case.dram, shared=case.shared, trace=True, every_cycle=every)
            for every in (False, True)
        )
        assert [core and core.cycles for core in quick.cores] == [core and core.cycles for core in slow.cores], seed
        assert quick.dram == slow.dram, f"seed {seed}"
        assert quick.dram is not None
        assert quick.dram.commands is not None
        assert case.dram.banks is not None
        assert not list(islice(broken_rules(case.dram.banks.kind.name, quick.dram.commands), 5)), f"seed {seed}"
        alone = [
            predict_system(system, [each if at == core else None for at, each in enumerate(programs)], case.dram)
            for core in range(len(programs))
        ]
        ends = [each.cores[core] for core, each in enumerate(alone)]
        for core, own in zip(quick.cores, ends, strict=True):
            assert core is not None
            assert own is not None
            slower += (core.cycles or 0) - (own.cycles or 0)
    assert slower > 0  # ports do slow each other down


def test_what_the_model_skips_does_not_matter() -> None:
    for seed in range(40):
        case = with_banks(random_case(TINY, seeded(seed)), seed)
        code = assemble(TINY, case.instructions)
        quick, slow = (
            predict_details(
                TINY, code, case.dram, offset=case.program_offset, window_start=case.window_start, trace=True,
                every_cycle=every,
            )
            for every in (False, True)
        )  # fmt: skip
        assert quick.result.cycles == slow.result.cycles, f"seed {seed}"
        assert quick.result.dram == slow.result.dram, f"seed {seed}"


def test_commands_of_programs_keep_the_rules() -> None:
    for seed in range(40):
        case = with_banks(random_case(TINY, seeded(seed)), seed)
        code = assemble(TINY, case.instructions)
        run = predict(TINY, code, case.dram, offset=case.program_offset, window_start=case.window_start, trace=True)
        assert case.dram.banks is not None
        assert run.dram is not None
        assert run.dram.commands is not None
        assert not list(islice(broken_rules(case.dram.banks.kind.name, run.dram.commands), 5)), f"seed {seed}"
        moved = np.isin(run.dram.commands["kind"], (DramCommand.READ, DramCommand.WRITE)).sum()
        assert moved == run.dram.accesses
        assert moved * case.dram.banks.kind.access_bytes >= run.bytes_read + run.bytes_written


@pytest.mark.parametrize("name", DRAM_KINDS)
def test_commands_of_streams_keep_the_rules(name: str) -> None:
    for mhz in (50, 100, 300):
        banks = BankedDram(DRAM_KINDS[name], mhz)
        for seed in range(12):
            _, use = serve(DramModel(banks=banks), stream(seed), BUS_BYTES)
            assert use.commands is not None
            assert not list(islice(broken_rules(name, use.commands), 5)), (mhz, seed)


def test_refreshes_do_not_drift() -> None:
    """However busy the DRAM is, the refresh of a time is not late because those before it were."""
    for kind in DRAM_KINDS.values():
        bursts = np.zeros(20_000, BURST)
        bursts["address"] = np.random.default_rng(1).integers(0, 1 << 20, len(bursts)) * BUS_BYTES
        bursts["beats"] = 16
        _, use = serve(DramModel(banks=BankedDram(kind)), bursts, BUS_BYTES)
        assert use.commands is not None
        ticks = use.commands["tick"][use.commands["kind"] == DramCommand.REFRESH].astype(np.int64)
        late = ticks - kind.REFI * np.arange(1, len(ticks) + 1)
        assert len(ticks) > 40
        assert late.min() >= 0
        assert late.max() < 200


@pytest.mark.parametrize("name", DRAM_KINDS)
def test_each_burst_gets_the_accesses_that_it_asks_for(name: str) -> None:
    """Bank, row and column of each command, worked out here from the address; in order."""
    kind, bursts = DRAM_KINDS[name], stream(5)
    _, use = serve(DramModel(banks=BankedDram(kind)), bursts, BUS_BYTES)
    assert use.commands is not None
    columns = use.commands[np.isin(use.commands["kind"], (DramCommand.READ, DramCommand.WRITE))]
    got = [(int(c["kind"]), int(c["bank"]), int(c["row"]), int(c["column"])) for c in columns]
    wanted = []
    for burst in bursts:
        first, size = int(burst["address"]), int(burst["beats"]) * BUS_BYTES
        for access in range(first // kind.access_bytes, (first + size - 1) // kind.access_bytes + 1):
            line, column = divmod(access, kind.row_bytes // kind.access_bytes)
            row, bank = divmod(line, kind.banks)
            wanted.append((DramCommand.WRITE if burst["write"] else DramCommand.READ, bank, row, column))
    assert got == wanted


def test_answers_come_after_their_data_and_a_lone_read_takes_the_latency() -> None:
    for name in DRAM_KINDS:
        dram = DramModel(latency=100, banks=parse_dram_kind(name))
        lone = np.zeros(1, BURST)
        lone["cycle"], lone["beats"], lone["address"] = 17, 1, 4096
        due, _ = serve(dram, lone, BUS_BYTES)
        assert due[0] == 17 + 100
        for seed in range(6):
            bursts = stream(seed)
            due, _ = serve(dram, bursts, BUS_BYTES)
            for write in (0, 1):
                own = due[bursts["write"] == write]
                assert np.all(np.diff(own) >= 0)  # in order: nothing is due before what came first
            assert np.all(due > bursts["cycle"].astype(np.int64))


@pytest.mark.parametrize("name", DRAM_KINDS)
def test_counts_are_those_of_the_commands(name: str) -> None:
    _, use = serve(DramModel(banks=parse_dram_kind(name)), stream(4), BUS_BYTES)
    assert use.commands is not None
    kinds = use.commands["kind"]
    count = {kind: int(np.sum(kinds == kind)) for kind in DramCommand}
    columns = kinds[(kinds == DramCommand.READ) | (kinds == DramCommand.WRITE)]
    assert use.conflicts == count[DramCommand.PRECHARGE] > 0
    assert use.activations == count[DramCommand.ACTIVATE]
    assert use.hits == len(columns) - use.activations
    assert use.refreshes == count[DramCommand.REFRESH]
    assert use.turns == int(np.sum(np.diff(columns.astype(np.int64)) != 0)) + int(columns[0] == DramCommand.WRITE)


@pytest.mark.parametrize("name", DRAM_KINDS)
def test_a_bank_is_opened_at_most_128_clocks_ahead(name: str) -> None:
    kind = DRAM_KINDS[name]
    bursts = np.zeros(2, BURST)  # both asked for at once: a whole row, then a word of the second bank behind it
    bursts["beats"] = kind.row_bytes // BUS_BYTES, 1
    bursts["address"] = 0, 2 * kind.row_bytes
    _, use = serve(DramModel(banks=BankedDram(kind)), bursts, BUS_BYTES)
    assert use.commands is not None
    ticks, kinds = use.commands["tick"].astype(np.int64), use.commands["kind"]
    opened = ticks[kinds == DramCommand.ACTIVATE][1]
    before = ticks[kinds == DramCommand.READ][-2]
    assert before - 128 <= opened < before


@pytest.mark.parametrize("write", [0, 1])
@pytest.mark.parametrize("name", DRAM_KINDS)
def test_the_words_of_a_burst_come_with_their_accesses(name: str, write: int) -> None:
    """A read begins when all its words can follow in a cycle each; a write is answered when its last word is stored."""
    banks = parse_dram_kind(name)
    dram, kind = DramModel(latency=100, banks=banks), banks.kind
    burst = np.zeros(1, BURST)
    burst["cycle"], burst["beats"], burst["address"], burst["write"] = 17, 32, kind.row_bytes - 40, write
    due, use = serve(dram, burst, BUS_BYTES)
    assert use.commands is not None
    moves = use.commands[np.isin(use.commands["kind"], [DramCommand.READ, DramCommand.WRITE])]
    first, waits = int(burst["address"][0]), []
    for number, tick in enumerate(sorted(int(each) for each in moves["tick"])):
        over = -int(-(tick + (kind.CWL if write else kind.CL) + kind.access_ticks) // banks.ticks_per_cycle)
        beat = max(0, (first // kind.access_bytes + number) * kind.access_bytes - first) // BUS_BYTES
        waits.append(over - (0 if write else beat))
    assert len(waits) > 2
    assert due[0] == 17 + max(waits) + dram.latency - banks.lone_cycles


SHORTER = (
    "CWL", "RCD", "RP", "RPA", "RAS", "RFC", "RRD_S", "RRD_L", "CCD_S", "CCD_L", "WTR_S", "WTR_L", "FAW", "WR", "RTP",
    "RTW", "PPD", "activate_slots", "column_slots", "precharge_slots",
)  # fmt: skip
"""Times that are seen on the command bus."""


def shorter(kind: DramKind, time: str) -> DramKind:
    """With a clock less; in one group the longer of two times counts, so both are."""
    names = {time} if kind.groups > 1 else {time, time.replace("_L", "_S")}
    return replace(kind, **{name: getattr(kind, name) - 1 for name in names})


def faults() -> Iterator[tuple[str, str]]:
    for name, kind in DRAM_KINDS.items():
        for time in SHORTER:
            alone = kind.groups > 1 or not time.endswith("_S")
            idle = time == "FAW" and kind.FAW <= 4 * kind.RRD_S  # four activations take longer anyway
            if alone and not idle and getattr(kind, time) > 1:
                yield name, time


@pytest.mark.parametrize(("name", "time"), list(faults()))
def test_a_time_that_is_one_clock_too_short_is_found(name: str, time: str) -> None:
    kind = DRAM_KINDS[name]
    bursts = crowded(kind)
    for tried, wrong in ((kind, False), (shorter(kind, time), True)):
        _, use = serve(DramModel(banks=BankedDram(tried)), bursts, BUS_BYTES)
        assert use.commands is not None
        assert any(broken_rules(name, use.commands)) == wrong


def test_refreshes_that_are_late_are_found() -> None:
    kind = DRAM_KINDS["ddr3-1066x16"]
    bursts = np.zeros(200, BURST)
    bursts["cycle"], bursts["beats"] = np.arange(200) * 400, 1
    for factor, wrong in ((1, False), (1.2, True)):
        own = replace(kind, REFI=int(kind.REFI * factor))
        _, use = serve(DramModel(banks=BankedDram(own)), bursts, BUS_BYTES)
        assert use.commands is not None
        assert any("were due" in each for each in broken_rules(kind.name, use.commands)) == wrong


def commands(*given: tuple[int, DramCommand, int, int]) -> npt.NDArray[np.void]:
    """Records of tick, kind, bank, row."""
    made = np.zeros(len(given), COMMAND)
    for name, values in zip(("tick", "kind", "bank", "row"), zip(*given, strict=True), strict=True):
        made[name] = values
    return made


ACT, READ, WRITE, PRE = DramCommand.ACTIVATE, DramCommand.READ, DramCommand.WRITE, DramCommand.PRECHARGE


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([(0, ACT, 0, 5), (7, READ, 0, 5)], ""),
        ([(0, ACT, 0, 5), (6, READ, 0, 5)], "tRCD is 7"),
        ([(0, ACT, 0, 5), (7, READ, 0, 6)], "row 6 is wanted, 5 is open"),
        ([(7, READ, 0, 6)], "row 6 is wanted, None is open"),
        ([(0, ACT, 0, 5), (30, ACT, 0, 6)], "the bank is open"),
        ([(0, ACT, 0, 5), (20, PRE, 0, 0), (27, ACT, 0, 6)], ""),
        ([(0, ACT, 0, 5), (19, PRE, 0, 0), (27, ACT, 0, 6)], "tRAS is 20"),
        ([(0, ACT, 0, 5), (21, PRE, 0, 0), (27, ACT, 0, 6)], "tRP is 7"),
        ([(0, ACT, 0, 5), (30, DramCommand.REFRESH, 0, 0)], "a bank is open"),
        ([(0, ACT, 0, 5), (0, ACT, 1, 5)], "the command bus is in use"),
        ([(6 * bank, ACT, bank, 5) for bank in range(5)], "tFAW is 27"),
        ([(0, ACT, 0, 5), (7, WRITE, 0, 5), (20, READ, 0, 5)], "tWTR is 14"),
        ([(0, ACT, 0, 5), (7, READ, 0, 5), (13, WRITE, 0, 5)], "read to write is 7"),
        ([(0, ACT, 0, 5), (7, WRITE, 0, 5), (24, PRE, 0, 5)], "tWR is 18"),
        ([(4160 * (MOST_POSTPONED + 1), ACT, 0, 5)], "0 refreshes, 9 were due"),
        ([(1000 * number, DramCommand.REFRESH, 0, 0) for number in range(12)], "11 refreshes, 2 were due"),
    ],
)  # fmt: skip
def test_the_checker_knows_each_rule(given: list[tuple[int, DramCommand, int, int]], problem: str) -> None:
    found = list(broken_rules("ddr3-1066x16", commands(*given)))
    assert any(problem in each for each in found) if problem else not found, found


def test_kinds_say_where_their_numbers_are_from() -> None:
    assert set(STANDARDS) == set(DRAM_KINDS)
    for name, kind in DRAM_KINDS.items():
        assert kind.name == name
        assert "JESD" in kind.source
        assert float(STANDARDS[name].clock_ns) == pytest.approx(1000 / float(kind.clock_mhz))


def test_addresses_decide_nothing_without_banks() -> None:
    case = random_case(TINY, seeded(1))
    code = assemble(TINY, case.instructions)
    dram = replace(case.dram, jitter=0, reorder=False)
    one, two = (predict(TINY, code, dram, offset=case.program_offset, window_start=at) for at in (0, 12288))
    assert one == two
    assert one.dram is None


@pytest.mark.parametrize("text", ["ddr9", "ddr3-1066", "", "ddr3-1066x16@", "ddr3-1066x16@0", "ddr3-1066x16@1e2"])
def test_unknown_memories_are_told(text: str) -> None:
    with pytest.raises(SimulationError) as told:
        parse_dram_kind(text)
    assert "ddr3-1066x16" in str(told.value) + str(told.value.hint)


def test_memories_are_read_by_name() -> None:
    assert parse_dram_kind("DDR4-2400x64@200") == BankedDram(DRAM_KINDS["ddr4-2400x64"], 200)
    assert parse_dram_kind("ddr3-1066x16").core_mhz == 100


def test_a_latency_that_the_banks_alone_exceed_is_told() -> None:
    with pytest.raises(SimulationError, match="latency is 3, but a read of a closed bank of ddr3-1066x16"):
        DramModel(latency=3, banks=parse_dram_kind("ddr3-1066x16"))


def test_streams_have_banks_and_an_order() -> None:
    with pytest.raises(SimulationError, match="no banks"):
        serve(DramModel(), stream(0), BUS_BYTES)
    with pytest.raises(SimulationError, match="order of time"):
        serve(DramModel(banks=parse_dram_kind("ddr3-1066x16")), stream(0)[::-1], BUS_BYTES)


def test_accesses_are_at_the_bytes_that_were_asked_for() -> None:
    for kind in (DRAM_KINDS["ddr3-1066x32"], DRAM_KINDS["ddr4-2400x64"]):
        bursts = stream(3)
        _, use = serve(DramModel(banks=BankedDram(kind)), bursts, BUS_BYTES)
        assert use.commands is not None
        moves = use.commands[np.isin(use.commands["kind"], [DramCommand.READ, DramCommand.WRITE])]
        wanted = []
        for burst in bursts:
            first, size = int(burst["address"]), int(burst["beats"]) * BUS_BYTES
            step = kind.access_bytes
            wanted += range(first // step * step, first + size, step)
        assert sorted(dram_peer.addresses_of(kind, moves).tolist()) == sorted(wanted)


def test_a_peer_is_told_all_times_and_is_asked_for_by_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = dram_peer.config_text(DRAM_KINDS["ddr4-2400x64"])
    for line in ("protocol = DDR4", "bankgroups = 2", "banks_per_group = 4", "bus_width = 64", "tREFI = 9360",
                 "tRFC = 420", "tCCD_L = 6", "channel_size = 4096"):  # fmt: skip
        assert f"{line}\n" in text
    monkeypatch.setattr("sys.argv", ["dram_peer.py"])
    assert dram_peer.main() == 2
    assert "nothing was compared" in capsys.readouterr().err
