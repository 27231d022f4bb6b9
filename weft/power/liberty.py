"""Cells of a liberty file: what they compute, and what energy a change of their pins takes.

Read are functions of pins, plain flip-flops, capacitances, ``internal_power`` (tables of two or one variables, or a
number) and leakage. The format: Synopsys, *Liberty User Guide*, volumes 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..hw.energies import INVERTER_PF, VOLTS
from .errors import PowerError

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
ONES = 0xFFFF_FFFF_FFFF_FFFF

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\\\n", re.DOTALL)
_TOKEN = re.compile(r'"(?P<text>[^"]*)"|(?P<word>[^\s"(){}:;,]+)|(?P<sign>[(){}:;,])')
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WORD_OF_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\[\d+\])?|[01]|[()!'^*&|+]")

PREFIXES = {"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}


@dataclass
class Group:
    """``kind (arguments) { attributes, groups }``."""

    kind: str
    arguments: list[str]
    attributes: dict[str, list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Group]:
        return (group for group in self.groups if group.kind == kind)

    def text(self, name: str, default: str = "") -> str:
        return self.attributes[name][0] if self.attributes.get(name) else default

    def number(self, name: str, default: float = 0.0) -> float:
        found = _NUMBER.match(self.text(name))
        return float(found[0]) if found else default


def parse_liberty(text: str) -> Group:
    """The ``library`` group. :class:`PowerError` names the line of what is no liberty."""
    plain = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    tokens = list(_TOKEN.finditer(plain))
    place = 0

    def word() -> str:
        nonlocal place
        if place >= len(tokens):
            raise PowerError("the liberty file ends inside a group")
        token = tokens[place]
        place += 1
        return token["text"] if token["text"] is not None else token[0]

    def refuse() -> PowerError:
        line = plain.count("\n", 0, tokens[min(place, len(tokens)) - 1].start()) + 1
        return PowerError(f"line {line} of the liberty file is neither an attribute nor a group")

    def peek() -> str:
        return tokens[place]["sign"] or "" if place < len(tokens) else ""

    def statement() -> tuple[str, list[str], Group | None]:
        nonlocal place
        name = word()
        values: list[str] = []
        if peek() == ":":
            place += 1
            while (
                place < len(tokens)
                and peek() not in (";", "}")
                and not (values and "\n" in plain[tokens[place - 1].end() : tokens[place].start()])
            ):
                values.append(word())
            while peek() == ";":
                place += 1
            return name, [" ".join(values)], None
        if peek() != "(":
            raise refuse()
        place += 1
        while peek() != ")":
            if (value := word()) != ",":
                values.append(value)
        place += 1
        if peek() != "{":
            while peek() == ";":
                place += 1
            return name, values, None
        place += 1
        group = Group(name, values)
        while peek() != "}":
            own, found, inner = statement()
            if inner is not None:
                group.groups.append(inner)
            else:
                group.attributes.setdefault(own, []).extend(found)
        place += 1
        while peek() == ";":
            place += 1
        return name, values, group

    if not tokens:
        raise PowerError("the liberty file is empty")
    kind, _, library = statement()
    if library is None or kind != "library":
        raise PowerError("the liberty file does not begin with a library")
    return library


@dataclass(frozen=True)
class EnergyTable:
    """Picojoules of a change, by the capacitance (pF) that the pin drives; the mean of rise and fall."""

    loads: Floats
    energies: Floats

    def at(self, load: Floats) -> Floats:
        """Between the table's points along lines; beyond them the last value."""
        return np.interp(load, self.loads, self.energies)


