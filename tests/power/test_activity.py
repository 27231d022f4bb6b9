"""From registers to cells: a small design with modules in it, against a simulation of its meaning cycle by cycle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from weft.hw.energies import INVERTER_PF, VOLTS, sram_pj
from weft.hw.synthesis_modules import split_modules
from weft.power.activity import Changes, Evaluator
from weft.power.cell_modules import mapped_modules
from weft.power.errors import PowerError
from weft.power.estimate import Energies, added
from weft.power.flat import FlatNetlist, flatten
from weft.power.liberty import Library, read_library

CYCLES = 150

VERILOG = """
module weft_core(clk, rst, x, y);
  input clk; wire clk;
  input rst; wire rst;
  input [7:0] x; wire [7:0] x;
  output [7:0] y; wire [7:0] y;
  wire [7:0] sum$1;
  wire [7:0] old$2;
  reg [7:0] held$7;
  reg [3:0] place;
  reg [7:0] _0_;
  reg [7:0] storage [15:0];
  always @(posedge clk)
    if (rst) held$7 <= 8'h00;
    else held$7 <= sum$1;
  always @(posedge clk)
    if (rst) place <= 4'h0;
    else place <= place + 4'h1;
  always @(posedge clk)
    if (x[0]) storage[place] <= x;
  always @(posedge clk)
    if (x[1]) _0_ <= storage[place];
  \\weft_core.adder  adder (.a(held$7), .b(x), .sum(sum$1), .same(old$2));
  assign y = old$2 ^ _0_;
endmodule
module \\weft_core.adder (a, b, sum, same);
  input [7:0] a; wire [7:0] a;
  input [7:0] b; wire [7:0] b;
  output [7:0] sum; wire [7:0] sum;
  output [7:0] same; wire [7:0] same;
  assign sum = a + b;
  assign same = a;
endmodule
"""

CELL = """
  cell ({name}) {{
    area : 1; cell_leakage_power : 1; {state}
    {inputs}
    pin (Y) {{ direction : output; function : "{function}"; {power} }}
  }}
