"""Products in parts compute the same, and the vector engine need not wait for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.link import function_program
from weft.compiler.targets.accel.stream import issue_early
from weft.compiler.targets.accel.stream.split_products import split_products
from weft.compiler.targets.accel.stream.stream import Access, Issue
from weft.hw.config import PYNQ
from weft.hw.isa import Engine, Gemm, Load, Loop, Scratchpad, Vector, VectorOp
from weft.hw.memories import Memory
from weft.sim.timing import predict

from ..kernels import compile_function, program_of
from ..test_kernels import Case

Levels = Sequence[tuple[int, int, int, int]]
"""Extent and strides (dst, a, b), innermost first."""


def loops(levels: Levels) -> list[Issue]:
    return [
        Issue(Loop(engine=Engine.GEMM, level=number, extent=extent, dst_stride=dst, a_stride=a, b_stride=b))
        for number, (extent, dst, a, b) in enumerate(levels)
    ]


def product_of(gemm: Gemm, levels: Levels) -> Issue:
    def access(memory: Memory, start: int, operand: int) -> Access:
        moving = [(level[0], level[operand]) for level in levels if level[operand]]
        return Access(memory, start, tuple(extent for extent, _ in moving), tuple(stride for _, stride in moving))

    written = access(Memory.ACC, gemm.dst, 1)
    return Issue(gemm, (access(Memory.INP, gemm.src, 2), access(Memory.WGT, gemm.wgt, 3), written), (written,), layer=2)


def reader(start: int, entries: int) -> Issue:
    read = Access(Memory.ACC, start, (entries,), (1,))
    return Issue(Vector(op=VectorOp.ADD, dst=0, a=start), (read,), (Access(Memory.OUT, 0, (entries,), (1,)),))


def micro_ops(stream: Sequence[Issue]) -> list[tuple[int, int, int, bool]]:
    """(dst, src, wgt, whether the product starts its sum's instruction) of all products, in their order."""
    held: dict[int, tuple[int, int, int, int]] = {}
    found = []
    for instruction in (issue.instruction for issue in stream):
        if isinstance(instruction, Loop):
            held[instruction.level] = (
                instruction.extent, instruction.dst_stride, instruction.a_stride, instruction.b_stride,
            )  # fmt: skip
        if isinstance(instruction, Gemm):
            levels = [held[level] for level in reversed(range(instruction.levels))]
            for index in product(*(range(level[0]) for level in levels)):
                dst, src, wgt = (
                    first + sum(i * level[operand] for i, level in zip(index, levels, strict=True))
                    for operand, first in ((1, instruction.dst), (2, instruction.src), (3, instruction.wgt))
                )  # fmt: skip
                found.append((dst, src, wgt, bool(instruction.zero)))
    return found


def products_in(stream: Sequence[Issue]) -> list[Gemm]:
    return [issue.instruction for issue in stream if isinstance(issue.instruction, Gemm)]


@given(
    st.integers(2, 5), st.integers(1, 3), st.integers(32, 40), st.integers(0, 1), st.integers(1, 3), st.integers(0, 50)
)
def test_parts_compute_what_the_whole_does(
    groups: int, inputs: int, pixels: int, zero: int, threads: int, source: int
) -> None:
    """All groups of one thread, or of several side by side; parts know what they touch."""
    levels = [(inputs, 0, pixels, 1), (pixels, 1, 1, 0), (groups, pixels, source, inputs)]
    size = groups * pixels
    whole = [
        product_of(Gemm(zero=zero, levels=3, dst=thread * size, src=thread * pixels, wgt=9), levels)
        for thread in range(threads)
    ]
    readers = [reader(thread * size + group * pixels, pixels) for group in range(groups) for thread in range(threads)]
    stream = split_products(PYNQ, [*loops(levels), *whole, *readers])
    plain, split = micro_ops([*loops(levels), *whole]), micro_ops(stream)
    assert Counter(split) == Counter(plain)
    # What meets in an accumulator keeps its order: sorting by accumulator leaves equal ones as they were.
    assert sorted(split, key=itemgetter(0)) == sorted(plain, key=itemgetter(0))
    assert len(products_in(stream)) > threads
    for issue in stream:
        if isinstance(issue.instruction, Gemm):
            assert issue.layer == 2
            own = micro_ops([*loops(levels), issue])
            touched = {memory: np.arange(4096)[selector].tolist() for memory, selector in chain(*issue.places)}
            for memory, operand in ((Memory.ACC, 0), (Memory.INP, 1), (Memory.WGT, 2)):
                assert touched[memory] == sorted({each[operand] for each in own})


def test_threads_keep_their_order() -> None:
    """Taking turns, one would wait for what the other has not loaded."""
    levels = [(40, 1, 1, 0), (2, 40, 0, 1)]
    whole = [product_of(Gemm(zero=1, levels=2, dst=dst, src=dst, wgt=0), levels) for dst in (0, 100)]
    readers = [reader(start, 40) for start in (0, 100, 40, 140)]
    stream = split_products(PYNQ, [*loops(levels), *whole, *readers])
    assert [gemm.dst for gemm in products_in(stream)] == [0, 40, 100, 140]


def test_accumulators_are_taken_as_they_come_free() -> None:
    levels = [(40, 1, 1, 0), (2, 40, 0, 1)]
    first = product_of(Gemm(zero=1, levels=2, dst=0, src=0, wgt=0), levels)
    goes_on = product_of(Gemm(zero=0, levels=2, dst=0, src=0, wgt=0), levels)
    readers = [reader(0, 40), reader(40, 40)]
    for behind, parts in ((first, 2), (goes_on, 1)):
        assert len(products_in(split_products(PYNQ, [*loops(levels), *readers, behind]))) == parts


@pytest.mark.parametrize(
    "levels", [[(40, 1, 1, 0), (2, 0, 40, 1)], [(31, 1, 1, 0), (2, 31, 0, 1)], [(2, 40, 0, 1)]],
    ids=["a sum", "short parts", "single products"],
)  # fmt: skip
def test_others_stay_whole(levels: Levels) -> None:
    whole = product_of(Gemm(zero=1, levels=len(levels), dst=0, src=0, wgt=0), levels)
    readers = [reader(0, 31), reader(31, 60)]
    stream: list[Issue] = [*loops(levels), whole, *readers]
    assert list(split_products(PYNQ, stream)) == stream


def test_one_reader_of_all_gains_nothing() -> None:
    levels = [(40, 1, 1, 0), (2, 40, 0, 1)]
    stream = [*loops(levels), product_of(Gemm(zero=1, levels=2, dst=0, src=0, wgt=0), levels), reader(0, 80)]
    assert list(split_products(PYNQ, stream)) == stream


def test_a_layer_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual layer of one tile, whose results go through the vector stages group by group; weights come when the
    walk has them, since alone the layer begins with an idle bus."""
    monkeypatch.setattr(issue_early, "prefetches", lambda *_: {})
    monkeypatch.setattr(function_program, "split_end", lambda config, issues: list(issues))
    config = replace(PYNQ, out_depth=128)
    layer = Case("residual", config, channels=384, filters=64, size=(14, 14), kernel=(1, 1), pads=(0, 0, 0, 0))

    def cycles() -> int:
        model = compile_function(layer.function(), config)
        found = predict(config, program_of(model).program).cycles
        assert found is not None
        return found

    cut = cycles()
    monkeypatch.setattr(function_program, "split_products", lambda config, issues: list(issues))
    assert cut < 0.98 * cycles()


def test_sums_that_go_on_stay_whole() -> None:
    """Only the last products of a sum are read by the vector engine."""
    levels = [(40, 1, 1, 0), (2, 40, 0, 1)]
    sums = [product_of(Gemm(zero=int(chunk == 0), levels=2, dst=0, src=0, wgt=0), levels) for chunk in range(3)]
    stream = split_products(PYNQ, [*loops(levels), *sums, reader(0, 40), reader(40, 40)])
    assert [gemm.levels for gemm in products_in(stream)] == [2, 2, 1, 1]


def test_what_is_read_before_it_is_written_counts_as_read() -> None:
    levels = [(40, 1, 1, 0), (2, 40, 0, 1)]
    users = [Issue(each.instruction, each.reads, (Access(Memory.ACC, each.reads[0].start, (50,), (1,)),))
             for each in (reader(0, 40), reader(40, 40))]  # fmt: skip
    stream = [*loops(levels), product_of(Gemm(zero=1, levels=2, dst=0, src=0, wgt=0), levels), *users]
    assert len(products_in(split_products(PYNQ, stream))) == 2


def cut_by_hand(issues: Sequence[Issue]) -> list[int]:
    """The positions of products that are cut, entry by entry as the module says it; all of them have levels of 40 and
    2."""
    held = {each.instruction.level: each.instruction for each in issues if isinstance(each.instruction, Loop)}
    own = held[1].dst_stride

    def groups(gemm: Gemm) -> list[list[int]]:
        return [list(range(start, start + 40)) for start in (gemm.dst, gemm.dst + own)]

    def entries(accesses: Sequence[Access]) -> set[int]:
        own = [np.arange(4096)[each.selector()].tolist() for each in accesses if each.memory is Memory.ACC]
        return set(chain.from_iterable(own))

    def by_vector(issue: Issue) -> bool:
        return issue.instruction.engine is Engine.VECTOR

    found = []
    for position, issue in enumerate(issues):
        if not isinstance(issue.instruction, Gemm):
            continue
        for backwards, rest in ((True, issues[position + 1 :]), (False, issues[position - 1 :: -1])):
            first: dict[int, int] = {}  # who reads an entry, or else writes it
            for number, other in enumerate(rest):
                reads, writes = map(entries, other.accesses)
                for entry in reads if backwards and by_vector(other) else ():
                    first.setdefault(entry, number)
                for entry in writes if backwards else reads | writes if by_vector(other) else ():
                    first.setdefault(entry, -1 if backwards else number)
            near = max if backwards else min
            users = [[first[each] for each in group if first.get(each, -1) >= 0] for group in groups(issue.instruction)]
            if all(users) and len({near(each) for each in users}) > 1 and (backwards or issue.instruction.zero):
                found.append(position)
                break
    return found


@given(st.data())
def test_products_are_cut_where_their_groups_are_used_apart(data: st.DataObject) -> None:
    levels = [(40, 1, 1, 0), (2, data.draw(st.sampled_from([40, 60])), 0, 1)]

    def spans(least: int) -> tuple[Access, ...]:
        numbers = st.tuples(st.integers(0, 10), st.integers(1, 8))
        return tuple(Access(Memory.ACC, 20 * start, (20 * count,), (1,))
                     for start, count in data.draw(st.lists(numbers, min_size=least, max_size=2)))  # fmt: skip

    stream = loops(levels)
    for kind in data.draw(st.lists(st.sampled_from(["product", "vector", "load"]), max_size=10)):
        if kind == "product":
            dst, zero = 20 * data.draw(st.integers(0, 6)), data.draw(st.integers(0, 1))
            stream.append(product_of(Gemm(zero=zero, levels=2, dst=dst, src=0, wgt=0), levels))
        elif kind == "vector":
            stream.append(Issue(Vector(op=VectorOp.ADD, dst=0, a=0), spans(1), spans(0)))
        else:
            load = Load(scratchpad=Scratchpad.ACC, index=0, offset=0, rows=1, columns=1)
            stream.append(Issue(load, (), spans(1)))
    wanted = cut_by_hand(stream)
    parts = [1 + (position in wanted) for position in range(len(stream))]
    assert len(split_products(PYNQ, stream)) == sum(parts)
    assert products_in(split_products(PYNQ, stream)) == [
        each.instruction
        for count, issue in zip(parts, stream, strict=True) if isinstance(issue.instruction, Gemm)
        for each in split_by_hand(issue, levels, count)
    ]  # fmt: skip


def split_by_hand(issue: Issue, levels: Levels, parts: int) -> list[Issue]:
    gemm = issue.instruction
    assert isinstance(gemm, Gemm)
    if parts == 1:
        return [issue]
    _, (_, dst, src, wgt) = levels
    return [Issue(replace(gemm, levels=1, dst=gemm.dst + number * dst, src=gemm.src + number * src,
                          wgt=gemm.wgt + number * wgt)) for number in range(parts)]  # fmt: skip
