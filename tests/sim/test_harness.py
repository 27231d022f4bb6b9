"""``sim/harness.cpp`` around a scripted core: each of its checks fires, and its memory keeps its promises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pytest
from weft.hw.bus import PAGE_BYTES, ReadClient, Response
from weft.sim.dram import BusErrors, BusFault, DramModel
from weft.sim.errors import SimulationError

from .scripted import (
    ANSWER,
    BASE_ADDRESS,
    MEMORY_BYTES,
    WORD,
    Row,
    ScriptedSimulator,
    address,
    answer,
    read_beats,
    together,
    word,
)

BEATS = 64
"""Of the scripted core's longest bursts."""

LAST = PAGE_BYTES - BEATS * WORD
"""Where such a burst ends with its page."""

QUICK = DramModel(latency=2)
ONE = DramModel(latency=50, outstanding=1)
"""A memory that takes one burst at a time: a second one has to wait."""


@pytest.fixture(scope="module")
def shared() -> ScriptedSimulator:
    return ScriptedSimulator()


@pytest.fixture
def core(shared: ScriptedSimulator) -> ScriptedSimulator:
    shared.set_dram(QUICK)
    shared.dram[:] = np.random.default_rng(0).integers(0, 256, MEMORY_BYTES, np.uint8)
    return shared


def words_of(core: ScriptedSimulator, offset: int, count: int) -> list[int]:
    """Content of the memory."""
    return [int(each) for each in core.dram[offset : offset + count * WORD].view(np.uint64)]


# The rules of the bus


@dataclass(frozen=True)
class Wrong:
    """Traffic that breaks one rule, and what is said of it."""

    message: str
    rows: Sequence[Any]
    dram: DramModel = QUICK


