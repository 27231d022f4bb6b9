"""Speed of the RTL simulator, and the time that it takes to build one.

The program has the shape of ResNet-18's layer C2 (56x56, 64 -> 64 channels, 3x3): 14 tiles of 4 output rows, with the
loads, requantisation and stores of one tile beside the matrix work of the next.

    python benchmarks/hardware/rtl_speed.py
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from weft.hw.config import CoreConfig, named_config
from weft.hw.isa import (
    Engine,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    Scratchpad,
    Store,
    Vector,
    VectorOp,
    VectorTarget,
)
from weft.hw.programs import assemble
from weft.sim.build import build_library
from weft.sim.fsim import FunctionalSimulator
from weft.sim.rtl import RtlSimulator

from benchmarks.common import Record, print_table, write_json

GEMM, LOAD, LOADW, VECTOR, STORE = (
    1 << engine for engine in (Engine.GEMM, Engine.LOAD, Engine.LOADW, Engine.VECTOR, Engine.STORE)
)
SIZE, CHANNELS, KERNEL, TILE_ROWS = 56, 64, 3, 4
MEMORY_BYTES = 1 << 20
WEIGHTS, INPUTS, OUTPUTS = 1 << 16, 1 << 18, 1 << 19
KILOCYCLES_NEEDED, BUILD_SECONDS_ALLOWED = 400, 60


def c2_program(config: CoreConfig) -> list[Instruction]:
    """All of C2 on a core with blocks of 16 and VTA's depths."""
    blocks = CHANNELS // config.block_in
    padded = SIZE + KERNEL - 1
    rows_in = TILE_ROWS + KERNEL - 1
    entries = blocks * TILE_ROWS * SIZE
    parameters = 2 * entries  # behind both accumulator tiles: bias, multiplier, shift
    granule = config.granule_bytes
    taps = KERNEL * KERNEL
    loops = (  # extent and strides of dst, src, wgt; innermost first
        (KERNEL, 0, 1, 1),
        (KERNEL, 0, padded, KERNEL),
        (blocks, 0, rows_in * padded, taps),
        (SIZE, 1, 1, 0),
        (TILE_ROWS, SIZE, padded, 0),
        (blocks, TILE_ROWS * SIZE, 0, blocks * taps),
    )
    program: list[Instruction] = [
        Load(
            engine=Engine.LOADW,
            scratchpad=Scratchpad.WGT,
            index=0,
            offset=WEIGHTS // granule,
            rows=1,
            columns=blocks * blocks * taps,
        ),
        Load(
            engine=Engine.LOADW,
            scratchpad=Scratchpad.ACC,
            index=parameters,
            offset=(WEIGHTS - 4096) // granule,
            rows=1,
            columns=3,
            send=GEMM | VECTOR,
        ),
    ]
    for level, (extent, dst, src, wgt) in enumerate(loops):
        program.append(Loop(engine=Engine.GEMM, level=level, extent=extent, dst_stride=dst, a_stride=src, b_stride=wgt))
    program.append(Loop(engine=Engine.VECTOR, level=0, extent=entries, dst_stride=1, a_stride=1))
    tiles = SIZE // TILE_ROWS
    for tile in range(tiles):
        first = tile * TILE_ROWS - 1
        top, bottom = max(0, -first), max(0, first + rows_in - SIZE)
        for block in range(blocks):
            program.append(
                Load(
                    scratchpad=Scratchpad.INP,
                    index=block * rows_in * padded,
                    offset=INPUTS // granule + (block * SIZE + first + top) * SIZE,
                    rows=rows_in - top - bottom,
                    columns=SIZE,
                    stride=SIZE,
                    pad_top=top,
                    pad_bottom=bottom,
                    pad_left=1,
                    pad_right=1,
                    wait=GEMM if tile and block == 0 else 0,
                    send=GEMM if block == blocks - 1 else 0,
                )
            )
        half = tile % 2 * entries
        program.append(
            Gemm(
                zero=1,
                levels=len(loops),
                dst=half,
                src=0,
                wgt=0,
                wait=LOAD | (LOADW if tile == 0 else 0) | (VECTOR if tile >= 2 else 0),
                send=VECTOR | (LOAD if tile < tiles - 1 else 0),
            )
        )
        program.append(
            Vector(
                op=VectorOp.REQUANTISE,
                target=VectorTarget.OUT,
                levels=1,
                dst=0,
                a=half,
                b=parameters,
                low=-128,
                high=127,
                wait=GEMM | (LOADW if tile == 0 else 0) | (STORE if tile else 0),
                send=STORE | (GEMM if tile < tiles - 2 else 0),
            )
        )
        program.append(
            Store(
                index=0,
                offset=OUTPUTS // granule + tile * TILE_ROWS * SIZE,
                rows=blocks,
                columns=TILE_ROWS * SIZE,
                stride=SIZE * SIZE,
                wait=VECTOR,
                send=VECTOR if tile < tiles - 1 else 0,
            )
        )
    return [*program, Finish()]


