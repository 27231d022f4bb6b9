"""The rules that hold the project together: who imports whom, what is packaged, how long a file may be."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PYPROJECT["tool"]["setuptools"]["packages"]
BESIDE_THE_PACKAGE = {"tests", "examples", "docs", "benchmarks", "build", "dist"}
LINES_AT_MOST = 600

BASE = (
    "weft.errors",
    "weft.cache",
    "weft.collector",
    "weft.content",
    "weft.files",
    "weft.plugins",
    "weft.records",
    "weft.shown",
    "weft.whole",
)
"""Modules that every part may import; they import nothing of weft but each other."""

# What each part may import besides itself; a name stands for that module and all below it.
MAY_IMPORT = {
    **dict.fromkeys(BASE, ()),
    "weft.hw": (),
    "weft.sim": ("weft.hw",),
    "weft.compiler": (
        "weft.hw.isa",
        "weft.hw.programs",
        "weft.hw.assembly",
        "weft.hw.config",
        "weft.hw.dram_rate",
        "weft.hw.load_counts",
        "weft.hw.weight_form",
        "weft.hw.memories",
        "weft.hw.errors",
    ),
    # runtime runs what the compiler hands over, and host functions through the operators' own NumPy meanings.
    "weft.runtime": ("weft.sim", "weft.hw", "weft.compiler.model", "weft.compiler.graph", "weft.compiler.operators"),
    # What travels to a board; the rule below is stricter.
    "weft.boards.link": (),
    # A board is a device of the runtime; a virtual one is the RTL.
    "weft.boards": ("weft.hw", "weft.sim", "weft.runtime", "weft.compiler.model", "weft.compiler.graph.dtypes"),
    # Losses, optimisers and steps of training are graphs; whoever runs them is given. What they take is planned.
    "weft.train": (
        "weft.compiler.compile",
        "weft.compiler.model",
        "weft.compiler.graph",
        "weft.compiler.operators",
        "weft.compiler.passes",
        "weft.runtime.sealed",
        "weft.runtime.errors",
    ),
    # A backend of torch.compile compiles and loads as a user would.
    "weft.pytorch": ("weft.api", "weft.compiler", "weft.runtime"),
    # Ranges of values come from a model that is compiled and run.
    "weft.quantise": ("weft.api", "weft.compiler", "weft.runtime"),
    # Programs are proved to be their graph, from the declaration of the ISA and the types of the graph; the checker of
    # tokens shares no code with the compiler either. What cannot be proved is tried on the simulator.
    "weft.verify": (
        "weft.hw",
        "weft.sim",
        "weft.compiler.graph",
        "weft.compiler.model",
        "weft.compiler.targets.accel.check",
        "weft.compiler.targets.errors",
    ),
    # A test of the RTL is judged by the functional simulator.
    "weft.testbench": ("weft.hw", "weft.sim"),
    # What is searched is the compiler's; what it costs, the timing model says.
    "weft.tune": ("weft.compiler", "weft.hw", "weft.sim", "weft.runtime"),
    # A point of a space is compiled and timed as a user would; what its core takes is known where boards are.
    "weft.explore": ("weft.compiler", "weft.tune", "weft.hw", "weft.sim", "weft.runtime", "weft.boards", "weft.api"),
    "weft.cli": ("weft",),
}


@dataclass(frozen=True)
class Import:
    module: str  # who imports, such as weft.sim.rtl
    imported: str  # what, such as weft.hw.config
    line: int
    relative: bool = False


def package_files() -> list[Path]:
    """Every Python file that belongs to the package."""
    folders = [
        folder
        for folder in sorted(ROOT.iterdir())
        if folder.is_dir() and folder.name not in BESIDE_THE_PACKAGE and not folder.name.startswith(".")
    ]
    return sorted(ROOT.glob("*.py")) + [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def module_name(path: Path) -> str:
    parts = ("weft", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module: str, is_package: bool, source: str) -> Iterator[Import]:
    """Everything that ``source``, the text of ``module``, imports at any depth, with absolute names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            inside = [node.module] if node.module else []
            for alias in node.names:
                yield Import(module, ".".join([*above, *inside, alias.name]), node.lineno, relative=node.level > 0)


def is_at_or_below(name: str, parent: str) -> bool:
    return name == parent or name.startswith(f"{parent}.")


