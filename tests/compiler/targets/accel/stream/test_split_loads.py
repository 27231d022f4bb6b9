"""Loads in parts bring the same, each part behind the stores, or the readers of its place, that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.stream import split_loads as module
from weft.compiler.targets.accel.stream.accesses import stream_of as known_stream
from weft.compiler.targets.accel.stream.split_loads import split_loads
from weft.compiler.targets.accel.stream.stream import RECENT, Access, Issue
from weft.hw.config import PYNQ, TINY
from weft.hw.isa import Engine, Gemm, Load, Scratchpad, Store
from weft.hw.memories import Memory

UNITS = TINY.inp_bytes // TINY.granule_bytes


def units_of(load: Load) -> int:
    """Granules of DRAM in an entry: one in ``inp`` of this core, four in ``acc``."""
    return load.scratchpad.dram_bytes(TINY) // TINY.granule_bytes


def store(offset: int, entries: int) -> Issue:
    written = Access(Memory.DRAM, offset * UNITS, (entries * UNITS,), (1,))
    return Issue(Store(index=0, offset=offset * UNITS, rows=1, columns=entries), (), (written,))


def load_of(load: Load) -> Issue:
    units = units_of(load)
    read = Access(Memory.DRAM, load.offset, (load.rows, load.columns * units), (load.stride * units or 1, 1))
    written = Access(load.scratchpad.memory, load.index, (len(list(brought(load))),), (1,))
    return Issue(load, (read,), (written,), layer=3, tile=5)


def brought(load: Load) -> Iterator[tuple[int, int | None]]:
    """Each entry that a load writes, and the granule that it comes from; None for padding."""
    index = load.index
    for row in range(-load.pad_top, load.rows + load.pad_bottom):
        for column in range(-load.pad_left, load.columns + load.pad_right):
            inside = 0 <= row < load.rows and 0 <= column < load.columns
            yield index, load.offset + (row * load.stride + column) * units_of(load) if inside else None
            index += 1


def loads_in(stream: Sequence[Issue]) -> list[Load]:
    return [issue.instruction for issue in stream if isinstance(issue.instruction, Load)]


@given(
    st.integers(1, 6), st.integers(1, 12), st.integers(0, 3), st.tuples(*[st.integers(0, 2)] * 4),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=6), st.integers(1, 8), st.integers(1, 8),
    st.sampled_from((Scratchpad.INP, Scratchpad.ACC)),
)  # fmt: skip
def test_parts_bring_what_the_whole_does(
    rows: int, columns: int, gap: int, pads: tuple[int, ...], stores: list[tuple[int, int]], smallest: int, most: int,
    scratchpad: Scratchpad,
) -> None:  # fmt: skip
    module.SMALLEST_PART_ENTRIES, module.MOST_PARTS_OF_LOAD = smallest, most
    try:
        top, bottom, left, right = pads
        whole = Load(
            scratchpad=scratchpad, index=7, offset=5 * UNITS, rows=rows, columns=columns, stride=columns + gap,
            pad_top=top, pad_bottom=bottom, pad_left=left, pad_right=right, pad_value=-3,
        )  # fmt: skip
        stream = split_loads(TINY, [*(store(*each) for each in stores), load_of(whole)])
        parts = loads_in(stream)
        assert [each for part in parts for each in brought(part)] == list(brought(whole))
        assert len(parts) <= most + 1
        assert {part.pad_value for part in parts} == {-3}
        for issue in stream[len(stores) :]:
            assert (issue.layer, issue.tile) == (3, 5)
            assert isinstance(issue.instruction, Load)
            entries, places = zip(*brought(issue.instruction), strict=True)
            (memory, selector), *_ = issue.places[1]
            assert memory is scratchpad.memory
            assert np.arange(TINY.depth(memory))[selector].tolist() == list(entries)
            units = units_of(whole)
            granules = {place + unit for place in places if place is not None for unit in range(units)}
            (_, selector), *_ = issue.places[0]
            assert set(np.arange(4096)[selector].tolist()) == granules
    finally:
        module.SMALLEST_PART_ENTRIES, module.MOST_PARTS_OF_LOAD = 32, 8


def test_rows_of_wide_entries_are_cut_and_say_what_they_read() -> None:
    """Rows of 40 entries of four granules, stored in two halves."""
    whole = Load(scratchpad=Scratchpad.ACC, index=0, offset=0, rows=4, columns=40, stride=50)
    stream = split_loads(TINY, [store(0, 400), store(400, 400), load_of(whole)])
    assert [(part.offset, part.rows) for part in loads_in(stream)] == [(0, 2), (400, 2)]
    rows = np.arange(4)[:, None] * 200 + np.arange(160)
    for issue, wanted in zip(stream[2:], (rows[:2], rows[2:]), strict=True):
        (_, selector), *_ = issue.places[0]
        assert np.arange(4096)[selector].ravel().tolist() == wanted.ravel().tolist()


def test_no_cut_is_made_where_no_address_is() -> None:
    """A matrix of this core is half of what addresses count."""
    config = replace(TINY, batch=8, block_in=4, block_out=4)
    load = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=7, rows=6, columns=1, stride=3)
    parts = module.cut_load(config, Issue(load, (), ()), load, [1, 2, 5])
    assert [(part.index, part.offset, part.rows) for part in loads_in(parts)] == [(0, 7, 2), (2, 10, 4)]
    touching = Issue(load, (Access(Memory.DRAM, 7, (9,), (1,)),), ())
    (access,) = module.cut_load(config, touching, load, [4])[1].accesses[0]
    assert (access.start, access.stop) == (13, 15)


def test_a_part_waits_only_for_its_own_store() -> None:
    whole = Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=128)
    parts = loads_in(split_loads(TINY, [store(0, 64), store(64, 64), load_of(whole)]))
    assert [(part.index, part.columns) for part in parts] == [(0, 64), (64, 64)]


def test_loads_stay_whole_where_a_cut_brings_nothing() -> None:
    whole = Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=128)
    one_store = [store(0, 128), load_of(whole)]
    tiny_parts = [*(store(4 * place, 4) for place in range(32)), load_of(replace(whole, columns=40))]
    other = Issue(Gemm(dst=0, src=0, wgt=0))
    long_ago = [store(0, 64), store(64, 64), *[other] * (RECENT + 1), load_of(whole)]
    padded = [[store(0, 64), store(64, 64), load_of(replace(whole, **{side: 1}))] for side in ("pad_top", "pad_bottom")]
    for stream in (one_store, tiny_parts, long_ago, *padded):
        assert loads_in(split_loads(TINY, stream)) == loads_in(stream)


def product_of(weights: int, count: int) -> Issue:
    """Matrix work that reads so many weights."""
    return Issue(Gemm(dst=0, src=0, wgt=weights), (Access(Memory.WGT, weights, (count,), (1,)),), ())


def weights_at(load: Load) -> Issue:
    """A load of weights that nothing writes in DRAM."""
    entries = load.pad_top + load.rows + load.pad_bottom, load.pad_left + load.columns + load.pad_right
    return Issue(load, (), (Access(Memory.WGT, load.index, entries, (entries[1], 1)),))


WEIGHTS = Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=16, offset=0, rows=1, columns=128)


def test_weights_whose_place_is_free_do_not_wait_for_others() -> None:
    """A third of their place was never used, a third was read by one instruction, and the last by another."""
    units = WEIGHTS.scratchpad.dram_bytes(PYNQ) // PYNQ.granule_bytes
    stream = split_loads(PYNQ, [product_of(64, 40), product_of(104, 200), weights_at(WEIGHTS)])
    parts = loads_in(stream)
    assert [(part.index, part.columns) for part in parts] == [(16, 48), (64, 40), (104, 40)]
    assert [part.offset for part in parts] == [0, 48 * units, 88 * units]
    assert all(not issue.places[0] for issue in stream[2:])  # nobody writes what they read


def test_the_weights_loaded_before_lay_there_too() -> None:
    stream = [weights_at(replace(WEIGHTS, columns=64)), product_of(0, 16), weights_at(WEIGHTS)]
    assert [part.columns for part in loads_in(split_loads(PYNQ, stream))] == [64, 64, 64]


def test_weights_stay_whole_where_a_cut_brings_nothing() -> None:
    one_reader = [product_of(0, 200), weights_at(WEIGHTS)]
    in_rows = [product_of(64, 40), weights_at(replace(WEIGHTS, rows=2, columns=64))]
    padded = [product_of(64, 40), weights_at(replace(WEIGHTS, columns=126, pad_left=1, pad_right=1))]
    few = [product_of(20, 40), weights_at(replace(WEIGHTS, columns=40))]
    for stream in (one_reader, in_rows, padded, few):
        assert loads_in(split_loads(PYNQ, stream)) == loads_in(stream)


def needs_by_unit(stream: Sequence[Issue], recent: int) -> list[tuple[Load, list[int]]]:
    """Of each load that may be cut what its rows need, found unit by unit as :func:`split_loads` describes it."""
    stored: dict[int, int] = {}
    touched: dict[int, int] = {}
    found = []
    for position, issue in enumerate(stream):
        reads, writes = issue.accesses
        load = issue.instruction
        if isinstance(load, Load) and reads:
            count, apart = (load.rows, load.stride) if load.rows > 1 else (load.columns, 1)
            length = load.columns if load.rows > 1 else 1
            units = units_of(load)
            needs = [
                max(stored.get(load.offset + (row * apart + each) * units + unit, -1)
                    for each in range(length) for unit in range(units))
                for row in range(count)
            ]  # fmt: skip
            if len({*needs}) > 1 and max(needs) >= position - recent:
                found.append((load, needs))
        elif isinstance(load, Load):
            needs = [touched.get(load.index + column, -1) for column in range(load.columns)]
            if len({*needs}) > 1:
                found.append((load, needs))
        for access in (*reads, *writes):
            for unit in np.arange(4096)[access.selector()].ravel().tolist():
                if access.memory is Memory.WGT:
                    touched[unit] = position
                elif access.memory is Memory.DRAM and access in writes:
                    stored[unit] = position
    return found


spans = st.tuples(st.integers(0, 30), st.integers(1, 20))
instructions = st.one_of(
    spans.map(lambda each: store(*each)),
    spans.map(lambda each: product_of(*each)),
    spans.map(lambda each: weights_at(replace(WEIGHTS, index=each[0], columns=each[1]))),
    st.tuples(spans, st.integers(1, 4), st.integers(0, 3)).map(
        lambda each: load_of(Load(
            scratchpad=Scratchpad.INP, index=0, offset=each[0][0] * UNITS, rows=each[1], columns=each[0][1],
            stride=each[0][1] + each[2],
        ))
    ),
    st.just(Issue(Gemm(dst=0, src=0, wgt=0))),
)  # fmt: skip


@given(st.lists(instructions, max_size=40), st.integers(1, 30))
def test_rows_need_what_was_there_before(drawn: list[Issue], recent: int) -> None:
    stream = known_stream(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECENT", recent)
        candidates = module._candidates(TINY, stream)
        found = module._needs(TINY, stream.touched, candidates)
        assert [(stream[candidates.positions[number]].instruction, (needs - 1).tolist())
                for number, needs in found] == needs_by_unit(drawn, recent)  # fmt: skip
