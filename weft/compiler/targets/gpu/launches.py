"""A launch on a GPU as plain data: what every thread does, and where all threads of a group wait (`phases.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ...tensor.ir import Allocate, Block, Buffer, For, If, IntrinsicCall, Seq, Stmt, Store
from ...tensor.printer import expr_text
from ..loops.nests import REGISTER
from .digits import BLOCK_AXES, SHARED, Digit
from .shared_memory import Placed


@dataclass(frozen=True)
class Phase(Stmt):
    """``body`` once for each value of the digits of the thread's number, all at once; without digits for thread 0.
    ``lanes``: threads that do each call in it together, those of a warp; else 1. ``ahead``: what it copies is read
    after a later `Landed`, so copies may be asynchronous."""

    digits: tuple[Digit, ...]
    body: Stmt
    lanes: int = 1
    ahead: bool = False

    @property
    def threads(self) -> int:
        """Threads that have something to do."""
        return prod(digit.radix for digit in self.digits) * self.lanes


@dataclass(frozen=True)
class Barrier(Stmt):
    """All threads of a group wait here for each other. ``everywhere``: what they wrote to memory outside of the group
    is there, too, and not only what they share."""

    everywhere: bool


@dataclass(frozen=True)
class Commit(Stmt):
    """The asynchronous copies that each thread has begun since its last one are a batch, perhaps an empty one."""


@dataclass(frozen=True)
class Landed(Stmt):
    """Each thread waits until all its batches but the last ``left`` are there. Others see that after a barrier."""

    left: int


@dataclass(frozen=True)
class Grid:
    """One launch. ``groups``: how many along x, y and z; ``blocks``: digits of a group's number for each of these axes;
    ``threads``: of a group. ``params``: numbers of the function's parameters that it uses; ``workspace``: buffers in
    memory that lives for all launches of the function, and where they start (bytes). ``shared`` and ``registers``:
    buffers of a group, and of each thread; ``places``: bytes where those of the group begin."""

    groups: tuple[int, int, int]
    blocks: tuple[tuple[Digit, ...], tuple[Digit, ...], tuple[Digit, ...]]
    threads: int
    params: tuple[int, ...]
    workspace: tuple[tuple[Buffer, int], ...]
    shared: tuple[Buffer, ...]
    registers: tuple[Buffer, ...]
    places: tuple[int, ...]
    body: Stmt

    @property
    def shared_bytes(self) -> int:
        """Of a group's memory."""
        return max((Placed(*each).end for each in zip(self.shared, self.places, strict=True)), default=0)


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
            what = "threads" if stmt.lanes == 1 else "warps"
            what += " ahead" if stmt.ahead else ""
            yield f"{indent}{what} {names}:" if digits else f"{indent}thread 0:"
            yield from _lines(body, depth + 1)
        case Barrier(everywhere):
            yield f"{indent}barrier{' everywhere' if everywhere else ''}"
        case Commit():
            yield f"{indent}commit"
        case Landed(left):
            yield f"{indent}landed but {left}"
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
