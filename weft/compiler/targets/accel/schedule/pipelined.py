"""Software pipelining: iterations of nested loops overlap in the stream, so that no engine waits for the stage before.

In program order the stages of one iteration follow one another, and each waits for the results of the one before. Loops
that carry the note ``PIPELINE`` are walked with a skew instead: a stage that is ``late`` by d iterations stands in the
stream beside the earlier stages of the iteration d after its own. A chain's array then multiplies for one part of the
picture while the vector engine narrows another. Buffers inside of the loops live from the first to the last stage that
uses them, so several iterations have theirs at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ....tensor.ir import Allocate, Expr, For, IntrinsicCall, Seq, Stmt, Var
from ....tensor.schedule import Schedule
from ....tensor.visitor import free_vars, statements
from ...errors import CompileError

PIPELINE = "pipeline"
"""The note on each loop whose iterations overlap. Its text, on the outermost, says which stages are late and by how
many iterations of the innermost: ``"depthwise=1 project=2"``."""

Index = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A statement inside of the loops that holds none of them. ``depth``: how many of them are around it. ``behind``:
    it stands behind the next loop, not before it. ``late``: iterations of the innermost."""

    stmt: Stmt
    depth: int
    behind: bool
    late: int
    outer: tuple[tuple[Var, Expr], ...]
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True)
class Nest:
    """Pipelined loops, outermost first, and what stands in them; buffers with the number of loops around them."""

    loops: tuple[For, ...]
    stages: tuple[Stage, ...]
    buffers: Mapping[str, tuple[Allocate, int]]


@dataclass(frozen=True)
class Turn:
    """One stage of one iteration, at its place in the stream. ``first``: buffers whose life begins with it; ``last``:
    those, by name and index of their loops, whose life ends."""

    stage: Stage
    index: Index
    number: int  # of the iteration
    first: tuple[tuple[Allocate, Index], ...]
    last: tuple[tuple[str, Index], ...]


def pipeline(schedule: Schedule, loops: Sequence[Var], late: Mapping[str, int]) -> None:
    """Let the iterations of ``loops``, outermost first, overlap; ``late``: by stage, where it is not 0."""
    text = " ".join(f"{stage}={count}" for stage, count in late.items() if count)
    for place, loop in enumerate(loops):
        schedule.annotate(loop, PIPELINE, text if place == 0 else "")


def is_pipelined(loop: For) -> bool:
    return any(key == PIPELINE for key, _ in loop.annotations)


def find_nest(loop: For, outer: Sequence[tuple[Var, Expr]]) -> Nest:
    """The loops that are pipelined together with ``loop``, the outermost. CompileError names what cannot be."""
    late = _late(loop)
    loops: list[For] = []
    stages: list[Stage] = []
    buffers: dict[str, tuple[Allocate, int]] = {}

    def flatten(stmt: Stmt, depth: int, around: tuple[tuple[Var, Expr], ...]) -> None:
        match stmt:
            case For() if is_pipelined(stmt):
                if depth < len(loops):
                    raise CompileError(f"loop {stmt.var.name!r} is pipelined, but so is one beside it",
                                       hint="pipeline nested loops")  # fmt: skip
                if free_vars(stmt.extent) & {each.var for each in loops}:
                    raise CompileError(f"loop {stmt.var.name!r} does not always run equally often, so it cannot be "
                                       "pipelined", hint="split so that whole tiles remain")  # fmt: skip
                loops.append(stmt)
                flatten(stmt.body, depth + 1, (*around, (stmt.var, stmt.extent)))
            case Allocate(buffer=buffer, body=body):
                buffers[buffer.name] = (stmt, depth)
                flatten(body, depth, around)
            case Seq(body):
                for child in body:
                    flatten(child, depth, around)
            case _:
                stages.append(_stage(stmt, depth, len(loops) > depth, late, around))

    flatten(loop, 0, tuple(outer))
    known = {call.block for stage in stages for call in _calls(stage.stmt)}
    unknown = sorted(set(late) - known)
    if unknown:
        raise CompileError(f"stage {unknown[0]!r} is to be late, but is not in the pipelined loops",
                           at=f"loop {loop.var.name!r}", hint=f"in them are {', '.join(sorted(known))}")  # fmt: skip
    return Nest(tuple(loops), tuple(stages), buffers)


