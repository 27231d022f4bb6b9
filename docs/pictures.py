"""Draws the pictures of the manual, docs/pictures/*.svg, from the code that they show.

python docs/pictures.py            writes them
python docs/pictures.py --check    fails if one of them is not as it would be written
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from drawing import architecture, convolution, core, isa, memory, system
from weft.hw.config import PYNQ, TINY
from weft.hw.system_config import SystemConfig

FOLDER = Path(__file__).parent / "pictures"

PICTURES: dict[str, Callable[[], str]] = {
    "architecture": architecture.draw,
    "core": lambda: core.draw(PYNQ),
    "isa": lambda: isa.draw(PYNQ),
    "convolution": lambda: convolution.draw(TINY),
    "train-memory": memory.draw,
    "system": lambda: system.draw(SystemConfig(cores=(PYNQ, PYNQ, PYNQ), ports=(0, 0, 1))),
}


def main(arguments: list[str]) -> int:
    """Write or compare all pictures; the number of those that differ."""
    stale = 0
    for name, draw in PICTURES.items():
        path, text = FOLDER / f"{name}.svg", draw()
        if arguments != ["--check"]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is not as the code draws it; after a change: python docs/pictures.py", file=sys.stderr)
            stale += 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
