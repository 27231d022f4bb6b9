"""A scheduled function as launches on a GPU: what every thread does, and where all threads of a group wait.

A function of the loop IR has a sequential meaning, and keeps it here: loops bound to ``block.x``, ``block.y`` or
``block.z`` are digits of a group's number, loops bound to ``thread`` are digits of a thread's number in its group. Each
statement at the top is a `Grid`, a launch of its own: all threads finish it before the next begins.

Inside of the block loops stand, in any loops, nests of ``thread`` loops: each is a `Phase`, which all threads of a
group do at once. What stands outside of such nests, thread 0 does. Where one phase reads or writes memory that another
one wrote or read, all threads wait for each other in between (`Barrier`). A buffer around phases is in scope
``shared``, one for each group, or in scope ``register``: then it is split, and each thread holds the elements that it
alone uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...tensor.evaluate import ITEM_BYTES
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
    Var,
    sequence,
)
from ...tensor.printer import expr_text
from ...tensor.simplify import constant_range, linear_form
from ...tensor.tree import leaves, loops_of, ranges_of
from ...tensor.visitor import free_vars, loads_of, map_accesses, statements, stores_of, substitute
from ..errors import CompileError
from ..loops.nests import REGISTER
from ..loops.workspace import parts_of, plan_workspace
from .devices import GpuDescription

SHARED = "shared"
"""Scope of a buffer that the threads of a group have together."""

THREAD = "thread"
BLOCK_AXES = ("block.x", "block.y", "block.z")
"""Names for `Schedule.bind`."""

_GLOBAL = "*"  # all parameters and workspace: two of them may be one memory
_Loops = tuple[tuple[Var, Expr], ...]


@dataclass(frozen=True)
class Digit:
    """A loop whose variable is a digit of a number: ``number // weight % radix``. ``extent``: what the digit must be
    below; it may depend on digits and loops around, and is never more than ``radix``."""

    var: Var
    radix: int
    weight: int
    extent: Expr

    @property
    def is_guarded(self) -> bool:
        """Whether some numbers have a digit for which nothing is done."""
        return self.extent != Const(self.radix)


@dataclass(frozen=True)
class Phase(Stmt):
    """``body`` once for each value of the digits of the thread's number, all at once; without digits for thread 0."""

    digits: tuple[Digit, ...]
    body: Stmt

    @property
    def threads(self) -> int:
        """Threads that have something to do."""
        return prod(digit.radix for digit in self.digits)


@dataclass(frozen=True)
class Barrier(Stmt):
    """All threads of a group wait here for each other. ``everywhere``: what they wrote to memory outside of the group
    is there, too, and not only what they share."""

    everywhere: bool


@dataclass(frozen=True)
class Grid:
    """One launch. ``groups``: how many along x, y and z; ``blocks``: digits of a group's number for each of these axes;
    ``threads``: of a group. ``params``: numbers of the function's parameters that it uses; ``workspace``: buffers in
    memory that lives for all launches of the function, and where they start (bytes). ``shared`` and ``registers``:
    buffers of a group, and of each thread."""

    groups: tuple[int, int, int]
    blocks: tuple[tuple[Digit, ...], tuple[Digit, ...], tuple[Digit, ...]]
    threads: int
    params: tuple[int, ...]
    workspace: tuple[tuple[Buffer, int], ...]
    shared: tuple[Buffer, ...]
    registers: tuple[Buffer, ...]
    body: Stmt


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
    blocks = [_digits([loop for loop in loops if loop.kind == f"bind:{axis}"], ()) for axis in BLOCK_AXES]
    for digit in (each for axis in blocks for each in axis):
        if digit.is_guarded:
            raise CompileError(f"its extent {expr_text(digit.extent)} is not constant", at=f"loop {digit.var.name!r}",
                               hint="bind a loop with a constant extent to blocks")  # fmt: skip
    builder = _Builder(device)
    inner = builder.statement(body, tuple((loop.var, loop.extent) for loop in loops))
    inner = _with_barriers(inner, _Pending())
    x, y, z = (prod(digit.radix for digit in axis) for axis in blocks)
    used = {buffer.name for buffer, _ in (*stores_of(part), *loads_of(part))}
    grid = Grid(
        (x, y, z), (blocks[0], blocks[1], blocks[2]), max(1, *(phase.threads for phase in _phases(inner))),
        tuple(number for number, param in enumerate(func.params) if param.name in used),
        tuple(each for name, each in workspace.items() if name in used),
        tuple(builder.shared), tuple(builder.registers), inner,
    )  # fmt: skip
    _check_limits(grid, device)
    return grid


