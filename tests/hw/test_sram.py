"""Memories as instances of ``weft_sram``: which sizes a core asks for, and that only the contract is relied upon."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from weft.hw.config import TINY, CoreConfig
from weft.hw.core import memory_paths
from weft.hw.isa import Engine, Finish, Gemm, Load, Loop, Scratchpad, Store, Vector, VectorOp, VectorTarget
from weft.hw.mac_array_packed import Multipliers
from weft.hw.programs import assemble
from weft.hw.sram import TECHMAP, Sram, sram_model, sram_sizes
from weft.hw.system_config import SystemConfig
from weft.hw.verilog import SYSTEM_TOP, emit_verilog, run_yosys
from weft.runtime.recording import Launch
from weft.sim.rtl import RtlSimulator

from benchmarks.hardware.portable import MACROS, Form, run_icarus

GEMM, LOAD, LOADW, VECTOR, STORE = (
    1 << engine for engine in (Engine.GEMM, Engine.LOAD, Engine.LOADW, Engine.VECTOR, Engine.STORE)
)
PLACE, WINDOW = 4096, 8192


def text_of(config: CoreConfig) -> str:
    return emit_verilog(config, Multipliers.PACKED, initial_values=False, replaceable_memories=True)


def test_scratchpads_and_buffers_are_instances() -> None:
    config = replace(TINY, tables=2)
    text = text_of(config)
    sizes = sram_sizes(text)
    acc = Sram(config.acc_depth // config.acc_banks, 8 * config.acc_bytes, 8 * config.bus_bytes)
    assert sizes[acc] == config.acc_banks
    assert sizes[Sram(config.tab_depth, 8, 8)] == config.lanes
    assert sizes[Sram(config.wgt_depth, 8 * config.wgt_bytes, 8 * config.bus_bytes)] == 1
    assert sizes[Sram(255, 8 * config.bus_bytes, 8 * config.bus_bytes)] == 2  # what load and loadw have read
    assert sizes[Sram(255, 9 * config.bus_bytes, 9 * config.bus_bytes)] == 1  # what is to be written, with strobes
    instances = set(re.findall(r"^  weft_sram #\(.*?^  \) (\S+) \(", text, re.MULTILINE | re.DOTALL))
    assert instances >= {path[-1] for memory in config.scratchpads for path in memory_paths(config, memory)}
    left = re.findall(r"^  reg (?:\[\d+:0\] )?(\S+) \[(\d+):0\];", text, re.MULTILINE)
    assert {name for name, _ in left} == {"ring", "storage", *(f"{e.name.lower()}_classes" for e in Engine)}
    assert max(int(last) for _, last in left) < 16
    assert str(acc) == "64 entries of 128 bits, written 64 at a time"


def test_all_cores_of_a_system_are_mapped() -> None:
    system = SystemConfig(name="pair", cores=(TINY, replace(TINY, name="other", acc_banks=2)))
    text = emit_verilog(system, initial_values=False, replaceable_memories=True)
    assert f"module {SYSTEM_TOP}" in text
    assert "module weft_sram" not in text
    acc = [size for size in sram_sizes(text) if size.width == 8 * TINY.acc_bytes and size.granule == 64]
    assert {size.depth for size in acc} >= {TINY.acc_depth // 2, TINY.acc_depth // 4}


def test_the_model_names_what_is_in_use() -> None:
    parameters = "\n    .ADDRESS_BITS(32'd9),\n    .DEPTH(32'd512),\n    .GRANULE(32'd8),\n    .WIDTH(32'd32)\n"
    model = sram_model(f"  weft_sram #({parameters}  ) a (\n" * 3)
    assert model.startswith(
        "// The sizes in use:\n//   3 of 512 entries of 32 bits, written 8 at a time\n`timescale 1ns/1ps\n"
    )
    assert model.count("module weft_sram #(") == 1


ENABLES = {
    "alike": ("{8{a}}", 8),
    "halves": ("{{4{a}}, {4{b}}}", 4),
    "unequal": ("{{5{a}}, {3{b}}}", 1),
    "mixed": ("{a, a, b, b, a, b, a, a}", 1),
    "each": ("c", 1),
}


@pytest.mark.parametrize("enable", list(ENABLES))
def test_bits_that_are_written_together_are_found(enable: str) -> None:
    bits, granule = ENABLES[enable]
    source = (
        "module m(input clk, a, b, re, input [7:0] c, d, input [3:0] w, r, output reg [7:0] q);\n"
        f"(* no_rw_check *) reg [7:0] x [0:15]; integer i; wire [7:0] e = {bits};\n"
        "always @(posedge clk) begin for (i = 0; i < 8; i = i + 1) if (e[i]) x[w][i] <= d[i]; if (re) q <= x[r]; end\n"
        "endmodule\n"
    )
    assert mapped(source) == {Sram(16, 8, granule): 1}


def mapped(source: str) -> Counter[Sram]:
    """Sizes of the memories that the map takes in a text of Verilog."""
    steps = (f"read_verilog <<END\n{source}\nEND", "hierarchy -top m", "proc", "opt", "memory -nomap", TECHMAP)
    return sram_sizes(run_yosys("", steps))


def launch() -> Launch:
    """A small layer, twice with other data: every scratchpad is written and read, the weights in parts of an entry."""
    program = []
    for half in range(2):
        program += [
            Load(scratchpad=Scratchpad.INP, index=8 * half, offset=64 * half // 4, rows=1, columns=8, send=GEMM,
                 wait=GEMM if half else 0),
            Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=2 * half, offset=512 // 4, rows=1, columns=2),
            Load(engine=Engine.LOADW, scratchpad=Scratchpad.ACC, index=128, offset=1024 // 4, rows=1, columns=3,
                 send=GEMM | VECTOR, wait=VECTOR if half else 0),
            Loop(engine=Engine.GEMM, level=0, extent=2, dst_stride=0, a_stride=4, b_stride=1),
            Loop(engine=Engine.GEMM, level=1, extent=4, dst_stride=1, a_stride=1, b_stride=0),
            Gemm(zero=1, levels=2, dst=16 * half, src=8 * half, wgt=2 * half,
                 wait=LOAD | LOADW | (VECTOR if half else 0), send=VECTOR | (0 if half else LOAD)),
            Loop(engine=Engine.VECTOR, level=0, extent=4, dst_stride=1, a_stride=1),
            Vector(op=VectorOp.REQUANTISE, target=VectorTarget.OUT, levels=1, dst=4 * half, a=16 * half, b=128,
                   low=-128, high=127, wait=GEMM | LOADW | (STORE if half else 0),
                   send=STORE | (0 if half else GEMM | LOADW)),
            Store(index=4 * half, offset=(2048 + 256 * half) // 4, rows=2, columns=2, stride=8, wait=VECTOR,
                  send=0 if half else VECTOR),
        ]  # fmt: skip
    program.append(Finish())
    simulator = RtlSimulator(TINY, WINDOW)
    simulator.dram[:] = np.random.default_rng(0).integers(0, 256, WINDOW, np.uint8)
    parameters = np.array([[5, -3, 700, 0], [1 << 20] * 4, [26] * 4], np.int32)
    simulator.dram[1024 : 1024 + parameters.nbytes] = parameters.view(np.uint8).ravel()
    code = np.frombuffer(assemble(TINY, program), np.uint8)
    simulator.dram[PLACE : PLACE + code.size] = code
    before = simulator.dram.copy()
    result = simulator.run(PLACE, len(program))
    assert result.fault is None
    return Launch(PLACE, len(program), before, simulator.dram.copy(), result)


def test_macros_that_do_no_more_than_promised_change_nothing(tmp_path: Path) -> None:
    """Another module in the place of ``weft_sram``, in Icarus: unknown wherever the contract leaves it open."""
    made = launch()
    assert made.after is not None
    assert made.result is not None
    assert (made.after != made.before).sum() > 16
    figures, after = run_icarus(Form(TINY, Multipliers.PACKED, False, True), made, tmp_path)
    assert "macro_64x32" in (tmp_path / "weft_sram.v").read_text() == MACROS.read_text()
    assert figures == {"interrupt": 1, "fault": 0, "cycles": made.result.cycles, "wrong": 0}
    assert np.array_equal(after[:WINDOW], made.after)
