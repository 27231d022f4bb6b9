"""The bit fields of all instructions, from the layouts of ``hw/isa.py``."""

from __future__ import annotations

from dataclasses import dataclass

from weft.hw.config import PYNQ, CoreConfig
from weft.hw.isa import HEADER, INSTRUCTION_TYPES, Opcode, instruction_fields

from .svg import COLOURS, SOFT, Sheet, width_of

BIT = 14.5  # pixels
ROW_BITS = 64
LEFT, RIGHT = 24, 24
BOX, NUMBERS, GAP = 26, 11, 5
NAME = 10.0
"""Font size of the fields' names."""


@dataclass(frozen=True)
class Part:
    """The bits of a field that one row shows; ``low`` counts from the instruction's first bit."""

    name: str
    low: int
    bits: int
    kind: str


def draw(config: CoreConfig) -> str:
    """The picture as SVG."""
    width = LEFT + ROW_BITS * BIT + RIGHT
    texts = [(opcodes, [_narrow_levels(row) for row in _rows(config, opcodes[0])]) for opcodes in _groups()]
    height = 78 + sum(30 + sum(_row_height(levels) for levels in rows) + 12 for _, rows in texts)
    sheet = Sheet(width, height, f"Instructions of the core {config.name}")
    sheet.text(LEFT, 36, f"Instructions of {config.name!r}: {config.instruction_bits} bits", size=18, bold=True)
    about = f"rows of {ROW_BITS} bits, bit 0 at the right of the first; a field may go on in the next row"
    sheet.text(LEFT, 58, about, colour=SOFT)
    y = 78.0
    for opcodes, levels in texts:
        y = _instruction(sheet, config, opcodes, levels, y)
    return sheet.svg()


def draw_instruction(config: CoreConfig, opcode: Opcode) -> str:
    """The picture of one instruction as SVG, without a title."""
    levels = [_narrow_levels(row) for row in _rows(config, opcode)]
    height = sum(_row_height(each) for each in levels) + 24
    sheet = Sheet(LEFT + ROW_BITS * BIT + RIGHT, height, f"The bits of {opcode.name} on the core {config.name}")
    _rows_of(sheet, config, opcode, levels, 12.0)
    return sheet.svg()


def _groups() -> list[tuple[Opcode, ...]]:
    """Instructions with fields of their own one by one, those without together."""
    plain = tuple(opcode for opcode in Opcode if not instruction_fields(PYNQ, opcode))
    return [*((opcode,) for opcode in Opcode if opcode not in plain), plain]


def _rows(config: CoreConfig, opcode: Opcode) -> list[list[Part]]:
    """The parts of each row, lowest bits first."""
    used = [(name, bits, "engine") for name, bits, _ in HEADER]
    used += [(name, bits, "field") for name, bits, _ in instruction_fields(config, opcode)]
    reserved = config.instruction_bits - config.check_bits - sum(bits for _, bits, _ in used)
    used += [("reserved", reserved, "none"), ("check", config.check_bits, "fetch")]
    rows: list[list[Part]] = [[] for _ in range(config.instruction_bits // ROW_BITS)]
    low = 0
    for name, bits, kind in used:
        while bits:
            here = min(bits, ROW_BITS - low % ROW_BITS)
            rows[low // ROW_BITS].append(Part(name, low, here, kind))
            low, bits = low + here, bits - here
    return rows


def _left(part: Part) -> float:
    return LEFT + (ROW_BITS - part.low % ROW_BITS - part.bits) * BIT


def _middle(part: Part) -> float:
    return _left(part) + part.bits * BIT / 2


def _fits(part: Part) -> bool:
    return width_of(part.name, NAME) + 4 <= part.bits * BIT


def _narrow_levels(row: list[Part]) -> list[list[tuple[Part, str]]]:
    """Fields too narrow for their names, by the line below the row on which each name has room, and its anchor."""
    levels: list[list[tuple[Part, str]]] = []
    names: list[list[tuple[float, float]]] = []
    narrow = sorted((part for part in row if not _fits(part)), key=_left)
    for part in narrow:
        middle, width = _middle(part), width_of(part.name, NAME)
        # A line to a name on a lower level must not cross this name.
        alone = all(abs(_middle(other) - middle) > width / 2 + 4 for other in narrow if other is not part)
        for number in range(len(levels) + 1):
            if number == len(levels):
                levels.append([])
                names.append([])
            choices = [("end", middle + 5 - width), ("start", middle - 5)]
            if alone:
                choices.insert(0, ("middle", middle - width / 2))
            free = [
                (anchor, start)
                for anchor, start in choices
                if all(start > end + 4 or start + width < begin - 4 for begin, end in names[number])
            ]
            if free:
                anchor, start = free[0]
                levels[number].append((part, anchor))
                names[number].append((start, start + width))
                break
    return levels


def _row_height(levels: list[list[tuple[Part, str]]]) -> float:
    return NUMBERS + BOX + GAP + 15 * len(levels)


def _instruction(
    sheet: Sheet, config: CoreConfig, opcodes: tuple[Opcode, ...], levels: list[list[list[tuple[Part, str]]]], y: float
) -> float:
    """Draw one instruction from ``y`` on; gives the place of the next one."""
    x = float(LEFT)
    for opcode in opcodes:
        title = f"{opcode.name}"
        sheet.text(x, y + 16, title, size=14, bold=True)
        x += width_of(title, 19) + 10
        about = (INSTRUCTION_TYPES[opcode].__doc__ or "").strip().splitlines()[0].replace("``", "")
        sheet.text(x, y + 16, about, size=11.5, colour=SOFT)
        x += width_of(about, 11.5) + 16
    return _rows_of(sheet, config, opcodes[0], levels, y + 30) + 12


def _rows_of(
    sheet: Sheet, config: CoreConfig, opcode: Opcode, levels: list[list[list[tuple[Part, str]]]], y: float
) -> float:
    """Draw the bits of an instruction from ``y`` on; gives the place below them."""
    for row, narrow in zip(_rows(config, opcode), levels, strict=True):
        for part in row:
            _part(sheet, part, y)
        for number, names in enumerate(narrow):
            below = y + NUMBERS + BOX + 15 * number
            for part, anchor in names:
                middle = _middle(part)
                sheet.line([(middle, y + NUMBERS + BOX), (middle, below + 4)], width=1)
                shift = {"middle": 0, "end": 5, "start": -5}[anchor]
                sheet.text(middle + shift, below + 13, part.name, size=NAME, anchor=anchor)
        y += _row_height(narrow)
    return y


def _part(sheet: Sheet, part: Part, y: float) -> None:
    x, width = _left(part), part.bits * BIT
    fill, edge = COLOURS[part.kind]
    sheet.box(x, y + NUMBERS, width, BOX, fill, edge, radius=2)
    if _fits(part):
        colour = SOFT if part.kind == "none" else "#1f2933"
        sheet.text(x + width / 2, y + NUMBERS + 17, part.name, size=NAME, colour=colour, anchor="middle")
    high = part.low + part.bits - 1
    if part.bits > 1:
        sheet.text(x + 2, y + NUMBERS - 2.5, str(high), size=7.5, colour=SOFT)
        sheet.text(x + width - 2, y + NUMBERS - 2.5, str(part.low), size=7.5, colour=SOFT, anchor="end")
    else:
        sheet.text(x + width / 2, y + NUMBERS - 2.5, str(high), size=7.5, colour=SOFT, anchor="middle")
