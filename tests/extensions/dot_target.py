"""A processor with an instruction that C does not have, from outside of weft: four bytes times four, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from c_target import COptions, CTarget, why_not
from weft.compiler import tensor as te
from weft.compiler.graph import Call, Module
from weft.compiler.model import CompiledModel
from weft.compiler.targets.loops.model import link_model
from weft.compiler.targets.loops.nests import extent_of, split_loops, tidy
from weft.compiler.targets.loops.plain import PlainKernels
from weft.compiler.targets.loops.target import LoopTarget
from weft.compiler.targets.target import Job
from weft.compiler.tensor import ScheduleError, tensor_intrinsic, tile
from weft.compiler.tensor.ir import Var

DOT4 = tensor_intrinsic(
    "dot4",
    operands=[
        tile("acc", (1,), "int32", "global", "inout"),
        tile("a", (4,), "int8", "global", "in", strides=(None,), align=1),  # any step: an operand of the instruction
        tile("b", (4,), "int8", "global", "in", strides=(None,), align=1),
    ],
    loops={"q": 4},
    meaning=lambda acc, a, b, q: acc.store((0,), acc[0] + a[q].astype("int32") * b[q].astype("int32")),
)
"""What the instruction computes. A loop nest becomes it only after a proof that it computes the same."""

IN_C = """
static inline void dot4(int32_t *acc, const int8_t *a, int64_t a_step, const int8_t *b, int64_t b_step) {
  int32_t sum = *acc; /* here stands what your compiler has for the instruction: an intrinsic, or asm(".insn ...") */
  for (int q = 0; q < 4; q++) sum += a[q * a_step] * b[q * b_step];
  *acc = sum;
}
"""


class DotTarget(CTarget):
    """The target in C, for a processor with the instruction."""

    name = "dot"
    summary = "C for a processor that multiplies bytes by fours"
    prelude = IN_C
    intrinsics: ClassVar = {DOT4.name: DOT4}

    def link(self, module: Module, options: COptions, job: Job) -> CompiledModel:
        target = LoopTarget(options.compiler, kinds=(PlainKernels(arrange),), refuses=refuses)
        return link_model(module, self.name, target, 1, job)


def refuses(node: Call) -> str:
    """Products are kernels as well."""
    return "" if node.op in ("conv2d", "dense", "product") else why_not(node)


def arrange(schedule: te.Schedule) -> None:
    """Let the instruction take four steps of each sum that it computes; other sums stay loops."""
    tidy(schedule)
    for stage in tuple(schedule.blocks()):
        reduced, _ = split_loops(schedule, stage)
        fours = [loop for loop in reduced if extent_of(schedule, loop) % 4 == 0]
        if reduced and not any(by_fours(schedule, stage, reduced, loop) for loop in fours):
            schedule.decompose_reduction(stage, reduced[0])


def by_fours(schedule: te.Schedule, stage: str, reduced: Sequence[Var], loop: Var) -> bool:
    """Whether the instruction can take four steps of ``loop``: if it can, it does."""
    func, trace = schedule.func, schedule.trace
    try:
        outer, inner = schedule.split(loop, 4)
        order = [outer if each == loop else each for each in reduced]
        schedule.reorder(*order, inner)
        schedule.decompose_reduction(stage, order[0])
        schedule.tensorize(inner, DOT4)
    except ScheduleError:
        schedule.func, schedule.trace = func, trace
        return False
    return True
