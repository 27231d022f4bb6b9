"""The buffer of a read client: it asks for what it has room for, its room comes back, and refused words are marked."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator
from weft.hw.config import CoreConfig
from weft.hw.read_dma import ReadBuffer

DEPTH = 16


@pytest.mark.parametrize("seed", range(3))
def test_room_is_that_of_words_asked_for_and_not_taken(seed: int) -> None:
    assert run(seed, refused=set()) > 100


@pytest.mark.parametrize("seed", range(12))
def test_the_first_refused_word_and_those_behind_it_are_marked(seed: int) -> None:
    first = Random(seed).randrange(200)
    run(seed, refused={first, first + 1, first + 7})


def run(seed: int, refused: set[int]) -> int:
    """Random bursts, of whose words those of these numbers are refused; returns how many bursts were let through."""
    buffer = ReadBuffer(CoreConfig(), DEPTH)
    random = Random(seed)
    granted = 0

    async def bench(ctx: Any) -> None:
        nonlocal granted
        coming: deque[int] = deque()  # words asked for
        inside: deque[int] = deque()
        number = 0
        ctx.set(buffer.client.bursts.ready, 1)
        for cycle in range(1500):
            draining = cycle >= 1400  # nothing more is asked for; then all of the room is there again
            valid = not draining or cycle == 1490
            beats = DEPTH if draining else random.randint(1, DEPTH // 2)
            arrives = bool(coming) and (draining or random.random() < 0.8)
            ctx.set(buffer.bursts.valid, valid)
            ctx.set(buffer.bursts.payload.beats_minus_1, beats - 1)
            ctx.set(buffer.client.word_valid, arrives)
            if arrives:
                ctx.set(buffer.client.word.data, coming[0])
                ctx.set(buffer.client.word.error, coming[0] in refused)
            ctx.set(buffer.words.ready, draining or random.random() < 0.8)
            fits = beats <= DEPTH - len(coming) - len(inside)
            assert ctx.get(buffer.client.bursts.valid) == (valid and fits)
            assert ctx.get(buffer.bursts.ready) == fits
            if ctx.get(buffer.words.valid):
                assert ctx.get(buffer.words.payload.error) == (inside[0] >= min(refused, default=number))
            if ctx.get(buffer.words.valid) and ctx.get(buffer.words.ready):
                assert ctx.get(buffer.words.payload.data) == inside.popleft()
            if arrives:
                inside.append(coming.popleft())
            if valid and fits:
                coming.extend(range(number, number + beats))
                number += beats
                granted += 1
            await ctx.tick()
            assert cycle != 1490 or len(coming) == DEPTH

    simulator = Simulator(buffer)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return granted
