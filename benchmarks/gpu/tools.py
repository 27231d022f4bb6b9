"""What figures of GPU kernels are made by: a model's launches, counted; and NVIDIA's tools for machine code, where they
are installed: the extra ``bench``, a toolkit, or named by hand."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.compiler.model import CompiledModel, GpuCode, HostProgram, HostStep
from weft.compiler.targets.registry import find_target
from weft.runtime.gpu.predicted import CountedLaunch, counted_launches


def counted_steps(model: CompiledModel) -> Iterator[tuple[HostProgram, GpuCode, Sequence[CountedLaunch]]]:
    """What a model for CUDA does, step by step: its program, code, and launches in the interpreter of PTX."""
    for step in model.steps:
        assert isinstance(step, HostStep)
        code = find_target("cuda").host_code(step.program, trusted=True)
        assert isinstance(code, GpuCode)
        yield step.program, code, counted_launches(step.program, code)


PACKAGES = ("nvidia.cuda_nvcc", "nvidia.cu13", "nvidia.cuda_nvdisasm")
"""Where NVIDIA's packages put their programs."""


def installed_tool(name: str) -> str | None:
    """The path of a program: that of the environment variable ``WEFT_PTXAS`` (for ptxas), on PATH, of a package."""
    named = os.environ.get(f"WEFT_{name.upper()}") or shutil.which(name)
    if named:
        return named
    for package in PACKAGES:
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for place in (found and found.submodule_search_locations) or ():
            path = Path(place) / "bin" / name
            if os.access(path, os.X_OK):
                return str(path)
    return None


def ptxas_figures(text: str, gpu: str, ptxas: str, cubin: Path | None = None) -> dict[str, tuple[int, int]]:
    """Registers and spilled bytes of each kernel, by NVIDIA's assembler; ``cubin``: where the machine code is kept. It
    refuses what is no PTX."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(text)
        done = subprocess.run([ptxas, "-v", f"-arch={gpu}", source, "-o", cubin or f"{folder}/kernels.cubin"],
                              capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        sys.exit(f"ptxas refuses the kernels:\n{done.stderr[:2000]}")
    found: dict[str, tuple[int, int]] = {}
    for part in done.stderr.split("Compiling entry function '")[1:]:
        used = re.search(r"Used (\d+) registers", part)
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", part)))
        if used:
            found[part.partition("'")[0]] = int(used[1]), spilled
    return found
