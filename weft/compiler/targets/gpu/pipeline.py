"""Loops that fill shared memory some iterations ahead: a ring of copies of it, and one barrier an iteration.

``annotate(loop, "pipeline", stages)`` asks for it. Of the phases in the loop's body those that fill buffers which are
allocated there run ``stages - 1`` iterations ahead, each into the next copy. An iteration begins with a barrier: behind
it what it reads is there, and nobody reads any more what is filled next. Where the device copies asynchronously, a
thread also waits for its own copies before that barrier, but not for those of the iterations after it.

Where what fills them copies neighbours and the extent is known, as many iterations as there are copies stand one after
the other in the loop: each knows its copy, so that addresses are one that moves on and constants. The last iterations,
which have nothing to fill, stand behind it. What warps load into registers in parts is then one part ahead, across the
barrier, too (`warp_parts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...tensor.ir import Block, Buffer, Const, Expr, For, If, Load, Select, Stmt, Store, sequence
from ...tensor.simplify import simplify
from ...tensor.tree import leaves
from ...tensor.visitor import loads_of, map_accesses, stores_of, substitute, substitute_stmt
from ..errors import CompileError
from ..loops.nests import position_of
from .digits import SHARED
from .launches import Barrier, Commit, Landed, Phase
from .warp_parts import PIPELINE, WarpParts, parts_of_warps

MOST_STAGES = 8


@dataclass(frozen=True)
class Ring(Stmt):
    """``body``: phases that fill the first copies, and the loop. Barriers between its phases are there already.
    ``phases``: those of one iteration; apart from ``buffers`` they only read. ``registers``: what each thread holds
    from one phase to the next."""

    buffers: tuple[Buffer, ...]
    registers: tuple[Buffer, ...]
    phases: tuple[Phase, ...]
    body: tuple[Stmt, ...]


def pipelined(loop: For, buffers: Sequence[Buffer], items: Sequence[Stmt], *, asynchronous: bool) -> Ring:
    """The ring of a loop with the phases ``items``; ``buffers`` are allocated in its body. CompileError where they
    cannot be filled ahead."""
    at = f"loop {loop.var.name!r}"
    stages = dict(loop.annotations)[PIPELINE]
    if not isinstance(stages, int) or not 2 <= stages <= MOST_STAGES:
        raise CompileError(f"a pipeline of {stages!r} stages", at=at, hint=f"annotate with 2 to {MOST_STAGES}")
    if loop.kind != "serial":
        raise CompileError(f"a pipeline in a loop that is marked {loop.kind}", at=at, hint="annotate a serial loop")
    phases = [item for item in items if isinstance(item, Phase)]
    if len(phases) < len(items):
        raise CompileError("there are loops around some phases of a pipeline", at=at,
                           hint="bind the outermost loops of each stage to threads")  # fmt: skip
    first = _filling(phases, {buffer.name for buffer in buffers}, at)
    copies = {buffer: _copies(buffer, stages) for buffer in buffers}
    # Copies that run by themselves begin before the work. What threads compute themselves waits for memory: after it.
    begins = asynchronous and all(_is_copy(phase.body) for phase in phases[:first])
    turns = _Turns(loop, stages, copies, phases[:first], phases[first:], asynchronous, begins)
    registers: tuple[Buffer, ...] = ()
    if isinstance(loop.extent, Const) and all(_is_vector_copy(phase.body) for phase in phases[:first]):
        parts = parts_of_warps(turns.working[0], frozenset(buffers)) if len(turns.working) == 1 else None
        body = _written_out(turns, int(loop.extent.value), parts)
        registers = parts.copies if parts else ()
    else:
        turn = [*turns.ready(), *turns.around_work(turns.ahead(loop.var + (stages - 1)), turns.work(loop.var))]
        body = [replace(loop, body=sequence(*turn), annotations=())]
    start = [stmt for number in range(stages - 1) for stmt in turns.ahead(Const(number))]
    return Ring(tuple(copies.values()), registers, tuple(phases), (*start, *body))


@dataclass(frozen=True)
class _Turns:
    """What a ring's iterations are made of: ``filling`` fills ``copies``, ``working`` reads them. ``begins``: whether
    it is filled before the work."""

    loop: For
    stages: int
    copies: Mapping[Buffer, Buffer]
    filling: Sequence[Phase]
    working: Sequence[Phase]
    asynchronous: bool
    begins: bool

    def placed(self, phase: Phase, iteration: Expr, turn: int | None) -> Phase:
        """A phase for an iteration, on the copy that is its turn; its number, where it is known."""
        body = phase.body
        place = self.loop.var % self.stages if turn is None else Const(turn % self.stages)
        for buffer, copies in self.copies.items():
            body = map_accesses(body, buffer, copies, lambda indices: (place, *indices))
        values = {self.loop.var: iteration}
        digits = tuple(replace(digit, extent=substitute(digit.extent, values)) for digit in phase.digits)
        return replace(phase, digits=digits, body=substitute_stmt(body, values))

    def ahead(self, iteration: Expr, turn: int | None = None, *, inside: bool = False) -> list[Stmt]:
        """What is done ahead for an iteration, if there is such a one; ``inside``: there is."""
        condition = simplify(iteration < self.loop.extent)
        made: list[Stmt] = []
        for phase in self.filling if condition != Const(False, "bool") else ():
            each = self.placed(phase, iteration, turn)
            if not inside and condition != Const(True, "bool"):
                each = replace(each, body=If(condition, each.body))
            made.append(replace(each, ahead=self.asynchronous))
        return [*made, Commit()] if self.asynchronous else made

    def work(self, iteration: Expr, turn: int | None = None) -> list[Phase]:
        """What is done in an iteration."""
        return [self.placed(phase, iteration, turn) for phase in self.working]

    def ready(self) -> list[Stmt]:
        """From here on all threads see the next copy, and none reads the last one any more."""
        return [*([Landed(self.stages - 2)] if self.asynchronous else ()), Barrier(False)]

    def around_work(self, ahead: Sequence[Stmt], work: Sequence[Stmt]) -> list[Stmt]:
        return [*ahead, *work] if self.begins else [*work, *ahead]


def _written_out(turns: _Turns, count: int, parts: WarpParts | None) -> list[Stmt]:
    """All iterations: a loop over as many at a time as there are copies, so that each knows its own, and the rest one
    by one. In the loop there is always something to fill."""
    stages, var = turns.stages, turns.loop.var
    rounds = (count - stages + 1) // stages
    if rounds < 2:
        rounds = 0

    def turn(iteration: Expr, number: int, *, inside: bool) -> list[Stmt]:
        is_last = not inside and number + 1 == count
        ahead = [] if is_last else turns.ahead(iteration + (stages - 1), number + stages - 1, inside=inside)
        work = turns.work(iteration, number)
        if parts is None:
            return [*turns.ready(), *turns.around_work(ahead, work)]
        if is_last:
            return [parts.last(work[0])]
        (later,) = turns.work(iteration + 1, number + 1)
        return [*turns.around_work(ahead, [parts.first(work[0])]), *turns.ready(), parts.across(work[0], later)]

    made: list[Stmt] = []
    if parts:
        (work,) = turns.work(Const(0), 0)
        made += [*turns.ready(), parts.begin(work)]
    if rounds:
        body = [stmt for number in range(stages) for stmt in turn(var * stages + number, number, inside=True)]
        made.append(replace(turns.loop, extent=Const(rounds), body=sequence(*body), annotations=()))
    for number in range(rounds * stages, count):
        made += turn(Const(number), number, inside=False)
    return made


def _filling(phases: Sequence[Phase], names: set[str], at: str) -> int:
    """How many of the phases fill the buffers: the first ones. The others write to no memory of several threads."""
    first = 0
    while first < len(phases) and _shared_names(stores_of(phases[first].body)) <= names:
        if not _shared_names(stores_of(phases[first].body)):
            break
        first += 1
    written = set().union(*(_shared_names(stores_of(phase.body)) for phase in phases[first:]))
    read = set().union(*(_shared_names(loads_of(phase.body)) for phase in phases[:first]))
    if written or read & names or not 0 < first < len(phases):
        raise CompileError("its body does not fill shared memory first, and only read it then", at=at,
                           hint="compute_at what the pipeline fills in this loop, and results around it")  # fmt: skip
    return first


def _shared_names(accesses: object) -> set[str]:
    """Buffers that are not each thread's own."""
    return {buffer.name for buffer, _ in accesses if buffer.scope in (SHARED, "global")}  # type: ignore[attr-defined]


