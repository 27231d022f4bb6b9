"""Energy of what happened in a netlist of cells: by module, in logic, clock and memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..hw.energies import sram_pj
from .activity import Changes
from .flat import FlatNetlist, Numbers
from .liberty import NOTHING, Floats, Library

WIRES = 1.0
"""Capacitance of the wires of a net, in units of that of the pins that it drives. Nothing is placed here."""


@dataclass(frozen=True)
class ModuleEnergies:
    """Picojoules by module of the netlist: of changing nets, of the clock's pins, of memories."""

    logic: Floats
    clock: Floats
    memories: Floats
    held: Floats
    """The part of ``clock`` of registers of which no bit changed: what gates of the clock could save at best."""

    @property
    def total(self) -> Floats:
        return self.logic + self.clock + self.memories


class Energies:
    """What each change of a netlist takes. ``wires``: as :data:`WIRES`."""

    def __init__(self, netlist: FlatNetlist, library: Library, wires: float = WIRES) -> None:
        self.netlist = netlist
        modules = len(netlist.modules)
        load = np.zeros(netlist.nets)
        for group in netlist.groups:
            cell = library.cells[group.kind]
            for pin in group.pins:
                if pin in cell.inputs and pin != cell.clock:
                    np.add.at(load, group.at(pin), cell.inputs[pin] * (1 + wires))
        charge = library.volts**2 / 2
        # Nets, what one change of each takes, and the module that pays: of outputs, inner nodes behind inputs, and nets
        # that no cell drives.
        nets: list[Numbers] = []
        prices: list[Floats] = []
        payers: list[Numbers] = []
        driven = np.zeros(netlist.nets, bool)
        self.clock_pj, self.leakage_w = np.zeros(modules), np.zeros(modules)
        self.cells, self.registers = np.zeros(modules, np.int64), np.zeros(modules, np.int64)

        self._values: list[tuple[Numbers, Numbers]] = []  # registers: nets of their outputs, and their modules

        def pay(own_nets: Numbers, price: Floats, own_modules: Numbers) -> None:
            nets.append(own_nets)
            prices.append(np.broadcast_to(price, own_nets.shape))
            payers.append(np.broadcast_to(own_modules, own_nets.shape))

        for group in netlist.groups:
            cell = library.cells[group.kind]
            counts = np.bincount(group.modules, minlength=modules)
            self.cells += counts
            self.leakage_w += counts * cell.leakage_w
            if cell.state is not None:
                outputs = [group.at(pin) for pin in group.pins if pin in cell.functions]
                self._values.append((np.stack(outputs, axis=1), group.modules))
            for pin in group.pins:
                table = cell.energies.get(pin, NOTHING)
                if pin in cell.functions:
                    own = group.at(pin)
                    driven[own] = True
                    pay(own, table.at(load[own]) + charge * load[own], group.modules)
                elif pin == cell.clock:
                    # Up and down again in each cycle.
                    once = table.at(np.zeros(1))[0] + charge * cell.inputs[pin] * (1 + wires)
                    self.clock_pj += counts * 2 * once
                    self.registers += counts
                elif table is not NOTHING:
                    pay(group.at(pin), table.at(np.zeros(1)), group.modules)
        for _, net, module in netlist.same.tolist():
            driven[net] = True
            pay(np.array([net]), charge * load[[net]], np.array([module]))
        for memory in netlist.memories:
            for _, data in memory.reads:
                driven[data] = True
                pay(data, charge * load[data], np.array(memory.module))
        outside = np.flatnonzero(~driven & (load > 0))
        pay(outside, charge * load[outside], np.array(0))
        self._nets, self._prices, self._payers = np.concatenate(nets), np.concatenate(prices), np.concatenate(payers)
        self._access_pj = np.array([
            sram_pj(8 * memory.entries) * memory.width / 64 * library.scale for memory in netlist.memories
        ])  # fmt: skip
        self._memory_modules = np.array([memory.module for memory in netlist.memories], np.int64)

    def _held(self, clocked: Numbers, groups: Sequence[Numbers], pairs: int) -> Floats:
        """Each register counts once, with the name of an output that changes least."""
        still = np.zeros(self.netlist.nets, np.int64)
        for nets, cycles in zip(groups, clocked.tolist(), strict=True):
            still[nets] = np.maximum(still[nets], pairs - cycles)
        held = np.concatenate([still[outputs].max(axis=1) for outputs, _ in self._values])
        modules = np.concatenate([own for _, own in self._values])
        each = self.clock_pj / np.maximum(self.registers, 1)
        return _by_module(modules, held * each[modules], len(self.clock_pj))

    def of(self, changes: Changes, groups: Sequence[Numbers]) -> ModuleEnergies:
        """All that ``changes`` took, without leakage. ``groups``: the evaluator's ``register_groups``."""
        modules = len(self.netlist.modules)
        paid = changes.toggles[self._nets] * self._prices
        accesses = (changes.reads + changes.writes) * self._access_pj
        return ModuleEnergies(
            _by_module(self._payers, paid, modules),
            self.clock_pj * changes.pairs,
            _by_module(self._memory_modules, accesses, modules),
            self._held(changes.clocked, groups, changes.pairs),
        )


def _by_module(modules: Numbers, values: Floats, count: int) -> Floats:
    return np.bincount(modules, values, count).astype(np.float64)


def added(parts: Sequence[ModuleEnergies], scale: float = 1.0) -> ModuleEnergies:
    """The sum of all parts, times ``scale``."""
    names = [each.name for each in fields(ModuleEnergies)]
    return ModuleEnergies(*(scale * np.sum([getattr(part, name) for part in parts], axis=0) for name in names))
