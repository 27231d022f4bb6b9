"""The key of kept code covers whatever may shape it; the optimiser's memory is given back."""

from __future__ import annotations

import ctypes

from weft.compiler.targets.cpu.llvm import object_code
from weft.compiler.targets.cpu.processor import host_target

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
    # 1,490 are callbacks of the pass builder, which llvmlite 0.50 cannot free; 70,000 where the passes are not freed.
    assert (in_use() - before) / 20 < 2_500