def _check_limits(grid: Grid, device: GpuDescription) -> None:
    if grid.threads > device.group_threads:
        raise CompileError(f"a group has {grid.threads} threads, but {device.name!r} takes {device.group_threads}",
                           at="thread loops", hint="split the loops that are bound to threads")  # fmt: skip
    nbytes = sum(buffer.size * ITEM_BYTES[buffer.dtype] for buffer in grid.shared)
    if nbytes > device.shared_bytes:
        raise CompileError(f"a group shares {nbytes:,} bytes, but {device.name!r} has {device.shared_bytes:,}",
                           at=f"buffer {grid.shared[0].name!r}", hint="choose a smaller tile")  # fmt: skip
    for axis, count, most in zip(BLOCK_AXES, grid.groups, device.groups, strict=True):
        if count > most:
            raise CompileError(f"{count:,} groups along {axis}, but {device.name!r} has {most:,} at most",
                               at=f"{axis} loops")  # fmt: skip


def _digits(nest: Sequence[For], around: _Loops) -> tuple[Digit, ...]:
    """The loops of a nest as digits, the innermost of which changes fastest."""
    radices: list[int] = []
    for loop in nest:
        radices.append(max(1, constant_range(loop.extent, around)[1]))
        around = (*around, (loop.var, loop.extent))
    return tuple(
        Digit(loop.var, radix, prod(radices[place + 1 :]), loop.extent)
        for place, (loop, radix) in enumerate(zip(nest, radices, strict=True))
    )


