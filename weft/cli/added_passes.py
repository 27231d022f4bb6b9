"""What commands let a user add to the passes of a compilation, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import out

if TYPE_CHECKING:
    from ..compiler.passes import PassRecord
    from ..compiler.passes.pipeline import PassOptions

PassOption = Annotated[
    list[str] | None, typer.Option("--pass", help="Also run this installed pass ('weft passes' lists them).")
]


def pass_options(
    added: list[str] | None, own: list[PassRecord], check: bool = False, diff: Path | None = None
) -> PassOptions | None:
    """What the user asks of the passes; None where that is nothing. ``own`` receives the records of those added."""
    if not (added or check or diff):
        return None
    from ..compiler.passes import load_pass
    from ..compiler.passes.pipeline import PassOptions

    passes = tuple(load_pass(name) for name in added or ())
    names = {each.name for each in passes}

    def report(record: PassRecord) -> None:
        if record.name in names:
            own.append(record)

    return PassOptions(passes, check, diff, report)


def print_passes(own: Sequence[PassRecord]) -> None:
    """What the user's own passes did."""
    for record in own:
        out.print(f"pass {record.name!r}: {record.outcome}", highlight=False, markup=False)


def pass_records(own: Sequence[PassRecord]) -> list[dict[str, Any]]:
    """The same for ``--json``."""
    return [
        {"pass": each.name, "matches": each.matches, "calls_before": each.calls_before, "calls_after": each.calls_after}
        for each in own
    ]
