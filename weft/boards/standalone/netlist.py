"""A netlist of ECP5 cells as Verilog that simulates: what is placed, and not the text that it was made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

from ..errors import BoardError

CELLS_FILE = "ecp5_cells.v"
ZERO = "1'b0"
PLL_PINS = ("CLKI", "RST", "STDBY", "CLKOP", "LOCK")
"""Those that a design's behaviour depends on."""

_VECTOR = re.compile(r"([A-Z]+?)(\d+)")

CONTENT_WORDS, WORD_BITS, PADDED_BITS = 16, 18, 20
"""A parameter ``INITVAL_..`` of a block RAM: words of 18 bits, each in 20."""


def cell_models() -> str:
    """Verilog of the hard blocks."""
    return resources.files(__package__).joinpath(CELLS_FILE).read_text()


def netlist_verilog(netlist: Mapping[str, Any], top: str) -> str:
    """Verilog of a module of Yosys's JSON netlist, to be read with :func:`cell_models` and a model of the PLL.

    :class:`BoardError` names the cell of a type, and with a setting, of which there is no model.
    """
    module = netlist["modules"][top]
    bits = {bit for port in module["ports"].values() for bit in port["bits"]}
    for cell in module["cells"].values():
        bits.update(bit for pin in cell["connections"].values() for bit in pin)
    wires = sorted(bit for bit in bits if isinstance(bit, int))
    lines = ["`timescale 1ns/1ps", f"module {top}({', '.join(_ports(module['ports']))});"]
    registers = {cell["connections"]["Q"][0] for cell in module["cells"].values() if cell["type"] == "TRELLIS_FF"}
    lines += [f"  {'reg' if bit in registers else 'wire'} n{bit};" for bit in wires]
    for name, port in module["ports"].items():
        for place, bit in enumerate(port["bits"]):
            end = f"{name}[{place}]" if len(port["bits"]) > 1 else name
            lines.append(
                f"  assign n{bit} = {end};" if port["direction"] == "input" else f"  assign {end} = {_net(bit)};"
            )
    for number, (name, cell) in enumerate(module["cells"].items()):
        write = _CELLS.get(cell["type"])
        if write is None:
            raise BoardError(f"there is no model of a {cell['type']}", at=name)
        try:
            lines += (f"  {line}" for line in write(_Cell(f"c{number}", cell)))
        except BoardError as error:
            raise BoardError(error.message, at=f"{name}: {cell['type']}") from None
    return "\n".join([*lines, "endmodule", ""])


def _ports(ports: Mapping[str, Any]) -> Iterator[str]:
    for name, port in ports.items():
        yield f"{port['direction']} {_range(len(port['bits']))}{name}"


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def _net(bit: int | str) -> str:
    """A net, or a constant; one that may be either is 0, as it is for nextpnr."""
    return f"n{bit}" if isinstance(bit, int) else f"1'b{int(bit == '1')}"


class _Cell:
    """A cell of the netlist: its pins as Verilog, its parameters as text or as numbers."""

    def __init__(self, name: str, cell: Mapping[str, Any]) -> None:
        self.name, self.type = name, cell["type"]
        self.pins: Mapping[str, list[int | str]] = cell["connections"]
        self.parameters: Mapping[str, str] = cell["parameters"]

    def pin(self, name: str) -> str:
        """One that nothing is connected to is 0."""
        return _net(self.pins[name][0]) if self.pins.get(name) else ZERO

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

    def instance(self, parameters: Mapping[str, str], pins: Mapping[str, str]) -> str:
        settings = ", ".join(f".{name}({value})" for name, value in parameters.items())
        ends = ", ".join(f".{name}({value})" for name, value in pins.items())
        return f"{self.type} #({settings}) {self.name}({ends});" if settings else f"{self.type} {self.name}({ends});"

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
        return "{" + ", ".join(_net(bit) for bit in reversed(ends)) + "}"


def _table(init: int, inputs: list[str]) -> str:
    """A look-up table's output; A is the lowest bit of its index."""
    return f"1'(16'h{init:04x} >> {{{', '.join(reversed(inputs))}}})"


def _lut(cell: _Cell) -> Iterator[str]:
    yield f"assign {cell.pin('Z')} = {_table(cell.number('INIT'), [cell.pin(name) for name in 'ABCD'])};"


def _carry(cell: _Cell) -> Iterator[str]:
    """Two tables with a carry each: where a table gives 1 the carry goes on, else the table's lowest four bits, of A
    and B alone, give it."""
    cell.expect(INJECT1_0="NO", INJECT1_1="NO")
    carry = cell.pin("CIN")
    for half in "01":
        init, inputs = cell.number(f"INIT{half}"), [cell.pin(f"{name}{half}") for name in "ABCD"]
        table, low, out = f"{cell.name}_t{half}", f"{cell.name}_l{half}", f"{cell.name}_c{half}"
        yield f"wire {table} = {_table(init, inputs)};"
        yield f"wire {low} = {_table(init & 0xF, [*inputs[:2], ZERO, ZERO])};"
        if cell.pins.get(f"S{half}"):
            yield f"assign {cell.pin(f'S{half}')} = {table} ^ {carry};"
        yield f"wire {out} = {table} ? {carry} : {low};"
        carry = out
    if cell.pins.get("COUT"):
        yield f"assign {cell.pin('COUT')} = {carry};"


