"""What is found in a tree by the marks of its parts is what a walk over all of it finds."""

from __future__ import annotations

import pickle
import random
from itertools import chain

import pytest
from weft.compiler.tensor.compute import Tensor, compute, placeholder
from weft.compiler.tensor.errors import ScheduleError
from weft.compiler.tensor.ir import Allocate, Block, Buffer, Const, For, If, IntrinsicCall, PrimFunc, Stmt, Store, Var
from weft.compiler.tensor.random_programs import random_program
from weft.compiler.tensor.random_steps import random_step
from weft.compiler.tensor.schedule import Schedule, apply_step, create_schedule
from weft.compiler.tensor.tree import (
    block_name,
    find_allocation,
    find_block,
    find_buffer,
    find_loop,
    is_later,
    leaves,
    readers,
    replace_node,
    writers,
)
from weft.compiler.tensor.visitor import (
    below,
    loads_of,
    loop_mark,
    map_accesses,
    marks,
    name_mark,
    replace_buffer,
    statements,
    stores_of,
)

from tests.calls import calls_of

SEEDS, STEPS = range(40), 30


def scheduled(seed: int) -> PrimFunc:
    """A random function after random steps, of which some are refused."""
    chance = random.Random(seed)
    schedule = Schedule(random_program(chance))
    for _ in range(STEPS):
        try:
            apply_step(schedule, random_step(schedule, chance, {}))
        except (ScheduleError, TypeError, ValueError):
            continue
    return schedule.func


def all_paths(root: Stmt, path: tuple[Stmt, ...] = ()) -> list[tuple[Stmt, ...]]:
    """To every statement, in the order of execution."""
    path = (*path, root)
    return [path, *chain.from_iterable(all_paths(child, path) for child in below(root))]


def identities(path: tuple[Stmt, ...] | None) -> tuple[int, ...] | None:
    return None if path is None else tuple(map(id, path))


def buffers_of(func: PrimFunc) -> list[Buffer]:
    return list(dict.fromkeys([*func.params, *(buffer for buffer, _ in (*loads_of(func.body), *stores_of(func.body)))]))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_is_the_first_of_a_walk(seed: int) -> None:
    func = scheduled(seed)
    paths = all_paths(func.body)
    for path in paths:
        node = path[-1]
        if name := block_name(node):
            first = next(each for each in paths if block_name(each[-1]) == name)
            assert identities(find_block(func, name)) == identities(first)
        if isinstance(node, For):
            assert identities(find_loop(func, node.var)) == identities(path)
        if isinstance(node, Allocate):
            assert identities(find_allocation(func, node.buffer)) == identities(path)
            assert find_buffer(func, node.buffer.name) == node.buffer
        assert replace_node(func.body, node, node) is func.body
    ends = [path for path in paths if isinstance(path[-1], Block | IntrinsicCall | Store)]
    assert list(map(identities, leaves(func.body))) == list(map(identities, ends))
    for buffer in buffers_of(func):
        writing = [path for path in ends if any(written == buffer for written, _ in stores_of(path[-1]))]
        assert list(map(identities, writers(func.body, buffer))) == list(map(identities, writing))
        reading = {identities(path) for path in ends if any(read == buffer for read, _ in loads_of(path[-1]))}
        assert {identities(path) for path in readers(func.body, buffer)} <= reading


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_later_stands_later_in_a_walk(seed: int) -> None:
    paths = all_paths(scheduled(seed).body)
    for place, path in enumerate(paths):
        assert [is_later(other, path) for other in paths] == [number > place for number in range(len(paths))]


@pytest.mark.parametrize("seed", SEEDS)
def test_marks_hold_every_name_below_after_any_steps(seed: int) -> None:
    """Those that trees remember from step to step are those of the same tree from nothing."""
    func = scheduled(seed)
    fresh = pickle.loads(pickle.dumps(func.body))
    assert not any("_marks" in node.__dict__ for node in statements(fresh))
    assert [marks(node) for node in statements(func.body)] == [marks(node) for node in statements(fresh)]
    for node in statements(func.body):
        wanted = 0
        for inner in statements(node):
            wanted |= loop_mark(inner.var.name) if isinstance(inner, For) else 0
            wanted |= name_mark(inner.buffer.name) if isinstance(inner, Allocate) else 0
            wanted |= name_mark(name) if (name := block_name(inner)) else 0
        for buffer, _ in (*loads_of(node), *stores_of(node)):
            wanted |= name_mark(buffer.name)
        assert marks(node) == marks(node) | wanted


COUNTS, OTHER, SUMS = Buffer("counts", (4,), "int64"), Buffer("other", (4,), "int64"), Buffer("sums", (4,), "int64")
PLACE, FIRST = Var("i"), COUNTS[0]


@pytest.mark.parametrize(
    "stmt",
    [
        For(PLACE, FIRST, "serial", SUMS.store(0, 1)),
        If(FIRST < 3, SUMS.store(0, 1)),
        SUMS.store(FIRST, 1),
        SUMS.store(0, FIRST + 1),
        Block("sum", "reduce", Store(SUMS, (Const(0),), SUMS[0] + 1), (PLACE,), FIRST),
    ],
    ids=["extent", "condition", "index", "value", "initial value"],
)
def test_what_is_read_is_replaced_wherever_it_stands(stmt: Stmt) -> None:
    assert marks(stmt) & name_mark("counts")
    moved = replace_buffer(stmt, COUNTS, OTHER)
    assert marks(moved) & name_mark("other")
    assert not marks(moved) & name_mark("counts")
    assert replace_buffer(moved, OTHER, COUNTS) == stmt


@pytest.mark.parametrize("seed", SEEDS)
def test_a_buffer_that_is_replaced_is_replaced_everywhere(seed: int) -> None:
    func = scheduled(seed)
    for buffer in buffers_of(func):
        other = Buffer("elsewhere", buffer.shape, buffer.dtype, buffer.scope, buffer.alignments)
        moved = map_accesses(func.body, buffer, other, lambda indices: indices)
        assert buffer not in {each for each, _ in (*loads_of(moved), *stores_of(moved))}
        assert map_accesses(moved, other, buffer, lambda indices: indices) == func.body
        renamed = replace_buffer(func.body, buffer, other)
        assert find_allocation(PrimFunc("f", (), renamed), buffer) is None
        assert replace_buffer(renamed, other, buffer) == func.body


def add_one(x: Tensor, name: str) -> Tensor:
    return compute((8, 64), lambda i, j: x[i, j] + 1, name)


def calls_to_attach(count: int) -> int:
    """Calls in Python of a schedule that computes so many elementwise stages inside a loop of the last, in place."""
    x = placeholder((8, 64), "int32", "x")
    value: Tensor = x
    names = [f"s{number}" for number in range(count)]
    for name in names:
        value = add_one(value, name)

    def attached() -> None:
        schedule = create_schedule(value, [x])
        for name in names[:-1]:
            schedule.set_scope(name, "near")
        outer, _ = schedule.split(schedule.get_loops(names[-1])[1], 16)
        for name in reversed(names[:-1]):
            schedule.compute_at(name, outer)
        for name in names[1:-1]:
            schedule.inplace(name, names[0])

    return calls_of(attached)


def test_a_step_of_a_schedule_does_not_look_through_all_other_stages() -> None:
    calls_to_attach(4)
    small, middle, large = (calls_to_attach(count) for count in (16, 32, 64))
    assert (large - middle) / (middle - small) < 3.4
