"""Where a model of Verilator's holds the signals of a design."""

from __future__ import annotations

import re

MEMBER = re.compile(
    r"^\s*(?:VL_(?:IN|OUT)(?:8|16|64|W)?\((?P<port>\w+),\d+,\d+(?:,\d+)?\)"
    r"|(?:CData|SData|IData|QData|VlWide<\d+>)/\*\d+:0\*/ (?P<name>\w+)"
    r"|VlUnpacked<(?:CData|SData|IData|QData|VlWide<\d+>)/\*\d+:0\*/, \d+> (?P<memory>\w+));",
    re.MULTILINE,
)
"""A variable in the header of a verilated model."""


def member_name(path: tuple[str, ...]) -> str:
    """The variable that Verilator makes of a name."""
    return "__DOT__".join(encoded(part) for part in path)


def encoded(name: str) -> str:
    """A name as Verilator spells it in C++: what is no letter, digit or single underscore is a number."""
    text = ""
    for place, each in enumerate(name.replace("__", "_\0")):
        kept = each == "_" or (each.isascii() and (each.isalnum() if place else each.isalpha()))
        text += each if kept else "__05F" if each == "\0" else f"__0{ord(each):02x}"
    return text
