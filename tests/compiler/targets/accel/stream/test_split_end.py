"""The last weights and the last products of a program in parts: they compute the same, and the program ends sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.targets.accel.link import function_program
from weft.compiler.targets.accel.stream.split_end import split_end
from weft.compiler.targets.accel.stream.stream import Access, Issue, dram_access
from weft.hw.config import PYNQ, CoreConfig
from weft.hw.isa import Engine, Gemm, Load, Scratchpad
from weft.hw.load_counts import bytes_each, entries_of
from weft.hw.memories import Memory
from weft.hw.weight_form import FOUR_BITS
from weft.sim.timing import predict

from ..kernels import compile_function, program_of
from ..test_kernels import Case
from .test_split_products import loops, micro_ops, product_of, reader

FOUR = replace(PYNQ, weight_group=64)
MANY_ROWS = replace(PYNQ, batch=8, block_in=4, block_out=4, depthwise=0)  # a matrix is half of what addresses count


def weights(config: CoreConfig, *, rows: int, columns: int, index: int = 8, pad_value: int = 0) -> Issue:
    """A load of rows that lie 40 columns apart in DRAM."""
    load = Load(
        engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=index, offset=160, rows=rows, columns=columns, stride=40,
        pad_value=pad_value,
    )  # fmt: skip
    read = dram_access(config, load.offset, rows, columns, load.stride, bytes_each(config, load))
    return Issue(load, (read,), (Access(Memory.WGT, index, (entries_of(config, load),), (1,)),), layer=2)


def stream_of(load: Issue, groups: int, depth: int) -> list[Issue]:
    levels = [(depth, 0, 1, 1), (groups, 1, 0, depth)]
    return [load, *loops(levels), product_of(Gemm(zero=1, levels=2, dst=4, src=3, wgt=8), levels), reader(4, groups)]


def loaded(config: CoreConfig, stream: Sequence[Issue]) -> dict[int, tuple[int, int]]:
    """Where each ``wgt`` entry comes from: the byte at which its load's column begins, and which of it it is."""
    found = {}
    for load in (issue.instruction for issue in stream):
        if isinstance(load, Load):
            each = entries_of(config, load) // (load.rows * load.columns)
            size = bytes_each(config, load)
            for row, column, entry in np.ndindex(load.rows, load.columns, each):
                place = load.index + (row * load.columns + column) * each + entry
                found[place] = (load.offset * config.granule_bytes + (row * load.stride + column) * size, entry)
    return found


@given(st.integers(1, 24), st.integers(1, 6), st.sampled_from((PYNQ, FOUR, MANY_ROWS)), st.booleans())
def test_parts_load_and_compute_what_the_whole_does(
    groups: int, columns: int, config: CoreConfig, one_row: bool
) -> None:
    """Rows of a load, or its columns where all lie together; of 8 and of 4 bits, and of less than an address counts."""
    four, one_row = config is FOUR, one_row and config is not MANY_ROWS  # there columns lie apart
    each = config.weight_record_entries if four else 1
    rows, in_row = (1, groups * columns) if one_row else (groups, columns)
    load = weights(config, rows=rows, columns=in_row, pad_value=FOUR_BITS if four else 0)
    plain = stream_of(load, groups, columns * each)
    stream = split_end(config, plain)
    assert loaded(config, stream) == loaded(config, plain)
    assert sorted(micro_ops(stream), key=itemgetter(0)) == sorted(micro_ops(plain), key=itemgetter(0))
    places = [
        [issue for issue in stream if isinstance(issue.instruction, kind) and issue.layer == 2] for kind in (Load, Gemm)
    ]
    assert len(places[0]) == len(places[1])
    for part, products in zip(*places, strict=True):  # each waits for its own weights
        brought = {each for memory, each in selected(part, written=True) if memory is Memory.WGT}
        assert {each for memory, each in selected(products, written=False) if memory is Memory.WGT} == brought


def selected(issue: Issue, *, written: bool) -> set[tuple[Memory, int]]:
    return {
        (memory, place) for memory, selector in issue.places[written] for place in np.arange(4096)[selector].tolist()
    }


def parts_of(stream: Sequence[Issue]) -> int:
    return sum(isinstance(issue.instruction, Gemm) for issue in stream)


def test_as_many_parts_as_are_long_enough_and_alike_where_that_is_possible() -> None:
    """A part of four products is shorter than the array's pipeline, and the bus loses some cycles with each load."""
    for groups, depth, parts in (
        (12, 4, 3),
        (12, 8, 6),
        (16, 16, 8),
        (7, 4, 2),
        (17, 8, 6),
        (7, 16, 7),
        (3, 4, 1),
        (1, 64, 1),
    ):
        assert parts_of(split_end(PYNQ, stream_of(weights(PYNQ, rows=groups, columns=depth), groups, depth))) == parts


def test_only_the_last_products_are_cut_and_only_with_their_own_weights() -> None:
    load = weights(PYNQ, rows=12, columns=8)
    whole = stream_of(load, 12, 8)
    assert parts_of(split_end(PYNQ, [*whole, *whole])) == 1 + 6
    elsewhere = weights(PYNQ, rows=12, columns=8, index=9)
    padded = replace(load, instruction=replace(load.instruction, pad_left=1, columns=7))
    more = weights(PYNQ, rows=13, columns=8)
    for other in (elsewhere, padded, more):
        stream = stream_of(other, 12, 8)
        assert list(split_end(PYNQ, stream)) == stream
    single = [*whole, Issue(Gemm(levels=0, dst=0, src=0, wgt=0), (), ())]  # of one group, with other weights
    assert list(split_end(PYNQ, single)) == single
    assert list(split_end(PYNQ, whole[1:])) == whole[1:]  # nothing is loaded
    assert not list(split_end(PYNQ, []))


def test_a_row_by_a_matrix_ends_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Case("conv", PYNQ, channels=512, filters=512, size=(1, 1), kernel=(1, 1), pads=(0, 0, 0, 0))

    def cycles() -> int:
        found = predict(PYNQ, program_of(compile_function(layer.function(), PYNQ)).program).cycles
        assert found is not None
        return found

    cut = cycles()
    monkeypatch.setattr(function_program, "split_end", lambda config, issues: list(issues))
    assert cut < cycles()