NOTHING = EnergyTable(np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class Cell:
    """A cell. ``functions``: of each output pin, over inputs (or the state's names). Energies: pJ a change of the pin.

    ``state``: the names of a flip-flop's value and of its inverse; ``next_state`` and ``clock`` are its data and clock.
    """

    name: str
    inputs: Mapping[str, float]
    """Capacitance of each input pin, pF."""
    functions: Mapping[str, str]
    energies: Mapping[str, EnergyTable]
    leakage_w: float
    state: tuple[str, str] | None = None
    next_state: str = ""
    clock: str = ""


def _inverts(function: str, pin: str) -> bool:
    both = np.array([0, ONES], np.uint64)
    return bool((read_function(function)({pin: both}) == ~both).all())


@dataclass(frozen=True)
class Library:
    """The cells of a liberty file that can be used, and its voltage."""

    name: str
    volts: float
    cells: Mapping[str, Cell]

    @property
    def smallest_input_pf(self) -> float:
        """Input capacitance of the smallest inverter."""
        found = [
            sum(cell.inputs.values())
            for cell in self.cells.values()
            if cell.state is None
            and len(cell.inputs) == 1
            and any(_inverts(function, *cell.inputs) for function in cell.functions.values())
        ]
        if not found:
            raise PowerError(f"the library {self.name} has no inverter")
        return min(found)

    @property
    def scale(self) -> float:
        """Its energies, of those that were published for 45 nm."""
        return self.smallest_input_pf * self.volts**2 / (INVERTER_PF * VOLTS**2)


def read_library(path: Path) -> Library:
    """Read a liberty file. :class:`PowerError` says what it lacks."""
    library = parse_liberty(path.read_text())
    values = library.attributes.get("capacitive_load_unit", ["1", "pf"])
    farads = float(values[0]) * PREFIXES[values[1][0].lower()]
    volts = library.number("nom_voltage")
    for conditions in library.of("operating_conditions"):
        volts = conditions.number("voltage", volts)
    if not volts:
        raise PowerError(f"the library {' '.join(library.arguments)} names no voltage")
    leakage = _unit(library.text("leakage_power_unit", "1nW"))
    units = Units(farads * 1e12, farads * 1e12 * _unit(library.text("voltage_unit", "1V")) ** 2, leakage)
    cells = {cell.name: cell for group in library.of("cell") if (cell := _cell(group, units)) is not None}
    if not any(table is not NOTHING for cell in cells.values() for table in cell.energies.values()):
        raise PowerError(f"the cells of {path} have no internal_power", hint="name a liberty file with power tables")
    return Library(" ".join(library.arguments), volts, cells)


@dataclass(frozen=True)
class Units:
    """Of the library: one of its capacitances in pF, one of its energies in pJ, one of its leakages in W."""

    pf: float
    pj: float
    watts: float


def _unit(text: str) -> float:
    match = re.fullmatch(r"([\d.]+)\s*([fpnum]?)[A-Za-z]", text.strip())
    if match is None:
        raise PowerError(f"{text!r} in the liberty file is no unit")
    return float(match[1]) * PREFIXES[match[2]]


def _cell(group: Group, units: Units) -> Cell | None:
    """None for cells that no netlist of ours has: latches, scan cells, buffers of three states."""
    flip_flops = list(group.of("ff"))
    pins = list(group.of("pin"))
    if any(group.of("latch")) or any(group.of("statetable")) or any("three_state" in pin.attributes for pin in pins):
        return None
    inputs, functions, energies = {}, {}, {}
    for pin in pins:
        for name in pin.arguments:
            energies[name] = _energy(pin, units)
            if pin.text("direction") == "input":
                inputs[name] = pin.number("capacitance") * units.pf
            elif "function" in pin.attributes:
                functions[name] = pin.text("function")
    state, next_state, clock = None, "", ""
    if flip_flops:
        (first, *_) = flip_flops
        state = (first.arguments[0], first.arguments[1])
        next_state, clock = first.text("next_state"), first.text("clocked_on")
    if not functions:
        return None
    leaks = [each.number("value") for each in group.of("leakage_power")]
    leakage = group.number("cell_leakage_power", float(np.mean(leaks)) if leaks else 0.0)
    return Cell(group.arguments[0], inputs, functions, energies, leakage * units.watts, state, next_state, clock)


def _energy(pin: Group, units: Units) -> EnergyTable:
    """The mean over all conditions, at the second of a table's input transitions, neither ideal nor slow."""
    tables = [
        table
        for power in pin.of("internal_power")
        if "related_pg_pin" not in power.attributes or not power.text("related_pg_pin").upper().startswith("VSS")
        for table in _tables(power, units)
    ]
    if not tables:
        return NOTHING
    loads = np.unique(np.concatenate([table.loads for table in tables]))
    return EnergyTable(loads, np.mean([table.at(loads) for table in tables], axis=0))


def _tables(power: Group, units: Units) -> Iterator[EnergyTable]:
    """One for a group's changes: the mean of rise and fall."""
    for kinds in (("power",), ("rise_power", "fall_power")):
        for table in (each for kind in kinds for each in power.of(kind)):
            rows = [[float(number) for number in _NUMBER.findall(row)] for row in table.attributes.get("values", [])]
            if not rows:
                continue
            values = np.array(rows) * units.pj
            loads = [float(number) for number in _NUMBER.findall(table.text("index_1"))]
            if values.shape[0] > 1 and len(loads) == values.shape[0]:  # by load, then by transition
                yield EnergyTable(np.array(loads) * units.pf, values[:, min(1, values.shape[1] - 1)])
            else:  # by transition alone, or a number
                yield EnergyTable(np.zeros(1), values.ravel()[[min(1, values.size - 1)]])


Function = Callable[[Mapping[str, Words]], Words]
"""From the values of pins, words of a bit a cycle, to the value of one."""


def read_function(text: str) -> Function:
    """A function of liberty, ``!(A B + C^D')`` and the like. :class:`PowerError` for what is none."""
    words = _WORD_OF_FUNCTION.findall(text)
    if "".join(words) != re.sub(r"\s", "", text):
        raise PowerError(f"the liberty file's function {text!r} cannot be read")
    place = 0

    def joined(signs: str, operation: Callable[[Words, Words], Words], lower: Callable[[], Function]) -> Function:
        nonlocal place
        found = lower()
        while place < len(words) and (words[place] in signs or ("&" in signs and words[place] not in ")|+^")):
            place += words[place] in signs
            found = _both(operation, found, lower())
        return found

    def either() -> Function:
        return joined("|+", np.bitwise_or, both)

    def both() -> Function:
        return joined("*&", np.bitwise_and, exclusive)

    def exclusive() -> Function:
        return joined("^", np.bitwise_xor, single)

    def single() -> Function:
        nonlocal place
        if place >= len(words):
            raise PowerError(f"the liberty file's function {text!r} ends early")
        word = words[place]
        place += 1
        if word in ")'^*&|+":
            raise PowerError(f"the liberty file's function {text!r} cannot be read")
        if word == "!":
            found = _inverse(single())
        elif word == "(":
            found = either()
            if words[place : place + 1] != [")"]:
                raise PowerError(f"the liberty file's function {text!r} ends early")
            place += 1
        else:
            found = _value(word)
        while words[place : place + 1] == ["'"]:
            place += 1
            found = _inverse(found)
        return found

    function = either()
    if place != len(words):
        raise PowerError(f"the liberty file's function {text!r} cannot be read")
    return function


def _both(operation: Callable[[Words, Words], Words], left: Function, right: Function) -> Function:
    return lambda pins: operation(left(pins), right(pins))


def _inverse(function: Function) -> Function:
    return lambda pins: ~function(pins)


def _value(word: str) -> Function:
    if word in ("0", "1"):
        return lambda pins: np.full_like(next(iter(pins.values())), -int(word) & ONES)
    return lambda pins: pins[word]
