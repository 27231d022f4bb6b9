"""Code of a host program for a GPU: each kernel's text is parsed, taken apart into launches and printed."""

from __future__ import annotations

import json
from dataclasses import asdict

from ....cache import cache_key, kept
from ...model import GpuCode, GridCall, HostProgram, KernelCode
from ...tensor.errors import IRError
from ...tensor.ir import TensorIntrinsic
from ...tensor.parser import parse
from ..errors import CompileError
from ..loops.kept_proofs import prove_program
from ..sources import sources_digest
from .devices import GpuDescription, named_device
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


def _kernel(code: KernelCode, device: GpuDescription) -> tuple[list[KernelText], tuple[GridCall, ...]]:
    """The functions of a kernel and their launches; what was printed before is looked up on disk."""

    def make() -> bytes:
        try:
            made = _printed(code, device)
        except CompileError as error:
            raise CompileError(f"{error.at}: {error.message}", at=f"kernel {code.symbol!r}", hint=error.hint) from error
        record = [(text.text, sorted(text.functions), asdict(call)) for text, call in made]
        return json.dumps(record).encode()

    key = f"opencl {sources_digest()} {device}\n{code.symbol}\n{code.windows_text}\n{code.text}"
    texts, calls = [], []
    for text, functions, call in json.loads(kept("opencl", f"{cache_key(key)}.json", make)):
        texts.append(KernelText(text, frozenset(functions)))
        calls.append(GridCall(call["function"], tuple(call["groups"]), call["threads"], tuple(call["params"]),
                              call["uses_workspace"]))  # fmt: skip
    return texts, tuple(calls)


def _printed(code: KernelCode, device: GpuDescription) -> list[tuple[KernelText, GridCall]]:
    func = parse(code.text, no_intrinsic)
    made = []
    for number, grid in enumerate(grids_of(func, device)):
        name = f"{code.symbol}_{number}"
        call = GridCall(name, grid.groups, grid.threads, grid.params, bool(grid.workspace))
        made.append((kernel_text(name, func, grid, code.windows), call))
    return made


def check_gpu_program(program: HostProgram) -> None:
    """Prove that a program from a file does no harm. CompileError names what is refused."""
    prove_program(program, no_intrinsic)


def no_intrinsic(name: str) -> TensorIntrinsic:
    """There is none yet."""
    raise IRError(f"a GPU has no intrinsic {name!r}")
