"""Sequential read-modify-write on repeated entries, without a Python loop."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .loops import Indices
from .state import Int32


def accumulate(
    memory: Int32,
    entries: Indices,
    values: Int32,
    restart: npt.NDArray[np.bool_] | None,
    operation: np.ufunc,
    identity: int,
) -> None:
    """For each t in order: ``memory[e] = operation(identity if restart[t] else memory[e], values[t])``, e = entries[t].

    Only the last restart of an entry and what follows it counts, so the result does not depend on the order of the
    rest (``operation`` is associative and commutative on wrapping int32, ``identity`` its neutral element).
    """
    if not entries.size:
        return
    order = np.argsort(entries, kind="stable")
    sorted_entries = entries[order]
    starts = np.flatnonzero(np.r_[True, sorted_entries[1:] != sorted_entries[:-1]])
    targets = sorted_entries[starts]
    terms = values[order]
    old = memory[targets]
    if restart is not None and restart.any():
        last = np.maximum.reduceat(np.where(restart[order], order, -1), starts)
        old[last >= 0] = identity
        sizes = np.diff(np.r_[starts, entries.size])
        terms[order < np.repeat(last, sizes)] = identity
    memory[targets] = operation(old, operation.reduceat(terms, starts, axis=0, dtype=np.int32))
