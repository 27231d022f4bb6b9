"""Loops that fill shared memory ahead: where threads wait, what is copied asynchronously, and damage to both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from weft.compiler import tensor as te
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.gpu.launches import Barrier, Commit, Grid, Landed, Phase, grid_text
from weft.compiler.targets.gpu.nvptx import ptx_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.targets.gpu.shared_memory import Placed
from weft.compiler.targets.gpu.tile_schedule import TILES, schedule_tiled
from weft.compiler.targets.gpu.tiles import TensorTile
from weft.compiler.targets.gpu.warp_parts import PIPELINE
from weft.compiler.tensor.ir import Const, Expr, For, If, IntrinsicCall, Select, Seq, Stmt
from weft.compiler.tensor.simplify import constant_range
from weft.compiler.tensor.tree import leaves
from weft.compiler.tensor.visitor import free_vars, map_exprs, map_stmt_exprs, stores_of
from weft.sim.ptx import PtxError

from ....sim.ptx.test_compilers import damages
from .test_tensor_cores import launch, operands, product, run
from .test_tiled import product as plain_product

TILE = TensorTile(32, 32, 64, (2, 2))
ALIGNED = (16, 16, 16)


def nodes(stmt: Stmt) -> Iterator[Stmt]:
    yield stmt
    match stmt:
        case Seq(body=items):
            for item in items:
                yield from nodes(item)
        case For(body=body):
            yield from nodes(body)


def outcome(text: str, grid: Grid, rows: int, columns: int, depth: int) -> str:
    """What becomes of a dense product."""
    a, b, wanted = operands(rows, columns, depth)
    found = np.zeros_like(wanted)
    try:
        run(text, grid, a, np.ascontiguousarray(b.T), found)
    except PtxError:
        return "refused"
    return "right" if np.array_equal(found, wanted) else "wrong"


@pytest.mark.parametrize(("gpu", "copies"), [("sm_75", 2), ("sm_80", 3)])
def test_a_step_has_one_barrier(gpu: str, copies: int) -> None:
    steps = 11
    schedule = product(32, 32, 64 * steps, TILE, gpu, dense=True)
    grid = launch(schedule, gpu)
    (loop,) = (node for node in nodes(grid.body) if isinstance(node, For))
    rest = steps - copies * int(constant_range(loop.extent, ())[1])
    assert copies - 1 <= rest <= 2 * copies - 2  # in the loop there is always a later step to fill
    assert sum(isinstance(node, Barrier) for node in nodes(loop)) == copies
    assert [buffer.shape[0] for buffer in grid.shared if buffer.name != "sums"] == [copies, copies]
    waits = [node.left for node in nodes(grid.body) if isinstance(node, Landed)]
    assert waits == ([copies - 2] * (copies + rest) if gpu == "sm_80" else [])
    assert sum(isinstance(node, Commit) for node in nodes(grid.body)) == (
        copies - 1 + copies + rest - 1 if gpu == "sm_80" else 0
    )
    assert any(node.ahead for node in nodes(grid.body) if isinstance(node, Phase)) == (gpu == "sm_80")
    a, b, wanted = operands(32, 32, 64 * steps)
    counts = run(ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu], ALIGNED), grid, a, b.T.copy(), wanted)
    warps, waits_of_sums = 4, 2  # before they take the operands' place, and when they are there
    assert counts.instructions["bar"] == warps * (steps + waits_of_sums)


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 8, 9])
def test_any_number_of_steps_is_equal_to_the_bit(steps: int, gpu: str) -> None:
    """With and without a loop, with whole and parts of rounds behind it."""
    depth = 64 * steps - 16
    schedule = product(32, 32, depth, TILE, gpu, dense=True)
    grid = launch(schedule, gpu)
    assert outcome(ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu], ALIGNED), grid, 32, 32, depth) == "right"


def test_products_behind_a_barrier_have_their_operands_already() -> None:
    """What is loaded there is for the next part, into the other copy."""
    grid = launch(product(32, 32, 640, TILE, dense=True), "sm_80")
    (loop,) = (node for node in nodes(grid.body) if isinstance(node, For))
    assert isinstance(loop.body, Seq)
    seen = 0
    for before, node in zip(loop.body.body, loop.body.body[1:], strict=False):
        if isinstance(before, Barrier):
            assert isinstance(node, Phase)
            calls = [path[-1] for path in leaves(node.body)]
            loaded, used = (
                {each.operand(name).indices[0] for each in calls if isinstance(each, IntrinsicCall)
                 and each.intrinsic.name.startswith(kind)} for kind, name in (("ldmatrix", "dst"), ("mma", "a"))
            )  # fmt: skip
            assert (loaded, used) == ({Const(0)}, {Const(1)})
            seen += 1
    assert seen == 3


def test_copies_are_asynchronous_where_addresses_allow() -> None:
    for depth, aligned, size in ((192, ALIGNED, 16), (152, ALIGNED, 8), (148, ALIGNED, 4), (150, ALIGNED, 0),
                                 (192, (8, 8, 8), 8), (192, (), 0)):  # fmt: skip
        schedule = product(20, 24, depth, TensorTile(16, 16, 64, (1, 1)), dense=True)
        grid = launch(schedule, "sm_80")
        text = ptx_text("k", schedule.func, [grid], {}, DEVICES["sm_80"], aligned)
        assert outcome(text, grid, 20, 24, depth) == "right"
        found = {line.split("], ")[2].split(";")[0].split(",")[0] for line in text.splitlines() if "cp.async.c" in line
                 and "commit" not in line}  # fmt: skip
        assert found == ({str(size)} if size and (size == 16 or aligned == ALIGNED) else set()), (depth, aligned)


def piped(rows: int, columns: int, depth: int, stages: int) -> te.Schedule:
    """A product of int32 by threads."""
    schedule = plain_product(rows, columns, depth)
    schedule_tiled(schedule, TILES[3])
    (step,) = [loop for loop in schedule.get_loops("acc") if loop in schedule.get_loops("left")][-1:]
    schedule.annotate(step, PIPELINE, stages)
    return schedule


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("gpu", ["generic", "sm_80"])
def test_any_loop_may_be_a_pipeline(gpu: str, stages: int) -> None:
    schedule = piped(40, 33, 50, stages)
    (grid,) = grids_of(schedule.func, DEVICES[gpu])
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-99, 99, shape).astype(np.int32) for shape in ((40, 50), (50, 33)))
    found = np.zeros((40, 33), np.int32)
    device = DEVICES["sm_80"]  # the launches of a device without asynchronous copies run on one with them
    run(ptx_text("k", schedule.func, [grid], {}, device, ALIGNED), grid, a, b, found)
    np.testing.assert_array_equal(found, a @ b + 1)
    assert ("commit" in grid_text(grid)) == (gpu == "sm_80")


# Damage


def test_sums_take_the_place_of_operands_behind_a_barrier() -> None:
    grid = launch(product(32, 32, 256, TILE, dense=True), "sm_80")
    right, left, sums = (Placed(*each) for each in zip(grid.shared, grid.places, strict=True))
    assert sums.buffer.name == "sums"
    assert left.end <= right.offset or right.end <= left.offset
    assert sums.offset < max(left.end, right.end)
    assert grid.shared_bytes == max(left.end, right.end, sums.end)
    assert isinstance(grid.body, Seq)
    fills = next(number for number, node in enumerate(grid.body.body) if isinstance(node, Phase)
                 and any(buffer.name == "sums" for buffer, _ in stores_of(node.body)))  # fmt: skip
    assert isinstance(grid.body.body[fills - 1], Barrier)


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
def test_damaged_waits_and_copies_are_noticed(gpu: str) -> None:
    rows, columns, depth = 32, 32, 256
    schedule = product(rows, columns, depth, TILE, gpu, dense=True)
    grid = launch(schedule, gpu)
    text = ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu], ALIGNED)
    assert outcome(text, grid, rows, columns, depth) == "right"
    survivors: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for what, changed in damages(text):
        tried[what.split()[0].split(".")[0]] += 1
        survivors[what] += outcome(changed, grid, rows, columns, depth) == "right"
    assert tried["bar"] >= 2
    assert tried["cp"] > 8 if gpu == "sm_80" else tried["st"] > 8
    assert not +survivors


@pytest.mark.parametrize(
    ("gpu", "dense", "sizes", "tile"),
    [
        ("sm_80", False, (20, 37, 70), TensorTile(16, 16, 64, (1, 1))),
        ("sm_80", True, (20, 37, 72), TensorTile(16, 16, 64, (1, 1))),
        ("sm_75", False, (33, 21, 150), TensorTile(16, 32, 64, (1, 2))),
    ],
)
def test_flipped_branches_are_noticed_in_odd_sizes(
    gpu: str, dense: bool, sizes: tuple[int, int, int], tile: TensorTile
) -> None:
    schedule = product(*sizes, tile, gpu, dense=dense)
    grid = launch(schedule, gpu)
    text = ptx_text("k", schedule.func, [grid], {}, DEVICES[gpu], ALIGNED)
    a, b, wanted = operands(*sizes)
    branches = list(re.finditer(r"^\t@(!?)(%p\d+ bra)", text, re.MULTILINE))
    assert len(branches) > 8
    for match in branches:
        turned = f"\t@{'' if match[1] else '!'}{match[2]}"
        found = np.zeros_like(wanted)
        try:
            run(text[: match.start()] + turned + text[match.end() :], grid, a, b.T.copy() if dense else b, found)
        except PtxError:
            continue
        assert not np.array_equal(found, wanted), match


def undone(grid: Grid) -> Iterator[tuple[str, Grid]]:
    """The launch without one of its guards: of threads, of iterations ahead, of what lies beyond an edge."""
    phases = [node for node in nodes(grid.body) if isinstance(node, Phase)]
    for phase in phases:
        for place, digit in enumerate(phase.digits):
            if digit.is_guarded:
                digits = list(phase.digits)
                digits[place] = replace(digit, extent=Const(digit.radix))
                body = phase.body
                if isinstance(body, For) and digit.var in free_vars(body.extent):  # it also ends what a thread repeats
                    body = replace(body, extent=Const(constant_range(body.extent, ())[1]))
                yield f"digit {digit.var.name}", changed(grid, phase, replace(phase, digits=tuple(digits), body=body))
        conditions: set[Expr] = set()

        def collect(expr: Expr, found: set[Expr] = conditions) -> Expr:
            return map_exprs(expr, lambda node: found.add(node.cond) if isinstance(node, Select) else None)

        map_stmt_exprs(phase.body, collect)
        for condition in conditions:

            def dropped(expr: Expr, gone: Expr = condition) -> Expr:
                return map_exprs(expr, lambda node: node.a if isinstance(node, Select) and node.cond == gone else None)

            yield f"select {condition}", changed(grid, phase, replace(phase, body=map_stmt_exprs(phase.body, dropped)))


def changed(grid: Grid, old: Stmt, new: Stmt) -> Grid:
    def visit(stmt: Stmt) -> Stmt:
        if stmt is old:
            return new
        match stmt:
            case Seq(body=items):
                return Seq(tuple(map(visit, items)))
            case For(body=body):
                return replace(stmt, body=visit(body))
        return stmt

    return replace(grid, body=visit(grid.body))


@pytest.mark.parametrize("gpu", ["sm_75", "sm_80"])
def test_missing_guards_are_noticed(gpu: str) -> None:
    """Row 20 is beyond the memory of every operand, and the last step of the depth is a part."""
    rows, columns, depth = 20, 20, 56
    tile = TensorTile(16, 16, 64, (1, 1))
    schedule = product(rows, columns, depth, tile, gpu, dense=True)
    grid = launch(schedule, gpu)
    tried = 0
    for what, each in undone(grid):
        text = ptx_text("k", schedule.func, [each], {}, DEVICES[gpu], ALIGNED)
        assert outcome(text, grid, rows, columns, depth) != "right", what
        tried += 1
    assert tried == 6  # rows and columns of the result, rows and depth of both operands


def test_filling_beyond_the_last_step_is_noticed() -> None:
    """By a loop that has one round too many, and by what threads gather without a condition."""
    schedule = product(32, 32, 64 * 9, TILE, dense=True)
    grid = launch(schedule, "sm_80")
    (loop,) = (node for node in nodes(grid.body) if isinstance(node, For))
    longer = replace(loop, extent=Const(constant_range(loop.extent, ())[1] + 1))
    text = ptx_text("k", schedule.func, [changed(grid, loop, longer)], {}, DEVICES["sm_80"], ALIGNED)
    assert outcome(text, grid, 32, 32, 64 * 9) == "refused"
    schedule = product(32, 32, 256, TILE)
    grid = launch(schedule, "sm_80")
    phases = [node for node in nodes(grid.body) if isinstance(node, Phase) and isinstance(node.body, If)]
    assert len(phases) == 2
    a, b, wanted = operands(32, 32, 256)
    for phase in phases:
        assert isinstance(phase.body, If)
        damaged = changed(grid, phase, replace(phase, body=phase.body.then))
        text = ptx_text("k", schedule.func, [damaged], {}, DEVICES["sm_80"], ALIGNED)
        with pytest.raises(PtxError):
            run(text, grid, a, b, np.zeros_like(wanted))


# What is refused


@pytest.mark.parametrize("stages", [1, 9, "three"])
def test_numbers_of_stages(stages: int | str) -> None:
    with pytest.raises(CompileError, match=f"a pipeline of {stages!r} stages; hint: annotate with 2 to 8"):
        grids_of(piped(32, 32, 64, stages).func, DEVICES["sm_80"])  # type: ignore[arg-type]


def test_a_body_that_fills_nothing_is_refused() -> None:
    a = te.placeholder((8, 32), "int32", "a")
    out = te.compute((8, 32), lambda i, j: a[i, j] + 1, "out")
    plain = te.create_schedule(out, [a])
    i, j = plain.get_loops("out")
    plain.bind(j, "thread")
    plain.annotate(i, PIPELINE, 2)
    with pytest.raises(CompileError, match="its body does not fill shared memory first, and only read it then"):
        grids_of(plain.func, DEVICES["sm_80"])
