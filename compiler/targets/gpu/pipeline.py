"""Loops that fill shared memory some iterations ahead: a ring of copies of it, and one barrier an iteration.

``annotate(loop, "pipeline", stages)`` asks for it. Of the phases in the loop's body those that fill buffers which are
allocated there run ``stages - 1`` iterations ahead, each into the next copy. An iteration begins with a barrier: behind
it what it reads is there, and nobody reads any more what is filled next. Where the device copies asynchronously, a
thread also waits for its own copies before that barrier, but not for those of the iterations after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...tensor.ir import Block, Buffer, Const, Expr, For, If, Load, Select, Stmt, Store, sequence
from ...tensor.simplify import simplify
from ...tensor.tree import leaves
from ...tensor.visitor import loads_of, map_accesses, stores_of, substitute, substitute_stmt
from ..errors import CompileError
from .digits import SHARED
from .launches import Barrier, Commit, Landed, Phase

PIPELINE = "pipeline"
"""The note on a loop; its value: how many copies of the memory there are."""

MOST_STAGES = 8


@dataclass(frozen=True)
class Ring(Stmt):
    """``body``: phases that fill the first copies, and the loop. Barriers between its phases are there already.
    ``phases``: those of one iteration; apart from ``buffers`` they only read."""

    buffers: tuple[Buffer, ...]
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

    def placed(phase: Phase, iteration: Expr) -> Phase:
        """A phase for an iteration, on the copy that is its turn."""
        body = phase.body
        for buffer, copied in copies.items():
            body = map_accesses(body, buffer, copied, lambda indices: (loop.var % stages, *indices))
        turn = {loop.var: iteration}
        digits = tuple(replace(digit, extent=substitute(digit.extent, turn)) for digit in phase.digits)
        return replace(phase, digits=digits, body=substitute_stmt(body, turn))

    def fill(iteration: Expr) -> list[Stmt]:
        """What is done ahead for an iteration, if there is such a one."""
        inside = simplify(iteration < loop.extent)
        made: list[Stmt] = []
        for phase in phases[:first]:
            each = placed(phase, iteration)
            if inside != Const(True, "bool"):
                each = replace(each, body=If(inside, each.body))
            made.append(replace(each, ahead=asynchronous))
        return made

    # Copies that run by themselves begin before the work. What threads copy themselves waits for memory: after it.
    by_itself = asynchronous and all(_is_copy(phase.body) for phase in phases[:first])
    commit: list[Stmt] = [Commit()] if asynchronous else []
    start = [stmt for number in range(stages - 1) for stmt in (*fill(Const(number)), *commit)]
    wait: list[Stmt] = [Landed(stages - 2)] if asynchronous else []
    ahead = [*fill(loop.var + (stages - 1)), *commit]
    work: list[Stmt] = [placed(phase, loop.var) for phase in phases[first:]]
    turn = [*wait, Barrier(False), *(ahead + work if by_itself else work + ahead)]
    whole = replace(loop, body=sequence(*turn), annotations=())
    return Ring(tuple(copies.values()), tuple(phases), (*start, whole))


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
