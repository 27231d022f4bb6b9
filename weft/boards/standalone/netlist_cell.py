"""A cell of a netlist, as the families' models of cells read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import BoardError

ZERO = "1'b0"

_VECTOR = re.compile(r"([A-Z]+?)(\d+)")


def net(bit: int | str) -> str:
    """A net, or a constant; one that may be either is 0, as it is for nextpnr."""
    return f"n{bit}" if isinstance(bit, int) else f"1'b{int(bit == '1')}"


class Cell:
    """A cell of the netlist: its pins as Verilog, its parameters as text or as numbers."""

    def __init__(self, name: str, cell: Mapping[str, Any]) -> None:
        self.name, self.type = name, cell["type"]
        self.pins: Mapping[str, list[int | str]] = cell["connections"]
        self.parameters: Mapping[str, str] = cell["parameters"]

    def pin(self, name: str) -> str:
        """One that nothing is connected to is 0."""
        return net(self.pins[name][0]) if self.pins.get(name) else ZERO

    def text(self, name: str, default: str) -> str:
        return self.parameters.get(name, default).strip()  # Yosys puts a blank behind text that might be a number

    def number(self, name: str, default: int = 0) -> int:
        found = self.parameters.get(name)
        return default if found is None else int(found.replace("x", "0"), 2)

    def expect(self, **known: str) -> None:
        """Refuse text parameters that are other than the model's only setting."""
        for name, value in known.items():
            if (found := self.text(name, value)) != value:
                raise BoardError(f"{name} is {found}; there is only a model of {value}")

    def quiet(self, *pins: str) -> None:
        """Refuse pins that are not 0."""
        for name in pins:
            if self.pin(name) != ZERO:
                raise BoardError(f"there is no model of its {name}")

    def instance(self, parameters: Mapping[str, str], pins: Mapping[str, str], model: str = "") -> str:
        """Of a module of the cell's name, or of ``model``."""
        settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
        ends = ", ".join(f".{name}({value})" for name, value in pins.items())
        head = f"{model or self.type} #({settings})" if settings else model or self.type
        return f"{head} {self.name}({ends});"

    def vectors(self, *names: str) -> dict[str, str]:
        """Pins ``A0``, ``A1``, ... as one vector ``A``; and single pins. What nothing is connected to is left out."""
        found: dict[str, dict[int, list[int | str]]] = {}
        for pin, ends in self.pins.items():
            match = _VECTOR.fullmatch(pin)
            vector, place = (match[1], int(match[2])) if match and match[1] in names else (pin, -1)
            if vector in names:
                found.setdefault(vector, {})[place] = ends
        made = {}
        for vector, places in found.items():
            if -1 in places:
                made[vector] = self._concatenated(places[-1])
            else:
                if sorted(places) != list(range(len(places))):
                    raise BoardError(f"pins of {vector} are missing")
                made[vector] = self._concatenated([places[place][0] for place in range(len(places))])
        return made

    @staticmethod
    def _concatenated(ends: list[int | str]) -> str:
        return "{" + ", ".join(net(bit) for bit in reversed(ends)) + "}"


Writer = Callable[[Cell], Iterator[str]]
"""Gives the lines of Verilog of a cell."""


def nothing(cell: Cell) -> Iterator[str]:
    """Of a cell that does nothing."""
    yield from ()


def looked_up(init: int, inputs: list[str]) -> str:
    """A look-up table's output; the first input is the lowest bit of its index."""
    return f"1'(16'h{init:04x} >> {{{', '.join(reversed(inputs))}}})"
