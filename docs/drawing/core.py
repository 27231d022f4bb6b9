"""The block diagram of a core: engines, memories and who needs whose tokens."""

from __future__ import annotations

from weft.hw.config import CoreConfig
from weft.hw.isa import ENGINE_NAMES, MEMORY_USERS, Engine
from weft.hw.memories import Memory

from .svg import COLOURS, INK, SOFT, Sheet, width_of

WIDTH, HEIGHT = 980, 800
ENGINE_TEXT = {
    Engine.LOAD: "activations",
    Engine.LOADW: "weights, parameters",
    Engine.GEMM: "1 product a cycle",
    Engine.VECTOR: "lane by lane, int32",
    Engine.STORE: "results",
}
PLACES: dict[Engine | Memory, tuple[float, float, float, float]] = {
    Memory.DRAM: (24, 92, 76, 420),
    Engine.LOAD: (172, 176, 140, 64),
    Engine.STORE: (172, 312, 140, 64),
    Engine.LOADW: (172, 448, 140, 64),
    Memory.INP: (410, 176, 140, 64),
    Memory.OUT: (352, 312, 108, 64),
    Memory.WGT: (410, 448, 140, 64),
    Engine.VECTOR: (500, 312, 128, 64),
    Memory.ACC: (668, 312, 122, 64),
    Engine.GEMM: (832, 176, 116, 336),
}
"""Left, top, width and height."""


def draw(config: CoreConfig) -> str:
    """The picture as SVG."""
    sheet = Sheet(WIDTH, HEIGHT, f"Block diagram of the core {config.name}")
    sheet.text(24, 36, f"The core, as configured in {config.name!r}", size=18, bold=True)
    rate = f"{config.batch} x {config.block_in} x {config.block_out} int8 multiply-accumulates a cycle"
    sheet.text(24, 58, f"{rate}, {config.lanes} vector lanes, a bus of {config.bus_bits} bits", colour=SOFT)
    sheet.box(136, 80, 828, 448, "#fbfcfd", "#8b98a8", dashed=True)
    _paths(sheet, config)
    _boxes(sheet, config)
    _tokens(sheet, config)
    return sheet.svg()


def _boxes(sheet: Sheet, config: CoreConfig) -> None:
    for place, (x, y, width, height) in PLACES.items():
        middle, centre = x + width / 2, y + height / 2
        if isinstance(place, Engine):
            sheet.box(x, y, width, height, *COLOURS["engine"])
            sheet.text(middle, centre - 2, ENGINE_NAMES[place], size=15, bold=True, anchor="middle")
            sheet.text(middle, centre + 16, ENGINE_TEXT[place], size=10.5, colour=SOFT, anchor="middle")
            _queue(sheet, x + 8, y - 5)
        elif place is Memory.DRAM:
            sheet.box(x, y, width, height, *COLOURS["dram"])
            sheet.text(middle, centre, "DRAM", size=15, bold=True, anchor="middle")
        else:
            sheet.box(x, y, width, height, *COLOURS["memory"])
            kibibytes = config.depth(place) * config.entry_bytes(place) / 1024
            banks = f", {config.banks(place)} banks" if config.banks(place) > 1 else ""
            sheet.text(middle, centre - 10, place.value, size=15, bold=True, anchor="middle")
            sheet.text(middle, centre + 8, f"{kibibytes:g} KiB{banks}", size=11.5, anchor="middle")
            entry = f"{config.depth(place)} x {config.entry_bytes(place)} B"
            sheet.text(middle, centre + 24, entry, size=10.5, colour=SOFT, anchor="middle")
    sheet.box(172, 96, 140, 48, *COLOURS["fetch"])
    sheet.text(242, 118, "fetch", size=15, bold=True, anchor="middle")
    sheet.text(242, 134, "program, in order", size=10.5, colour=SOFT, anchor="middle")
    sheet.line([(312, 120), (352, 120)], colour=COLOURS["fetch"][1], arrow=True)
    _queue(sheet, 360, 115)
    words = f"into the queue of each engine: {config.queue_depth} instructions of {config.instruction_bits} bits"
    sheet.text(400, 124, words, size=12)


def _queue(sheet: Sheet, x: float, y: float) -> None:
    """The sign for a queue of instructions."""
    fill, edge = COLOURS["fetch"]
    for slot in range(4):
        sheet.box(x + 8 * slot, y, 7, 10, fill, edge, radius=1)


