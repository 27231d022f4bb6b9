"""What the driver knows about cores: register addresses, bits and names, written by the host into the zip file."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, fields

FILE = "constants.json"
"""The file's name beside this module, in the zip file alone: it is made from ``hw/registers.py``."""


@dataclass(frozen=True)
class Constants:
    """All that is the same for every core.

    ``registers``: byte addresses by name, wide ones by the name of their lower half. ``read_beats``: addresses of the
    counters of bus words read. ``settings``: addresses that the host may write at any time without the core doing
    anything. ``counters``: (engine, class, address) of every counter of cycles, the classes of one
    engine together; they sum to the cycles of the run. ``engines`` and ``causes``: names by number. ``core_types``, and
    for a system of cores ``system_types``: VLNV prefixes of the block in a design. ``takes_code``: whether the host may
    send machine code.

    Of a system: ``core_space``: bytes from the registers of one core to those of the next; ``system_registers``: those
    that are no core's, by name, with ``GROUP`` for the window of all cores; ``relay_settings``: those of them that the
    host may write to say what cores wait for; ``relay_control`` and ``relay_status``: bits;
    ``page_bytes``: the unit of addresses in ``system_registers``.
    """

    magic: int
    registers: Mapping[str, int]
    control: Mapping[str, int]
    status: Mapping[str, int]
    settings: tuple[int, ...]
    read_beats: tuple[int, ...]
    counters: tuple[tuple[int, int, int], ...]
    engines: tuple[str, ...]
    causes: Mapping[int, str]
    window_alignment: int
    program_alignment: int
    core_types: tuple[str, ...]
    system_types: tuple[str, ...]
    core_space: int
    system_registers: Mapping[str, int]
    relay_settings: tuple[int, ...]
    relay_control: Mapping[str, int]
    relay_status: Mapping[str, int]
    page_bytes: int
    takes_code: bool = True

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Constants:
        """Read what :meth:`to_json` wrote; it comes with the code, so it is believed."""
        values = json.loads(text)
        values["counters"] = tuple(tuple(each) for each in values["counters"])
        values["causes"] = {int(number): name for number, name in values["causes"].items()}
        for name in ("settings", "read_beats", "engines", "core_types", "system_types", "relay_settings"):
            values[name] = tuple(values[name])
        return Constants(**values)


def own_constants() -> Constants:
    """The constants in the zip file that this module is in."""
    raw = pkgutil.get_data(__package__ or "", FILE)
    if raw is None:
        raise FileNotFoundError(FILE)
    return Constants.from_json(raw.decode())
