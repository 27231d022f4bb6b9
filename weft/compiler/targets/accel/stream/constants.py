"""DRAM that instructions need not wait for: what none of a stream writes, and results that none reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....hw.isa import Engine
from .....hw.memories import Memory
from .accesses import Stream, flat, stream_of
from .stream import Issue


def forget_constants(issues: Sequence[Issue]) -> Stream:
    """Leave DRAM that no instruction writes out of :attr:`Issue.accesses`: nothing has to wait for it. Where nothing
    that is written is read, leave out all of it: stores keep their order by themselves."""
    stream = stream_of(issues)
    touched = stream.touched
    dram = touched.by_memory((Memory.DRAM,))[Memory.DRAM]
    run, access = flat(dram.begins, dram.sets)
    edges = np.zeros(dram.size + 1, np.int64)
    of_writes = run[dram.writes[access]]
    np.add.at(edges, dram.starts[of_writes], 1)
    np.add.at(edges, dram.stops[of_writes], -1)
    written = np.concatenate([[0], np.cumsum(np.cumsum(edges) > 0)])  # pieces, up to each
    meets = written[dram.stops[run]] > written[dram.starts[run]]
    reads = np.unique(dram.positions[~dram.writes])
    needed = np.unique(dram.positions[access[meets & ~dram.writes[access]]])
    forgotten = np.zeros((2, len(stream)), np.bool_)  # of each instruction what it reads, and what it writes
    forgotten[0, np.setdiff1d(reads, needed, assume_unique=True)] = True
    if not len(needed) and (dram.engines[dram.writes] == Engine.STORE).all():
        forgotten[1, dram.positions[dram.writes]] = True
    for written_too, own in enumerate(forgotten):
        for position in np.flatnonzero(own).tolist():
            stream[position].forget(Memory.DRAM, written=bool(written_too))
    left_out = forgotten[touched.writes.astype(np.int64), touched.positions] & touched.of(Memory.DRAM)
    return Stream(stream.issues, touched.without(left_out))