def bursts() -> list[Wrong]:
    """Bursts that AXI, or weft, does not have."""
    wrong = []
    for channel in ("ar", "aw"):
        name = channel.upper()
        wrong += [
            Wrong(f"{name}SIZE is not the width of the bus", [address(channel, 0, size=2)]),
            Wrong(f"{name}SIZE is not the width of the bus", [address(channel, 0, size=4)]),
            Wrong(f"{name}BURST is not INCR", [address(channel, 0, burst=0)]),
            Wrong(f"{name}BURST is not INCR", [address(channel, 0, burst=2)]),
            Wrong(f"{name} burst of 65 of at most 64 beats", [address(channel, 0, 65)]),
            Wrong(f"{name}ADDR is not aligned to the bus", [address(channel, WORD // 2)]),
            Wrong(f"{name}ADDR is not aligned to the bus", [address(channel, 1)]),
            Wrong(f"{name} burst crosses a 4 KiB page", [address(channel, PAGE_BYTES - WORD, 2)]),
            Wrong(f"{name} burst crosses a 4 KiB page", [address(channel, PAGE_BYTES - 16 * WORD, 17)]),
        ]
    return wrong


def changes(first: Any, others: Sequence[Any], channel: str, before: Sequence[Any] = ()) -> list[Wrong]:
    """A payload that waits, and then is another or none."""
    wrong = [Wrong(f"{channel} payload changed before READY", [*before, first, other], ONE) for other in others]
    return [*wrong, Wrong(f"{channel}VALID fell before READY", [*before, first, Row()], ONE)]


def waiting(channel: str, **other: int) -> Any:
    return address(channel, **{"offset": 64, "beats": 2, "id": 1, "waits": False, **other})


WRONG = [
    *bursts(),
    *changes(
        waiting("ar"), [waiting("ar", offset=128), waiting("ar", beats=3), waiting("ar", id=2)], "AR",
        before=[address("ar", 0)],
    ),
    *changes(
        waiting("aw"), [waiting("aw", offset=128), waiting("aw", beats=3), waiting("aw", id=2)], "AW",
        before=[address("aw", 0)],
    ),
    *changes(
        word(5, last=0, waits=False),
        [
            word(6, last=0, waits=False), word(5 | 1 << 63, last=0, waits=False), word(5, last=1, waits=False),
            word(5, last=0, strobe=0x7F, waits=False),
        ],
        "W",
    ),
    Wrong("WLAST does not mark the last beat of its burst", [address("aw", 0, 2), word(1, last=1)]),
    Wrong("WLAST does not mark the last beat of its burst", [address("aw", 0, 2), word(1, last=0), word(2, last=0)]),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.message)
def test_each_rule_of_the_bus_is_watched(core: ScriptedSimulator, wrong: Wrong) -> None:
    core.set_dram(wrong.dram)
    with pytest.raises(SimulationError) as caught:
        core.play(wrong.rows)
    assert str(caught.value) == f"the core broke the bus protocol: {wrong.message}"


def test_every_check_of_the_harness_has_its_traffic() -> None:
    source = resources.files("weft.sim").joinpath("harness_memory.h").read_text()
    texts = re.findall(r'\bfail\([^;]*?"([^"]+)"\)', source)
    calls = len(re.findall(r"\bfail\((?!const)", source))
    assert len(texts) == calls > 5
    assert [text for text in texts if not any(wrong.message.endswith(text) for wrong in WRONG)] == []


def test_the_first_broken_rule_is_told(core: ScriptedSimulator) -> None:
    with pytest.raises(SimulationError, match="ARBURST is not INCR"):
        core.play([address("ar", 0, burst=0), address("aw", 4)])


def test_traffic_that_keeps_all_rules_passes(core: ScriptedSimulator) -> None:
    """Also at their limits: the longest bursts, up to the end of a page, and payloads that wait for long."""
    core.set_dram(ONE)
    held = together(address("ar", PAGE_BYTES - WORD, id=1), Row(rready=1))
    reads = [address("ar", LAST, BEATS), held, *read_beats(1)]
    first = word(7, last=0, waits=False)
    writes = [
        first,
        first,
        together(address("aw", LAST, BEATS), first),
        *(word(7, last=int(at == BEATS - 1)) for at in range(BEATS)),
        answer(),
    ]
    assert [beat.last for beat in core.play(reads)] == [0] * (BEATS - 1) + [1, 1]
    assert [beat.last for beat in core.play(writes)] == [ANSWER]
    assert words_of(core, LAST, BEATS) == [7] * BEATS


# The memory


def test_words_come_from_their_addresses_in_order(core: ScriptedSimulator) -> None:
    expected = words_of(core, 256, 4)
    beats = core.play([address("ar", 256, 4, id=2), *read_beats(4)])
    assert [beat.data for beat in beats] == expected
    assert [(beat.id, beat.response, beat.last) for beat in beats] == [(2, Response.OKAY, at == 3) for at in range(4)]


def test_only_strobed_bytes_are_written_and_not_before_the_answer(core: ScriptedSimulator) -> None:
    before = core.dram.copy()
    rows = [address("aw", 64, 2), word(2**64 - 1, last=0, strobe=0b101), word(2**64 - 1, last=1, strobe=0b10)]
    core.set_dram(DramModel(latency=4000))
    core.play(rows)
    np.testing.assert_array_equal(core.dram, before)
    core.set_dram(QUICK)
    core.play([*rows, answer()])
    for written in (64, 66, 64 + WORD + 1):
        before[written] = 255
    np.testing.assert_array_equal(core.dram, before)


@pytest.mark.parametrize("latency", [1, 7, 60])
def test_the_first_beat_comes_after_the_latency(core: ScriptedSimulator, latency: int) -> None:
    core.set_dram(DramModel(latency=latency))
    beats = core.play([address("ar", 0, 3), *read_beats(3)])
    assert [beat.cycle for beat in beats] == [latency + at for at in range(3)]
    beats = core.play([address("aw", 0), word(1, last=1), answer()])
    assert [beat.cycle for beat in beats] == [1 + latency]


@pytest.mark.parametrize(("bytes_per_cycle", "apart"), [(1, 8), (4, 2), (8, 1), (16, 1)])
def test_beats_share_the_bandwidth(core: ScriptedSimulator, bytes_per_cycle: int, apart: int) -> None:
    core.set_dram(DramModel(latency=20, bytes_per_cycle=bytes_per_cycle))
    beats = core.play([address("ar", 0, 8), *read_beats(8)])
    assert beats[-1].cycle - beats[0].cycle == 7 * apart
    script = [address("aw", 0, 8), *(word(1, last=int(at == 7)) for at in range(8)), answer()]
    beats = core.play(script)
    assert abs(beats[0].cycle - (20 + 8 * apart)) <= apart


def test_writes_get_their_turn_between_reads(core: ScriptedSimulator) -> None:
    """Half of the bandwidth each, while both want it."""
    core.set_dram(DramModel(latency=10, bytes_per_cycle=4))
    rows = [address("ar", 0, 64), address("aw", 1024, 32)]
    rows += [together(word(1, last=int(at == 31)), Row(rready=1)) for at in range(32)]
    beats = core.play([*rows, answer()])
    reads = [beat for beat in beats if beat.last != ANSWER]
    assert 26 <= len(reads) <= 34


def test_bursts_of_one_id_stay_in_order_and_the_oldest_goes_first(core: ScriptedSimulator) -> None:
    asked = [(1, 0), (0, 64), (1, 128), (2, 192)]
    core.set_dram(DramModel(latency=20))
    beats = core.play([*(address("ar", offset, 2, id=number) for number, offset in asked), *read_beats(8)])
    assert [beat.id for beat in beats] == [1, 1, 0, 0, 1, 1, 2, 2]
    assert [beat.data for beat in beats] == [each for _, offset in asked for each in words_of(core, offset, 2)]


def test_reordered_bursts_mix_but_each_id_keeps_its_order(core: ScriptedSimulator) -> None:
    asked = [(number % 3, 64 * number) for number in range(9)]
    orders = set()
    for seed in range(5):
        core.set_dram(DramModel(latency=20, reorder=True, seed=seed))
        beats = core.play([*(address("ar", offset, 4, id=number) for number, offset in asked), *read_beats(36)])
        for number in range(3):
            expected = [each for of, offset in asked if of == number for each in words_of(core, offset, 4)]
            assert [beat.data for beat in beats if beat.id == number] == expected
        orders.add(tuple(beat.id for beat in beats))
    assert len(orders) > 1
    assert any(order != tuple(sorted(order)) for order in orders)


def test_no_more_bursts_are_taken_than_may_be_under_way(core: ScriptedSimulator) -> None:
    core.set_dram(DramModel(latency=100, outstanding=3))
    beats = core.play([*(address("ar", 0) for _ in range(4)), *read_beats(3)])
    assert len(beats) == 3, "the fourth address is taken when the first answer is on its way"
    assert beats[0].cycle > 100
    writes = [row for _ in range(4) for row in (address("aw", 0), word(1, last=1))]
    with pytest.raises(SimulationError, match="has not finished after 500 cycles"):
        core.play(writes, cycle_limit=500)


def test_jitter_delays_and_stalls_and_is_the_same_for_the_same_seed(core: ScriptedSimulator) -> None:
    def cycles(seed: int) -> tuple[int, ...]:
        core.set_dram(DramModel(latency=10, jitter=30, seed=seed))
        return tuple(beat.cycle for beat in core.play([address("ar", 0, 16), *read_beats(16)]))

    runs = [cycles(seed) for seed in range(8)]
    assert cycles(3) == runs[3]
    assert len(set(runs)) == len(runs)
    assert all(10 <= run[0] <= 60 for run in runs)
    assert all(run[-1] - run[0] > 15 for run in runs)


# Errors and faults

SLVERR, DECERR, OKAY = Response.SLVERR, Response.DECERR, Response.OKAY


def test_a_range_with_errors_answers_whoever_touches_it(core: ScriptedSimulator) -> None:
    def responses(errors: BusErrors) -> list[int]:
        core.set_dram(DramModel(latency=2, errors=errors))
        write = [address("aw", 64, 2), word(0, last=0), word(0, last=1), answer()]
        return [beat.response for beat in core.play([address("ar", 64, 3), *read_beats(3), *write])]

    inside = 64 + WORD + 3
    assert responses(BusErrors(inside, inside + 1)) == [OKAY, SLVERR, OKAY, SLVERR]
    assert responses(BusErrors(inside, inside + 1, reads=False)) == [OKAY, OKAY, OKAY, SLVERR]
    assert responses(BusErrors(inside, inside + 1, writes=False)) == [OKAY, SLVERR, OKAY, OKAY]
    assert responses(BusErrors(64 + 2 * WORD, 64 + 3 * WORD)) == [OKAY, OKAY, SLVERR, OKAY]
    last = 64 + 2 * WORD - 1
    assert responses(BusErrors(last, last + 1)) == [OKAY, SLVERR, OKAY, SLVERR]
    assert responses(BusErrors(0, 64)) == [OKAY] * 4


def test_words_without_strobes_meet_no_error(core: ScriptedSimulator) -> None:
    core.set_dram(DramModel(latency=2, errors=BusErrors(64, 72)))
    beats = core.play([address("aw", 64, 2), word(0, last=0, strobe=0), word(0, last=1), answer()])
    assert [beat.response for beat in beats] == [OKAY]


def test_a_refused_burst_is_not_stored(core: ScriptedSimulator) -> None:
    before = core.dram.copy()
    core.set_dram(DramModel(latency=2, errors=BusErrors(64, 65)))
    core.play([address("aw", 64, 2), word(0, last=0), word(0, last=1), answer()])
    np.testing.assert_array_equal(core.dram, before)


@pytest.mark.parametrize(
    ("offset", "response"),
    [(0, OKAY), (-WORD, DECERR), (MEMORY_BYTES - WORD, OKAY), (MEMORY_BYTES, DECERR), (-BASE_ADDRESS, DECERR)],
)
def test_nothing_answers_outside_of_the_memory(core: ScriptedSimulator, offset: int, response: Response) -> None:
    (beat,) = core.play([address("ar", offset), *read_beats(1)])
    assert beat.response == response
    assert beat.data == (words_of(core, offset, 1)[0] if response is OKAY else 0)
    (beat,) = core.play([address("aw", offset), word(1, last=1), answer()])
    assert beat.response == response


READ = [address("ar", 0, 2, id=1), *read_beats(2)]
WRITE = [address("aw", 64), word(9, last=1), answer()]


def test_an_injected_error_comes_once(core: ScriptedSimulator) -> None:
    for fault, rows, responses in (
        (BusFault.READ_ERROR, READ, [SLVERR, OKAY]),
        (BusFault.WRITE_ERROR, WRITE, [SLVERR]),
    ):
        core.set_dram(QUICK)
        core.inject(fault)
        assert not core.injected
        assert [beat.response for beat in core.play(rows)] == responses
        assert core.injected
        assert [beat.response for beat in core.play(rows)] == [OKAY] * len(responses)


def test_a_refused_write_is_lost_and_an_unanswered_one_is_stored(core: ScriptedSimulator) -> None:
    before = words_of(core, 64, 1)
    core.inject(BusFault.WRITE_ERROR)
    core.play(WRITE)
    assert words_of(core, 64, 1) == before
    core.set_dram(QUICK)
    core.inject(BusFault.LOST_WRITE)
    with pytest.raises(SimulationError, match="has not finished"):
        core.play(WRITE, cycle_limit=200)
    assert core.injected
    assert words_of(core, 64, 1) == [9]


def test_a_lost_read_has_no_beats_and_the_next_one_has_its_own(core: ScriptedSimulator) -> None:
    core.inject(BusFault.LOST_READ)
    beats = core.play([address("ar", 0, 2, id=1), address("ar", 64, 2, id=1), *read_beats(2)])
    assert [beat.data for beat in beats] == words_of(core, 64, 2)
    assert core.injected


def test_a_burst_that_has_begun_is_not_lost(core: ScriptedSimulator) -> None:
    core.set_dram(DramModel(latency=10))
    beats = core.play(
        [address("ar", 0, 8, id=1), address("ar", 64, 2), address("ar", 128, 2), *read_beats(10)],
        moments=(14,),
        visit=lambda cycle: core.inject(BusFault.LOST_READ),
    )
    assert [beat.data for beat in beats] == [*words_of(core, 0, 8), *words_of(core, 128, 2)]


def test_a_flipped_bit_is_in_the_next_word_of_its_reader(core: ScriptedSimulator) -> None:
    core.inject(BusFault.FLIPPED_READ, reader=ReadClient.LOADW, bit=13)
    rows = [address("ar", 0, 2, id=ReadClient.LOAD), address("ar", 64, 2, id=ReadClient.LOADW), *read_beats(4)]
    right = [*words_of(core, 0, 2), *words_of(core, 64, 2)]
    assert [beat.data ^ each for beat, each in zip(core.play(rows), right, strict=True)] == [0, 0, 1 << 13, 0]
    assert [beat.data for beat in core.play(rows)] == right


def test_a_memory_that_hangs_moves_no_channel(core: ScriptedSimulator) -> None:
    for rows in (READ, WRITE):
        core.set_dram(QUICK)
        core.inject(BusFault.HUNG)
        with pytest.raises(SimulationError, match="the core has not finished after 300 cycles"):
            core.play(rows, cycle_limit=300)
        assert core.injected
        assert core.beats() == []