def breaks_a_rule(found: Import) -> bool:
    """Whether an import goes against the direction that the design allows."""
    if not is_at_or_below(found.imported, "weft"):
        return False
    for part, others in MAY_IMPORT.items():
        if is_at_or_below(found.module, part):
            return not any(is_at_or_below(found.imported, allowed) for allowed in (part, *others, *BASE))
    return False  # the public API may use everything


@cache
def all_imports() -> list[Import]:
    return [
        found
        for path in package_files()
        for found in imports_of(module_name(path), path.name == "__init__.py", path.read_text())
    ]


def test_imports_go_only_the_ways_that_the_design_allows() -> None:
    broken = [found for found in all_imports() if breaks_a_rule(found)]
    assert not broken, "\n".join(map(str, broken))


def test_loop_kernels_know_no_processor() -> None:
    """A target beside the CPU finds all that it shares with it in ``loops``, without LLVM."""
    loops = [each for each in all_imports() if is_at_or_below(each.module, "weft.compiler.targets.loops")]
    forbidden = ("llvmlite", "weft.compiler.targets.cpu", "weft.compiler.targets.accel")
    upward = [each for each in loops if any(is_at_or_below(each.imported, name) for name in forbidden)]
    assert loops
    assert not upward, "\n".join(map(str, upward))


def test_what_targets_share_of_llvm_knows_no_processor() -> None:
    shared = [each for each in all_imports() if is_at_or_below(each.module, "weft.compiler.targets.llvm")]
    forbidden = [f"weft.compiler.targets.{name}" for name in ("cpu", "gpu", "accel")]
    upward = [each for each in shared if any(is_at_or_below(each.imported, name) for name in forbidden)]
    assert shared
    assert not upward, "\n".join(map(str, upward))


def test_what_runs_on_a_board_takes_nothing_of_weft_with_it() -> None:
    """The program for boards and the virtual board run where there is no weft."""
    alone = ("weft.boards.link", "weft.boards.virtual")
    found = [each for each in all_imports() for part in alone if is_at_or_below(each.module, part)]
    foreign = [each for each in found if is_at_or_below(each.imported, "weft") and not each.imported.startswith(alone)]
    assert found
    assert not foreign, "\n".join(map(str, foreign))


def test_the_package_imports_itself_relatively() -> None:
    absolute = [found for found in all_imports() if is_at_or_below(found.imported, "weft") and not found.relative]
    assert not absolute, "\n".join(map(str, absolute))


def test_only_counterexamples_use_the_evaluator_of_the_graph() -> None:
    """A verifier that shares it with the compiler would share its mistakes."""
    own = [each for each in all_imports() if is_at_or_below(each.module, "weft.verify")]
    evaluators = {each.module for each in own if is_at_or_below(each.imported, "weft.compiler.graph.evaluate")}
    assert evaluators == {"weft.verify.counterexample"}


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("weft.hw.gemm", "from ..sim import fsim", True),
        ("weft.hw.gemm", "from ..errors import WeftError", False),
        ("weft.errors", "from .hw import config", True),
        ("weft.hw.gemm", "from .config import CoreConfig", False),
        ("weft.compiler.tensor.ir", "from ...hw.isa import Gemm", False),
        ("weft.compiler.tensor.ir", "from ...hw import config", False),
        ("weft.compiler.tensor.ir", "from ...hw.gemm import Gemm", True),
        ("weft.compiler.tensor.ir", "from ... import runtime", True),
        ("weft.compiler.tune", "def late():\n    import weft.sim.rtl", True),
        ("weft.runtime.device", "from ..sim.rtl import build", False),
        ("weft.runtime.device", "from ..compiler import passes", True),
        ("weft.sim.rtl", "from ..hw.export import verilog", False),
        ("weft.sim.rtl", "import numpy", False),
        ("weft.cli", "from .compiler import graph", False),
        ("weft.verify.graph", "from ..compiler.graph import ir", False),
        ("weft.verify.graph", "from ..compiler.operators import numerics", True),
    ],
)
def test_the_import_rule_tells_good_from_bad(module: str, source: str, broken: bool) -> None:
    assert any(breaks_a_rule(found) for found in imports_of(module, False, source)) is broken


def test_a_relative_import_of_a_package_starts_at_the_package_itself() -> None:
    (found,) = imports_of("weft.hw", True, "from .config import CoreConfig")
    assert found.imported == "weft.hw.config.CoreConfig"


