"""The memory that a kernel needs besides its parameters, and the parts that its work falls into.

Each statement at the top of a kernel is one part: all threads do it together, and none begins the next before it is
done. A buffer at the top is in memory that all threads share. A buffer inside of a loop belongs to one thread: a large
one lies in that thread's part of the workspace, any other on its stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ...tensor.evaluate import ITEM_BYTES
from ...tensor.ir import Allocate, Buffer, PrimFunc, Seq, Stmt
from ...tensor.visitor import statements
from ..memory_plan import aligned

STACK_BYTES = 1 << 15
"""Largest buffer inside a loop that lives on the stack (or, if all its indices are constant, in registers)."""


@dataclass(frozen=True)
class BufferPlace:
    """Where an allocated buffer is: ``offset`` bytes into the memory of all threads, or of one (0 on the stack)."""

    memory: Literal["shared", "private", "stack"]
    offset: int


@dataclass(frozen=True)
class Workspace:
    """``shared``: bytes for all threads together; ``private``: bytes for each. ``parts``: of the work. ``places``: of
    all allocated buffers, in the order of their statements. ``stack``: bytes on each thread's stack."""

    shared: int
    private: int
    parts: int
    places: tuple[BufferPlace, ...]
    stack: int

    def total(self, threads: int) -> int:
        """Bytes for a team of this size."""
        return self.shared + threads * self.private


def plan_workspace(func: PrimFunc) -> Workspace:
    """The workspace of a scheduled function."""
    top = {id(node) for node in _top_allocations(func.body)}
    places: list[BufferPlace] = []
    used = {"shared": 0, "private": 0, "stack": 0}
    for node in statements(func.body):
        if isinstance(node, Allocate):
            nbytes = buffer_bytes(node.buffer)
            memory: Literal["shared", "private", "stack"]
            memory = "shared" if id(node) in top else "private" if nbytes > STACK_BYTES else "stack"
            places.append(BufferPlace(memory, 0 if memory == "stack" else used[memory]))
            used[memory] += nbytes
    return Workspace(used["shared"], used["private"], len(list(parts_of(func.body))), tuple(places), used["stack"])


def buffer_bytes(buffer: Buffer) -> int:
    """Bytes of memory that a buffer takes, in whole alignment units."""
    return aligned(buffer.size * ITEM_BYTES[buffer.dtype])


def parts_of(body: Stmt) -> Iterator[Stmt]:
    """The statements at the top."""
    match body:
        case Allocate(body=inner):
            yield from parts_of(inner)
        case Seq(body=items):
            for item in items:
                yield from parts_of(item)
        case _:
            yield body


def _top_allocations(stmt: Stmt) -> Iterator[Allocate]:
    match stmt:
        case Allocate(body=body):
            yield stmt
            yield from _top_allocations(body)
        case Seq(body=items):
            for item in items:
                yield from _top_allocations(item)
