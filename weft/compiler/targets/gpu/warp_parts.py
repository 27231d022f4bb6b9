"""Parts of a warp's work whose operands are loaded one part ahead.

``annotate(loop, "pipeline", 2)`` on a loop in a phase of warps asks for it: of its body what comes first fills register
buffers that are allocated there, what follows reads them. Then a part's operands are loaded before the products of the
part before it, into the other one of two copies. In a ring the first part of an iteration is loaded behind the barrier
before the products of the last part of the iteration before: those do not wait for shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from ...tensor.ir import Buffer, Const, For, Stmt, sequence
from ...tensor.tree import opened
from ...tensor.visitor import loads_of, map_accesses, stores_of, substitute_stmt
from ..loops.nests import REGISTER
from .launches import Phase

PIPELINE = "pipeline"
"""The note on a loop; its value: how many copies of the memory there are."""

COPIES = 2


@dataclass(frozen=True)
class WarpParts:
    """A phase's loop over ``count`` parts, of which the first ``loading`` statements fill ``copies`` of ``buffers``.
    The methods take the phase for an iteration and make another one of it."""

    count: int
    loading: int
    buffers: tuple[Buffer, ...]
    copies: tuple[Buffer, ...]

    def begin(self, work: Phase) -> Phase:
        """Load the first part."""
        return replace(work, body=sequence(*self._load(work, 0)))

    def first(self, work: Phase) -> Phase:
        """All products but those of the last part, which is loaded."""
        parts = [stmt for part in range(self.count - 1)
                 for stmt in (*self._load(work, part + 1), *self._multiply(work, part))]  # fmt: skip
        return replace(work, body=sequence(*parts))

    def across(self, work: Phase, later: Phase) -> Phase:
        """Load the first part of the iteration ``later``, and the products of the last one."""
        return replace(work, body=sequence(*self._load(later, 0), *self._multiply(work, self.count - 1)))

    def last(self, work: Phase) -> Phase:
        """All products, with nothing to come."""
        return replace(work, body=sequence(self.first(work).body, *self._multiply(work, self.count - 1)))

    def _load(self, work: Phase, part: int) -> list[Stmt]:
        return self._on_copy(_inside(work)[1][: self.loading], work, part)

    def _multiply(self, work: Phase, part: int) -> list[Stmt]:
        return self._on_copy(_inside(work)[1][self.loading :], work, part)

    def _on_copy(self, items: Sequence[Stmt], work: Phase, part: int) -> list[Stmt]:
        made = []
        for item in items:
            for buffer, copies in zip(self.buffers, self.copies, strict=True):
                item = map_accesses(item, buffer, copies, lambda indices: (Const(part % COPIES), *indices))
            made.append(substitute_stmt(item, {_loop(work).var: Const(part)}))
        return made


def parts_of_warps(work: Phase, filled: AbstractSet[Buffer]) -> WarpParts | None:
    """The parts of a phase that reads ``filled``; None where it has none, or an odd number of them: a part's copy would
    not be the same in all iterations."""
    loop = work.body
    if work.lanes == 1 or not isinstance(loop, For) or dict(loop.annotations).get(PIPELINE) != COPIES:
        return None
    if any(digit.is_guarded for digit in work.digits) or not isinstance(loop.extent, Const):
        return None
    buffers, items = _inside(work)
    names = {buffer.name for buffer in filled}
    loading = 0
    for item in items:
        if not {buffer.name for buffer, _ in loads_of(item)} & names:
            break
        loading += 1
    count = int(loop.extent.value)
    written = {buffer for item in items[loading:] for buffer, _ in stores_of(item)}
    read = {buffer.name for item in items[loading:] for buffer, _ in loads_of(item)}
    loaded = {buffer for item in items[:loading] for buffer, _ in stores_of(item)}
    if count % COPIES or not loading or names & read or loaded - set(buffers) or written & set(buffers):
        return None
    copies = tuple(replace(buffer, shape=(COPIES, *buffer.shape)) for buffer in buffers)
    return WarpParts(count, loading, buffers, copies)


def _loop(work: Phase) -> For:
    assert isinstance(work.body, For)
    return work.body


def _inside(work: Phase) -> tuple[tuple[Buffer, ...], list[Stmt]]:
    """The register buffers allocated in a part, and its statements."""
    return opened(_loop(work).body, REGISTER)
