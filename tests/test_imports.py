"""Imports on demand: one thread at a time, whoever begins."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import weft

ROOT = Path(weft.__file__).parent
APART = ("tests", "benchmarks", "examples", "docs", "findings", "cli", "build", ".venv")
"""What is no part of the package, and the commands, each of which is one thread."""

THREADS = """
import json, sys, threading
import weft
sys.setswitchinterval(1e-5)

def run(device):
    def job():
        module = weft.load(sys.argv[1], device)
        module.report() if hasattr(module, "report") else None
    return job

jobs = [run("fsim"), lambda: weft.compile(sys.argv[2], target="cpu"), lambda: weft.compile(sys.argv[2], "tiny"),
        lambda: weft.from_onnx(sys.argv[2]), lambda: weft.operators.operators(), lambda: weft.save, lambda: weft.grad]
wrong, together = [], threading.Barrier(len(jobs))

def work(job):
    together.wait()
    try:
        job()
    except BaseException as error:
        wrong.append(repr(error))

threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*wrong, sep="\\n")
sys.exit(bool(wrong))
"""

ALONE = """
import importlib, pkgutil, sys
import weft
from weft import imports
taken = []

class Recorder:
    def __init__(self, lock):
        self.lock = lock
    def __enter__(self):
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith("weft."):
                taken.append(frame.f_globals["__name__"])
            frame = frame.f_back
        return self.lock.__enter__()
    def __exit__(self, *error):
        return self.lock.__exit__(*error)

imports.IMPORTS = Recorder(imports.IMPORTS)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:  # an extra that is not installed
        if missing.name.startswith("weft"):
            raise
print(*sorted(set(taken)))
"""


def modules() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.py"))
    for folder in sorted(ROOT.iterdir()):
        if folder.name not in APART and folder.is_dir():
            yield from sorted(folder.rglob("*.py"))


def of_weft(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == "weft"
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "weft" for alias in node.names)


def outside(node: ast.AST) -> Iterator[int]:
    """Lines of imports of weft below a node that do not stand below ``with IMPORTS``."""
    if isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "IMPORTS":
        return
    if of_weft(node):
        yield node.lineno  # type: ignore[attr-defined]
    for child in ast.iter_child_nodes(node):
        yield from outside(child)


def found(source: str) -> list[int]:
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sorted({line for function in functions for line in outside(function)})


def test_an_import_inside_a_function_is_seen() -> None:
    assert found("from .a import b\ndef f():\n    from .c import d\n    with IMPORTS:\n        from .e import g\n") == [
        3
    ]


def test_imports_inside_functions_stand_below_the_lock() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}" for path in modules() if path.name != "imports.py"
        for line in found(path.read_text()) if path != ROOT / "__init__.py"
    ]  # fmt: skip
    assert wrong == []


def test_no_module_waits_for_the_lock_while_it_is_imported() -> None:
    """It would hold its own place in the import system, for which the thread with the lock may wait."""
    folders = [path.relative_to(ROOT).with_suffix("").parts for path in modules()]
    names = [".".join(("weft", *parts)).removesuffix(".__init__") for parts in folders]
    done = subprocess.run([sys.executable, "-c", ALONE, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("turn", range(2))
def test_threads_may_begin_together(turn: int, tmp_path: Path) -> None:
    model = ROOT.parent / "examples" / "digits" / "digits.onnx"
    artifact = tmp_path / "digits.m"
    weft.save(weft.compile(model, "tiny"), artifact)
    command = [sys.executable, "-c", THREADS, str(artifact), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
