"""Iterations that overlap: the order of the stream, the lives of buffers, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler import tensor as te
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.accel.schedule.pipelined import PIPELINE, Nest, find_nest, pipeline, turns
from weft.compiler.targets.errors import CompileError
from weft.compiler.tensor.ir import For
from weft.compiler.tensor.schedule import Schedule
from weft.compiler.tensor.visitor import statements
from weft.hw.config import TINY

TILES = 3


def doubled(late: Mapping[str, int], *, marked: tuple[str, ...] = ("y_y_o",)) -> Schedule:
    """x, widened, doubled, narrowed and stored, a tile of two entries at a time."""
    x = te.placeholder((2 * TILES, 1, 1, 4), "int8", "x")
    wide = te.compute(x.shape, lambda *i: x[i].astype("int32"), "wide")
    twice = te.compute(x.shape, lambda *i: wide[i] * 2, "twice")
    y = te.compute(x.shape, lambda y, r, n, o: (twice[y, r, n, o] >> 1).astype("int8"), "y")
    schedule = te.create_schedule(y, [x], "doubled")
    schedule.set_scope("wide", "acc")
    schedule.set_scope("twice", "acc")
    write = schedule.cache_write("y", "out")
    tile, _ = schedule.split(schedule.get_loops(write)[0], 2)
    for stage in ("y", "twice", "wide"):
        schedule.compute_at(stage, tile)
    operations = intrinsics(TINY)
    names = {"wide": "load_acc8", "twice": "mul_immediate", "y": "shift_right_to_out", write: "store_out"}
    for stage, name in names.items():
        schedule.tensorize(schedule.get_loops(stage)[-3], operations[name])
    pipeline(schedule, [tile], {{"write": write}.get(stage, stage): count for stage, count in late.items()})
    return schedule


def nest_of(schedule: Schedule) -> Nest:
    return find_nest(next(node for node in statements(schedule.func.body) if isinstance(node, For)), [])


def order(schedule: Schedule) -> list[tuple[str, int]]:
    """(stage, iteration) in the order of the stream."""
    loop = next(node for node in statements(schedule.func.body) if isinstance(node, For))
    nest = find_nest(loop, [])
    return [(min(turn.stage.writes), turn.number) for turn in turns(nest, [TILES])]


def test_stages_that_are_not_late_stand_in_program_order() -> None:
    each = ["wide", "twice", "y_out", "y"]
    assert [stage for stage, _ in order(doubled({}))] == each * TILES


def test_a_late_stage_stands_beside_earlier_stages_of_later_iterations() -> None:
    found = order(doubled({"twice": 1, "y": 1, "write": 2}))
    assert found[:5] == [("wide", 0), ("wide", 1), ("twice", 0), ("y_out", 0), ("wide", 2)]
    assert sorted(found) == sorted(order(doubled({})))


@pytest.mark.parametrize("late", [{}, {"twice": 1, "y": 1, "write": 1}, {"twice": 1, "y": 2, "write": 4}])
def test_what_is_computed_does_not_depend_on_the_order(late: dict[str, int]) -> None:
    x = np.random.default_rng(0).integers(-128, 128, (2 * TILES, 1, 1, 4)).astype(np.int8)
    result = weft.build(doubled(late), "fsim", config=TINY).run({"x": x})
    np.testing.assert_array_equal(result["y"], x)


@pytest.mark.parametrize("late", [(0, 0), (0, 1), (1, 0)])
def test_a_stage_behind_one_that_writes_over_what_it_reads_is_refused(late: tuple[int, int]) -> None:
    """Iterations share the buffer; each reads what the one before it has left there, then writes."""
    nest = nest_of(doubled({}))
    reader = replace(nest.stages[0], late=late[0], reads=frozenset({"shared"}), writes=frozenset())
    writer = replace(nest.stages[1], late=late[1], reads=frozenset(), writes=frozenset({"shared"}))
    both = replace(nest, stages=(reader, writer))
    if late == (0, 0):
        assert len(list(turns(both, [TILES]))) == 2 * TILES
        return
    with pytest.raises(CompileError, match="stages that use 'shared' would change places"):
        list(turns(both, [TILES]))


def test_buffers_live_from_their_first_to_their_last_use() -> None:
    schedule = doubled({"twice": 2, "y": 2, "write": 2})
    loop = next(node for node in statements(schedule.func.body) if isinstance(node, For))
    live: set[tuple[str, tuple[int, ...]]] = set()
    most = 0
    for turn in turns(find_nest(loop, []), [TILES]):
        live |= {(allocate.buffer.name, index) for allocate, index in turn.first}
        used = (turn.stage.reads | turn.stage.writes) - {"x", "y"}
        assert {(name, turn.index) for name in used} <= live
        most = max(most, sum(name == "wide" for name, _ in live))
        live -= set(turn.last)
    assert not live
    assert most == 3


@pytest.mark.parametrize("late", [{"wide": 1}, {"twice": 1}, {"y": 1}, {"wide": 2, "twice": 1, "y": 2, "write": 2}])
def test_a_stage_that_would_come_after_its_readers_is_refused(late: dict[str, int]) -> None:
    with pytest.raises(CompileError, match="would change places"):
        weft.build(doubled(late), "fsim", config=TINY)


def test_a_stage_that_is_not_there_is_named() -> None:
    with pytest.raises(CompileError, match="stage 'other' is to be late, but is not in the pipelined loops"):
        weft.build(doubled({"other": 1}), "fsim", config=TINY)


def test_a_note_that_says_nothing_is_refused() -> None:
    schedule = doubled({})
    loop = next(node for node in statements(schedule.func.body) if isinstance(node, For))
    schedule.annotate(loop.var, PIPELINE, "twice")
    with pytest.raises(CompileError, match="'twice' does not say how late a stage is"):
        weft.build(schedule, "fsim", config=TINY)


def test_loops_side_by_side_are_refused() -> None:
    schedule = doubled({})
    for stage in ("wide", "twice"):
        schedule.annotate(schedule.get_loops(stage)[1], PIPELINE, "")
    with pytest.raises(CompileError, match="is pipelined, but so is one beside it"):
        weft.build(schedule, "fsim", config=TINY)
