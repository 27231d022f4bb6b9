"""Proofs that programs from files do no harm, kept on disk: each kernel is proved once."""

from __future__ import annotations

import json
from collections.abc import Callable

from ....cache import cache_key, kept
from ...model import HostProgram, KernelCode
from ...tensor.ir import Buffer, TensorIntrinsic
from ..sources import sources_digest
from .check_kernel import CheckedKernel, Elements, check_kernel
from .check_program import check_program

OWN = (__package__ or "").partition(".")[0]
"""The package whose sources are in each key."""


def prove_program(program: HostProgram, intrinsics: Callable[[str], TensorIntrinsic]) -> None:
    """Prove that a program from a file does no harm; ``intrinsics`` finds those of the target by name. Those of a
    target from outside are in no key: such a program is proved each time.

    CompileError names what is refused.
    """

    def prove(code: KernelCode, threads: int, elements: Elements) -> CheckedKernel:
        return _proved(code, threads, elements, intrinsics)

    check_program(program, prove)


def _proved(
    code: KernelCode, threads: int, elements: Elements, intrinsics: Callable[[str], TensorIntrinsic]
) -> CheckedKernel:
    def prove() -> bytes:
        kernel = check_kernel(code, threads, intrinsics, elements)
        params = [(buffer.name, buffer.shape, buffer.dtype, buffer.scope) for buffer in kernel.params]
        return json.dumps([params, kernel.written, kernel.paired]).encode()

    module = str(getattr(intrinsics, "__module__", ""))
    if module.partition(".")[0] != OWN:
        return check_kernel(code, threads, intrinsics, elements)
    key = cache_key(sources_digest(), module, code, threads, elements)
    params, written, paired = json.loads(kept("proofs", f"{key}.json", prove))
    buffers = tuple(Buffer(name, tuple(shape), dtype, scope) for name, shape, dtype, scope in params)
    return CheckedKernel(buffers, tuple(written), tuple(paired))