def fill(config: CoreConfig, simulator: RtlSimulator | FunctionalSimulator, program: list[Instruction]) -> None:
    """Random data, parameters and the program."""
    rng = np.random.default_rng(0)
    simulator.dram[WEIGHTS:] = rng.integers(0, 256, MEMORY_BYTES - WEIGHTS, np.uint8)
    parameters = np.zeros((3, config.lanes), np.int32)
    parameters[0], parameters[1], parameters[2] = rng.integers(-999, 999, config.lanes), 1 << 20, 29
    simulator.dram[WEIGHTS - 4096 :][: parameters.nbytes] = parameters.view(np.uint8).reshape(-1)
    code = assemble(config, program)
    simulator.dram[: len(code)] = code


def measure_run(config: CoreConfig, repeats: int) -> list[Record]:
    """Run C2 on both simulators, compare all results, and time the RTL."""
    program = c2_program(config)
    rtl, functional = RtlSimulator(config, MEMORY_BYTES, progress=print), FunctionalSimulator(config, MEMORY_BYTES)
    fill(config, rtl, program)
    fill(config, functional, program)
    started = time.perf_counter()
    expected = functional.run(0, len(program))
    functional_seconds = time.perf_counter() - started
    seconds, processor_seconds = [], []
    for _ in range(repeats):
        started, processor_started = time.perf_counter(), time.process_time()
        result = rtl.run(0, len(program))
        seconds.append(time.perf_counter() - started)
        processor_seconds.append(time.process_time() - processor_started)
    if result.fault or expected.fault or not np.array_equal(rtl.dram, functional.dram):
        raise SystemExit(f"the simulators differ: {result.fault}, {expected.fault}")
    cycles = result.cycles or 0
    waves = CHANNELS**2 * KERNEL**2 * SIZE**2 // config.macs_per_cycle
    return [
        Record(config.name, "C2", "cycles", cycles, waves),
        Record(config.name, "C2", "utilisation %", round(100 * waves / cycles, 1)),
        Record(config.name, "C2", "rtl seconds", round(min(seconds), 3)),
        Record(config.name, "C2", "rtl kcycles/s", round(cycles / min(seconds) / 1000), KILOCYCLES_NEEDED),
        # What a machine with nothing else to do would reach.
        Record(config.name, "C2", "rtl kcycles/s of CPU time", round(cycles / min(processor_seconds) / 1000)),
        Record(config.name, "C2", "fsim seconds", round(functional_seconds, 3)),
    ]


def processor_time() -> float:
    """Seconds of all cores, of this process and the compilers that it has run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure_build(config: CoreConfig) -> list[Record]:
    """Build in an empty cache, then find the same library again."""
    with tempfile.TemporaryDirectory(prefix="weft-rtl-speed-") as name:
        processor_started = processor_time()
        _, times = build_library(config, progress=print, cache_root=Path(name))
        processor_seconds = processor_time() - processor_started
        started = time.perf_counter()
        build_library(config, cache_root=Path(name))
        cached = time.perf_counter() - started
    return [
        Record(config.name, "build", "verilog seconds", round(times.verilog, 1)),
        Record(config.name, "build", "verilator seconds", round(times.verilator, 1)),
        Record(config.name, "build", "c++ seconds", round(times.compiler, 1)),
        Record(config.name, "build", "cold seconds", round(times.total, 1), BUILD_SECONDS_ALLOWED),
        Record(config.name, "build", "cold seconds of CPU time", round(processor_seconds, 1)),
        Record(config.name, "build", "cached seconds", round(cached, 4)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="pynq", help="pynq, or another core with blocks of 16 and its depths")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-build", action="store_true", help="do not measure the cold build")
    parser.add_argument("--json", type=Path, help="write the records to this file")
    options = parser.parse_args()
    config = named_config(options.config)
    records = measure_run(config, options.repeats)
    if not options.no_build:
        records += measure_build(config)
    rows = [[r.workload, r.figure, str(r.value), "" if r.reference is None else str(r.reference)] for r in records]
    print_table(f"RTL simulator, {config.name}", ["workload", "figure", "value", "reference"], rows)
    if options.json:
        write_json(options.json, records)


if __name__ == "__main__":
    main()
