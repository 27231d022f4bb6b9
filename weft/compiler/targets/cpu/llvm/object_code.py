"""From LLVM IR to an object file, through LLVM's optimiser; objects are kept on disk by content."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from .....cache import cache_key, kept, look_up
from .....content import content_digest
from ...llvm.optimise import optimised
from ...sources import sources_digest
from ..processor import Processor
from .half_functions import HALF_FUNCTIONS


def code_key(target: Processor, *program: Any) -> str:
    """The key of machine code: a program, and all else that its code depends on, the processor, LLVM, and the compiler
    itself."""
    shaped_by = _digest_of(target, llvm.llvm_version_info, llvmlite.__version__, sources_digest())
    return f"{cache_key(shaped_by, program)}.o"


@lru_cache(maxsize=16)
def _digest_of(target: Processor, *others: Any) -> str:
    """What `content_digest` says of a processor, which takes as long as all of a kernel, and of others."""
    return content_digest(target, *others)


def machine(target: Processor) -> llvm.TargetMachine:
    """LLVM's code generator for a processor."""
    generator = llvm.Target.from_triple(target.triple)
    return generator.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )


def optimise(text: str, target: Processor) -> llvm.ModuleRef:
    """The module of this LLVM IR, optimised for ``target``."""
    return optimised(text, machine(target), target.triple, vectorise=True, level=_level(target))


def _level(target: Processor) -> int:
    """That of LLVM's pipeline. The third unrolls loops further than schedules do. That pays where registers are few, so
    that a loop has little in it; with 32 of 64 bytes it is a third more code, which takes longer to make and runs no
    faster."""
    return 2 if target.vector_bytes == 64 else 3


def object_code(text: str, target: Processor) -> bytes:
    """The object file of this LLVM IR."""
    return bytes(machine(target).emit_object(optimise(_whole(text, target), target)))


def assembly(text: str, target: Processor) -> str:
    """The same code as `object_code`, as assembly with LLVM's comments: loops, registers that are kept in memory. For
    x86 in AT&T's syntax, where the destination stands last."""
    generator = machine(target)
    generator.set_asm_verbosity(True)
    return str(generator.emit_assembly(optimise(_whole(text, target), target)))


def _whole(text: str, target: Processor) -> str:
    """LLVM IR with the functions that LLVM calls on this target and that no library has."""
    return text + HALF_FUNCTIONS if not target.converts_halves and "half" in text else text


def cached(key: str, make: Callable[[], bytes]) -> bytes:
    """The bytes that ``make`` gives, kept on disk under a key of `code_key`."""
    return kept("cpu", key, make)


def found_object(key: str) -> bytes | None:
    """What `cached` has under this key."""
    return look_up("cpu", key)


def cached_object(text: str, target: Processor) -> bytes:
    """As ``object_code``, from the cache where it is there."""
    return cached(code_key(target, "text", text), lambda: object_code(text, target))