def _paths(sheet: Sheet, config: CoreConfig) -> None:
    def middle(place: Engine | Memory) -> float:
        return PLACES[place][1] + PLACES[place][3] / 2

    def left(place: Engine | Memory) -> float:
        return PLACES[place][0]

    def right(place: Engine | Memory) -> float:
        return PLACES[place][0] + PLACES[place][2]

    dram, acc = right(Memory.DRAM), PLACES[Memory.ACC]
    for engine, memory in ((Engine.LOAD, Memory.INP), (Engine.LOADW, Memory.WGT)):
        y = middle(engine)
        sheet.line([(dram, y), (left(engine), y)], arrow=True)
        sheet.line([(right(engine), y), (left(memory), y)], arrow=True)
        sheet.line([(right(memory), y), (left(Engine.GEMM), y)], arrow=True)
        end = acc[1] if engine is Engine.LOAD else acc[1] + acc[3]
        half_way = (
            (PLACES[memory][1] + PLACES[memory][3] + end) / 2
            if engine is Engine.LOAD
            else (PLACES[memory][1] + end) / 2
        )
        sheet.line([(340, y), (340, half_way), (acc[0] + 61, half_way), (acc[0] + 61, end)], arrow=True)
    sheet.line([(dram, 120), (172, 120)], arrow=True, colour=COLOURS["fetch"][1])
    y = middle(Engine.STORE)
    sheet.line([(left(Engine.STORE), y), (dram, y)], arrow=True)
    sheet.line([(left(Memory.OUT), y), (right(Engine.STORE), y)], arrow=True)
    sheet.line([(left(Engine.VECTOR), y), (right(Memory.OUT), y)], arrow=True)
    if config.inp_takes_results:
        x, inp = (left(Engine.VECTOR) + right(Memory.INP)) / 2, PLACES[Memory.INP]
        sheet.line([(x, PLACES[Engine.VECTOR][1]), (x, inp[1] + inp[3])], arrow=True)
    sheet.line([(left(Memory.ACC), y), (right(Engine.VECTOR), y)], both=True)
    sheet.line([(left(Engine.GEMM), y), (right(Memory.ACC), y)], both=True)


def _tokens(sheet: Sheet, config: CoreConfig) -> None:
    """Which engine may have to wait for which, and over which memory: from :data:`MEMORY_USERS`."""
    top, left, row, column = 604, 172, 28, 152
    sheet.text(24, 560, "Tokens order what engines do to one memory", size=15, bold=True)
    about = f"at most {config.token_depth} from one engine to another; the memories over which they may be needed:"
    sheet.text(24, 580, about, size=12, colour=SOFT)
    sheet.text(left - 16, top + 4, "from \\ to", size=11, colour=SOFT, anchor="end")
    for number, engine in enumerate(Engine):
        sheet.text(left + column * number + column / 2, top + 4, ENGINE_NAMES[engine], bold=True, anchor="middle")
        sheet.text(left - 16, top + 12 + row * number + 19, ENGINE_NAMES[engine], bold=True, anchor="end")
    for down, sender in enumerate(Engine):
        for across, receiver in enumerate(Engine):
            x, y = left + column * across, top + 12 + row * down
            fill, edge = COLOURS["none"] if sender == receiver else ("#ffffff", "#dde2e8")
            sheet.box(x + 2, y + 2, column - 4, row - 4, fill, edge, radius=3)
            if sender != receiver:
                _reasons(sheet, x + column / 2, y + 18, sender, receiver)
    y = top + 12 + row * len(Engine) + 24
    sheet.text(left, y, "bold: what was written may be read", size=11, bold=True)
    sheet.text(left + 240, y, "plain: what was read or written may be overwritten", size=11, colour=SOFT)


def _reasons(sheet: Sheet, x: float, y: float, sender: Engine, receiver: Engine) -> None:
    words = []
    for memory, users in MEMORY_USERS.items():
        if sender in users.writers and receiver in users.readers:
            words.append((memory.value, True))
        elif receiver in users.writers and (sender in users.readers or sender in users.writers):
            words.append((memory.value, False))
    gap = 8.0
    x -= (sum(width_of(word, 11.5) for word, _ in words) + gap * (len(words) - 1)) / 2
    for word, bold in words:
        width = width_of(word, 11.5)
        sheet.text(x + width / 2, y, word, size=11.5, bold=bold, colour=INK if bold else SOFT, anchor="middle")
        x += width + gap
