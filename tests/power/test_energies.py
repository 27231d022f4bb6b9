"""Cells, memories and registers one at a time: what changes in them, and what that takes."""

from __future__ import annotations

import numpy as np
import pytest
from weft.power.activity import Changes, Evaluator
from weft.power.estimate import Energies
from weft.power.flat import ONE, FlatMemory, FlatNetlist, Group
from weft.power.liberty import NOTHING, Cell, Library

CYCLES = 70
CLOCK, DATA, VALUE, INVERSE = 2, 3, 4, 5

INVERTER = Cell("INV", {"A": 1.0}, {"Y": "!A"}, {"A": NOTHING, "Y": NOTHING}, 3e-9)
REGISTER = Cell("DFF", {"D": 1.0, "C": 1.0}, {"Q": "IQ", "QN": "IN"}, dict.fromkeys(("D", "C", "Q", "QN"), NOTHING),
                5e-9, ("IQ", "IN"), "D", "C")  # fmt: skip
LIBRARY = Library("few", 2.0, {"INV": INVERTER, "DFF": REGISTER})


def numbers(*nets: int) -> np.ndarray:
    return np.array(nets, np.int64)


def netlist(*, memories: tuple[FlatMemory, ...] = (), names: dict[str, np.ndarray] | None = None) -> FlatNetlist:
    """A register with both of its outputs in the core's own module, and three inverters of its data below it."""
    register = Group("DFF", ("C", "D", "Q", "QN"), numbers(CLOCK, DATA, VALUE, INVERSE).reshape(1, 4), numbers(0))
    inverters = Group("INV", ("A", "Y"), np.array([[DATA, 6], [DATA, 7], [DATA, 8]]), numbers(1, 1, 1))
    named = {"clk": numbers(CLOCK), "d": numbers(DATA), "q": numbers(VALUE, INVERSE)} | (names or {})
    known = {(name,): nets for name, nets in named.items()}
    return FlatNetlist(12, (register, inverters), memories, ((), ("below",)), known, np.zeros((0, 3), np.int64))


def row(bits: np.ndarray) -> np.ndarray:
    padded = np.zeros(128, np.uint8)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view(np.uint64)


def changes(own: FlatNetlist, **values: np.ndarray) -> Changes:
    """``values``: of each name ``(bits, cycles)``; the register holds what was at its data."""
    data = np.random.default_rng(1).integers(0, 2, CYCLES)
    held = np.concatenate([[0], data[:-1]])
    values = {"clk": np.zeros((1, CYCLES)), "d": data[None], "q": np.array([held, 1 - held]), **values}
    evaluator = Evaluator(own, LIBRARY, own.known)
    return evaluator.changes(lambda path: np.array([row(bits) for bits in values[path[0]]]), CYCLES)


def test_a_register_gives_its_value_and_the_inverse() -> None:
    assert changes(netlist()).wrong == 0
    same = np.random.default_rng(1).integers(0, 2, CYCLES)
    held = np.concatenate([[0], same[:-1]])
    assert changes(netlist(), q=np.array([held, held])).wrong == CYCLES - 1


def test_a_port_without_a_clock_reads_when_what_it_gives_changes() -> None:
    memories = (
        FlatMemory(4, 2, 0, ((ONE, numbers(9, 10)),), numbers(11, 11)),
        FlatMemory(4, 2, 0, ((11, numbers(9, 10)),), numbers(11, 1)),
    )
    own = netlist(memories=memories, names={"given": numbers(9, 10), "enable": numbers(11)})
    given, enable = np.zeros((2, CYCLES), np.int64), np.zeros((1, CYCLES), np.int64)
    given[0, 20:] = given[1, 20:30] = 1
    enable[0, [0, 3, 64, CYCLES - 1]] = 1  # what the last cycle asks for is done in none of them
    found = changes(own, given=given, enable=enable)
    assert found.reads.tolist() == [2, 3]
    assert found.writes.tolist() == [3, (3 + CYCLES - 1) / 2]


@pytest.mark.parametrize("clocked", [(2, 7), (7, 2)])
def test_a_register_of_two_outputs_and_two_names_is_held_once(clocked: tuple[int, int]) -> None:
    energies = Energies(netlist(), LIBRARY, wires=0)
    moved = Changes(10, np.zeros(12, np.int64), np.array(clocked), numbers(), np.zeros(0), 0)
    found = energies.of(moved, [numbers(VALUE), numbers(VALUE, INVERSE)])
    # As still as the name says that changes least; the clock's pin takes C V^2 a cycle.
    assert found.held.tolist() == [(10 - min(clocked)) * 4.0, 0]
    assert found.clock.tolist() == [40.0, 0]


def test_each_cell_leaks_in_its_module() -> None:
    energies = Energies(netlist(), LIBRARY)
    assert energies.leakage_w.tolist() == pytest.approx([5e-9, 9e-9])
    assert (energies.cells.tolist(), energies.registers.tolist()) == ([1, 3], [1, 0])
