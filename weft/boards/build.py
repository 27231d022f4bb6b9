"""Writes all that Vivado needs for a design into a folder, and runs it there."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..hw.mac_array_packed import Multipliers
from ..hw.verilog import emit_verilog
from .design import NAME, Design
from .errors import BuildError
from .fit import fit
from .hwh import registers_of
from .ip_core import CORE_FILE, MODULE_FILE, module_verilog, package_tcl
from .readme import readme
from .vivado_tcl import BUILT, OVERLAY, PACKAGE_SCRIPT, SCRIPT, build_tcl

MANIFEST = f"{NAME}.json"
"""Says what lies beside it in the overlay's folder; it travels to the board with the ``.bit``."""

CONFIG_FILE = "core.json"
"""The core's configuration: models for this overlay are compiled with ``--config core.json``."""

SYSTEM_FILE = "system.json"
"""The same of a system of cores: ``--system system.json``."""

LOG = "vivado.log"


def design_files(design: Design, verilog: str | None = None) -> dict[str, str]:
    """The text of every file by its path in the folder. ``verilog`` is the core's, if it has been written already.

    The multipliers are packed: two products share a DSP block.
    """
    core = emit_verilog(design.held, Multipliers.PACKED) if verilog is None else verilog
    configuration = (
        {CONFIG_FILE: design.core.to_json() + "\n"} if design.cores is None else {SYSTEM_FILE: design.cores.to_json()}
    )
    files = {
        CORE_FILE: core,
        MODULE_FILE: module_verilog(design.held),
        PACKAGE_SCRIPT: package_tcl(design),
        SCRIPT: build_tcl(design),
        **configuration,
        "README.txt": readme(design),
    }
    return files | {f"{OVERLAY}/{MANIFEST}": json.dumps(manifest(design, files), indent=1) + "\n"}


def manifest(design: Design, files: dict[str, str]) -> dict[str, Any]:
    """What the overlay is: the design with its hash, the registers, and the digests of the files that made it."""
    needs = fit(design.board, design.held).needs
    return {
        "format": 1,
        "design": design.hash,
        **design.as_dict(),
        "synthesis": None if needs is None else dict(needs),
        "registers": {name: address for name, address, _, _, _ in registers_of(design)},
        "sources": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())},
    }


def write_design(design: Design, folder: Path) -> list[Path]:
    """Write all files; those of another design that lie there are replaced. OSError if that cannot be."""
    paths = []
    for name, text in design_files(design).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        paths.append(path)
    return paths


def find_vivado(program: str) -> str:
    """The path of Vivado's program; :class:`BuildError` if there is none."""
    found = shutil.which(program)
    if found is None:
        raise BuildError(
            f"there is no program {program!r}",
            hint="source Vivado's settings64.sh first, or give its path: --vivado /opt/Xilinx/Vivado/2024.1/bin/vivado",
        )
    return str(Path(found).resolve())


def run_vivado(folder: Path, program: str, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Build in a folder of :func:`write_design`; what Vivado reached. ``progress`` gets the lines of the script.

    :class:`BuildError` if Vivado is missing, fails or leaves no overlay of this design.
    """
    command = [find_vivado(program), "-mode", "batch", "-nojournal", "-log", LOG, "-source", SCRIPT]
    errors: list[str] = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None  # by stdout=PIPE
        try:
            for line in process.stdout:
                if line.startswith(("weft: ", "ERROR: ")):
                    progress(line.strip())
                if line.startswith("ERROR: ") or line.lstrip().startswith("weft: "):
                    errors = [*errors[-4:], line.strip()]
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        last = " | ".join(errors) or "no message"
        raise BuildError(f"Vivado failed with status {process.returncode}: {last}", at=folder / LOG)
    return _result(folder)


def _result(folder: Path) -> dict[str, Any]:
    """What the script has left, checked against the manifest beside it."""
    overlay = folder / OVERLAY
    missing = [name for name in (f"{NAME}.bit", f"{NAME}.hwh", BUILT) if not (overlay / name).is_file()]
    if missing:
        raise BuildError(f"Vivado ended well but left no {', '.join(missing)}", at=overlay)
    built = json.loads((overlay / BUILT).read_text())
    expected = json.loads((overlay / MANIFEST).read_text())["design"]
    if not isinstance(built, dict) or built.get("design") != expected:
        raise BuildError("the overlay is of another design than the manifest beside it", at=overlay)
    return built
