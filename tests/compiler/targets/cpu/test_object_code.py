"""The key of kept code covers whatever may shape it; making code leaves no memory behind."""

from __future__ import annotations

import ctypes
import gc
import shutil
from pathlib import Path

import pytest
from weft.compiler.targets.cpu.llvm import object_code
from weft.compiler.targets.cpu.processor import host_target


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the compiler's sources, whose digest is taken instead."""
    folder = tmp_path / "compiler"
    shutil.copytree(object_code.COMPILER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(object_code, "COMPILER", folder)
    return folder


def digest() -> str:
    object_code.sources_digest.cache_clear()
    return object_code.sources_digest()


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


def test_a_file_that_moves_gives_another_key(compiler: Path) -> None:
    before = digest()
    (compiler / "targets" / "memory_plan.py").rename(compiler / "targets" / "loops" / "memory_plan.py")
    assert digest() != before
    object_code.sources_digest.cache_clear()


SUM = """
define i64 @sum(ptr %values, i64 %count) {
start:
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %next, %loop ]
  %total = phi i64 [ 0, %start ], [ %added, %loop ]
  %place = getelementptr i64, ptr %values, i64 %i
  %value = load i64, ptr %place
  %added = add i64 %total, %value
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret i64 %added
}
"""


def test_making_code_again_and_again_takes_no_more_memory() -> None:
    """The optimiser's passes are some 70 KiB for each module."""

    def own_kib() -> int:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0])

    def make(times: int) -> None:
        for _ in range(times):
            object_code.object_code(SUM, host_target())

    make(10)
    before = own_kib()
    make(100)
    assert own_kib() - before < 2000
