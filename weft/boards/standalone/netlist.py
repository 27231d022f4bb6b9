"""A netlist of a family's cells as Verilog that simulates: what is placed, and not the text that it was made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from ..errors import BoardError
from . import ecp5_netlist, gowin_netlist
from .netlist_cell import Cell, Writer, net, nothing

_CELLS: Mapping[str, Mapping[str, Writer]] = {"ecp5": ecp5_netlist.CELLS, "gowin": gowin_netlist.CELLS}
_REGISTERS = {*ecp5_netlist.REGISTERS, *gowin_netlist.REGISTERS}


def cell_models(family: str) -> str:
    """Verilog of the hard blocks of a family's netlists."""
    return resources.files(__package__).joinpath(f"{family}_cells.v").read_text()


def netlist_verilog(netlist: Mapping[str, Any], top: str, family: str) -> str:
    """Verilog of a module of Yosys's JSON netlist, to be read with :func:`cell_models` and the family's ``blocks``.

    :class:`BoardError` names the cell of a type, and with a setting, of which there is no model.
    """
    module = _with_constants(netlist["modules"][top])
    bits = {bit for port in module["ports"].values() for bit in port["bits"]}
    for cell in module["cells"].values():
        bits.update(bit for pin in cell["connections"].values() for bit in pin)
    wires = sorted(bit for bit in bits if isinstance(bit, int))
    lines = ["`timescale 1ns/1ps", f"module {top}({', '.join(_ports(module['ports']))});"]
    registers = {cell["connections"]["Q"][0] for cell in module["cells"].values() if cell["type"] in _REGISTERS}
    lines += [f"  {'reg' if bit in registers else 'wire'} n{bit};" for bit in wires]
    for name, port in module["ports"].items():
        for place, bit in enumerate(port["bits"]):
            end = f"{name}[{place}]" if len(port["bits"]) > 1 else name
            lines.append(
                f"  assign n{bit} = {end};" if port["direction"] == "input" else f"  assign {end} = {net(bit)};"
            )
    for number, (name, cell) in enumerate(module["cells"].items()):
        write = nothing if cell["type"] == "$scopeinfo" else _CELLS[family].get(cell["type"])
        if write is None:
            raise BoardError(f"there is no model of a {cell['type']}", at=name)
        try:
            lines += (f"  {line}" for line in write(Cell(f"c{number}", cell)))
        except BoardError as error:
            raise BoardError(error.message, at=f"{name}: {cell['type']}") from None
    return "\n".join([*lines, "endmodule", ""])


def _with_constants(module: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with 0 and 1 in place of nets that cells of constants drive, and without these."""
    drives = {"GND": ("G", "0"), "VCC": ("V", "1")}
    known = {
        cell["connections"][pin][0]: value
        for cell in module["cells"].values()
        for pin, value in [drives.get(cell["type"], ("", ""))]
        if pin
    }

    def replaced(bits: list[int | str]) -> list[int | str]:
        return [known.get(bit, bit) for bit in bits]

    ports = {name: port | {"bits": replaced(port["bits"])} for name, port in module["ports"].items()}
    cells = {
        name: cell | {"connections": {pin: replaced(bits) for pin, bits in cell["connections"].items()}}
        for name, cell in module["cells"].items()
        if cell["type"] not in drives
    }
    return {"ports": ports, "cells": cells}


def _ports(ports: Mapping[str, Any]) -> Iterator[str]:
    for name, port in ports.items():
        yield f"{port['direction']} {_range(len(port['bits']))}{name}"


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""