def turns(nest: Nest, extents: Sequence[int]) -> Iterator[Turn]:
    """All stages of all iterations in the order of the stream. CompileError names the buffer whose accesses would be
    interchanged."""
    order = list(_order(nest, extents))
    lives = _Lives(nest)
    for place, (number, index, stage_number) in enumerate(order):
        lives.use(place, number, index, stage_number)
    first, last = lives.ends()
    for place, (number, index, stage_number) in enumerate(order):
        yield Turn(nest.stages[stage_number], index, number, tuple(first.get(place, ())), tuple(last.get(place, ())))


def _order(nest: Nest, extents: Sequence[int]) -> Iterator[tuple[int, Index, int]]:
    """(iteration, its index, stage) in the order of the stream."""
    iterations = list(product(*(range(extent) for extent in extents)))
    by_delay = sorted(range(len(nest.stages)), key=lambda number: (nest.stages[number].late, number))
    for step in range(len(iterations) + max(stage.late for stage in nest.stages)):
        for stage_number in by_delay:
            stage = nest.stages[stage_number]
            number = step - stage.late
            if not 0 <= number < len(iterations):
                continue
            index = iterations[number]
            edges = zip(index[stage.depth :], extents[stage.depth :], strict=True)
            if all(value == (extent - 1 if stage.behind else 0) for value, extent in edges):
                yield number, index, stage_number


@dataclass
class _Lives:
    """The first and the last use of each buffer of each iteration, and a check that no order of accesses changes."""

    nest: Nest
    _uses: dict[tuple[str, Index], tuple[int, int]] = field(default_factory=dict)
    _latest: dict[tuple[str, Index], tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)

    def use(self, place: int, number: int, index: Index, stage_number: int) -> None:
        """A stage runs at ``place`` of the stream that would run (``number``, ``stage_number``)-th without overlap."""
        stage = self.nest.stages[stage_number]
        now, never = (number, stage_number), (-1, -1)
        for name in stage.reads | stage.writes:
            depth = self.nest.buffers[name][1] if name in self.nest.buffers else 0
            key = (name, index[:depth])
            used, written = self._latest.get(key, (never, never))
            writes = name in stage.writes
            if (used if writes else written) > now:
                raise CompileError(
                    f"stages that use {name!r} would change places",
                    hint="a stage may not be later than those that read its result, nor than one that writes over it",
                )
            self._latest[key] = max(used, now), max(written, now) if writes else written
            self._uses[key] = self._uses.get(key, (place, place))[0], place

    def ends(self) -> tuple[dict[int, list[tuple[Allocate, Index]]], dict[int, list[tuple[str, Index]]]]:
        """By place of the stream: buffers that are used there first, and last."""
        first: dict[int, list[tuple[Allocate, Index]]] = {}
        last: dict[int, list[tuple[str, Index]]] = {}
        for (name, index), (begin, end) in self._uses.items():
            if name in self.nest.buffers:
                first.setdefault(begin, []).append((self.nest.buffers[name][0], index))
                last.setdefault(end, []).append((name, index))
        return first, last


def _stage(stmt: Stmt, depth: int, behind: bool, late: Mapping[str, int], outer: tuple[tuple[Var, Expr], ...]) -> Stage:
    inside = _calls(stmt)
    delays = {late.get(call.block, 0) for call in inside}
    if len(delays) > 1:
        raise CompileError(
            f"stages {', '.join(repr(call.block) for call in inside)} share loops, but are not equally late"
        )
    reads: set[str] = set()
    writes: set[str] = set()
    for call in inside:
        for region, declared in zip(call.operands, call.intrinsic.operands, strict=True):
            (reads if declared.mode == "in" else writes).add(region.buffer.name)
    return Stage(stmt, depth, behind, max(delays, default=0), outer, frozenset(reads), frozenset(writes))


def _calls(stmt: Stmt) -> list[IntrinsicCall]:
    return [node for node in statements(stmt) if isinstance(node, IntrinsicCall)]


def _late(loop: For) -> dict[str, int]:
    text = str(dict(loop.annotations)[PIPELINE])
    late: dict[str, int] = {}
    for item in text.split():
        stage, equals, count = item.partition("=")
        if not equals or not count.isdecimal():
            raise CompileError(f"{item!r} does not say how late a stage is", at=f"loop {loop.var.name!r}",
                               hint="write it as in 'depthwise=1 project=2'")  # fmt: skip
        late[stage] = int(count)
    return late
