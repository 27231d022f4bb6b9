"""Every cell's values in each cycle, from what registers and memories of the RTL hold: no cell is simulated in time.

Values of a net in up to some thousand cycles are one row of words of 64 bits, a bit a cycle, so an operation of NumPy
evaluates all cells of one kind and level for all cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import PowerError
from .flat import ONE, ZERO, FlatNetlist, Numbers
from .liberty import ONES, Floats, Function, Library, Words, read_function

ALL = np.uint64(ONES)


@dataclass(frozen=True)
class Step:
    """Cells of one kind that are evaluated at once: ``function`` of nets at the inputs gives those at ``output``."""

    function: Function
    inputs: Mapping[str, Numbers]
    output: Numbers


@dataclass(frozen=True)
class Registers:
    """Flip-flops of one kind: nets of their values (or of the inverse), and the function of what comes next."""

    value: Numbers
    inverted: bool
    following: Function
    inputs: Mapping[str, Numbers]


@dataclass(frozen=True)
class Changes:
    """What happened in ``pairs`` of consecutive cycles. ``toggles``: how often each net changed."""

    pairs: int
    toggles: Numbers
    clocked: Numbers
    """Of each group of registers: in how many cycles at least one of its bits changed."""
    reads: Numbers
    """Of each memory: cycles in which a port read, over all ports; without a clock, in which what it gives changed."""
    writes: Floats
    """Of each memory: entries written; a part of one counts as that part."""
    wrong: int
    """Bits of registers that the cells would have given another value than the RTL did."""


@dataclass
class _Left:
    """An output of cells of one kind, and those of the cells that no step evaluates yet."""

    function: Function
    inputs: Mapping[str, Numbers]
    output: Numbers

    def ready(self, known: npt.NDArray[np.bool_]) -> Step | None:
        """Take the cells all of whose inputs are known."""
        chosen = np.ones(len(self.output), bool)
        for nets in self.inputs.values():
            chosen &= known[nets]
        if not chosen.any():
            return None
        step = Step(self.function, {pin: nets[chosen] for pin, nets in self.inputs.items()}, self.output[chosen])
        self.inputs = {pin: nets[~chosen] for pin, nets in self.inputs.items()}
        self.output = self.output[~chosen]
        return step


class Evaluator:
    """A netlist, ready to be evaluated from values of ``told``, of the netlist's ``known`` paths. :class:`PowerError`
    if values of registers are missing."""

    def __init__(self, netlist: FlatNetlist, library: Library, told: Iterable[tuple[str, ...]]) -> None:
        self.netlist = netlist
        self._told = {path: netlist.known[path] for path in told}
        left, self.registers = [], list[Registers]()
        for group in netlist.groups:
            cell = library.cells[group.kind]
            inputs = {pin: group.at(pin) for pin in group.pins if pin in cell.inputs}
            for pin in (pin for pin in cell.functions if pin in group.pins):
                function = cell.functions[pin]
                if cell.state is None:
                    left.append(_Left(read_function(function), inputs, group.at(pin)))
                else:
                    inverted = function.strip("() ") == cell.state[1]
                    following = read_function(cell.next_state)
                    self.registers.append(Registers(group.at(pin), inverted, following, inputs))
        owned = np.zeros(netlist.nets, bool)
        for each in self.registers:
            owned[each.value] = True
        groups = (nets[owned[nets]] for nets in self._told.values())
        self.register_groups = tuple(nets for nets in groups if len(nets))
        """Nets of the bits of one register of the RTL. A net that has two names there is in two of them."""
        left.append(_Left(read_function("A"), {"A": netlist.same[:, 0]}, netlist.same[:, 1]))
        self._steps = self._ordered(left)

    def _ordered(self, left: list[_Left]) -> list[Step]:
        """Steps in an order in which each follows what it reads."""
        known = np.zeros(self.netlist.nets, bool)
        known[[ZERO, ONE]] = True
        for nets in self._told.values():
            known[nets] = True
        given = known.copy()
        steps: list[Step] = []
        while any(len(each.output) for each in left):
            ready = [step for each in left if (step := each.ready(known)) is not None]
            if not ready:
                nameless = sum(int((~known[each.value]).sum()) for each in self.registers)
                raise PowerError(f"{nameless} registers of the netlist have no name in the RTL")
            for step in ready:
                known[step.output] = True
            # What the RTL tells is taken as told.
            steps += (
                Step(step.function, {pin: nets[keep] for pin, nets in step.inputs.items()}, step.output[keep])
                for step in ready
                if (keep := ~given[step.output]).any()
            )
        return steps

    def changes(self, value: Callable[[tuple[str, ...]], Words], cycles: int) -> Changes:
        """``value``: of each path told ``(bits, words)``, as many bits or more; bit ``i`` of a row is cycle ``i`` of
        ``cycles`` consecutive ones."""
        words = -(-cycles // 64)
        values = np.zeros((self.netlist.nets, words), np.uint64)
        for path, nets in self._told.items():
            values[nets] = value(path)[: len(nets)]
        values[ZERO], values[ONE] = 0, ALL
        for step in self._steps:
            values[step.output] = step.function({pin: values[nets] for pin, nets in step.inputs.items()})
        mask = np.packbits(np.arange(64 * words) < cycles - 1, bitorder="little").view(np.uint64)
        after = _next(values)
        changed = (after ^ values) & mask
        wrong = 0
        for each in self.registers:
            came = after[each.value] ^ (ALL if each.inverted else np.uint64(0))
            following = each.following({pin: values[nets] for pin, nets in each.inputs.items()})
            wrong += int(_ones((following ^ came) & mask).sum())
        reads, writes = np.zeros(len(self.netlist.memories), np.int64), np.zeros(len(self.netlist.memories))
        for number, memory in enumerate(self.netlist.memories):
            for enable, data in memory.reads:
                working = np.bitwise_or.reduce(changed[data]) if enable == ONE else values[enable] & mask
                reads[number] += int(_ones(working))
            writes[number] = _ones(values[memory.write_enables] & mask).sum() / memory.width
        moved = np.array([np.bitwise_or.reduce(changed[nets]) for nets in self.register_groups])
        return Changes(cycles - 1, _ones(changed), _ones(moved), reads, writes, wrong)


def _next(values: Words) -> Words:
    """Each cycle's bit in the place of the one before."""
    after = values >> np.uint64(1)
    after[..., :-1] |= values[..., 1:] << np.uint64(63)
    return after


def _ones(values: Words) -> Numbers:
    """How many bits of each row are 1."""
    counts: Numbers = np.bitwise_count(values).sum(axis=-1, dtype=np.int64)
    return counts
