"""Whether a core may fit the part of a board without a processor: told before the tools run, which take minutes to find
that out.

What a core takes on ECP5 is the estimate of `weft.boards.area`. Of other families it is a bound from below, where a
part's multipliers are not used. What stands around the core is left out, but for its memory in block RAM.
"""

from __future__ import annotations

from dataclasses import asdict

from ...hw.config import CoreConfig
from ..area import ecp5_area
from ..errors import BoardError
from ..fit import number
from .board import StandaloneBoard

BYTES_OF_BRAM36 = 4096
"""Without the parity bits, which a memory of bytes has no use for."""


def shortages(board: StandaloneBoard, core: CoreConfig) -> tuple[str, ...]:
    """A text for each resource of which a core needs more, by estimate, than the whole part has."""
    has, needs = asdict(board.kind.sizes[board.part]), asdict(ecp5_area(core))
    if board.sdram is None:
        needs["BRAM36"] += board.memory_bytes / BYTES_OF_BRAM36
    return tuple(
        f"it needs {number(needs[name])} {name}, {board.part} has {number(size)}"
        for name, size in has.items()
        if size and needs[name] > size
    )


def require_fit(board: StandaloneBoard, core: CoreConfig) -> None:
    """:class:`BoardError` with what is short."""
    if short := shortages(board, core):
        raise BoardError(f"core {core.name!r} does not fit {board.name}, by estimate: {'; '.join(short)}",
                         hint="a smaller core, or --force to let synthesis decide")  # fmt: skip
