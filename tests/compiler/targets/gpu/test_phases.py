"""Which thread does what, where a group waits, and what no group can do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler import tensor as te
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.gpu.devices import DEVICES, named_device
from weft.compiler.targets.gpu.launches import grid_text
from weft.compiler.targets.gpu.phases import grids_of
from weft.compiler.tensor.ir import PrimFunc
from weft.compiler.tensor.parser import parse

GENERIC = DEVICES["generic"]


def func(body: str, params: str = 'x: int32[64] @ "global", out: int32[64] @ "global"') -> PrimFunc:
    """A function with this body, four spaces in."""
    return parse(f"def kernel(\n    {params},\n):\n{body}")


NEIGHBOURS = """\
    for b in bind(4, 'block.x'):
        with allocate(int32[16] @ "shared") as tile:
            for i in bind(16, 'thread'):
                with block("tile", "spatial"):
                    tile[i] = x[b * 16 + i]
            for r in range(3):
                for j in bind(16, 'thread'):
                    with block("out", "spatial"):
                        out[b * 16 + j] = tile[(j + r) % 16]
"""


def test_a_group_waits_between_writing_and_reading_what_it_shares() -> None:
    (grid,) = grids_of(func(NEIGHBOURS), GENERIC)
    assert (
        grid_text(grid)
        == """\
grid 4 x 1 x 1, 16 threads
  b = block.x // 1 % 4
  shared tile: int32[16]
  threads i < 16 by 1:
    tile: tile[i]
  for r in 3:
    barrier everywhere
    threads j < 16 by 1:
      out: out[b * 16 + j]
"""
    )


def test_digits_are_handed_out_from_the_innermost_loop_on() -> None:
    text = """\
    for n in bind(2, 'block.x'):
        for b in bind(2, 'block.x'):
            for i in bind(2, 'thread'):
                for j in bind(min(7, 9 - b * 7), 'thread'):
                    with block("out", "spatial"):
                        out[n * 32 + b * 14 + i * 7 + j] = x[0]
"""
    (grid,) = grids_of(func(text), GENERIC)
    assert grid.groups == (4, 1, 1)
    assert grid.threads == 14
    assert [(digit.radix, digit.weight) for digit in grid.blocks[0]] == [(2, 2), (2, 1)]
    assert "threads i < 2 by 7, j < min(7, 9 - b * 7) by 1" in grid_text(grid)


def test_each_statement_at_the_top_is_a_launch() -> None:
    text = """\
    with allocate(int32[64] @ "global") as t:
        for i in bind(64, 'thread'):
            with block("t", "spatial"):
                t[i] = x[i]
        for j in bind(64, 'thread'):
            with block("out", "spatial"):
                out[j] = t[63 - j]
"""
    first, second = grids_of(func(text), GENERIC)
    assert (first.params, second.params) == ((0,), (1,))
    assert [buffer.name for buffer, _ in (*first.workspace, *second.workspace)] == ["t", "t"]


def test_a_register_buffer_is_split_among_its_threads() -> None:
    text = """\
    with allocate(int32[64] @ "register") as r:
        for i in bind(16, 'thread'):
            for e in range(4):
                with block("r", "spatial"):
                    r[i * 4 + e] = x[i * 4 + e]
        for j in bind(16, 'thread'):
            for f in range(4):
                with block("out", "spatial"):
                    out[j * 4 + f] = r[j * 4 + f]
"""
    inside = "    for b in bind(1, 'block.x'):\n" + "".join(f"    {line}\n" for line in text.splitlines())
    (grid,) = grids_of(func(inside), GENERIC)
    (part,) = grid.registers
    assert part.shape == (4,)
    assert "r: r[e]" in grid_text(grid).replace("0 * 4 + ", "")


def in_group(lines: str) -> PrimFunc:
    """The function whose one group does this, with a register buffer around."""
    inner = "".join(f"            {line}\n" for line in lines.splitlines())
    return func("    for b in bind(1, 'block.x'):\n        with allocate(int32[64] @ \"register\") as r:\n" + inner)


PHASE = """\
for {i} in bind({radix}, 'thread'):
    for {e} in range({count}):
        with block("{name}", "spatial"):
            {store}
