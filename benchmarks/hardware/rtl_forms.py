"""What each choice in the build of the RTL simulator is worth: C2's cycles a second, and the compiler's time.

One core is translated and compiled in several forms: as weft does, at -O2, without the header ``signs.h``, of the
Verilog that is exported, and trained by random programs (``weft run --optimise-simulator``). C2 of :mod:`.rtl_speed`
then runs on all forms in turns, each time in a process of its own; its cycles and its memory must be the same. Rates
are of processor time, which other work on the machine changes least.

    python benchmarks/hardware/rtl_forms.py
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from unittest.mock import patch

from weft.hw.config import CoreConfig, named_config
from weft.hw.verilog import emit_verilog
from weft.sim import build, training
from weft.sim.rtl import RtlSimulator

from benchmarks.common import Record, print_table, write_json
from benchmarks.hardware.rtl_speed import MEMORY_BYTES, c2_program, fill

USUAL, EXPORTED, TRAINED = "as weft builds it", "of the exported Verilog", "trained"
TRAINED_RATIO_NEEDED, COMPILE_RATIO_ALLOWED = 1.1, 0.75


def compile_usual(config: CoreConfig, sources: list[Path], library: Path) -> None:
    build.compile_library(sources, library)


def compile_at_o2(config: CoreConfig, sources: list[Path], library: Path) -> None:
    with patch.object(build, "LEVEL", "-O2"):
        build.compile_library(sources, library)


def compile_without_signs(config: CoreConfig, sources: list[Path], library: Path) -> None:
    with patch.object(build, "signs_header", lambda: '#include "verilated.h"\n'):
        build.compile_library(sources, library)


def compile_trained(config: CoreConfig, sources: list[Path], library: Path) -> None:
    training.compile_trained(config, sources, library, None)


FORMS: dict[str, Callable[[CoreConfig, list[Path], Path], None]] = {
    USUAL: compile_usual,
    "at -O2": compile_at_o2,
    "without signs.h": compile_without_signs,
    EXPORTED: compile_usual,
    TRAINED: compile_trained,
}


def compiler_seconds() -> float:
    """Processor time of all compilers so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_once(config: CoreConfig, library: Path) -> tuple[int, float, int]:
    """C2's cycles, the processor seconds that they take, and a checksum of the memory after it."""
    program = c2_program(config)
    simulator = RtlSimulator(config, MEMORY_BYTES, library=library)
    fill(config, simulator, program)
    started = time.process_time()
    result = simulator.run(0, len(program))
    seconds = time.process_time() - started
    return result.cycles or 0, seconds, zlib.crc32(simulator.dram.tobytes())


def in_a_process(config: CoreConfig, library: Path) -> tuple[int, float, int]:
    """:func:`run_once` in a process that has loaded no other library."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.hardware.rtl_forms",
        "--config",
        config.name,
        "--library",
        str(library),
    ]
    cycles, seconds, checksum = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return cycles, seconds, checksum


def measure(config: CoreConfig, turns: int) -> list[Record]:
    records: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="weft-rtl-forms-") as name:
        usual, exported = build.model_verilog(config), emit_verilog(config)
        libraries: dict[str, Path] = {}
        compiled: dict[str, float] = {}
        for number, (form, compile_form) in enumerate(FORMS.items()):
            folder = Path(name) / str(number)
            folder.mkdir()
            sources, libraries[form] = (
                build.run_verilator(config, exported if form == EXPORTED else usual, folder),
                folder / "core.so",
            )
            before = compiler_seconds()
            compile_form(config, sources, libraries[form])
            compiled[form] = compiler_seconds() - before
        rates: dict[str, list[float]] = {form: [] for form in FORMS}
        results = set()
        for _ in range(turns):
            for form, library in libraries.items():
                cycles, seconds, checksum = in_a_process(config, library)
                rates[form].append(cycles / seconds / 1000)
                results.add((cycles, checksum))
    if len(results) != 1:
        raise SystemExit(f"the forms differ: {results}")
    for form in FORMS:
        ratio = median(ours / usual for ours, usual in zip(rates[form], rates[USUAL], strict=True))
        records += [
            Record(config.name, form, "kcycles/s of CPU time", round(median(rates[form]))),
            Record(config.name, form, "rate against the usual", round(ratio, 2)),
            Record(config.name, form, "C++ seconds of CPU time", round(compiled[form], 1)),
            Record(config.name, form, "C++ time against -O2", round(compiled[form] / compiled["at -O2"], 2)),
        ]
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="pynq", help="pynq, or another core with blocks of 16 and its depths")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--library", type=Path, help="only run C2 on this library")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    config = named_config(options.config)
    if options.library:
        print(json.dumps(run_once(config, options.library)))
        return
    records = measure(config, options.turns)
    figures = list(dict.fromkeys(record.figure for record in records))
    values = {(record.workload, record.figure): record.value for record in records}
    rows = [[form, *(str(values[form, figure]) for figure in figures)] for form in FORMS]
    print_table(f"forms of the RTL simulator, {config.name}", ["form", *figures], rows)
    if options.json:
        write_json(options.json, records)
    trained, compiling = values[TRAINED, figures[1]], values[USUAL, figures[3]]
    if float(trained) < TRAINED_RATIO_NEEDED or float(compiling) > COMPILE_RATIO_ALLOWED:
        raise SystemExit(
            f"wanted: {TRAINED_RATIO_NEEDED} x the rate when trained, {COMPILE_RATIO_ALLOWED} x -O2's time"
        )


if __name__ == "__main__":
    main()
