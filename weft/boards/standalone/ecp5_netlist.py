"""Cells of an ECP5 as Verilog that simulates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import BoardError
from .netlist_cell import ZERO, Cell, Writer, looked_up

REGISTERS = ("TRELLIS_FF",)

PLL_PINS = ("CLKI", "RST", "STDBY", "CLKOP", "LOCK")
"""Those that a design's behaviour depends on."""

CONTENT_WORDS, WORD_BITS, PADDED_BITS = 16, 18, 20
"""A parameter ``INITVAL_..`` of a block RAM: words of 18 bits, each in 20."""


def _lut(cell: Cell) -> Iterator[str]:
    yield f"assign {cell.pin('Z')} = {looked_up(cell.number('INIT'), [cell.pin(name) for name in 'ABCD'])};"


def _carry(cell: Cell) -> Iterator[str]:
    """Two tables with a carry each: where a table gives 1 the carry goes on, else the table's lowest four bits, of A
    and B alone, give it."""
    cell.expect(INJECT1_0="NO", INJECT1_1="NO")
    carry = cell.pin("CIN")
    for half in "01":
        init, inputs = cell.number(f"INIT{half}"), [cell.pin(f"{name}{half}") for name in "ABCD"]
        table, low, out = f"{cell.name}_t{half}", f"{cell.name}_l{half}", f"{cell.name}_c{half}"
        yield f"wire {table} = {looked_up(init, inputs)};"
        yield f"wire {low} = {looked_up(init & 0xF, [*inputs[:2], ZERO, ZERO])};"
        if cell.pins.get(f"S{half}"):
            yield f"assign {cell.pin(f'S{half}')} = {table} ^ {carry};"
        yield f"wire {out} = {table} ? {carry} : {low};"
        carry = out
    if cell.pins.get("COUT"):
        yield f"assign {cell.pin('COUT')} = {carry};"


def _register(cell: Cell) -> Iterator[str]:
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


def _small_memory(cell: Cell) -> Iterator[str]:
    settings = {name: f'"{cell.text(name, name.removesuffix("MUX"))}"' for name in ("WCKMUX", "WREMUX")}
    settings["INITVAL"] = f"64'h{cell.number('INITVAL'):016x}"
    yield cell.instance(settings, cell.vectors("DI", "WAD", "WRE", "WCK", "RAD", "DO"))


def _product(cell: Cell) -> Iterator[str]:
    cell.quiet("SOURCEA", "SOURCEB")
    for name in cell.parameters:
        if name.endswith("_CLK"):
            cell.expect(**{name: "NONE"})
    yield cell.instance({}, cell.vectors("A", "B", "SIGNEDA", "SIGNEDB", "P"))


def _block_memory(cell: Cell) -> Iterator[str]:
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


def _content(cell: Cell) -> int:
    content = 0
    for place in range(64):
        row = cell.number(f"INITVAL_{place:02X}")
        for word in range(CONTENT_WORDS):
            value = row >> word * PADDED_BITS & (1 << WORD_BITS) - 1
            content |= value << (place * CONTENT_WORDS + word) * WORD_BITS
    return content


def _block_pins(cell: Cell, pins: list[str]) -> list[str]:
    return [name for name in pins if name in cell.pins or f"{name}0" in cell.pins]


def _pll(cell: Cell) -> Iterator[str]:
    """Its model leaves rates out, and with them its parameters."""
    yield cell.instance({}, {name: cell.pin(name) for name in PLL_PINS if name in cell.pins})


CELLS: Mapping[str, Writer] = {
    "LUT4": _lut, "CCU2C": _carry, "TRELLIS_FF": _register, "TRELLIS_DPR16X4": _small_memory,
    "MULT18X18D": _product, "DP16KD": _block_memory, "EHXPLLL": _pll,
}  # fmt: skip
