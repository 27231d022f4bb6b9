"""The C++ compiler of this machine: which flags it is given, what it says of itself, and how tools are run."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from .errors import BuildError


@cache
def compiler_flags() -> tuple[str, ...]:
    """Flags for every C++ file: AVX2 code where this machine runs it."""
    flags = ["-std=c++17", "-fPIC", "-fvisibility=default", "-fno-plt", "-w", "-DVL_TIME_CONTEXT"]
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and {"avx2", "bmi2", "fma", "movbe"} <= set(cpu.read_text().split()):
        flags.append("-march=x86-64-v3")
    return tuple(flags)


@cache
def compiler_version() -> str:
    """What the C++ compiler says of itself, for keys; empty where there is none."""
    try:
        told = subprocess.run([_compiler(), "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return f"{_compiler()} {told.stdout}"


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


def run_compiler(arguments: list[str]) -> None:
    """Run it; :class:`BuildError` with what it says where it fails or is not there."""
    require_compiler()
    run_tool([_compiler(), *arguments], _compiler())


def require_compiler() -> None:
    """:class:`BuildError` if there is no C++ compiler."""
    if shutil.which(_compiler()) is None:
        raise BuildError(f"the C++ compiler {_compiler()!r} is not installed", hint="install it: apt install g++")


def run_tool(command: list[str], name: str, environment: dict[str, str] | None = None) -> None:
    """Run a tool that is there; :class:`BuildError` with the end of what it says where it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | (environment or {}))
    if result.returncode:
        raise BuildError(f"{name} failed with status {result.returncode}:\n{result.stderr.strip()[-2000:]}")
