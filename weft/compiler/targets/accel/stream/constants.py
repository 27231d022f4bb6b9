"""DRAM that instructions need not wait for: what none of a stream writes, and results that none reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .....hw.isa import Engine
from .....hw.memories import Memory
from .accesses import Stream, flat, stream_of
from .rows import Flags, Rows
from .stream import Issue


def forget_constants(issues: Sequence[Issue]) -> Stream:
    """The stream whose :attr:`Issue.accesses` leave out DRAM that no instruction writes: nothing has to wait for it.
    Where nothing that is written is read, they leave out all of it: stores keep their order by themselves."""
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
    left_out = forgotten[touched.writes.astype(np.int64), touched.positions] & touched.of(Memory.DRAM)
    return Stream(_forgetting(stream.rows, forgotten), touched.without(left_out))


def _forgetting(rows: Rows, forgotten: Flags) -> Rows:
    """Instructions that leave DRAM out of what they read, first row of ``forgotten``, or of what they write."""
    count = len(rows.forms)
    wanted = rows.form_of + count * (forgotten[0] + 2 * forgotten[1].astype(np.int64))
    different, form_of = np.unique(wanted, return_inverse=True)
    forms = []
    for how, number in (divmod(each, count) for each in different.tolist()):
        form, (reads, writes) = rows.forms[number], (bool(how & 1), bool(how & 2))
        forms.append(replace(form, left_out=(reads or form.left_out[0], writes or form.left_out[1])) if how else form)
    return replace(rows, forms=forms, form_of=form_of.reshape(-1))
