"""What cores take on silicon: LUT, FF, DSP and block RAM per module (xc7), highest clock (ecp5), gates (asic).

Runs that were done before are read from the cache; a new one of the larger cores takes minutes.

    python benchmarks/hardware/synthesis.py --runs tiny:xc7,pynq:xc7 --docs docs/synthesis.md
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

from weft.boards.fit import Measurement, measurement_text
from weft.hw.config import NAMED, PYNQ, CoreConfig
from weft.hw.synthesis import Synthesis, Target, synthesise
from weft.hw.synthesis_report import LEG_COLUMNS, SHARE_LIMIT, leg_rows, over_limit, path_rows, usage_rows

from benchmarks.common import Record, print_table, write_json

EIGHT = replace(PYNQ, name="8x8", block_in=8, block_out=8, depthwise=0)
CORES: dict[str, CoreConfig] = NAMED | {
    "8x8": replace(EIGHT, inp_depth=1024, wgt_depth=512, acc_depth=512, acc_banks=2, out_depth=512, queue_depth=8),
    "pynq, 32 KiB of weights": replace(PYNQ, name="pynq, 32 KiB of weights", wgt_depth=128, depthwise=0),
    "pynq, no depthwise mode": replace(PYNQ, name="pynq, no depthwise mode", depthwise=0),
    # Small ones that differ in batch, in the sides of the array, in bus, banks, bursts and queues: for the area model
    "2x8x8": replace(
        EIGHT, name="2x8x8", batch=2, inp_depth=1024, wgt_depth=1024, acc_depth=512, out_depth=256, queue_depth=16,
        bus_bits=128, burst_beats=32,
    ),
    "16x8": replace(
        EIGHT, name="16x8", block_in=16, acc_depth=1024, acc_banks=8, bus_bits=256, read_outstanding=8, burst_beats=16
    ),
    "4x16": replace(
        EIGHT, name="4x16", block_in=4, block_out=16, inp_depth=4096, wgt_depth=2048, acc_depth=512, acc_banks=2,
        queue_depth=8, token_depth=7, write_outstanding=4,
    ),
    "8x32": replace(
        EIGHT, name="8x32", block_out=32, wgt_depth=512, acc_depth=1024, out_depth=512, bus_bits=128, queue_depth=64,
        read_outstanding=32,
    ),
}  # fmt: skip
RUNS = "tiny:xc7,pynq, no depthwise mode:xc7,pynq, 32 KiB of weights:xc7,wide:xc7,8x8:ecp5,tiny:asic"
MUST_FIT = "pynq"
"""The core that has to leave room on its part."""

WANTED_MHZ = {"8x8": 95.0}
"""Clocks that cores have to reach."""

MARK = "<!-- measured: everything below is written by benchmarks/hardware/synthesis.py -->\n"


def summary_rows(results: list[Synthesis]) -> tuple[list[str], list[list[str]]]:
    """One row for each core; figures that a target does not have are empty."""
    columns = list(dict.fromkeys(column for result in results for column in result.total))
    rows = []
    for result in results:
        head, body = usage_rows(result, 0)
        figures = dict(zip(head, body[0], strict=True))
        measured = [f"{result.timing.fmax:.1f}" if result.timing else "", f"{result.seconds:,.0f}"]
        rows.append([result.config, str(result.target), *(figures.get(column, "") for column in columns), *measured])
    return ["core", "target", *columns, "MHz", "seconds"], rows


def markdown_table(columns: list[str], rows: list[list[str]]) -> str:
    """The rows as a table of a manual page; indented names keep their indent."""
    head = [columns, [":--", *("--:" for _ in columns[1:])]]
    lines = ["| " + " | ".join(row) + " |" for row in [*head, *rows]]
    return "\n".join(line.replace("|   ", "| &emsp;").replace("&emsp;  ", "&emsp;&emsp;") for line in lines) + "\n"


def write_docs(path: Path, results: list[Synthesis], unfinished: list[str]) -> None:
    """Replace all that stands behind the mark by the tables."""
    before, mark, _ = path.read_text().partition(MARK)
    if not mark:
        raise SystemExit(f"{path} has no line {MARK.strip()!r}")
    parts = [before, MARK, "\n", markdown_table(*summary_rows(results))]
    if unfinished:
        parts.append(f"\nNot measured, for want of time: {', '.join(unfinished)}.\n")
    for result in results:
        parts += [f"\n## `{result.config}` on {result.target}\n\n", markdown_table(*usage_rows(result))]
        if result.timing is not None:
            steps = result.timing.critical_path
            parts.append(
                f"\n{result.timing.fmax:.1f} MHz on {result.timing.part}. The path that limits it, in ns, starts at "
                f"the register `{steps[0].name}` and ends at `{steps[-1].name}`:\n\n"
            )
            parts.append(markdown_table(LEG_COLUMNS, leg_rows(steps)))
    path.write_text("".join(parts))


def parse_runs(text: str) -> list[tuple[CoreConfig, Target]]:
    """``core:target`` pairs; a core's name may hold a comma."""
    runs, rest = [], text
    while rest:
        name, _, rest = rest.partition(":")
        target, _, rest = rest.partition(",")
        if name not in CORES:
            raise SystemExit(f"unknown core {name!r}; known: {', '.join(CORES)}")
        runs.append((CORES[name], Target(target)))
    return runs


