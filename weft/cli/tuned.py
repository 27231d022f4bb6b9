"""What ``weft tune`` says at its end, whatever the target."""

from __future__ import annotations

from pathlib import Path

from ..tune.ranking import Choice
from .output import out


def print_end(choice: Choice, database: Path, *, interrupted: bool, target: str = "") -> None:
    out.print(f"ranked by the {choice.ranking.name} ranking: {choice.why}", highlight=False, markup=False)
    if interrupted:
        out.print("interrupted; what was measured is kept, and the same command goes on from there")
    out.print(f"results are in {database}; use them by: weft compile ... {target}--tuned {database}", markup=False)
