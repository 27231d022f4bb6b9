"""A scheduled function as launches on a GPU: what every thread does, and where all threads of a group wait.

A function of the loop IR has a sequential meaning, and keeps it here: loops bound to ``block.x``, ``block.y`` or
``block.z`` are digits of a group's number, loops bound to ``thread`` are digits of a thread's number in its group. Each
statement at the top is a `Grid`, a launch of its own: all threads finish it before the next begins.

Inside of the block loops stand, in any loops, nests of ``thread`` loops: each is a `Phase`, which all threads of a
group do at once. What stands outside of such nests, thread 0 does. Loops bound to ``warp`` are digits of a warp's
number: inside of them all lanes of a warp do each call of an intrinsic together (`intrinsics.py`). Where one phase
reads or writes memory that another one wrote or read, all threads wait for each other in between (`Barrier`). A buffer
around phases is in scope ``shared``, one for each group, or in scope ``register``: then it is split, and each thread
holds the elements that it alone uses (`split_buffers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from ...tensor.independence import are_apart
from ...tensor.ir import (
    Allocate,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    IntrinsicCall,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    sequence,
)
from ...tensor.printer import expr_text
from ...tensor.tree import leaves, loops_of, opened
from ...tensor.visitor import loads_of, map_children, statements, stores_of, substitute_stmt
from ..errors import CompileError
from ..loops.nests import REGISTER
from ..loops.workspace import parts_of, plan_workspace
from .devices import GpuDescription
from .digits import BLOCK_AXES, SHARED, THREAD, WARP, Loops, digits_of, is_thread
from .launches import Barrier, Grid, Phase
from .pipeline import Ring, pipelined
from .shared_memory import one_memory, placed
from .split_buffers import split_buffer
from .warp_parts import PIPELINE

APART = "apart"
"""The note on a loop; its value: whether its iterations touch nothing that another one writes."""

_GLOBAL = "*"  # all parameters and workspace: two of them may be one memory


def grids_of(func: PrimFunc, device: GpuDescription) -> tuple[Grid, ...]:
    """The launches of a scheduled function. CompileError names the loop or buffer that no group can have."""
    plan = plan_workspace(func)
    allocations = [node for node in statements(func.body) if isinstance(node, Allocate)]
    workspace: dict[str, tuple[Buffer, int]] = {}
    for node, place in zip(allocations, plan.places, strict=True):
        if place.memory == "shared":  # of all threads there are: it is at the top
            workspace[node.buffer.name] = node.buffer, place.offset
    return tuple(_grid(func, part, workspace, device) for part in parts_of(func.body))


def _grid(func: PrimFunc, part: Stmt, workspace: dict[str, tuple[Buffer, int]], device: GpuDescription) -> Grid:
    loops: list[For] = []
    body = part
    while isinstance(body, For) and body.kind.removeprefix("bind:") in BLOCK_AXES:
        loops.append(body)
        body = body.body
    blocks = [digits_of([loop for loop in loops if loop.kind == f"bind:{axis}"], ()) for axis in BLOCK_AXES]
    for digit in (each for axis in blocks for each in axis):
        if digit.is_guarded:
            raise CompileError(f"its extent {expr_text(digit.extent)} is not constant", at=f"loop {digit.var.name!r}",
                               hint="bind a loop with a constant extent to blocks")  # fmt: skip
    _check_calls(body, device)
    builder = _Builder(device)
    inner = builder.statement(body, tuple((loop.var, loop.extent) for loop in loops))
    items = inner.body if isinstance(inner, Seq) else (inner,)
    used = [{name for phase in _phases(item) for name in _accesses(phase.body).names} for item in items]
    places = placed(builder.shared, used, apart=not device.architecture)
    inner, _ = _after(inner, _Pending(), one_memory(places))
    x, y, z = (prod(digit.radix for digit in axis) for axis in blocks)
    touched = {buffer.name for buffer, _ in (*stores_of(part), *loads_of(part))}
    grid = Grid(
        (x, y, z), (blocks[0], blocks[1], blocks[2]), max(1, *(phase.threads for phase in _phases(inner))),
        tuple(number for number, param in enumerate(func.params) if param.name in touched),
        tuple(each for name, each in workspace.items() if name in touched),
        tuple(builder.shared), tuple(builder.registers), tuple(each.offset for each in places), inner,
    )  # fmt: skip
    _check_limits(grid, device)
    return grid


def _check_calls(body: Stmt, device: GpuDescription) -> None:
    for path in leaves(body):
        leaf = path[-1]
        if device.warp == 1 and isinstance(leaf, IntrinsicCall):
            raise CompileError(f"threads of {device.name!r} form no warps", at=f"block {leaf.block!r}")
        bound = [loop.kind for loop in loops_of(path) if is_thread(loop)]
        if isinstance(leaf, IntrinsicCall) and set(bound) != {f"bind:{WARP}"}:
            raise CompileError(f"{leaf.intrinsic.name!r} is done by a whole warp, not by a thread",
                               at=f"block {leaf.block!r}", hint=f"bind the loops around it to {WARP!r}")  # fmt: skip


def _check_limits(grid: Grid, device: GpuDescription) -> None:
    if grid.threads > device.group_threads:
        raise CompileError(f"a group has {grid.threads} threads, but {device.name!r} takes {device.group_threads}",
                           at="thread loops", hint="split the loops that are bound to threads")  # fmt: skip
    most = max(device.shared_bytes, device.shared_most)
    if grid.shared_bytes > most:
        raise CompileError(f"a group shares {grid.shared_bytes:,} bytes, but {device.name!r} has {most:,}",
                           at=f"buffer {grid.shared[0].name!r}", hint="choose a smaller tile")  # fmt: skip
    for axis, count, most in zip(BLOCK_AXES, grid.groups, device.groups, strict=True):
        if count > most:
            raise CompileError(f"{count:,} groups along {axis}, but {device.name!r} has {most:,} at most",
                               at=f"{axis} loops")  # fmt: skip


def _has_phases(stmt: Stmt) -> bool:
    return any(is_thread(node) for node in statements(stmt))


@dataclass
class _Builder:
    """Turns what is inside of the block loops into phases, and collects the buffers of the group and of its threads."""

    device: GpuDescription

    def __post_init__(self) -> None:
        self.shared: list[Buffer] = []
        self.registers: list[Buffer] = []

    def statement(self, stmt: Stmt, around: Loops) -> Stmt:
        match stmt:
            case For() if is_thread(stmt):
                return self.phase(stmt, around)
            case Seq(body=items):
                return sequence(*(self.statement(item, around) for item in items))
            case Allocate(buffer, body) if _has_phases(body):
                return self.statement(self.placed(buffer, body, around), around)
            case For(var=var, extent=Const(1), body=body, kind="serial") if _has_phases(body):
                return self.statement(substitute_stmt(body, {var: Const(0)}), around)
            case For() if PIPELINE in dict(stmt.annotations) and _has_phases(stmt.body):
                return self.ring(stmt, around)
            case For(var=var, extent=extent, body=body, kind=kind) if _has_phases(body):
                if kind.startswith("bind:"):
                    raise CompileError(f"it is bound to {kind.removeprefix('bind:')!r} inside of a group",
                                       at=f"loop {var.name!r}",
                                       hint="bind the outermost loops to blocks, in one nest")  # fmt: skip
                stays = all(_memory(buffer) != _GLOBAL for buffer, _ in stores_of(body))
                apart = stays and are_apart(stmt, list(around), SHARED)
                inner = self.statement(body, (*around, (var, extent)))
                return replace(stmt, body=inner, annotations=(*stmt.annotations, (APART, int(apart))))
            case If() if _has_phases(stmt):
                raise CompileError("a condition around loops that are bound to threads", at="if")
        return self.alone(stmt)

    def ring(self, loop: For, around: Loops) -> Stmt:
        """A loop of which the first phases fill shared memory for a later iteration."""
        around = (*around, (loop.var, loop.extent))
        buffers, parts = opened(loop.body, SHARED)
        items = [self.statement(part, around) for part in parts]
        made = pipelined(loop, buffers, items, asynchronous=self.device.asynchronous)
        self.shared += made.buffers
        self.registers += made.registers
        return made

    def phase(self, stmt: Stmt, around: Loops) -> Phase:
        nest, stmt = _nest(stmt)
        kinds = {loop.kind for loop in nest}
        if len(kinds) > 1:
            raise CompileError(f"some loops around it are bound to {THREAD!r}, some to {WARP!r}",
                               at=f"loop {nest[-1].var.name!r}", hint="bind directly nested loops to one")  # fmt: skip
        self.check_inside(stmt)
        if kinds == {f"bind:{WARP}"}:
            around = (*around, *((loop.var, loop.extent) for loop in nest))
            return Phase(digits_of(nest, around, self.device.warp), self.by_warps(stmt, around), self.device.warp)
        return Phase(digits_of(nest, around), stmt)

    def by_warps(self, stmt: Stmt, around: Loops) -> Stmt:
        """What a warp does, with its buffers split among its lanes."""
        for node in statements(stmt):
            if isinstance(node, If | Block | Store):
                raise CompileError("lanes of a warp do calls of intrinsics together, and nothing else",
                                   at="warp loops", hint=f"bind it to {THREAD!r}, or tensorize it")  # fmt: skip

        def placed(node: Stmt) -> Stmt | None:
            if isinstance(node, Allocate) and node.buffer.scope != REGISTER:
                raise CompileError(f"it is in scope {node.buffer.scope!r}, but of a warp",
                                   at=f"buffer {node.buffer.name!r}", hint=f"set_scope to {REGISTER!r}")  # fmt: skip
            if isinstance(node, Allocate):
                part, body = split_buffer(node.buffer, node.body, around, self.device.warp)
                node = Allocate(part, body)
            return map_children(node, placed)

        return placed(stmt) or stmt

    def alone(self, stmt: Stmt) -> Phase:
        """What thread 0 does."""
        self.check_inside(stmt)
        return Phase((), stmt)

    def check_inside(self, stmt: Stmt) -> None:
        """Inside of a phase nothing may be shared: some threads might wait where others do not come by."""
        for node in statements(stmt):
            if isinstance(node, For) and node.kind.startswith("bind:"):
                raise CompileError("it is bound inside of a loop that is bound to threads, not directly",
                                   at=f"loop {node.var.name!r}", hint="bind directly nested loops")  # fmt: skip
            if isinstance(node, Allocate) and node.buffer.scope == SHARED:
                raise CompileError("it is shared, but it is allocated for each thread",
                                   at=f"buffer {node.buffer.name!r}",
                                   hint="compute it at a loop around the loops over threads")  # fmt: skip

    def placed(self, buffer: Buffer, body: Stmt, around: Loops) -> Stmt:
        """``body`` after its buffer, which is around phases, was given to the group or split among its threads."""
        if buffer.scope == SHARED:
            self.shared.append(buffer)
            return body
        if buffer.scope == REGISTER:
            part, body = split_buffer(buffer, body, around, self.device.warp)
            self.registers.append(part)
            return body
        raise CompileError(f"it is in scope {buffer.scope!r}, but around loops over threads",
                           at=f"buffer {buffer.name!r}", hint=f"set_scope to {SHARED!r} or {REGISTER!r}")  # fmt: skip


def _nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """Directly nested loops over threads or warps, and what is inside."""
    nest: list[For] = []
    while isinstance(stmt, For) and is_thread(stmt):
        nest.append(stmt)
        stmt = stmt.body
    return nest, stmt


# Where threads wait


@dataclass(frozen=True)
class _Pending:
    """Memory that phases have written and read since the last barrier."""

    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    def union(self, other: _Pending) -> _Pending:
        return _Pending(self.written | other.written, self.read | other.read)

    def behind(self, everywhere: bool) -> _Pending:
        """What a barrier leaves: writes to memory outside of the group, of which only one everywhere takes care."""
        return _Pending() if everywhere else _Pending(self.written & {_GLOBAL})

    @property
    def names(self) -> frozenset[str]:
        return self.written | self.read

    def conflicts(self, later: _Pending, places: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Memory that may not be touched before all threads are done. ``places``: what has bytes of a name's memory."""
        written = frozenset[str]().union(*(places.get(name, {name}) for name in self.written))
        read = frozenset[str]().union(*(places.get(name, {name}) for name in self.read))
        return (later.read & written) | (later.written & (written | read))


