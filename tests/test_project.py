"""The rules that hold the project together: who imports whom, what is packaged, how long a file may be."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from weft.compiler.graph import operators

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "weft"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [
    "weft",
    *(".".join(("weft", *init.parent.relative_to(PACKAGE).parts)) for init in PACKAGE.glob("*/**/__init__.py")),
]
LINES_AT_MOST = 600

BASE = (
    "weft.errors",
    "weft.cache",
    "weft.collector",
    "weft.content",
    "weft.files",
    "weft.imports",
    "weft.plugins",
    "weft.records",
    "weft.shown",
    "weft.roundings",
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
        "weft.hw.footprint",
        "weft.hw.load_counts",
        "weft.hw.weight_form",
        "weft.hw.memories",
        "weft.hw.errors",
        "weft.hw.system_config",
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
        "weft.compiler.targets.accel.check_turn",
        "weft.compiler.targets.errors",
    ),
    # A test of the RTL is judged by the functional simulator.
    "weft.testbench": ("weft.hw", "weft.sim"),
    # What is searched is the compiler's; what it costs, the timing model says.
    "weft.tune": ("weft.compiler", "weft.hw", "weft.sim", "weft.runtime"),
    # A point of a space is compiled and timed as a user would; what its core takes is known where boards are.
    "weft.explore": ("weft.compiler", "weft.tune", "weft.hw", "weft.sim", "weft.runtime", "weft.boards", "weft.api"),
    # A page of what was compiled follows programs, traced runs and the loop IR in it; nothing is compiled for it.
    "weft.view": ("weft.compiler.model", "weft.hw", "weft.sim", "weft.runtime"),
    # A network runs on the RTL as a user would run it; cells are what synthesis makes of its Verilog.
    "weft.power": ("weft.hw", "weft.sim", "weft.compiler.model", "weft.runtime", "weft.api"),
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
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = ("weft", *path.relative_to(PACKAGE).with_suffix("").parts)
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


def test_every_folder_with_code_is_a_package() -> None:
    """Else it is not installed: setuptools looks for ``__init__.py``."""
    folders = {path.parent for path in package_files()}
    no_init = [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()]
    assert not no_init, f"no __init__.py in {no_init}"


def test_only_the_package_is_installed() -> None:
    assert PYPROJECT["tool"]["setuptools"]["packages"]["find"] == {"include": ["weft", "weft.*"]}


def test_what_the_packages_read_beside_their_code_is_installed_with_them() -> None:
    """Pages, C++ sources and data: an installed package has of them what pyproject.toml names."""
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]
    folders = {name: ROOT.joinpath(*name.split(".")) for name in PACKAGES}
    named = {path for name, each in patterns.items() for pattern in each for path in folders[name].glob(pattern)}
    parts = [folders[name] for name in PACKAGES if name.count(".") == 1]
    inside = {path for part in parts for path in part.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    beside = {path for path in inside if path.suffix not in (".py", ".md")}
    assert len(beside) > 30
    assert beside <= named, sorted(path.relative_to(ROOT).as_posix() for path in beside - named)


def test_mypy_checks_every_part_of_the_package() -> None:
    assert PYPROJECT["tool"]["mypy"]["packages"] == ["weft"]


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
    "weft.compiler.integers": ("weft.compiler.graph",),
    "weft.compiler.operators": ("weft.compiler.graph", "weft.compiler.tensor", "weft.compiler.integers"),
    "weft.compiler.scope": (),
    "weft.compiler.passes": (
        "weft.compiler.operators",
        "weft.compiler.integers",
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
    f"{ACCEL}.check": (f"{ACCEL}.check_at_once",),
    f"{ACCEL}.check_at_once": (),
    f"{ACCEL}.check_turn": (f"{ACCEL}.check_at_once",),
    f"{ACCEL}.stream": (),
    f"{ACCEL}.operators": (),
    f"{ACCEL}.schedule": (f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.cost": (f"{ACCEL}.schedule", f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.walk": (f"{ACCEL}.schedule", f"{ACCEL}.operators", f"{ACCEL}.stream"),
    f"{ACCEL}.link": tuple(
        f"{ACCEL}.{room}" for room in ("walk", "cost", "schedule", "operators", "stream", "check", "check_turn")
    ),
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


# Names of operators

KEPT_APART = ("weft.sim", "weft.hw", "weft.cli", "weft.verify", "weft.compiler.tensor")
"""Where the same words name other things; and where nothing is shared with the compiler."""

AMBIGUOUS = {"add", "barrier", "product"}
"""Operators whose names are also those of operations of the loop IR, of GPUs and of kinds of loop nests."""

WITH_ENTRIES = (
    "weft.compiler.operators", "weft.compiler.frontends", "weft.compiler.exporters",
    "weft.compiler.targets.accel.operators.operators", "weft.compiler.targets.accel.operators.window_operators",
)  # fmt: skip
"""Entries, and the tables between operators of other formats and these."""

ASKED_BY_NAME = {
    "accel/behind_moves": 2,
    "accel/channel_moves": 1,
    "accel/depthwise_split": 1,
    "accel/elementwise_shapes": 5,
    "accel/flatten_into_kernel": 8,
    "accel/fuse": 7,
    "accel/host_moves": 2,
    "accel/inner_tensors": 1,
    "accel/numbers_of_rows": 3,
    "accel/pack_layout": 6,
    "accel/phases": 1,
    "accel/place_concat": 1,
    "accel/ramps": 2,
    "accel/rows_as_pixels": 1,
    "accel/unfold_input": 4,
    "accel/unlike_cores": 2,
    "gpu/products": 1,
    "integers/form": 2,
    "integers/static_weights": 2,
    "loops/block_product": 1,
    "loops/columns": 3,
    "loops/computed_kernels": 1,
    "loops/einsums": 1,
    "loops/fusion": 5,
    "loops/joins": 1,
    "loops/narrow_requantise": 2,
    "loops/one_transposition": 5,
    "loops/phases": 7,
    "loops/placement": 3,
    "loops/prepare": 1,
    "loops/product": 2,
    "loops/quotients": 4,
    "loops/rewrite_convolutions": 5,
    "loops/sink_reshapes": 6,
    "loops/tables": 3,
    "loops/whole_products": 8,
    "passes/emit_integers": 3,
    "passes/emit_sums": 3,
    "passes/emit_roundings": 4,
    "passes/float32_by_integers": 1,
    "passes/hand_over": 3,
    "passes/integer_rows": 5,
    "passes/legalise": 7,
    "passes/plain_windows": 15,
    "passes/rematerialise": 1,
    "passes/rows": 1,
    "passes/simplify": 26,
    "passes/simplify_gradients": 16,
    "passes/tabulate": 4,
    "quantise/equalise": 3,
    "quantise/plan": 2,
    "quantise/refine": 2,
    "quantise/states": 2,
}
"""How many times each module asks whether an operator has a certain name, instead of asking its entry for its role,
family or anchor. Names that calls are built with do not count. These numbers only fall."""


def asked_names(tree: ast.Module) -> list[str]:
    """Words that something is compared or matched with, or that are listed under a name."""
    asked = [word for node in ast.walk(tree) for word in _words(node)]
    return [word.value for word in {id(word): word for word in asked}.values()]


def _words(node: ast.AST) -> Iterator[ast.Constant]:
    match node:
        case ast.Compare(left=left, comparators=others):
            parts: list[ast.AST] = [left, *others]
        case ast.MatchValue(value=value):
            parts = [value]
        case ast.Assign(value=ast.Tuple() | ast.List() | ast.Set() | ast.Dict() as value):
            parts = [value]
        case ast.Call(func=ast.Name(id="frozenset" | "set"), args=[value]):
            parts = [value]
        case _:
            return
    while parts:
        match parts.pop():
            case ast.Constant(value=str()) as word:
                yield word
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                parts += elements
            case ast.Dict(keys=keys):
                parts += [key for key in keys if key is not None]


def place_of(path: Path) -> str:
    """The room of a module and its name, such as ``passes/legalise`` and ``accel/fuse``."""
    *folders, _ = path.relative_to(PACKAGE).parts
    return f"{folders[2] if folders[:2] == ['compiler', 'targets'] else folders[-1]}/{path.stem}"


def test_operators_are_asked_not_named() -> None:
    """What is known of an operator stands in its entry: else one that a user adds is a stranger to every pass."""
    names = {entry.name for entry in operators() if not entry.name.startswith("my.")} - AMBIGUOUS
    found = {}
    for path in package_files():
        module = module_name(path)
        if path.parent == PACKAGE or any(is_at_or_below(module, part) for part in (*KEPT_APART, *WITH_ENTRIES)):
            continue
        source = path.read_text()
        if names.isdisjoint(re.findall(r'"([^"\n]+)"', source)):
            continue  # nothing to look for: reading a file as text is cheap, parsing it is not
        count = sum(name in names for name in asked_names(ast.parse(source)))
        if count:
            found[place_of(path)] = count
    assert found == ASKED_BY_NAME


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("node.op == 'pad'", 1),
        ("node.op in ('pad', 'slice')", 2),
        ("match node:\n    case Call(op='pad' | 'slice', args=(Call(op='concat'),)): pass", 3),
        ("match node.op:\n    case 'pad': pass", 1),
        ("MOVES = ('pad', {'slice'})", 2),
        ("MOVES = frozenset({'pad', 'slice'})", 2),
        ("WORDS = {'pad': 1}", 1),
        ("call('pad', x)", 0),
        ("call('conv3d' if rank == 5 else 'conv2d', x)", 0),
    ],
)
def test_a_name_that_is_asked_for_is_told_from_one_that_is_built(source: str, count: int) -> None:
    assert len(asked_names(ast.parse(source))) == count


# Memory

BY_WHAT_CODE_SAYS = {
    "weft.boards.zipapp.zipapp",
    "weft.compiler.operators.random_graphs._samples",
    "weft.compiler.operators.small_types._format",
    "weft.compiler.targets.sources._digest_of",
    "weft.compiler.tensor.legality._names",
    "weft.explore.measure._shared",
    "weft.hw.instruction_checksum._byte_checks",
    "weft.hw.instruction_checksum.check_masks",
    "weft.runtime.gpu.cuda_driver._opened",
    "weft.sim.c_interface._structure",
    "weft.sim.dram_interface._described",
}
"""Functions that remember all results: their arguments are named by the code or by the user, and are few."""


def test_what_functions_remember_does_not_grow_with_what_a_process_has_seen() -> None:
    """A ``cache`` without a size holds what belongs to every model and every core, for ever."""
    unbounded = {
        f"{module_name(path)}.{node.name}"
        for path in package_files()
        if "cache" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each) in ("cache", "functools.cache") for each in node.decorator_list)
        and ast.unparse(node.args)
    }  # fmt: skip
    assert unbounded == BY_WHAT_CODE_SAYS


# Where knowledge stands that several parts need: of the hardware, of the integer contract, of element types.
SOURCES = (
    "hw/config.py", "hw/isa.py", "hw/memories.py", "compiler/integers/form.py", "compiler/operators/numerics.py",
    "compiler/graph/dtypes.py", "compiler/graph/ir.py",
)  # fmt: skip
MAY_TELL_AGAIN = {
    "verify/normal_forms.py": "shares no code with what it judges",
    "compiler/frontends/litert/schema.py": "lists names of a file format",
}


def figures_of(source: str) -> set[str]:
    """Names that a module gives, at its top, to whole numbers or pairs of them that stand there in figures."""
    parts = (ast.Constant, ast.BinOp, ast.operator, ast.unaryop, ast.UnaryOp, ast.Tuple, ast.expr_context)
    return {
        statement.targets[0].id.lstrip("_")
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        and all(isinstance(each, parts) for each in ast.walk(statement.value))
        and not any(isinstance(each, ast.Constant) and type(each.value) is not int
                    for each in ast.walk(statement.value))
    }  # fmt: skip


def test_a_figure_of_the_hardware_or_the_contract_stands_once() -> None:
    """Else a copy stays behind when it changes, or differs from the beginning."""
    told = {name: place for place in SOURCES for name in figures_of((PACKAGE / place).read_text())}
    again = [
        f"{name} of {told[name]} in {place}"
        for place, path in ((str(path.relative_to(PACKAGE)), path) for path in package_files())
        if any(name in (source := path.read_text()) for name in told)
        for name in figures_of(source) & told.keys()
        if place not in (told[name], *MAY_TELL_AGAIN)
    ]
    assert not again, f"import it, or name another fact otherwise: {again}"


def test_figures_are_told_from_what_is_computed_or_named() -> None:
    source = "A = 64\n_B = (1, 1 << 31)\nC = A\nD = 'x'\nE = (1, 'x')\nF: int = 3\nG = -(1 << 31)\n"
    assert figures_of(source) == {"A", "B", "G"}
