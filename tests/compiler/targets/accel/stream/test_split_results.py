"""The last results of a program in parts: the same values from the same sums to the same places, and sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.link import function_program
from weft.compiler.targets.accel.stream.split_results import split_results
from weft.compiler.targets.accel.stream.stream import Access, Issue, dram_access
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.hw.isa import Engine, Gemm, Loop, Store, Vector, VectorOp, VectorTarget
from weft.hw.memories import Memory
from weft.sim.timing import predict

from .test_split_end import weights
from .test_split_products import loops, product_of

SMALL = replace(PYNQ, block_out=8, block_in=8, depthwise=0)
"""An entry of results is as long as what addresses count there, too."""

FIRST = 40
"""Of the accumulators."""


def products(rows: int, groups: int, sizes: Sequence[int]) -> list[Issue]:
    """Sums of ``groups`` output groups, of ``rows`` entries each, made by products of so many groups."""
    found, start = [], FIRST
    for size in sizes:
        written = Access(Memory.ACC, start, (size * rows,), (1,))
        found.append(Issue(Gemm(dst=start, src=0, wgt=0), (), (written,)))
        start += size * rows
    assert start == FIRST + groups * rows
    return found


def results(
    config: CoreConfig, rows: int, groups: int, *, stored_rows: bool, op: VectorOp = VectorOp.REQUANTISE
) -> list[Issue]:
    """What narrows them, two levels of loops, and what stores them."""
    loops = [
        Issue(Loop(engine=Engine.VECTOR, level=0, extent=rows, dst_stride=1, a_stride=1, b_stride=0)),
        Issue(Loop(engine=Engine.VECTOR, level=1, extent=groups, dst_stride=rows, a_stride=rows, b_stride=3)),
    ]
    vector = Vector(op=op, levels=2, target=VectorTarget.OUT, dst=7, a=FIRST, b=900)
    sums = Access(Memory.ACC, FIRST, (groups * rows,), (1,))
    factors = Access(Memory.ACC, 900, (groups, 3), (3, 1))
    made = Access(Memory.OUT, 7, (groups * rows,), (1,))
    shape = (groups, rows, rows + 3) if stored_rows else (1, groups * rows, 0)
    store = Store(index=7, offset=64, rows=shape[0], columns=shape[1], stride=shape[2])
    written = dram_access(config, store.offset, *shape, config.out_bytes)
    return [*loops, Issue(vector, (sums, factors), (made,), layer=3), Issue(store, (made,), (written,), layer=3)]


def micro_ops(stream: Sequence[Issue]) -> list[tuple[int, int, int]]:
    """(dst, a, b) of all that the vector engine does, in its order."""
    held: dict[int, Loop] = {}
    found = []
    for instruction in (issue.instruction for issue in stream):
        if isinstance(instruction, Loop):
            held[instruction.level] = instruction
        if isinstance(instruction, Vector):
            levels = [held[level] for level in reversed(range(instruction.levels))]
            for index in np.ndindex(*(level.extent for level in levels)):
                steps = [
                    sum(i * getattr(level, name) for i, level in zip(index, levels, strict=True))
                    for name in ("dst_stride", "a_stride", "b_stride")
                ]
                found.append((instruction.dst + steps[0], instruction.a + steps[1], instruction.b + steps[2]))
    return found


def stored(config: CoreConfig, stream: Sequence[Issue]) -> dict[int, int]:
    """The byte of DRAM for each entry of results."""
    found = {}
    for store in (issue.instruction for issue in stream):
        if isinstance(store, Store):
            for row, column in np.ndindex(store.rows, store.columns):
                place = store.offset * config.granule_bytes + (row * store.stride + column) * config.out_bytes
                found[store.index + row * store.columns + column] = place
    return found


def touched(issue: Issue) -> list[set[tuple[Memory, int]]]:
    return [
        {(memory, place) for memory, selector in each for place in np.arange(4096)[selector].tolist()}
        for each in issue.places
    ]


def parts_of(stream: Sequence[Issue]) -> int:
    return sum(isinstance(issue.instruction, Vector) for issue in stream)


@given(
    st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=5), st.booleans(),
    st.sampled_from((PYNQ, SMALL)),
)  # fmt: skip
def test_parts_do_what_the_whole_does(rows: int, sizes: list[int], stored_rows: bool, config: CoreConfig) -> None:
    groups = sum(sizes)
    plain = [*products(rows, groups, sizes), *results(config, rows, groups, stored_rows=stored_rows)]
    stream = split_results(config, plain)
    assert micro_ops(stream) == micro_ops(plain)
    assert stored(config, stream) == stored(config, plain)
    if len(sizes) > 1 and rows * sizes[0] >= 4:
        assert parts_of(stream) > 1
    for kind in (Vector, Store):  # each part knows what it touches, and together they touch what the whole did
        parts = [issue for issue in stream if isinstance(issue.instruction, kind)]
        (whole,) = (issue for issue in plain if isinstance(issue.instruction, kind))
        for number, of_whole in enumerate(touched(whole)):
            assert set(chain(*(touched(part)[number] for part in parts))) == of_whole
        assert sum(len(touched(part)[1]) for part in parts) == len(touched(whole)[1])
        assert all(part.layer == 3 for part in parts)
    for part in stream:
        if isinstance(part.instruction, Vector):
            place = stream.index(part)
            loops = [each for each in stream[:place] if isinstance(each.instruction, Loop)]
            own = micro_ops([*loops, part])
            assert {at for memory, at in touched(part)[1] if memory is Memory.OUT} == {each[0] for each in own}
            assert {(Memory.ACC, each[1]) for each in own} <= touched(part)[0]
            assert {(Memory.ACC, each[2] + more) for each in own for more in range(3)} <= touched(part)[0]


def test_what_stays_whole() -> None:
    """Results of one product, of sums in another order, that go elsewhere, or that are stored from another place."""
    sums, ends = products(2, 8, (5, 3)), results(PYNQ, 2, 8, stored_rows=False)
    assert parts_of(split_results(PYNQ, [*sums, *ends])) == 2
    *loops, narrow, store = ends
    elsewhere = replace(store, instruction=replace(store.instruction, index=8))
    fewer = replace(store, instruction=replace(store.instruction, columns=15))
    halves = replace(store, instruction=replace(store.instruction, rows=2, columns=8, stride=11))
    inwards = replace(narrow, instruction=replace(narrow.instruction, target=VectorTarget.INP))
    summed = replace(narrow, instruction=replace(narrow.instruction, op=VectorOp.MAX_ACCUMULATE))
    for stream in (
        [*products(2, 8, (8,)), *ends], [sums[1], sums[0], *ends], [*sums, *loops, narrow, elsewhere],
        [*sums, *loops, narrow, fewer],
        [*sums, *loops, narrow, halves], [*sums, *loops, inwards, store], [*sums, *loops, summed, store],
        [*ends, *sums], [*sums, store, *loops, narrow], [*sums, *loops, narrow], sums, [],
    ):  # fmt: skip
        assert list(split_results(PYNQ, stream)) == stream


def test_a_row_by_a_matrix_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, products, results: of the last ones only the last part is left when the last weights have come."""
    levels = [(16, 0, 1, 1), (16, 1, 0, 16)]
    product = product_of(Gemm(zero=1, levels=2, dst=FIRST, src=3, wgt=8), levels)
    ends = results(PYNQ, 1, 16, stored_rows=False)
    stream = [weights(PYNQ, rows=16, columns=16), *loops(levels), product, *ends]

    def cycles() -> int:
        _, code = function_program.unchecked_program(PYNQ, DramRate(bytes_per_cycle=PYNQ.bus_bytes), stream, ends=True)
        found = predict(PYNQ, code).cycles
        assert found is not None
        return found

    cut = cycles()
    monkeypatch.setattr(function_program, "split_results", lambda config, issues: list(issues))
    assert cut < cycles()
