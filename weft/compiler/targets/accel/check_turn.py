"""The checker of programs that run at once on one memory: no core touches a byte that another one writes.

It decodes the bytes of the programs and knows nothing of how they came to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from ....hw.config import CoreConfig
from ....hw.footprint import Intervals
from ....hw.isa import Opcode
from ....hw.load_counts import bytes_each
from ....hw.programs import columns_of
from ..errors import ProgramError
from .check_at_once import of_each_load

Code = npt.NDArray[np.uint8]


def check_turn(config: CoreConfig, programs: Sequence[Code]) -> None:
    """:class:`ProgramError` that names two of the programs, by their numbers, and the first byte of the window that one
    writes while the other may read or write it."""
    met = meeting(config, programs)
    if met is not None:
        core, does, other, place = met
        raise ProgramError(f"core {core} may {does} byte {place:#x} of the window before, or while, core {other} "
                           f"writes it", at="a turn")  # fmt: skip


def meeting(config: CoreConfig, programs: Sequence[Code]) -> tuple[int, str, int, int] | None:
    """A core, what it does, to which byte, and the core that writes the byte; as (core, what, other, byte)."""
    touched = [(_bytes_of(config, code, write=False), _bytes_of(config, code, write=True)) for code in programs]
    for (first, (reads, writes)), (second, (others_reads, others_writes)) in combinations(enumerate(touched), 2):
        meetings = (
            (first, "write", second, writes.common(others_writes)),
            (first, "read", second, reads.common(others_writes)),
            (second, "read", first, others_reads.common(writes)),
        )
        for core, does, other, place in meetings:
            if place is not None:
                return core, does, other, place
    return None


def _bytes_of(config: CoreConfig, code: Code, *, write: bool) -> Intervals:
    """Bytes of the window that a program reads, or writes."""
    transfers = columns_of(config, code).get(Opcode.STORE if write else Opcode.LOAD)
    if transfers is None:
        return Intervals.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    fields = {name: transfers.fields[name].astype(np.int64) for name in ("rows", "columns", "stride", "offset")}
    size = np.full(len(transfers.numbers), config.out_bytes) if write else of_each_load(config, transfers, bytes_each)
    rows = fields["rows"] * (fields["columns"] > 0)
    which = np.repeat(np.arange(len(rows)), rows)
    row = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    starts = fields["offset"][which] * config.granule_bytes + row * (fields["stride"] * size)[which]
    return Intervals.of(starts, starts + (fields["columns"] * size)[which])
