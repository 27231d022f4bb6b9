"""The cores of a system between the host's registers and the ports of memory."""

from __future__ import annotations

from weft.hw.bus import WRITES_ORDERED, port_id_bits
from weft.hw.register_windows import GROUP_WINDOW, WINDOW_BYTES
from weft.hw.system_config import SystemConfig

from .svg import COLOURS, SOFT, Sheet

LEFT, PITCH, CORE = 150, 150, 120
TOP, HEIGHT = 150, 60


def draw(config: SystemConfig) -> str:
    """The picture as SVG, drawn from the system's configuration."""
    width = LEFT + PITCH * len(config.cores) + 30
    sheet = Sheet(width, 430, "Several cores on one memory")
    sheet.text(24, 32, f"{len(config.cores)} cores on {config.port_count} ports of one memory", size=16, bold=True)
    first, last = LEFT, LEFT + PITCH * (len(config.cores) - 1) + CORE
    sheet.box(first, 60, last - first, 40, *COLOURS["fetch"])
    sheet.text((first + last) / 2, 85, f"register windows; group at {GROUP_WINDOW:#x}", anchor="middle")
    sheet.text(24, 85, "host, AXI4-Lite", colour=SOFT)
    for number, core in enumerate(config.cores):
        left = LEFT + PITCH * number
        sheet.box(left, TOP, CORE, HEIGHT, *COLOURS["engine"])
        sheet.text(left + CORE / 2, TOP + 26, f"core {number}", anchor="middle", bold=True)
        sheet.text(left + CORE / 2, TOP + 46, core.name, anchor="middle", size=12)
        sheet.line([(left + CORE / 2, 100), (left + CORE / 2, TOP)], arrow=True)
        sheet.text(left + CORE / 2 + 6, 130, f"{number * WINDOW_BYTES:#x}", size=11, colour=SOFT)
    for port in range(config.port_count):
        _port(sheet, config, port)
    sheet.box(first, 360, last - first, 40, *COLOURS["dram"])
    sheet.text((first + last) / 2, 385, "one memory", anchor="middle")
    sheet.text(24, 385, "DRAM", colour=SOFT)
    return sheet.svg()


def _port(sheet: Sheet, config: SystemConfig, port: int) -> None:
    """From the cores of a port, through its arbiter if it has one, to the memory."""
    members = config.cores_of(port)
    middles = [LEFT + PITCH * number + CORE / 2 for number in members]
    at = sum(middles) / len(middles)
    bits = port_id_bits(len(members))
    if len(members) == 1:
        sheet.line([(at, TOP + HEIGHT), (at, 360)], arrow=True, both=True)
    else:
        left, right = min(middles) - CORE / 2, max(middles) + CORE / 2
        sheet.box(left, 250, right - left, 56, *COLOURS["memory"])
        sheet.text((left + right) / 2, 273, "arbiter: a burst at a time, in turn", anchor="middle")
        sheet.text((left + right) / 2, 293, f"{WRITES_ORDERED} writes in order", anchor="middle", size=11, colour=SOFT)
        for middle in middles:
            sheet.line([(middle, TOP + HEIGHT), (middle, 250)], arrow=True, both=True)
        at = (left + right) / 2
        sheet.line([(at, 306), (at, 360)], arrow=True, both=True)
    sheet.text(at + 8, 338, f"m{port}_axi, IDs of {bits} bits", size=11, colour=SOFT)