class OutOfTimeError(Exception):
    """A run takes longer than allowed."""


def measure(config: CoreConfig, target: Target, limit: float) -> Synthesis:
    """Synthesise a core in ``limit`` seconds, or raise :class:`OutOfTimeError` at the tool's next step."""
    started = time.monotonic()

    def progress(text: str) -> None:
        if time.monotonic() - started > limit:
            raise OutOfTimeError
        if sys.stderr.isatty():
            print(f"\r\x1b[K{config.name} on {target}: {text}", end="", file=sys.stderr, flush=True)

    result, _ = synthesise(config, target, progress=progress)
    begin = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{begin}{config.name} on {target}: done ({result.seconds:.0f} s)", file=sys.stderr, flush=True)
    return replace(result, config=config.name)  # equal cores share a result, whatever their names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default=RUNS, help="core:target,core:target")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds that a run may take; a rerun goes on")
    parser.add_argument("--docs", type=Path, help="write the tables into this page")
    parser.add_argument("--measured", type=Path, help="write what cores take on xc7 into this file of weft.boards")
    parser.add_argument("--json", type=Path, help="write flat records to this file")
    arguments = parser.parse_args()

    results, unfinished = [], []
    for config, target in parse_runs(arguments.runs):
        try:
            result = measure(config, target, arguments.limit)
        except OutOfTimeError:
            unfinished.append(f"`{config.name}` on {target}")
            continue
        results.append(result)
        print_table(f"{config.name} on {target}", *usage_rows(result))
        if result.timing is not None:
            print_table(
                f"critical path, {result.timing.fmax:.1f} MHz on {result.timing.part}, in ns",
                ["step", "delay", "until", "name"],
                path_rows(result.timing.critical_path),
            )
    print_table("synthesis", *summary_rows(results))
    records = [
        Record(result.config, str(result.target), column, value)
        for result in results
        for column, value in result.total.items()
    ]
    records += [
        Record(result.config, str(result.target), "MHz", result.timing.fmax) for result in results if result.timing
    ]
    if arguments.json:
        write_json(arguments.json, records)
    if arguments.measured:
        on_xc7 = [result for result in results if result.target is Target.XC7]
        measured = [Measurement(CORES[result.config], result.total) for result in on_xc7]
        arguments.measured.write_text(measurement_text(measured))
    if arguments.docs:
        write_docs(arguments.docs, results, unfinished)
    if unfinished:
        print(f"not finished in {arguments.limit:.0f} s: {', '.join(unfinished)}")
    misses = [text for result in results if result.config == MUST_FIT for text in over_limit(result)]
    for text in misses:
        print(f"{MUST_FIT} takes {text}")
    if any(result.config == MUST_FIT for result in results) and not misses:
        print(f"{MUST_FIT} takes at most {SHARE_LIMIT:.0%} of its part")
    slow = 0
    for result in results:
        if result.timing is not None and (wanted := WANTED_MHZ.get(result.config)):
            slow += result.timing.fmax < wanted
            verdict = "missed" if result.timing.fmax < wanted else "met"
            print(f"{result.config} runs at {result.timing.fmax:.1f} MHz, {wanted:.0f} wanted: {verdict}")
    return 1 if misses or slow else 0


if __name__ == "__main__":
    sys.exit(main())
