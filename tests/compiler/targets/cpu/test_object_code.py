"""The key of kept code covers whatever may shape it; the optimiser's memory is given back."""

from __future__ import annotations

import ctypes
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


LOOP = """
define void @kernel(float* noalias %x, float* noalias %y, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %from = getelementptr float, float* %x, i64 %i
  %value = load float, float* %from
  %twice = fadd float %value, %value
  %to = getelementptr float, float* %y, i64 %i
  store float %twice, float* %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


class Heap(ctypes.Structure):
    """What glibc's ``mallinfo2`` gives."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def test_a_compilation_leaves_no_memory_in_use() -> None:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Heap

    def in_use() -> int:
        heap = mallinfo2()
        return int(heap.uordblks + heap.hblkhd)

    object_code.object_code(LOOP, host_target())
    before = in_use()
    for _ in range(20):
        object_code.object_code(LOOP, host_target())
    assert (in_use() - before) / 20 < 10_000  # 70,000 where the passes are not freed
