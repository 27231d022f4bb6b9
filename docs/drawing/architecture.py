"""The parts of weft and which imports which, as the files of the package say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import weft

from .svg import COLOURS, SOFT, Point, Sheet

ROOT = Path(weft.__file__).parent

BASE = (
    "content", "errors", "cache", "collector", "files", "imports", "plugins", "records", "roundings", "shown", "whole",
)  # fmt: skip
"""Modules at the root that any part may import: no arrows are drawn to them."""

PARTS = {
    # part: its modules and folders, what it is, the column it is drawn in, its colour
    "hw": (("hw",), "the core, its instructions", 0, "dram"),
    "sim": (("sim",), "functional and RTL simulator", 0, "dram"),
    "testbench": (("testbench",), "tests of the RTL in cocotb", 0, "dram"),
    "boards": (("boards",), "boards, designs for Vivado", 1, "dram"),
    "train": (("train",), "losses, optimisers, steps", 3, "engine"),
    "runtime": (("runtime",), "artifacts, devices, reports", 1, "fetch"),
    "compiler/model.py": (("compiler.model",), "what is handed over", 1, "fetch"),
    "compiler/tensor": (("compiler.tensor",), "loop IR, schedules", 2, "engine"),
    "compiler/graph": (("compiler.graph", "compiler.scope"), "graph IR, registry", 2, "engine"),
    "compiler/integers": (("compiler.integers",), "integer forms of values", 3, "engine"),
    "compiler/operators": (("compiler.operators",), "one entry an operator", 2, "engine"),
    "compiler/passes": (("compiler.passes",), "shared passes, manager", 2, "engine"),
    "compiler/targets": (
        ("compiler.targets", "compiler.targets.target", "compiler.targets.errors", "compiler.targets.memory_plan",
         "compiler.targets.sources"),
        "what a target is", 2, "engine",
    ),
    "targets/loops": (("compiler.targets.loops",), "kernels of loops", 2, "memory"),
    "targets/llvm": (("compiler.targets.llvm",), "expressions in LLVM IR", 3, "memory"),
    "targets/cpu": (("compiler.targets.cpu",), "machine code by LLVM", 2, "memory"),
    "targets/gpu": (("compiler.targets.gpu",), "OpenCL C and PTX", 3, "memory"),
    "targets/accel": (("compiler.targets.accel",), "programs for the core", 2, "memory"),
    "compiler/tune": (("compiler.tune",), "measured schedules", 4, "engine"),
    "compiler/frontends": (("compiler.frontends",), "models to graphs", 3, "engine"),
    "compiler/compile.py": (
        ("compiler", "compiler.compile", "compiler.targets.registry"), "a model for a target", 2, "engine",
    ),
    "verify": (("verify",), "proofs of programs", 1, "field"),
    "power": (("power",), "energy of cells, by layer", 1, "field"),
    "view": (("view",), "a model as a web page", 0, "field"),
    "weft": (
        ("", "api", "build_schedule", "compare", "kept_models", "pytorch", "quantise", "tune"),
        "public functions, tuning", 2, "field",
    ),
    "explore": (("explore",), "spaces, points, fronts", 3, "field"),
    "cli": (("cli", "progress", "__main__"), "the command", 2, "field"),
}  # fmt: skip

COLUMN, ROW, WIDTH, HEIGHT, LEFT, TOP = 216, 62, 176, 40, 114, 50


def part_of(module: str) -> str | None:
    """The part that a module, named from the package's root, belongs to; None for the base."""
    if module.split(".", maxsplit=1)[0] in BASE:
        return None
    owners = {own: part for part, (modules, *_) in PARTS.items() for own in modules}
    name = module
    while name not in owners:
        name = name.rpartition(".")[0]
    if not name and module:
        raise ValueError(f"module {module!r} belongs to no part: add it to PARTS of {Path(__file__).name}")
    return owners[name]


def package_modules() -> dict[str, Path]:
    """All modules of the package by their names from its root; the root itself is the empty name."""
    listed = set(weft_packages())
    paths = [path for folder in listed for path in (ROOT / folder).glob("*.py")]
    names = {path: path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in paths}
    return {name.removesuffix("__init__").rstrip("."): path for path, name in names.items()}


def weft_packages() -> Iterator[str]:
    """The folders of the package, from its root."""
    yield "."
    for init in ROOT.glob("*/**/__init__.py"):
        yield init.parent.relative_to(ROOT).as_posix()


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Pairs of parts: the first imports from the second."""
    modules = package_modules()
    arrows = set()
    for module, path in modules.items():
        above = module.split(".") if module else []
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.ImportFrom) and node.level):
                continue
            keep = len(above) - node.level + (path.name == "__init__.py")
            base = [*above[:keep], *(node.module or "").split(".")] if node.module else above[:keep]
            for alias in node.names:
                full = ".".join([*base, alias.name])
                arrows.add((part_of(module), part_of(full if full in modules else ".".join(base))))
    return frozenset((start, end) for start, end in arrows if start and end and start != end)


@cache
def below(part: str) -> frozenset[str]:
    """All parts that a part imports, also through others."""
    direct = {end for start, end in imports() if start == part}
    return frozenset(direct).union(*map(below, direct))


@cache
def row(part: str) -> int:
    """How many parts stand below a part, one upon another."""
    return 1 + max((row(end) for start, end in imports() if start == part), default=-1)


def draw() -> str:
    """The text of the picture."""
    rows = max(map(row, PARTS)) + 1
    sheet = Sheet(2 * LEFT + 4 * COLUMN, TOP + rows * ROW + 40, "the parts of weft, and which imports which")
    sheet.text(16, 26, "An arrow leads from a part to one that it imports; those that follow from others are left out.",
               size=12, colour=SOFT)  # fmt: skip

    def centre(part: str) -> Point:
        return LEFT + PARTS[part][2] * COLUMN, TOP + (rows - row(part)) * ROW - ROW / 2

    for start, end in sorted(imports()):
        between = {other for first, other in imports() if first == start and other != end}
        if any(end in below(other) for other in between):
            continue
        (x, y), (to_x, to_y) = centre(start), centre(end)
        edge = to_y - HEIGHT / 2
        side = WIDTH / 2 if to_x > x else -WIDTH / 2
        if x != to_x and row(start) - row(end) > 2:
            sheet.line([(x + side, y), (to_x, y), (to_x, edge)], arrow=True)
        elif x != to_x and row(start) - row(end) == 2:
            gap = (x + to_x) / 2 + (8 if row(end) % 2 == 0 else -8)  # lines to neighbours lie side by side
            sheet.line([(x + side, y), (gap, y), (gap, to_y), (to_x - side, to_y)], arrow=True)
        else:
            sheet.line([(x, y + HEIGHT / 2), (to_x, edge)], arrow=True)
    for part, (_, what, _, colour) in PARTS.items():
        x, y = centre(part)
        sheet.box(x - WIDTH / 2, y - HEIGHT / 2, WIDTH, HEIGHT, *COLOURS[colour])
        sheet.text(x, y - 3, part, size=13, anchor="middle", bold=True)
        sheet.text(x, y + 13, what, size=11, colour=SOFT, anchor="middle")
    names = ", ".join(f"{name}.py" for name in BASE)
    sheet.text(sheet.width / 2, sheet.height - 16, f"Any part may import {names}.", size=12, anchor="middle",
               colour=SOFT)  # fmt: skip
    return sheet.svg()
