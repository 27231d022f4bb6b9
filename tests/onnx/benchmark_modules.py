"""The benchmarks' modules, which import one another by their own names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = str(Path(__file__).parent.parent.parent / "benchmarks")


def benchmark(name: str) -> ModuleType:
    """The module of ``benchmarks/`` with a name."""
    sys.path.insert(0, BENCHMARKS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(BENCHMARKS)
