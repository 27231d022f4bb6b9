"""Proofs about the depthwise mode: three rows come from three banks, and every output meets its three columns."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from amaranth.hdl import Array, Const, Module, Mux, Signal
from weft.hw import gemm
from weft.hw.inp_memory import InpMemory
from weft.hw.isa import TAP_COLUMNS
from weft.hw.mac_array import MacArray

from .harness import Harness
from .prover import Mutant, Proof
from .queues import NARROW

DEPTHWISE = replace(NARROW, block_in=16, block_out=16, depthwise=1)


def rows_at_once() -> Harness:
    """Follow any one entry: whichever port it comes out of, it is what was written last before the read."""
    harness = Harness()
    m = harness.m
    memory = InpMemory(DEPTHWISE)
    inside = harness.add("memory", memory)
    read, write = memory.read, memory.write

    entry = harness.constant("entry", len(read.index))
    content = Signal(len(write.data))
    chunk = len(write.data) // len(write.mask)
    writes = write.enable & (write.index == entry)
    for number, bit in enumerate(write.mask):
        with m.If(writes & bit):
            m.d.sync += content[number * chunk : (number + 1) * chunk].eq(
                write.data[number * chunk : (number + 1) * chunk]
            )
    banks = [inside.rows(f"bank_{number}.memory") for number in range(len(memory.banks))]
    stored = Array(banks[number % len(banks)][number // len(banks)] for number in range(DEPTHWISE.inp_depth))
    harness.prove(stored[entry] == content, "what_is_stored")

    arriving = Signal()
    m.d.sync += arriving.eq(read.enable)
    for row, port in enumerate((*read.above, read.data)):
        back = len(read.above) - row
        wanted = Signal(name=f"row_{row}_wanted")  # the read asks for the entry, and no write disturbs it
        taken, shown = (Signal(name=f"row_{row}_{name}") for name in ("taken", "shown"))
        value, answer = (Signal(len(port), name=f"row_{row}_{name}") for name in ("value", "answer"))
        place = Signal(len(read.index), name=f"row_{row}_place")
        m.d.comb += [
            place.eq(read.index - read.pitch * Const(back, 2)),
            wanted.eq(read.enable & (place == entry) & ~writes & (read.pitch[0] | (back == 0))),
        ]
        m.d.sync += [taken.eq(wanted), value.eq(content)]
        with m.If(arriving):
            m.d.sync += [shown.eq(taken), answer.eq(value)]
        harness.prove(~shown | (port == answer), f"row_{row}")
    return harness


class NoSums(MacArray):
    """In place of the array: its sums do not matter here."""

    def elaborate(self, platform: object) -> Module:
        return Module()


class GemmWithoutProducts(gemm.GemmEngine):
    """The gemm engine, but for its array."""

    def elaborate(self, platform: object) -> Module:
        with patch.object(gemm, "mac_array", lambda config, _: NoSums(config)):
            return super().elaborate(platform)


def columns() -> Harness:
    """When an output is written, the last three waves were its three columns, with its taps and its rows; and it is."""
    harness = Harness()
    m = harness.m
    engine = GemmWithoutProducts(DEPTHWISE)
    inside = harness.add("engine", engine)
    stopped = Signal()
    m.d.sync += stopped.eq(engine.stop)
    harness.assume(~stopped | engine.stop)  # until the reset of the next run

    depthwise, column, known = inside["is_depthwise"], inside["column"], inside["known"]
    pitch, valid, wave = inside["column_pitch"], inside["loops.micro_ops__valid"], inside["busy"]
    last, taps = inside["loops.level0_a_base"], inside["loops.level0_b_base"]
    entry = Signal(len(last))
    m.d.comb += entry.eq(last - inside["back"])
    # The entries (in the last row) and taps of the two waves before; `disturbed`: a wave was refused, none follows.
    entries = [Signal(len(last), name=f"entry_{age}") for age in (1, 2)]
    weights = [Signal(len(taps), name=f"taps_{age}") for age in (1, 2)]
    rows = [Signal(len(inside["row_pitch"]), name=f"rows_{age}") for age in (1, 2)]
    disturbed = Signal()
    with m.If(valid & ~wave):
        m.d.sync += disturbed.eq(1)
    with m.If(wave & depthwise):
        for history, now in ((entries, entry), (weights, taps), (rows, inside["row_pitch"])):
            m.d.sync += [history[0].eq(now), history[1].eq(history[0])]

    def was(age: int, columns_back: int) -> object:
        """The wave ``age`` waves before was the column so far to the left of the micro-op's last."""
        place = Signal(len(last), name=f"was_{age}_{columns_back}")
        m.d.comb += place.eq(last - pitch * Const(columns_back, 2))
        same = (weights[age - 1] == taps) & (rows[age - 1] == inside["row_pitch"])
        return (entries[age - 1] == place) & same

    runs = Signal()
    m.d.comb += runs.eq(valid & depthwise & ~disturbed)
    writes = wave & inside["issue"] & depthwise
    harness.prove(~writes | (entry == last), "the_last_wave_is_the_last_column")
    harness.prove(~writes | (was(1, 1) & was(2, 2)), "the_two_before_are_the_others")
    harness.prove(~wave | ~disturbed, "nothing_follows_a_refused_wave")
    # Invariants: where the column stands, and what is known of the strides of a nest that runs.
    stride = {name: inside[f"loops.level0_{name}_stride"] for name in ("a", "b")}
    shared = Mux(known == 2, pitch, pitch << 1)
    harness.prove(column < TAP_COLUMNS, "column")
    harness.prove(known < TAP_COLUMNS, "known")
    harness.prove(~(valid & (known != 0)) | ((stride["a"] == shared) & (stride["b"] == 0)), "strides")
    harness.prove(~(runs & (column == 1)) | was(1, 2), "second_column")
    harness.prove(~(runs & (column == 2)) | (was(1, 1) & was(2, 2)), "third_column")
    harness.prove(~disturbed | inside["control.halt"], "disturbed_only_at_the_end")
    # Every cycle has a wave, and the third at the latest writes.
    since = Signal(range(TAP_COLUMNS + 1))  # waves since the last that wrote
    with m.If(wave & depthwise):
        m.d.sync += since.eq(Mux(inside["issue"], 0, since + 1))
    refused = inside["failure__valid"]
    harness.prove(~valid | refused | inside["control.halt"] | wave, "nothing_waits")
    harness.prove(disturbed | (since <= Mux(valid & depthwise, column, 0)), "a_write_in_three_waves")
    return harness


PROOFS = [
    Proof(
        "inp-rows",
        "any entry comes out of each of the three ports as it was last written, until the next read",
        rows_at_once,
        Mutant("inp_memory", "places[1].eq(read.index - read.pitch)", "places[1].eq(read.index + read.pitch)"),
        depth=5,
    ),
    Proof(
        "gemm-columns",
        "every depthwise output is written by the last of three waves, which are its three columns",
        columns,
        Mutant("gemm", "Mux(stride.b != 0, 0, ", "Mux(stride.b > 1, 0, "),
        depth=4,
        mutant_depth=14,
    ),
]