"""
POWER = 'internal_power () { power (p) { index_1 ("0, 1"); index_2 ("0, 1"); values ("1, 1", "1, 1"); } }'
HEAD = """library (few) {
  voltage_unit : "1V"; leakage_power_unit : "1nW"; capacitive_load_unit (1, pf); nom_voltage : 2;
"""


def cell(name: str, pins: str, function: str, state: str = "") -> str:
    inputs = "".join(f"pin ({pin}) {{ direction : input; capacitance : 1; }}\n" for pin in pins)
    return CELL.format(name=name, state=state, inputs=inputs, function=function, power=POWER)


CELLS = "".join([
    cell("INV", "A", "!A"), cell("BUF", "A", "A"), cell("NAND", "AB", "!(A B)"), cell("NOR", "AB", "!(A+B)"),
    cell("XOR", "AB", "A^B"),
    cell("DFF", "DC", "IQ", 'ff (IQ, IN) { next_state : "D"; clocked_on : "C"; }'),
])  # fmt: skip


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> tuple[FlatNetlist, Library]:
    folder = tmp_path_factory.mktemp("cells")
    liberty = folder / "few.lib"
    liberty.write_text(f"{HEAD}{CELLS}}}\n")
    library = read_library(liberty)
    first = mapped_modules(VERILOG, liberty, library, cache=folder)
    # Other numbers in tools' names, and the same content: nothing is mapped again.
    other = VERILOG.replace("$7", "$77").replace("$2", "$20").replace("sum$1", "sum$11")
    report: list[str] = []
    second = mapped_modules(other, liberty, library, cache=folder, progress=report.append)
    assert not report
    assert {name.replace("$77", "$7") for name in second["weft_core"]["names"]} == set(first["weft_core"]["names"])
    # Other cells: all of it is mapped anew.
    liberty.write_text(f"{HEAD}{CELLS}{cell('AND', 'AB', 'A B')}}}\n")
    mapped_modules(VERILOG, liberty, read_library(liberty), cache=folder, progress=report.append)
    assert report
    return flatten(first, library), library


def simulated() -> dict[tuple[str, ...], npt.NDArray[np.int64]]:
    """The inputs, and what registers hold, in each cycle."""
    generator = np.random.default_rng(0)
    x, rst = generator.integers(0, 256, CYCLES), (generator.random(CYCLES) < 0.05).astype(int)
    held, place, given = (np.zeros(CYCLES, np.int64) for _ in range(3))
    storage = [0] * 16
    for now in range(CYCLES - 1):
        held[now + 1] = 0 if rst[now] else (held[now] + x[now]) & 0xFF
        place[now + 1] = 0 if rst[now] else (place[now] + 1) & 0xF
        given[now + 1] = storage[place[now]] if x[now] & 2 else given[now]
        if x[now] & 1:
            storage[place[now]] = x[now]
    return {("x",): x, ("rst",): rst, ("clk",): np.zeros(CYCLES, np.int64),
            ("held$7",): held, ("place",): place, ("_0_",): given}  # fmt: skip


def words(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    bits = np.zeros((8, 192), np.uint8)
    bits[:, : len(values)] = values >> np.arange(8)[:, None] & 1
    return np.packbits(bits, axis=1, bitorder="little").view(np.uint64)


def evaluated(netlist: FlatNetlist, library: Library) -> tuple[Evaluator, Changes]:
    values = simulated()
    evaluator = Evaluator(netlist, library, values.keys())
    return evaluator, evaluator.changes(lambda path: words(values[path]), CYCLES)


def toggles(values: npt.NDArray[np.int64]) -> list[int]:
    changed = values[1:] ^ values[:-1]
    return [int((changed >> bit & 1).sum()) for bit in range(8)]


def test_cells_give_the_values_of_the_design(mapped: tuple[FlatNetlist, Library]) -> None:
    netlist, library = mapped
    evaluator, changes = evaluated(netlist, library)
    values = simulated()
    assert changes.wrong == 0
    assert changes.pairs == CYCLES - 1
    held = values["held$7",]
    assert changes.toggles[netlist.known["held$7",]].tolist() == toggles(held)
    # The sum, of cells alone, and what goes through a module as it is.
    total = (held + values["x",]) & 0xFF
    assert sorted(changes.toggles[netlist.same[:, 1]].tolist()) == sorted(toggles(held))
    nets = {net for each in evaluator.registers for net in each.value.tolist()}
    assert len(nets) == 12
    assert set(toggles(total)) <= set(changes.toggles.tolist())
    assert changes.reads.tolist() == [int((values["x",][:-1] >> 1 & 1).sum())]
    assert changes.writes.tolist() == [int((values["x",][:-1] & 1).sum())]
    moved = {
        tuple(nets): count for nets, count in zip(map(tuple, evaluator.register_groups), changes.clocked, strict=True)
    }
    assert moved[tuple(netlist.known["held$7",])] == int((held[1:] != held[:-1]).sum())


def test_a_cell_that_computes_something_else_is_found(mapped: tuple[FlatNetlist, Library]) -> None:
    netlist, library = mapped
    cells = dict(library.cells)
    cells["XOR"] = replace(cells["XOR"], functions={"Y": "A+B"})
    _, changes = evaluated(netlist, replace(library, cells=cells))
    assert changes.wrong > 0


def test_a_register_that_nobody_tells_is_counted(mapped: tuple[FlatNetlist, Library]) -> None:
    netlist, library = mapped
    with pytest.raises(PowerError, match="8 registers of the netlist have no name in the RTL"):
        Evaluator(netlist, library, [path for path in simulated() if path != ("held$7",)])


def test_energies_are_those_of_each_change(mapped: tuple[FlatNetlist, Library]) -> None:
    netlist, library = mapped
    evaluator, changes = evaluated(netlist, library)
    found = Energies(netlist, library, wires=0.5).of(changes, evaluator.register_groups)
    load = np.zeros(netlist.nets)
    for group in netlist.groups:
        for pin in group.pins:
            if pin not in ("Y", "C"):
                np.add.at(load, group.at(pin), 1.5)
    cells = np.concatenate([group.at("Y") for group in netlist.groups])
    # Every change of an output takes 1 pJ inside, and 1/2 C V^2; nets of inputs and of the memory only the latter.
    expected = changes.toggles[cells].sum() + (changes.toggles * load).sum() * 2**2 / 2
    assert found.logic.sum() == pytest.approx(expected)
    assert found.clock.tolist() == pytest.approx([12 * 1.5 * 2**2 * (CYCLES - 1), 0])
    accesses = changes.reads + changes.writes
    scale = library.smallest_input_pf * 2**2 / (INVERTER_PF * VOLTS**2)
    assert found.memories.tolist() == pytest.approx([accesses[0] * sram_pj(8 * 16) * 8 / 64 * scale, 0])
    values = simulated()
    still = sum(bits * int((values[path][1:] == values[path][:-1]).sum())
                for path, bits in ((("held$7",), 8), (("place",), 4)))  # fmt: skip
    assert found.held.sum() == pytest.approx(still * 1.5 * 2**2)
    assert added([found, found], 0.5).total.tolist() == pytest.approx(found.total.tolist())


def test_modules_of_one_content_differ_by_their_numbers() -> None:
    module = split_modules(VERILOG)["weft_core"]
    assert module.without_numbers("sum$1") == "sum$0"
    assert [module.with_numbers(module.without_numbers(name)) for name in ("sum$1", "old$2", "place")] == [
        "sum$1", "old$2", "place"
    ]  # fmt: skip


def test_a_cell_without_a_place_in_the_library_is_refused(tmp_path: Path) -> None:
    liberty = tmp_path / "few.lib"
    liberty.write_text(f"{HEAD}{CELLS}}}\n")
    library = read_library(liberty)
    cells = {name: each for name, each in library.cells.items() if name != "DFF"}
    with pytest.raises(PowerError, match="has a DFF, which no cell of the library does"):
        mapped_modules(VERILOG, liberty, replace(library, cells=cells), cache=tmp_path)
