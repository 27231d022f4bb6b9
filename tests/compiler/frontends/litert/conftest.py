"""What the benchmarks have for LiteRT files: a writer, LiteRT's interpreter, models of a single operator."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))