def _copies(buffer: Buffer, count: int) -> Buffer:
    alignments = tuple(replace(item, axis=item.axis + 1) for item in buffer.alignments)
    return replace(buffer, shape=(count, *buffer.shape), alignments=alignments)


def _is_copy(stmt: Stmt) -> bool:
    return all(isinstance(path[-1], Block) and copied(path[-1].body) is not None for path in leaves(stmt))


def _is_vector_copy(stmt: Stmt) -> bool:
    """Whether it copies neighbours by the innermost loop, which an instruction may do at once."""
    for path in leaves(stmt):
        loop, leaf = (None, *path)[-2:]
        copy = copied(leaf.body) if isinstance(leaf, Block) else None
        if copy is None or not isinstance(loop, For) or loop.kind != "vectorize":
            return False
        if position_of(copy[0].buffer, copy[0].indices).terms.get(loop.var) != 1:
            return False
    return True


def copied(store: Store) -> tuple[Load, tuple[Expr, ...]] | None:
    """What a store copies from memory outside of the group, and the conditions of it: where one does not hold, zero is
    stored. None where it does something else."""
    conditions: list[Expr] = []
    value = store.value
    while isinstance(value, Select):
        if not (isinstance(value.b, Const) and value.b.value == 0):
            return None
        conditions.append(value.cond)
        value = value.a
    if not isinstance(value, Load) or value.buffer.scope != "global" or value.buffer.dtype != store.buffer.dtype:
        return None
    return (value, tuple(conditions)) if store.buffer.scope == SHARED else None
