"""Amaranth's testbenches on verilated designs (`weft.sim.fast`) beside Amaranth's own simulator.

The same testbench runs on both, in turns; CPU time. What a small design costs is Python's, on both sides: there the two
are alike.

    python benchmarks/hardware/fast_simulation.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Fragment, Module, Signal
from amaranth.sim import Simulator as AmaranthSimulator
from weft.hw.config import TINY
from weft.hw.core import Core
from weft.sim.fast import Simulator

from benchmarks.common import Record, print_table, write_json

WANTED = 50.0
"""Times as fast as Amaranth's own simulator, on designs of `LARGE` cells and more."""
LARGE = 5_000


class Stage(Elaboratable):
    """A stage of mixed arithmetic: a shift register, a product, a sum."""

    def __init__(self, value: Any) -> None:
        self.value, self.out = value, Signal(32, init=1)

    def elaborate(self, platform: object) -> Module:
        m, mixed, total = Module(), Signal(32), Signal(48)
        m.d.comb += mixed.eq((self.out << 1) ^ (self.out >> 3) ^ self.value)
        m.d.sync += [self.out.eq(mixed + total[:32]), total.eq(total + mixed[:16] * self.value[:16])]
        with m.If(mixed[3]):
            m.d.sync += self.out.eq(mixed)
        return m


class Chain(Elaboratable):
    """Stages behind one another."""

    def __init__(self, length: int) -> None:
        self.length, self.value, self.out = length, Signal(32), Signal(32)

    def elaborate(self, platform: object) -> Module:
        m, last = Module(), self.value
        for number in range(self.length):
            m.submodules[f"stage{number}"] = stage = Stage(last)
            last = stage.out
        m.d.comb += self.out.eq(last)
        return m


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], tuple[Any, Any, Any]]
    """The design, an input to drive and a signal to read."""
    cycles: tuple[int, int]
    """For Amaranth's simulator, and for ours."""


def chain(length: int) -> tuple[Any, Any, Any]:
    design = Chain(length)
    return design, design.value, design.out


def core() -> tuple[Any, Any, Any]:
    design = Core(TINY)
    return design, design.s_axil.araddr, design.s_axil.rdata


CASES = (
    Case("one stage", lambda: chain(1), (4_000, 4_000)),
    Case("50 stages", lambda: chain(50), (400, 4_000)),
    Case("1,000 stages", lambda: chain(1_000), (40, 2_000)),
    Case("the core tiny, idle", core, (40, 4_000)),
)


def run(simulator_of: Callable[[Any], Any], case: Case, cycles: int) -> tuple[float, list[int]]:
    """CPU seconds a cycle, without what comes before the first, and what was read."""
    design, given, read = case.make()
    simulator, seen, spent = simulator_of(design), [], []

    async def bench(ctx: Any) -> None:
        await ctx.tick()
        started = time.process_time()
        for number in range(cycles):
            ctx.set(given, number * 0x9E3779B1 & (1 << len(given)) - 1)
            await ctx.tick()
            seen.append(ctx.get(read))
        spent.append(time.process_time() - started)

    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return spent[0] / cycles, seen


def cells_of(design: Any) -> int:
    """Cells of the netlist that Amaranth writes, with those of processes (switches and registers)."""
    text, _ = rtlil.convert_fragment(Fragment.get(design, None).prepare(), emit_src=False)
    words = [line.split(maxsplit=1)[0] for line in text.splitlines() if line.strip()]
    return words.count("cell") + words.count("process")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each simulator; the best counts")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args(arguments)
    rows, records, missed = [], [], 0
    for case in CASES:
        cells = cells_of(case.make()[0])
        best = {"amaranth": float("inf"), "weft": float("inf")}
        for _ in range(options.rounds):
            for name, simulator_of, cycles in (
                ("amaranth", AmaranthSimulator, case.cycles[0]), ("weft", Simulator, case.cycles[1]),
            ):  # fmt: skip
                seconds, seen = run(simulator_of, case, cycles)
                best[name] = min(best[name], seconds)
                if name == "amaranth":
                    expected = seen
                elif seen[: len(expected)] != expected:
                    print(f"{case.name}: the two simulators differ")
                    return 1
        ratio = best["amaranth"] / best["weft"]
        wanted = WANTED if cells >= LARGE else None
        missed += wanted is not None and ratio < wanted
        rows.append((case.name, f"{cells:,}", f"{best['amaranth'] * 1e6:,.0f}", f"{best['weft'] * 1e6:,.0f}",
                     f"{ratio:.1f} x", "" if wanted is None else f"{wanted:.0f} x"))  # fmt: skip
        records += [
            Record(case.name, "a cycle", "microseconds", best["weft"] * 1e6, best["amaranth"] * 1e6),
            Record(case.name, "a cycle", "times as fast", ratio, wanted),
        ]
    print_table("Amaranth's testbenches, microseconds of CPU time a cycle",
                ("design", "cells", "amaranth.sim", "weft.sim.fast", "ratio", "wanted"), rows)  # fmt: skip
    print(f"{missed} targets missed")
    if options.json:
        write_json(options.json, records)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
