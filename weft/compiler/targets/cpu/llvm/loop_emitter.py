"""What makes the code of loops, as those see it who write a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import llvmlite.ir as ll

from ....tensor.ir import Var
from ...llvm.expressions import Expressions
from ...llvm.llvm_types import Int, Value
from ..processor import Processor


class LoopEmitter(Protocol):
    """The code of one kernel so far (`emit.Emitter`). ``builder`` stands where the next instruction goes."""

    target: Processor
    builder: ll.IRBuilder
    expressions: Expressions

    def slot(self, kind: ll.Type, name: str = "") -> Value:
        """Memory on the stack."""

    def loop(self, var: Var, begin: Int, end: Int, body: Callable[[], None]) -> None:
        """``body`` for every value of ``var`` from ``begin`` to before ``end``."""
