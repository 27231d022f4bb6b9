"""Code of a model's kernels for ``weft view``, and where this machine can run it, how long it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import llvmlite.binding as llvm

from ..compiler.model import CompiledModel, GpuCode, HostProgram, HostStep
from ..compiler.targets.cpu.build import assemblies, build_program, check_host_program
from ..compiler.targets.cpu.processor import HOST, Processor, missing_here, recorded_processor
from ..compiler.targets.gpu.devices import nvidia_device
from ..compiler.targets.registry import find_target
from ..runtime.gpu.predicted import sheet_roof
from ..runtime.host import HostExecutor
from ..runtime.index_inputs import index_inputs
from ..runtime.inputs import read_inputs
from ..runtime.machine_roof import MachineRoof
from ..runtime.module import LoadedModule
from ..runtime.profile_host import kernels_of, profile_host
from ..view.gpu_code import kernel_texts
from ..view.kernels import HostCodes
from .profile_cpu import roof_of

COMPILED_BY_LLVM = ("cpu", "accel")
"""Targets whose kernels for the host are those of the CPU target."""

FOR_GPUS = ("opencl", "cuda")

ROUNDED_PRODUCTS = re.compile(r"mma\.sync\S*(?:f16|tf32)")
"""Products of tensor cores that the data sheets in `runtime/gpu/predicted.py` say nothing about."""

MMA_COLUMNS = 8
"""Of every product of tensor cores (`compiler/targets/gpu/mma_shapes.py`)."""


def host_codes(model: CompiledModel, report: Callable[[str], None]) -> HostCodes | None:
    """Code of the kernels of a model on the host, or None where it has none.

    A model that is wholly on a processor is measured where its code can run here. ``report``: told each step.
    """
    programs = [step.program for step in model.steps if isinstance(step, HostStep) and step.program.kernels]
    if not programs:
        return None
    if model.target in FOR_GPUS:
        return _gpu_codes(model, programs, report)
    if model.target not in COMPILED_BY_LLVM:
        return None
    if model.from_file:
        report("proving kernels")
        for program in programs:
            check_host_program(program)
    name, target = recorded_processor(programs[0].processor)
    shown = name if name not in ("", HOST) else f"{target.cpu}{' (this machine)' * (name == HOST)}"
    report(f"printing kernels for {shown}")
    texts = {symbol: text for program in programs for symbol, text in assemblies(program, target).items()}
    if model.core is not None:
        return HostCodes("assembly", shown, texts, why="cycles are those of the core; its host's part is not measured")
    why = _why_not_here(name, target)
    if why:
        return HostCodes("assembly", shown, texts, kernels_of(model), why=why)
    here = replace(target, triple=llvm.get_process_triple())
    report("measuring this machine")
    roof = roof_of(here, max(program.threads for program in programs))
    report("running")
    module = LoadedModule(model, None, lambda program: HostExecutor(program, build_program(program, here)))
    profiles = profile_host(module, read_inputs(model.inputs, None, 0, index_inputs(model)))
    return HostCodes("assembly", shown, texts, profiles, roof)


def _gpu_codes(model: CompiledModel, programs: Sequence[HostProgram], report: Callable[[str], None]) -> HostCodes:
    """Code for a GPU is counted; ``weft profile`` measures it where there is one. Of a GPU with a data sheet, what its
    kernels take at least."""
    report("printing kernels")
    texts: dict[str, str] = {}
    language: Literal["opencl", "ptx"] = "opencl"
    for program in programs:
        code = find_target(model.target).host_code(program, trusted=not model.from_file)
        assert isinstance(code, GpuCode)  # of one of `FOR_GPUS`
        texts |= kernel_texts(code)
        language = code.language
    why = "it is code for a GPU; 'weft profile' measures it on one"
    counted = kernels_of(model)
    if language == "opencl":
        why = f"{why}. A roof needs the peaks of one device, and this code runs on any"
    elif any(ROUNDED_PRODUCTS.search(text) for text in texts.values()):
        why = f"{why}. Its tensor cores multiply floats of 16 bits or TF32, of which no peak is kept for a roof"
    else:
        roof = gpu_roof(programs[0].processor)
        least = [replace(each, seconds=max(each.compute_seconds(roof), each.memory_seconds(roof))) for each in counted]
        return HostCodes(language, programs[0].processor, texts, least, roof, why)
    return HostCodes(language, programs[0].processor, texts, counted, why=why)


def gpu_roof(architecture: str) -> MachineRoof:
    """By the data sheet of a GPU of this architecture."""
    (shape,) = (each for each in nvidia_device(architecture).mma if each.dtype == "int8")
    return sheet_roof(architecture, shape.rows * MMA_COLUMNS * shape.depth)


def _why_not_here(name: str, target: Processor) -> str:
    """Why this machine does not run code for a processor; empty where it does."""
    if name == HOST:
        return ""
    if not name:
        return f"compiled on another machine, for its {target.cpu}; compile it again here to have it measured"
    missing = missing_here(target)
    return f"this machine cannot run code for {name}: it has no {', '.join(missing)}" if missing else ""
