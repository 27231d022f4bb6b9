"""DRAM that instructions need not wait for: what none of a stream writes, and results that none reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....hw.isa import Engine
from .....hw.memories import Memory
from .accesses import accesses_of, flat
from .stream import TRANSFERS, Issue


def forget_constants(issues: Sequence[Issue]) -> None:
    """Leave DRAM that no instruction writes out of :attr:`Issue.accesses`: nothing has to wait for it. Where nothing
    that is written is read, leave out all of it: stores keep their order by themselves."""
    transfers = [issue for issue in issues if issue.instruction.engine in TRANSFERS]
    dram = accesses_of(transfers, (Memory.DRAM,))[Memory.DRAM]
    run, access = flat(dram.begins, dram.sets)
    edges = np.zeros(dram.size + 1, np.int64)
    of_writes = run[dram.writes[access]]
    np.add.at(edges, dram.starts[of_writes], 1)
    np.add.at(edges, dram.stops[of_writes], -1)
    written = np.concatenate([[0], np.cumsum(np.cumsum(edges) > 0)])  # pieces, up to each
    meets = written[dram.stops[run]] > written[dram.starts[run]]
    reads = np.unique(dram.positions[~dram.writes])
    needed = np.unique(dram.positions[access[meets & ~dram.writes[access]]])
    for position in np.setdiff1d(reads, needed, assume_unique=True).tolist():
        transfers[position].forget(Memory.DRAM, written=False)
    if not len(needed) and (dram.engines[dram.writes] == Engine.STORE).all():
        for position in np.unique(dram.positions[dram.writes]).tolist():
            transfers[position].forget(Memory.DRAM, written=True)