def _memory(buffer: Buffer) -> str:
    """What stands for a buffer's memory; nothing where each thread has its own."""
    return {SHARED: buffer.name, REGISTER: ""}.get(buffer.scope, _GLOBAL)


def _after(
    stmt: Stmt, pending: _Pending, places: Mapping[str, frozenset[str]], *, repeated: bool = False
) -> tuple[Stmt, _Pending]:
    """The statement with its barriers, given what came before; and what is pending behind it. ``places``: as of
    `one_memory`. ``repeated``: whether it is in a loop, so that it came before itself."""
    match stmt:
        case Phase(body=body):
            own = _accesses(body)
            conflicts = pending.conflicts(own, places)
            if not conflicts:
                return stmt, pending.union(own)
            return sequence(Barrier(_GLOBAL in conflicts), stmt), own.union(pending.behind(_GLOBAL in conflicts))
        case Seq(body=items):
            done: list[Stmt] = []
            for item in items:
                item, pending = _after(item, pending, places, repeated=repeated)
                done.append(item)
            return sequence(*done), pending
        case For(extent=extent, body=body):
            own = _Pending()
            again = extent != Const(1) and not dict(stmt.annotations).get(APART)
            for phase in _phases(body) if again else ():  # what the iteration before left behind
                own = own.union(_accesses(phase.body))
            inner, after = _after(body, pending.union(own), places, repeated=True)
            apart, after_apart = _after(body, own, places, repeated=True)
            inside = list(_barriers(inner))
            if len(list(_barriers(apart))) < len(inside):  # one before the loop is enough
                everywhere = any(each.everywhere for each in inside)
                behind = after_apart.union(pending.behind(everywhere))
                return sequence(Barrier(everywhere), replace(stmt, body=apart)), behind
            return replace(stmt, body=inner), pending.union(after)
        case Ring():
            filled = frozenset(buffer.name for buffer in stmt.buffers)
            own = _Pending(filled, frozenset(name for phase in stmt.phases for name in _accesses(phase.body).read))
            conflicts = pending.conflicts(own, places)
            waits = (Barrier(_GLOBAL in conflicts),) if conflicts or repeated else ()
            return sequence(*waits, *stmt.body), own.union(pending.behind(_GLOBAL in conflicts) if waits else pending)
    raise CompileError(f"{type(stmt).__name__} is not expected around phases")


def _barriers(stmt: Stmt) -> Iterator[Barrier]:
    match stmt:
        case Barrier():
            yield stmt
        case For(body=body):
            yield from _barriers(body)
        case Seq(body=items):
            for item in items:
                yield from _barriers(item)


def _accesses(body: Stmt) -> _Pending:
    """What a phase reads and writes; buffers that it allocates are each thread's own."""
    private = {node.buffer.name for node in statements(body) if isinstance(node, Allocate)}

    def memories(accesses: Iterable[tuple[Buffer, tuple[Expr, ...]]]) -> frozenset[str]:
        return frozenset(_memory(buffer) for buffer, _ in accesses if buffer.name not in private) - {""}

    return _Pending(memories(stores_of(body)), memories(loads_of(body)))


def _phases(stmt: Stmt) -> Iterator[Phase]:
    match stmt:
        case Phase():
            yield stmt
        case Ring():
            yield from stmt.phases
        case For(body=body):
            yield from _phases(body)
        case Seq(body=items):
            for item in items:
                yield from _phases(item)
