"""The tests that come with the project, as ``weft test-hw`` finds, lists and reports them."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from rich.table import Table

from .errors import BenchError
from .runner import RunOutcome, how_to_look

FOLDER = Path(__file__).parents[2] / "tests" / "hw" / "cocotb"
"""Parts are the files here; an installed package has none, a checkout has."""


def find_parts(name: str | None, folder: Path = FOLDER) -> list[Path]:
    """Files of a part, of all parts for ``None``, or a file of the user's; :class:`BenchError` lists what there is."""
    if name is not None and name.endswith(".py"):
        return [Path(name)]
    files = sorted(folder.glob("*.py"))
    if not files:
        raise BenchError(
            "the tests are not installed with the package", hint="run from a checkout, or name a file of your own"
        )
    if name is None:
        return files
    part_files = [file for file in files if file.stem == name]
    if not part_files:
        parts = ", ".join(file.stem for file in files)
        raise BenchError(f"there is no part {name!r}", hint=f"parts: {parts}; or name a file that ends in .py")
    return part_files


def parts_table(files: list[Path]) -> Table:
    """Each part with its purpose and its tests."""
    table = Table(show_lines=True)
    for column in ("part", "tests", "what"):
        table.add_column(column, overflow="fold")
    for file in files:
        module = _parsed(file)
        table.add_row(file.stem, "\n".join(_tests(module)), ast.get_docstring(module) or "")
    return table


def files_with(only: str, files: list[Path]) -> list[Path]:
    """The files that have a test whose name contains ``only``, which is told before a simulator is built;
    :class:`BenchError` if none has one. Files that make tests while they run may have one of any name.
    """
    modules = {file: _parsed(file) for file in files}
    found = [file for file, module in modules.items()
             if _makes_tests(module) or any(only in name for name in _tests(module))]  # fmt: skip
    if not found:
        raise BenchError(f"there is no test whose name contains {only!r}", at="--only",
                         hint="`weft test-hw --list` shows all tests")  # fmt: skip
    return found


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        raise BenchError(f"{file} cannot be read: {error.strerror}", hint="a file of cocotb tests") from None
    except (SyntaxError, ValueError) as error:
        raise BenchError(f"{file} is no Python: {error}", hint="a file of cocotb tests") from None


def _tests(module: ast.Module) -> list[str]:
    return [node.name for node in module.body if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list]


def _makes_tests(module: ast.Module) -> bool:
    """Whether names of tests are known only while the file runs: cocotb's ``parametrize`` and ``TestFactory``."""
    names = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
    return bool((names | {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)})
                & {"parametrize", "TestFactory"})  # fmt: skip


def outcome_lines(outcome: RunOutcome, *options: str) -> str:
    """What a run has shown; of a failure, how to repeat it, with these ``options`` as well."""
    lines = [f"{outcome.file.stem}: {len(outcome.tests) - len(outcome.failed)} of {len(outcome.tests)} tests passed"]
    for test in outcome.failed:
        lines += [f"  FAILED {test.name}:", *(f"    {line}" for line in test.problem.splitlines())]
    if outcome.failed:
        name = outcome.file if outcome.file.parent != FOLDER else outcome.file.stem
        words = " ".join(["weft test-hw", shlex.quote(str(name)), *options, *outcome.options])
        lines += [f"  again:    {words} --seed {outcome.seed}", f"  log:      {outcome.log}"]
    return "\n".join(lines)


def waves_line(outcome: RunOutcome) -> str:
    """How to look at a run's waveform; says so if there is none."""
    where = "none: the simulator has left no file" if outcome.waves is None else how_to_look(outcome.waves)
    return f"  waveform: {where}"