def test_every_folder_with_code_is_a_package_and_is_listed_in_pyproject() -> None:
    folders = {path.parent for path in package_files()}
    no_init = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]
    assert not no_init, f"no __init__.py in {no_init}"
    found = {module_name(folder / "__init__.py") for folder in folders}
    assert set(PACKAGES) == found, f"[tool.setuptools] packages: {set(PACKAGES) ^ found}"


def test_mypy_checks_every_part_of_the_package() -> None:
    settings = PYPROJECT["tool"]["mypy"]
    assert set(settings["packages"]) == {name for name in PACKAGES if name.count(".") == 1}
    assert set(settings["modules"]) == {module_name(path) for path in ROOT.glob("*.py")}


def test_every_part_has_an_import_rule() -> None:
    assert {name for name in PACKAGES if name.count(".") == 1} <= set(MAY_IMPORT)


def test_no_file_is_too_long_to_read() -> None:
    lengths = {module_name(path): len(path.read_text().splitlines()) for path in package_files()}
    too_long = {name: lines for name, lines in lengths.items() if lines > LINES_AT_MOST}
    assert not too_long, f"more than {LINES_AT_MOST} lines; find the second subject inside: {too_long}"


# What each room of the compiler may import of the others; targets may import all of these.
ROOMS = {
    "weft.compiler.tensor": (),
    "weft.compiler.graph": ("weft.compiler.tensor",),
    "weft.compiler.operators": ("weft.compiler.graph", "weft.compiler.tensor"),
    "weft.compiler.scope": (),
    "weft.compiler.passes": (
        "weft.compiler.operators",
        "weft.compiler.graph",
        "weft.compiler.scope",
        "weft.compiler.tensor",
    ),
    "weft.compiler.frontends": ("weft.compiler.graph",),
    "weft.compiler.exporters": ("weft.compiler.graph", "weft.compiler.passes", "weft.compiler.frontends"),
}


# What each room of the accelerator may import of the others, in the order of its story; target.py may import all.
ACCEL = "weft.compiler.targets.accel"
ACCEL_ROOMS = {
    f"{ACCEL}.check": (),
    f"{ACCEL}.stream": (),
    f"{ACCEL}.operators": (),
    f"{ACCEL}.schedule": (f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.cost": (f"{ACCEL}.schedule", f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.walk": (f"{ACCEL}.schedule", f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.link": tuple(f"{ACCEL}.{room}" for room in ("walk", "cost", "schedule", "operators", "stream", "check")),
    f"{ACCEL}.passes": tuple(f"{ACCEL}.{room}" for room in ("link", "walk", "cost", "schedule", "operators", "stream")),
}


@pytest.mark.parametrize(
    ("house", "rooms"), [("weft.compiler", ROOMS), (ACCEL, ACCEL_ROOMS)], ids=["compiler", "accelerator"]
)
def test_rooms_stand_on_each_other(house: str, rooms: dict[str, tuple[str, ...]]) -> None:
    upward = [
        found
        for found in all_imports()
        for room, below in rooms.items()
        if is_at_or_below(found.module, room) and is_at_or_below(found.imported, house)
        and not any(is_at_or_below(found.imported, allowed) for allowed in (room, *below))
    ]  # fmt: skip
    assert not upward, "\n".join(map(str, upward))


def test_every_room_of_the_accelerator_has_an_import_rule() -> None:
    assert {name for name in PACKAGES if name.startswith(f"{ACCEL}.")} <= set(ACCEL_ROOMS)


# Memory

BY_WHAT_CODE_SAYS = {
    "weft.boards.zipapp.zipapp",
    "weft.compiler.operators.random_graphs._samples",
    "weft.compiler.operators.small_types._format",
    "weft.compiler.targets.sources.sources_digest",
    "weft.compiler.tensor.legality._names",
    "weft.explore.measure._shared",
    "weft.hw.instruction_checksum._byte_checks",
    "weft.hw.instruction_checksum.check_masks",
    "weft.runtime.gpu.cuda_driver._opened",
    "weft.sim.c_interface._structure",
}
"""Functions that remember all results: their arguments are named by the code or by the user, and are few."""


def test_what_functions_remember_does_not_grow_with_what_a_process_has_seen() -> None:
    """A ``cache`` without a size holds what belongs to every model and every core, for ever."""
    unbounded = {
        f"{module_name(path)}.{node.name}"
        for path in package_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.args)
        and any(ast.unparse(each) in ("cache", "functools.cache") for each in node.decorator_list)
    }  # fmt: skip
    assert unbounded == BY_WHAT_CODE_SAYS
