"""Cells of Gowin's parts as Verilog that simulates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from ..errors import BoardError
from .netlist_cell import ZERO, Cell, Writer, looked_up, nothing

_ADD_OR_SUBTRACT = 2

_LUTS = {f"LUT{inputs}": inputs for inputs in range(1, 5)}

_FLIP_FLOPS = ("DFF", "DFFE", "DFFR", "DFFRE", "DFFS", "DFFSE")

REGISTERS = tuple(name.replace("DFF", edge, 1) for name in _FLIP_FLOPS for edge in ("DFF", "DFFN"))
"""An N is the falling edge, E an enable, R a reset to 0 and S a set to 1, both at the clock's edge."""

_SMALL_MEMORIES = {"RAM16SDP1": 1, "RAM16SDP2": 2, "RAM16SDP4": 4}

_MULTIPLIERS = {"MULT9X9": 9, "MULT18X18": 18}

_MULTIPLIER_REGISTERS = ("AREG", "BREG", "OUT_REG", "PIPE_REG", "ASIGN_REG", "BSIGN_REG", "SOA_REG")

_BYTE_BITS = {"SP": 8, "SPX9": 9, "SDPB": 8, "SDPX9B": 9, "DPB": 8, "DPX9B": 9}

_SINGLE = {"CLK": "CLK", "CE": "CE", "WRE": "WRE", "AD": "AD", "RESET": "RESET", "DI": "DI", "DO": "DO"}
_BLOCK_PINS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "SP": {"A": _SINGLE},
    "SDP": {
        "A": {"CLK": "CLKA", "CE": "CEA", "AD": "ADA", "DI": "DI"},
        "B": {"CLK": "CLKB", "CE": "CEB", "AD": "ADB", "RESET": "RESET", "DO": "DO"},
    },
    "DP": {port: {name: f"{pin}{port}" for name, pin in _SINGLE.items()} for port in "AB"},
}
"""Of each kind of block RAM: the ports of the one model, and which of the kind's pins is which of theirs."""

_CONTENT_ROWS, _BYTES_OF_ROW = 64, 32
"""Parameters ``INIT_RAM_..`` of a block RAM, and bytes in each."""


def _lut(inputs: int, cell: Cell) -> Iterator[str]:
    """A table of fewer than four inputs is one of four, of which the others are 0."""
    pins = [cell.pin(f"I{place}") for place in range(inputs)]
    yield f"assign {cell.pin('F')} = {looked_up(cell.number('INIT'), [*pins, *[ZERO] * (4 - inputs)])};"


def _alu(cell: Cell) -> Iterator[str]:
    """A bit of a sum, or of a difference where I3 is 0."""
    if (mode := cell.number("ALU_MODE")) != _ADD_OR_SUBTRACT:
        raise BoardError(f"ALU_MODE is {mode}; there is only a model of {_ADD_OR_SUBTRACT}")
    first, second, carry = cell.pin("I0"), cell.pin("I1"), cell.pin("CIN")
    differ = f"{cell.name}_d"
    yield f"wire {differ} = {first} ^ {second} ^ ~{cell.pin('I3')};"
    if cell.pins.get("SUM"):
        yield f"assign {cell.pin('SUM')} = {differ} ^ {carry};"
    if cell.pins.get("COUT"):
        yield f"assign {cell.pin('COUT')} = {differ} ? {carry} : {first};"


def _multiplier(width: int, cell: Cell) -> Iterator[str]:
    """A product of two numbers, each of which has a sign where its pin says so. Registers and chains are not in it."""
    for register in _MULTIPLIER_REGISTERS:
        if cell.number(register):
            raise BoardError(f"it has {register}; there is only a model without registers")
    cell.quiet("ASEL", "BSEL")
    for operand in "AB":
        value = f"{cell.name}_{operand.lower()}"
        yield f"wire [{width - 1}:0] {value} = {cell.vectors(operand)[operand]};"
        yield f"wire signed [{width}:0] {value}_n = {{{value}[{width - 1}] & {cell.pin(f'{operand}SIGN')}, {value}}};"
    yield f"wire signed [{2 * width - 1}:0] {cell.name}_d = {cell.name}_a_n * {cell.name}_b_n;"
    yield f"assign {cell.vectors('DOUT')['DOUT']} = {cell.name}_d;"