def _register(cell: _Cell) -> Iterator[str]:
    if (mode := cell.text("SRMODE", "LSR_OVER_CE")) != "LSR_OVER_CE":
        raise BoardError(f"SRMODE is {mode}; there is only a model of LSR_OVER_CE")
    cell.expect(LSRMODE="LSR", GSR="DISABLED")
    edge = {"CLK": "posedge", "INV": "negedge"}[cell.text("CLKMUX", "CLK")]
    reset = {"LSR": "", "INV": "~"}[cell.text("LSRMUX", "LSR")] + cell.pin("LSR")
    enable = {"CE": cell.pin("CE"), "INV": f"~{cell.pin('CE')}", "1": "1'b1", "0": "1'b0"}[cell.text("CEMUX", "1")]
    value, out = f"1'b{int(cell.text('REGSET', 'RESET') == 'SET')}", cell.pin("Q")
    yield f"initial {out} = {value};"
    taken = f"if ({enable}) {out} <= {cell.pin('DI')};"
    yield f"always @({edge} {cell.pin('CLK')}) if ({reset}) {out} <= {value}; else {taken}"


def _small_memory(cell: _Cell) -> Iterator[str]:
    settings = {name: f'"{cell.text(name, name.removesuffix("MUX"))}"' for name in ("WCKMUX", "WREMUX")}
    settings["INITVAL"] = f"64'h{cell.number('INITVAL'):016x}"
    yield cell.instance(settings, cell.vectors("DI", "WAD", "WRE", "WCK", "RAD", "DO"))


def _product(cell: _Cell) -> Iterator[str]:
    cell.quiet("SOURCEA", "SOURCEB")
    for name in cell.parameters:
        if name.endswith("_CLK"):
            cell.expect(**{name: "NONE"})
    yield cell.instance({}, cell.vectors("A", "B", "SIGNEDA", "SIGNEDB", "P"))


def _block_memory(cell: _Cell) -> Iterator[str]:
    cell.expect(REGMODE_A="NOREG", REGMODE_B="NOREG", CSDECODE_A="0b000", CSDECODE_B="0b000")
    cell.quiet("RSTA", "RSTB", *(f"CS{port}{place}" for port in "AB" for place in range(3)))
    widths = {port: cell.number(f"DATA_WIDTH_{port}", 18) for port in "AB"}
    if 36 in widths.values() and cell.pin("WEB") != ZERO:
        raise BoardError("words of 36 bits are written through port A and read through port B")
    settings = {f"DATA_WIDTH_{port}": str(width) for port, width in widths.items()}
    for port in "AB":
        settings[f"WRITEMODE_{port}"] = f'"{cell.text(f"WRITEMODE_{port}", "NORMAL")}"'
        settings[f"CLK{port}MUX"] = f'"{cell.text(f"CLK{port}MUX", f"CLK{port}")}"'
        if "THROUGH" in settings[f"WRITEMODE_{port}"]:
            raise BoardError(f"there is no model of WRITEMODE_{port} WRITETHROUGH")
    if content := _content(cell):
        settings["CONTENT"] = f"18432'h{content:x}"
    pins = [f"{name}{port}" for port in "AB" for name in ("DI", "AD", "CE", "CLK", "WE", "DO")]
    yield cell.instance(settings, cell.vectors(*_block_pins(cell, pins)))


def _content(cell: _Cell) -> int:
    content = 0
    for place in range(64):
        row = cell.number(f"INITVAL_{place:02X}")
        for word in range(CONTENT_WORDS):
            value = row >> word * PADDED_BITS & (1 << WORD_BITS) - 1
            content |= value << (place * CONTENT_WORDS + word) * WORD_BITS
    return content


def _block_pins(cell: _Cell, pins: list[str]) -> list[str]:
    return [name for name in pins if name in cell.pins or f"{name}0" in cell.pins]


def _pll(cell: _Cell) -> Iterator[str]:
    """Its model leaves rates out, and with them its parameters."""
    yield cell.instance(
        {}, {name: cell.pin(name) for name in ("CLKI", "RST", "STDBY", "CLKOP", "LOCK") if name in cell.pins}
    )


def _nothing(cell: _Cell) -> Iterator[str]:
    yield from ()


_CELLS: Mapping[str, Callable[[_Cell], Iterator[str]]] = {
    "$scopeinfo": _nothing, "LUT4": _lut, "CCU2C": _carry, "TRELLIS_FF": _register, "TRELLIS_DPR16X4": _small_memory,
    "MULT18X18D": _product, "DP16KD": _block_memory, "EHXPLLL": _pll,
}  # fmt: skip
