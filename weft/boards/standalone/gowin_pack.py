"""Apycula's ``gowin_pack`` in the form of the other tools: a function that takes its arguments."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence


def run_gowin_pack(arguments: Sequence[str]) -> int:
    """Write a bitstream, as the program of that name does. Its exit status."""
    sys.argv[1:] = arguments  # where the program looks for them
    return int(importlib.import_module("apycula.gowin_pack").main() or 0)
