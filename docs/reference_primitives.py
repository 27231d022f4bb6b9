"""The manual's page of schedule primitives: each with a small nest before and after it, made by running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

from reference_text import docstring, signature
from weft.compiler import tensor as t
from weft.compiler.tensor import Schedule


def rows() -> Schedule:
    """Sums of rows, and half of each: a reduction and an elementwise stage behind it."""
    x = t.placeholder((6, 8), "int32", "x")
    k = t.reduce_axis(8, "k")
    total = t.compute((6,), lambda i: t.sum(x[i, k], k), "total")
    return t.create_schedule(t.compute((6,), lambda i: total[i] >> 1, "half"), name="rows")


def plane() -> Schedule:
    """One elementwise stage over a plane."""
    x = t.placeholder((6, 8), "int32", "x")
    return t.create_schedule(t.compute((6, 8), lambda i, j: x[i, j] + 1, "y"), name="plane")


def chain() -> Schedule:
    """Two elementwise stages."""
    x = t.placeholder((8,), "int32", "x")
    twice = t.compute((8,), lambda i: x[i] * 2, "twice")
    return t.create_schedule(t.compute((8,), lambda i: twice[i] + 1, "y"), name="chain")


def windows() -> Schedule:
    """Sums of three neighbours of a stage."""
    x = t.placeholder((8,), "int32", "x")
    half = t.compute((8,), lambda i: x[i] >> 1, "half")
    k = t.reduce_axis(3, "k")
    return t.create_schedule(t.compute((6,), lambda i: t.sum(half[i + k], k), "total"), name="windows")


ADD_FOUR = t.tensor_intrinsic(
    "add_four",
    operands=[t.tile("out", (4,), "int32", "global", "out"), t.tile("x", (4,), "int32", "global", "in")],
    loops={"lane": 4},
    meaning=lambda out, x, lane: out.store((lane,), x[lane] + 1),
    emits="ADD4",
)
"""An instruction that adds 1 to four numbers."""


class Example(NamedTuple):
    """A nest, what is done to it before, and the lines that are shown."""

    nest: Callable[[], Schedule]
    lines: str
    before: str = ""


EXAMPLES = {
    "split": Example(plane, 's.split("j", 4)'),
    "split_shifted": Example(plane, 's.split_shifted("i", 4)'),
    "tile": Example(plane, 's.tile(["i", "j"], [2, 4])'),
    "fuse": Example(plane, 's.fuse("i", "j")'),
    "reorder": Example(plane, 's.reorder("j", "i")'),
    "unroll": Example(plane, 's.unroll("i")'),
    "vectorize": Example(plane, 's.vectorize("j")'),
    "parallel": Example(plane, 's.parallel("i")'),
    "vthread": Example(plane, 's.vthread("i")'),
    "bind": Example(plane, 's.bind("i", "blockIdx.x")'),
    "annotate": Example(plane, 's.annotate("i", "why", "an example")'),
    "cache_read": Example(plane, 's.cache_read("y", "x", "inp")'),
    "cache_write": Example(plane, 's.cache_write("y", "out")'),
    "set_scope": Example(rows, 's.set_scope("total", "acc")'),
    "compute_at": Example(rows, 's.compute_at("total", "half_i")'),
    "reverse_compute_at": Example(rows, 's.reverse_compute_at("half", "i")'),
    "compute_inline": Example(chain, 's.compute_inline("twice")'),
    "decompose_reduction": Example(rows, 's.decompose_reduction("total", "k")'),
    "rfactor": Example(rows, 's.rfactor("total", "k_i", axis=1)', 's.split("k", 4)'),
    "storage_align": Example(plane, 's.storage_align("x_inp", 0, 32, 1)', 's.cache_read("y", "x", "inp")'),
    "double_buffer": Example(rows, 's.double_buffer("total")', 's.compute_at("total", "half_i")'),
    "roll": Example(windows, 's.roll("half", "total_i_o")', 's.split("total_i", 2); s.compute_at("half", "total_i_o")'),
    "inplace": Example(chain, 's.inplace("y", "twice")'),
    "tensorize": Example(plane, 's.tensorize("j_i", add_four)', 's.split("j", 4)'),
}

ASKING = ("copy", "blocks", "buffers", "get_loops")
"""Methods that change nothing."""


def shown(name: str) -> tuple[str, str]:
    """The nest before and after a primitive, as text."""
    example = EXAMPLES[name]
    schedule = example.nest()
    names = {"s": schedule, "add_four": ADD_FOUR}
    exec(example.before, names)  # lines of this file
    before = str(schedule)
    exec(example.lines, names)
    return before, str(schedule)


def page() -> str:
    """The page, as Markdown."""
    lines = [
        "# Schedule primitives", "",
        "How a computation is done: each primitive rewrites the loops and keeps their meaning, or is refused. Here",
        "each stands with a small nest before and after it, as it prints them. [schedules.md](../schedules.md) shows",
        "them at work.", "",
    ]  # fmt: skip
    for name, member in vars(Schedule).items():
        if name.startswith("_") or not inspect.isfunction(member) or not member.__doc__:
            continue
        lines += [f"## {name}", "", f"```python\n{name}{signature(member)}\n```", "", *docstring(member)]
        if name in EXAMPLES:
            before, after = shown(name)
            lines += ["Before:", "", f"```text\n{before}\n```", "", f"After `{EXAMPLES[name].lines}`:", "",
                      f"```text\n{after}\n```", ""]  # fmt: skip
    return "\n".join(lines)