def _is_thread(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == f"bind:{THREAD}"


def _has_phases(stmt: Stmt) -> bool:
    return any(_is_thread(node) for node in statements(stmt))


@dataclass
class _Builder:
    """Turns what is inside of the block loops into phases, and collects the buffers of the group and of its threads."""

    device: GpuDescription

    def __post_init__(self) -> None:
        self.shared: list[Buffer] = []
        self.registers: list[Buffer] = []

    def statement(self, stmt: Stmt, around: _Loops) -> Stmt:
        match stmt:
            case For() if _is_thread(stmt):
                return self.phase(stmt, around)
            case Seq(body=items):
                return sequence(*(self.statement(item, around) for item in items))
            case Allocate(buffer, body) if _has_phases(body):
                return self.statement(self.placed(buffer, body, around), around)
            case For(var=var, extent=extent, body=body, kind=kind) if _has_phases(body):
                if kind.startswith("bind:"):
                    raise CompileError(f"it is bound to {kind.removeprefix('bind:')!r} inside of a group",
                                       at=f"loop {var.name!r}",
                                       hint="bind the outermost loops to blocks, in one nest")  # fmt: skip
                return replace(stmt, body=self.statement(body, (*around, (var, extent))))
            case If() if _has_phases(stmt):
                raise CompileError("a condition around loops that are bound to threads", at="if")
        return self.alone(stmt)

    def phase(self, stmt: Stmt, around: _Loops) -> Phase:
        nest: list[For] = []
        while isinstance(stmt, For) and _is_thread(stmt):
            nest.append(stmt)
            stmt = stmt.body
        self.check_inside(stmt)
        return Phase(_digits(nest, around), stmt)

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

    def placed(self, buffer: Buffer, body: Stmt, around: _Loops) -> Stmt:
        """``body`` after its buffer, which is around phases, was given to the group or split among its threads."""
        if buffer.scope == SHARED:
            self.shared.append(buffer)
            return body
        if buffer.scope == REGISTER:
            part, body = _split(buffer, body, around)
            self.registers.append(part)
            return body
        raise CompileError(f"it is in scope {buffer.scope!r}, but around loops over threads",
                           at=f"buffer {buffer.name!r}", hint=f"set_scope to {SHARED!r} or {REGISTER!r}")  # fmt: skip


def _split(buffer: Buffer, body: Stmt, around: _Loops) -> tuple[Buffer, Stmt]:
    """The part of a buffer that one thread holds, and the statement on that.

    In each access, the digits of the thread must decide whose element it is, the same way everywhere: along an axis, a
    digit counts steps that are longer than all that is below it together, and all that is above goes by whole turns of
    it. Then the element's owner follows from its index, and what is left of the index finds it among the owner's.
    """
    owners: set[tuple[tuple[int, int, int, int], ...]] = set()
    shape = [1] * buffer.ndim
    threads: set[Var] = set()
    for path in leaves(body):
        digits = {digit.var: digit for digit in _digits([loop for loop in loops_of(path) if _is_thread(loop)], around)}
        threads.update(digits)
        loops = (*around, *ranges_of(path))
        for accessed, indices in (*stores_of(path[-1]), *loads_of(path[-1])):
            if accessed != buffer:
                continue
            owner: list[tuple[int, int, int, int]] = []
            for axis, index in enumerate(indices):
                last, mine = _taken_apart(buffer, index, digits, loops)
                shape[axis] = max(shape[axis], last + 1)
                owner += [(digit.weight, digit.radix, axis, step) for digit, step in mine if digit.radix > 1]
            if sorted(weight for weight, *_ in owner) != sorted(
                digit.weight for digit in digits.values() if digit.radix > 1
            ):
                raise _unsplit(buffer, "not every loop over threads finds elements of its own")
            owners.add(tuple(sorted(owner)))
    if len(owners) > 1:
        raise _unsplit(buffer, "two phases give its elements to threads in different ways")
    part = Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope)
    zero = {var: Const(0) for var in threads}
    return part, map_accesses(body, buffer, part, lambda indices: tuple(substitute(each, zero) for each in indices))


def _taken_apart(
    buffer: Buffer, index: Expr, digits: dict[Var, Digit], loops: _Loops
) -> tuple[int, list[tuple[Digit, int]]]:
    """The largest that an index is without the digits of the thread, and these digits with their steps."""
    form = linear_form(index)
    mine = [(digits[atom], step) for atom, step in form.terms.items() if isinstance(atom, Var) and atom in digits]
    rest: list[tuple[int, int]] = []  # step, and the largest multiple of it
    most = form.constant
    for atom, step in form.terms.items():
        if isinstance(atom, Var) and atom in digits:
            continue
        low, high = constant_range(atom, loops)
        if free_vars(atom) & digits.keys() or low != 0 or step < 0:
            raise _unsplit(buffer, f"the index {expr_text(index)} is no sum of digits")
        rest.append((step, high))
        most += step * high
    if form.constant < 0:
        raise _unsplit(buffer, f"the index {expr_text(index)} may be negative")
    for digit, step in mine:
        others = [(other, each.radix - 1) for each, other in mine if each != digit] + rest
        below = form.constant + sum(other * last for other, last in others if other < step)
        turns = [other for other, last in others if other >= step and last > 0]
        if step <= 0 or below >= step or any(other % (step * digit.radix) for other in turns):
            raise _unsplit(buffer, f"in the index {expr_text(index)} loop {digit.var.name!r} does not tell the owner")
    return most, mine


def _unsplit(buffer: Buffer, why: str) -> CompileError:
    return CompileError(f"it cannot be split among threads: {why}", at=f"buffer {buffer.name!r}",
                        hint=f"set_scope to {SHARED!r}, or bind the same tiles everywhere")  # fmt: skip


# Where threads wait