"""


def phase(name: str, store: str, radix: int = 16, count: int = 4) -> str:
    return PHASE.format(i=f"{name}_i", e=f"{name}_e", radix=radix, count=count, name=name,
                        store=store.replace("I", f"{name}_i").replace("E", f"{name}_e"))  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("r[I * 4 + E] = int32(1)", "out[I * 4 + E] = r[E * 16 + I]", "give its elements to threads in different ways"),
        ("r[I * 4 + E] = int32(1)", "out[I * 4 + E] = r[E]", "not every loop over threads finds elements"),
        ("r[I * 3 + E] = int32(1)", "out[I * 4 + E] = r[I * 3 + E]", "does not tell the owner"),
        ("r[(I * 4 + E) // 2] = int32(1)", "out[I * 4 + E] = r[(I * 4 + E) // 2]", "is no sum of digits"),
    ],
)
def test_a_register_buffer_that_threads_would_share_is_refused(first: str, second: str, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        grids_of(in_group(phase("a", first) + phase("c", second)), GENERIC)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for i in bind(512, 'thread'):\n    with block(\"o\", \"spatial\"):\n        out[0] = x[0]\n", "512 threads"),
        ("for i in bind(4, 'thread'):\n    for b in bind(4, 'block.x'):\n        with block(\"o\", \"spatial\"):\n"
         "            out[0] = x[0]\n", "bound inside of a loop that is bound to threads"),
        ("for s in range(2):\n    for b in bind(4, 'block.x'):\n        for i in bind(4, 'thread'):\n"
         "            with block(\"o\", \"spatial\"):\n                out[0] = x[0]\n", "inside of a group"),
        ("for i in bind(4, 'thread'):\n    with allocate(int32[4] @ \"shared\") as t:\n"
         "        with block(\"o\", \"spatial\"):\n            t[0] = x[0]\n", "allocated for each thread"),
        ("for b in bind(4, 'block.y'):\n    with allocate(int32[16384] @ \"shared\") as t:\n"
         "        for i in bind(4, 'thread'):\n            with block(\"o\", \"spatial\"):\n"
         "                t[i] = x[0]\n", "shares 65,536 bytes"),
    ],
)  # fmt: skip
def test_what_no_group_can_do_is_refused(body: str, why: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(CompileError, match=why):
        grids_of(func(lines), GENERIC)


def test_a_grid_has_an_end() -> None:
    device = replace(GENERIC, groups=(3, 3, 3))
    with pytest.raises(CompileError, match=r"4 groups along block\.x, but 'generic' has 3 at most"):
        grids_of(func(NEIGHBOURS), device)


def test_a_device_that_nobody_described_is_named() -> None:
    with pytest.raises(CompileError, match="no description of a GPU 'abacus'; hint: choose generic"):
        named_device("abacus")


def test_what_stands_outside_of_thread_loops_is_for_thread_0() -> None:
    x = te.placeholder((8,), "int32", "x")
    k = te.reduce_axis(8, "k")
    schedule = te.create_schedule(te.compute((), lambda: te.sum(x[k], [k]), "out"), [x])
    (grid,) = grids_of(schedule.func, GENERIC)
    assert grid.threads == 1
    assert "thread 0:" in grid_text(grid)


ROWS = """\
    for b in bind(1, 'block.x'):
        with allocate(int32[64] @ "shared") as t:
            for i in bind(16, 'thread'):
                with block("t", "spatial"):
                    t[i * 4] = x[i]
            with allocate(int32[64] @ "shared") as u:
                for r in range(4):
                    for j in bind(16, 'thread'):
                        with block("u", "spatial"):
                            u[{index}] = t[r * 16 + (j + 1) % 16]
                for k in bind(16, 'thread'):
                    with block("out", "spatial"):
                        out[k] = u[63 - k]
"""


@pytest.mark.parametrize(("index", "inside"), [("r * 16 + j", False), ("r * 15 + j", True), ("j", True)])
def test_iterations_that_are_apart_do_not_wait_for_each_other(index: str, inside: bool) -> None:
    """One barrier before the loop is enough, unless an iteration writes what another one wrote."""
    (grid,) = grids_of(func(ROWS.format(index=index)), GENERIC)
    lines = [line for line in grid_text(grid).splitlines() if "barrier" in line or "for r" in line]
    first = ["  for r in 4:", "    barrier"] if inside else ["  barrier", "  for r in 4:"]
    assert lines == [*first, "  barrier everywhere" if inside else "  barrier"]


def test_a_barrier_before_a_loop_is_everywhere_where_those_inside_were() -> None:
    """What was read outside of the group is written there, once before all rows."""
    text = """\
    for b in bind(1, 'block.x'):
        with allocate(int32[64] @ "shared") as t:
            for i in bind(16, 'thread'):
                with block("t", "spatial"):
                    out[i] = x[i]
            for r in range(4):
                for j in bind(16, 'thread'):
                    with block("u", "spatial"):
                        t[r * 16 + j] = out[j]
            for k in bind(16, 'thread'):
                with block("out", "spatial"):
                    out[16 + k] = t[63 - k]
"""
    (grid,) = grids_of(func(text), GENERIC)
    lines = [line for line in grid_text(grid).splitlines() if "barrier" in line or "for r" in line]
    assert lines == ["  barrier everywhere", "  for r in 4:", "  barrier everywhere"]


def test_a_barrier_of_the_group_leaves_writes_elsewhere_to_one_that_is_everywhere() -> None:
    text = """\
    for b in bind(1, 'block.x'):
        with allocate(int32[16] @ "shared") as t:
            for i in bind(16, 'thread'):
                with block("first", "spatial"):
                    out[i] = x[i]
            for j in bind(16, 'thread'):
                with block("t", "spatial"):
                    t[j] = t[j]
            for k in bind(16, 'thread'):
                with block("other", "spatial"):
                    t[k] = t[15 - k]
            for l in bind(16, 'thread'):
                with block("last", "spatial"):
                    out[16 + l] = out[15 - l]
"""
    (grid,) = grids_of(func(text), GENERIC)
    assert [line for line in grid_text(grid).splitlines() if "barrier" in line] == ["  barrier", "  barrier everywhere"]
