"""The digest of the compiler covers every file, wherever it stands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from weft.compiler.targets import sources


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the compiler's sources, whose digest is taken instead."""
    folder = tmp_path / "compiler"
    shutil.copytree(sources.COMPILER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "COMPILER", folder)
    return folder


def digest() -> str:
    sources._digest_of.cache_clear()
    return sources.sources_digest()


def test_a_change_in_any_folder_of_the_compiler_gives_another_key(compiler: Path) -> None:
    seen = {digest()}
    folders = sorted({path.parent for path in compiler.rglob("*.py")})
    assert compiler / "targets" / "cpu" / "llvm" in folders
    assert compiler / "operators" in folders
    for number, folder in enumerate(folders, 2):
        source = next(path for path in sorted(folder.glob("*.py")))
        source.write_text(source.read_text() + "\n# changed\n")
        seen.add(digest())
        assert len(seen) == number


@pytest.mark.parametrize("to", ["loops/memory_plan.py", "memory_plans.py"])  # the second stands where the first stood
def test_a_file_that_moves_gives_another_key(compiler: Path, to: str) -> None:
    before = digest()
    (compiler / "targets" / "memory_plan.py").rename(compiler / "targets" / to)
    assert digest() != before
    sources._digest_of.cache_clear()


def test_the_compiler_is_read_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    sources._digest_of.cache_clear()
    first = sources.sources_digest()
    monkeypatch.setattr(sources.os, "walk", lambda _: pytest.fail("the sources are read again"))
    assert sources.sources_digest(sources.COMPILER) == first == sources.sources_digest()