@dataclass(frozen=True)
class _Pending:
    """Memory that phases have written and read since the last barrier."""

    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()

    def union(self, other: _Pending) -> _Pending:
        return _Pending(self.written | other.written, self.read | other.read)

    def conflicts(self, later: _Pending) -> frozenset[str]:
        """Memory that may not be touched before all threads are done."""
        return (later.read & self.written) | (later.written & (self.written | self.read))


def _memory(buffer: Buffer) -> str:
    """What stands for a buffer's memory; nothing where each thread has its own."""
    return {SHARED: buffer.name, REGISTER: ""}.get(buffer.scope, _GLOBAL)


def _with_barriers(stmt: Stmt, pending: _Pending) -> Stmt:
    return _after(stmt, pending)[0]


def _after(stmt: Stmt, pending: _Pending) -> tuple[Stmt, _Pending]:
    """The statement with its barriers, given what came before; and what is pending behind it."""
    match stmt:
        case Phase(body=body):
            own = _accesses(body)
            conflicts = pending.conflicts(own)
            if not conflicts:
                return stmt, pending.union(own)
            return sequence(Barrier(_GLOBAL in conflicts), stmt), own
        case Seq(body=items):
            done: list[Stmt] = []
            for item in items:
                item, pending = _after(item, pending)
                done.append(item)
            return sequence(*done), pending
        case For(extent=extent, body=body):
            around = pending
            for phase in _phases(body) if extent != Const(1) else ():  # what the iteration before left behind
                around = around.union(_accesses(phase.body))
            inner, after = _after(body, around)
            return replace(stmt, body=inner), pending.union(after)
    raise CompileError(f"{type(stmt).__name__} is not expected around phases")


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
        case For(body=body):
            yield from _phases(body)
        case Seq(body=items):
            for item in items:
                yield from _phases(item)


# Text


def grid_text(grid: Grid) -> str:
    """A launch in words, for people and tests."""
    lines = [f"grid {' x '.join(map(str, grid.groups))}, {grid.threads} threads"]
    for axis, digits in zip(BLOCK_AXES, grid.blocks, strict=True):
        lines += [f"  {digit.var.name} = {axis} // {digit.weight} % {digit.radix}" for digit in digits]
    for what, buffers in ((SHARED, grid.shared), (REGISTER, grid.registers)):
        lines += [f"  {what} {buffer.name}: {buffer.dtype}{list(buffer.shape)}" for buffer in buffers]
    lines += _lines(grid.body, 1)
    return "\n".join(lines) + "\n"


def _lines(stmt: Stmt, depth: int) -> Iterator[str]:
    indent = "  " * depth
    match stmt:
        case Phase(digits=digits, body=body):
            names = ", ".join(
                f"{each.var.name} < {expr_text(each.extent)} by {each.weight}" for each in digits
            )  # fmt: skip
            yield f"{indent}threads {names}:" if digits else f"{indent}thread 0:"
            yield from _lines(body, depth + 1)
        case Barrier(everywhere):
            yield f"{indent}barrier{' everywhere' if everywhere else ''}"
        case Seq(body=items):
            for item in items:
                yield from _lines(item, depth)
        case For(var=var, extent=extent, body=body):
            yield f"{indent}for {var.name} in {expr_text(extent)}:"
            yield from _lines(body, depth + 1)
        case Allocate(buffer, body):
            yield f"{indent}own {buffer.name}: {buffer.dtype}{list(buffer.shape)}"
            yield from _lines(body, depth)
        case If(cond, then):
            yield f"{indent}if {expr_text(cond)}:"
            yield from _lines(then, depth + 1)
        case Block(name=name, body=Store(buffer, indices)):
            yield f"{indent}{name}: {buffer.name}[{', '.join(map(expr_text, indices))}]"
        case IntrinsicCall(block=name):
            yield f"{indent}{name}"
        case Store(buffer, indices):
            yield f"{indent}{buffer.name}[{', '.join(map(expr_text, indices))}]"