def _register(cell: Cell) -> Iterator[str]:
    """It starts with what its reset gives it, and without one with 0."""
    falling = cell.type.startswith("DFFN")
    out, value = cell.pin("Q"), f"1'b{int('SET' in cell.pins)}"
    taken = f"{out} <= {cell.pin('D')};"
    if "CE" in cell.pins:
        taken = f"if ({cell.pin('CE')}) {taken}"
    for reset in ("RESET", "SET"):
        if reset in cell.pins:
            taken = f"if ({cell.pin(reset)}) {out} <= {value}; else {taken}"
    yield f"initial {out} = {value};"
    yield f"always @({'negedge' if falling else 'posedge'} {cell.pin('CLK')}) {taken}"


def _buffer(cell: Cell) -> Iterator[str]:
    yield f"assign {cell.pin('O')} = {cell.pin('I')};"


def _small_memory(width: int, cell: Cell) -> Iterator[str]:
    settings = {"WIDTH": str(width)}
    settings |= {f"INIT_{place}": f"16'h{cell.number(f'INIT_{place}'):04x}" for place in range(width)}
    yield cell.instance(settings, cell.vectors("DI", "WAD", "WRE", "CLK", "RAD", "DO"), "gowin_small_memory")


def _block_memory(cell: Cell) -> Iterator[str]:
    """All kinds are one with two ports: SP has only the first; SDP writes at the first whenever it is enabled, and
    reads at the second."""
    kind = next(kind for kind in ("SDP", "SP", "DP") if cell.type.startswith(kind))
    if cell.text("RESET_MODE", "SYNC") != "SYNC":  # Yosys takes either where nothing is reset
        cell.quiet(*(names["RESET"] for names in _BLOCK_PINS[kind].values() if "RESET" in names))
    settings = {"BYTE_BITS": str(_BYTE_BITS[cell.type])}
    pins = {f"{name}{port}": ZERO for port in "AB" for name in ("CLK", "CE", "WRE", "RESET")}
    for number, (port, names) in enumerate(_BLOCK_PINS[kind].items()):
        end, select = ("", "") if kind == "SP" else (f"_{number}", port)
        mode = str(number) if kind == "DP" else ""
        if cell.number(f"READ_MODE{mode}"):
            raise BoardError(f"READ_MODE{mode} has a register; there is only a model without one")
        if cell.number(f"BLK_SEL{end}") or any(bit != "0" for bit in cell.pins[f"BLKSEL{select}"]):
            raise BoardError(f"there is no model of its BLKSEL{select}")
        settings[f"WIDTH_{port}"] = str(cell.number(f"BIT_WIDTH{end}"))
        settings[f"WRITE_MODE_{port}"] = str(cell.number(f"WRITE_MODE{mode}"))
        for name, own in names.items():
            pins |= {f"{name}{port}": vector for vector in cell.vectors(own).values()}
    if kind == "SDP":
        pins["WREA"] = "1'b1"
    rows = [cell.number(f"INIT_RAM_{row:02X}") for row in range(_CONTENT_ROWS)]
    row_bits = _BYTES_OF_ROW * _BYTE_BITS[cell.type]
    if content := sum(value << place * row_bits for place, value in enumerate(rows)):
        settings["CONTENT"] = f"18432'h{content:x}"
    yield cell.instance(settings, pins, "gowin_block_memory")


CELLS: Mapping[str, Writer] = {
    **{name: partial(_lut, inputs) for name, inputs in _LUTS.items()},
    **dict.fromkeys(REGISTERS, _register),
    **{name: partial(_small_memory, width) for name, width in _SMALL_MEMORIES.items()},
    **dict.fromkeys(_BYTE_BITS, _block_memory),
    **{name: partial(_multiplier, width) for name, width in _MULTIPLIERS.items()},
    "ALU": _alu, "IBUF": _buffer, "OBUF": _buffer, "BUFG": _buffer, "GSR": nothing,
}  # fmt: skip
