"""Code of a host program for a GPU: each kernel's text is parsed, taken apart into launches and printed or compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from math import gcd
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ....cache import cache_key, kept
from ...model import GpuCode, GridCall, HostProgram, KernelCode, LaunchStep
from ...tensor.parser import parse
from ..errors import CompileError
from ..loops.kept_proofs import prove_program
from ..sources import sources_digest
from .devices import GpuDescription, named_device, nvidia_device
from .intrinsics import intrinsic_named
from .launches import Grid
from .nvptx import asks_for, joined, ptx_text
from .opencl import KernelText, kernel_text, program_text
from .phases import grids_of


def build_opencl(program: HostProgram) -> GpuCode:
    """The kernels of a program as OpenCL C. A program from a file must have been checked before.

    CompileError names the kernel that has no code.
    """
    device = named_device(program.processor)
    texts: list[KernelText] = []
    calls: dict[str, tuple[GridCall, ...]] = {}
    for code in program.kernels:
        printed, calls[code.symbol] = _kernel(code, device)
        texts += printed
    return GpuCode("opencl", program_text(texts), calls)


def build_ptx(program: HostProgram) -> GpuCode:
    """The kernels of a program as PTX, as `build_opencl`."""
    device = nvidia_device(program.processor)
    texts: list[str] = []
    calls: dict[str, tuple[GridCall, ...]] = {}
    for code in program.kernels:
        text, calls[code.symbol] = _ptx_kernel(code, device, _aligned(program, code.symbol))
        texts.append(text)
    return GpuCode("ptx", joined(texts), calls)


LARGEST_ALIGNMENT = 16
"""Bytes that addresses of allocated memory are multiples of, at least."""


def _aligned(program: HostProgram, symbol: str) -> tuple[int, ...]:
    """Bytes that the addresses of a kernel's arguments, and of its workspace, are multiples of, wherever it is
    launched."""
    launches = [step for step in program.steps if isinstance(step, LaunchStep) and step.symbol == symbol]
    offsets = [(*(place.offset for place in step.arguments), step.workspace or 0) for step in launches]
    return tuple(gcd(LARGEST_ALIGNMENT, *places) for places in zip(*offsets, strict=True))


def _ptx_kernel(code: KernelCode, device: GpuDescription, aligned: tuple[int, ...]) -> tuple[str, tuple[GridCall, ...]]:
    def make() -> bytes:
        with _named(code):
            func = parse(code.text, intrinsic_named)
            grids = grids_of(func, device)
            text = ptx_text(code.symbol, func, grids, code.windows, device, aligned)
        record = (text, [asdict(_call(code, number, grid, asks_for(grid))) for number, grid in enumerate(grids)])
        return json.dumps(record).encode()

    compiler = llvm.llvm_version_info, llvmlite.__version__
    text, calls = json.loads(kept("ptx", _key(code, device, "ptx", compiler, aligned), make))
    return text, tuple(map(_read_call, calls))


def _kernel(code: KernelCode, device: GpuDescription) -> tuple[list[KernelText], tuple[GridCall, ...]]:
    """The functions of a kernel and their launches; what was printed before is looked up on disk."""

    def make() -> bytes:
        with _named(code):
            made = _printed(code, device)
        record = [(text.text, sorted(text.functions), asdict(call)) for text, call in made]
        return json.dumps(record).encode()

    texts, calls = [], []
    for text, functions, call in json.loads(kept("opencl", _key(code, device, "opencl"), make)):
        texts.append(KernelText(text, frozenset(functions)))
        calls.append(_read_call(call))
    return texts, tuple(calls)


def _key(code: KernelCode, device: GpuDescription, *others: Any) -> str:
    return f"{cache_key(sources_digest(), code, device, *others)}.json"


@contextmanager
def _named(code: KernelCode) -> Iterator[None]:
    """Says of errors in which kernel they came up."""
    try:
        yield
    except CompileError as error:
        raise CompileError(f"{error.at}: {error.message}", at=f"kernel {code.symbol!r}", hint=error.hint) from error


def _call(code: KernelCode, number: int, grid: Grid, shared: int = 0) -> GridCall:
    return GridCall(f"{code.symbol}_{number}", grid.groups, grid.threads, grid.params, bool(grid.workspace), shared)


def _read_call(call: dict[str, Any]) -> GridCall:
    return GridCall(call["function"], tuple(call["groups"]), call["threads"], tuple(call["params"]),
                    call["uses_workspace"], call["shared"])  # fmt: skip


def _printed(code: KernelCode, device: GpuDescription) -> list[tuple[KernelText, GridCall]]:
    func = parse(code.text, intrinsic_named)
    made = []
    for number, grid in enumerate(grids_of(func, device)):
        call = _call(code, number, grid)
        made.append((kernel_text(call.function, func, grid, code.windows), call))
    return made


def check_gpu_program(program: HostProgram) -> None:
    """Prove that a program from a file does no harm. CompileError names what is refused."""
    prove_program(program, intrinsic_named)
