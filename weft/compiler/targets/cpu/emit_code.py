"""Machine code that the cache does not have: a kernel's text is parsed, printed as LLVM IR and compiled."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import llvmlite.ir as ll

from ....collector import collector_waits
from ...model import KernelCode
from ...tensor.parser import parse
from ..errors import CompileError
from ..loops.kernel_code import KERNEL
from .intrinsics import intrinsic_named
from .llvm.emit import emit_kernel
from .llvm.object_code import assembly, object_code
from .llvm.rounds import Rounds
from .llvm.step_function import emit_step
from .processor import Processor


def kernel_object(code: KernelCode, target: Processor, threads: int) -> bytes:
    """The object file of a kernel. CompileError names one that cannot be compiled."""
    return object_code(_kernel_text(code, target, threads), target)


def kernel_assembly(code: KernelCode, target: Processor, threads: int) -> str:
    """The code of `kernel_object` as assembly."""
    return assembly(_kernel_text(code, target, threads), target)


def _kernel_text(code: KernelCode, target: Processor, threads: int) -> str:
    """LLVM IR of a kernel."""
    module = ll.Module("kernel")
    workspace = emit_kernel(module, parse(code.text, intrinsic_named), target, threads, code.windows, proved=True)
    if workspace.total(threads) != code.workspace_bytes:
        raise CompileError(f"its code needs {workspace.total(threads)} bytes of workspace, not {code.workspace_bytes}",
                           at=f"kernel {code.symbol!r}")  # fmt: skip
    text = str(module).replace(f'@"{KERNEL}"', f'@"{code.symbol}"')
    del module
    _forget_young()
    return text


def steps_code(functions: Mapping[str, Rounds], parts: Mapping[str, int], target: Processor, *, single: bool) -> bytes:
    """The object file of functions that run launches in order, by symbol. ``parts``, ``single``: as in `emit_step`."""
    with collector_waits():
        module = ll.Module("steps")
        for symbol, rounds in functions.items():
            emit_step(module, symbol, rounds, parts, single=single)
        text = str(module)
        del module
        _forget_young()
    return object_code(text, target)


def _forget_young() -> None:
    """Free a module of llvmlite, whose values know each other, before it grows old and stays for long."""
    gc.collect(1)
