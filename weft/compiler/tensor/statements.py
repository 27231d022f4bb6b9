"""Statements of the loop IR: buffers with the loads and stores on them, loops, blocks, functions.

Loops start at 0 and step by 1; their variables are ``int64`` and unique by name inside a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from ...records import quick_init
from ...whole import whole_tuple
from .errors import IRError
from .expressions import DTYPES, DType, Expr, Number, Var, as_expr


@quick_init
@dataclass(frozen=True)
class Load(Expr):
    """Element of ``buffer`` at ``indices``, one index per dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    __hash__ = Expr.remembered_hash

    def __post_init__(self) -> None:
        check_indices("load from", self.buffer, self.indices)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True)
class Alignment:
    """The distance between neighbours along ``axis`` is ``offset`` modulo ``factor``, in elements."""

    axis: int
    factor: int
    offset: int = 0


@quick_init
@dataclass(frozen=True)
class Buffer:
    """A row-major array, dense but for ``alignments``. ``scope`` is a free word which the target defines ("global",
    "inp", "acc", ...). The gaps that an alignment leaves are never read or written."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: str = "global"
    alignments: tuple[Alignment, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise IRError(f"unknown type {self.dtype!r} of buffer {self.name!r}", hint=f"one of {', '.join(DTYPES)}")
        shape = whole_tuple(self.shape)
        if shape is None:
            raise IRError(
                f"buffer {self.name!r} has the shape {self.shape!r:.80}, but must have a tuple of whole numbers"
            )
        if shape is not self.shape:
            object.__setattr__(self, "shape", shape)
        if any(extent < 1 for extent in self.shape):
            raise IRError(f"buffer {self.name!r} has shape {self.shape}: every extent must be at least 1")
        for alignment in self.alignments:
            if not (0 <= alignment.axis < self.ndim - 1 and 0 <= alignment.offset < alignment.factor):
                raise IRError(f"buffer {self.name!r} of {self.ndim} dimensions cannot have {alignment}")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of memory that the buffer takes, gaps included."""
        return self.shape[0] * self.strides[0] if self.shape else 1

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each dimension."""
        if not self.alignments:
            return row_major_strides(self.shape)
        strides = [1] * self.ndim
        for axis in reversed(range(self.ndim - 1)):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
            for alignment in self.alignments:
                if alignment.axis == axis:
                    strides[axis] += (alignment.offset - strides[axis]) % alignment.factor
        return tuple(strides)

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Expr:
        return Load(self, _index_tuple(indices))

    def store(self, indices: Expr | int | tuple[Expr | int, ...], value: Expr | Number) -> Store:
        """The statement ``self[indices] = value``."""
        return Store(self, _index_tuple(indices), as_expr(value, self.dtype))


REMEMBERED = ("_simple_under", "_marks")
"""What a statement was found to be, which is no part of it: numbers of a process, and what is worked out again."""


class Stmt:
    """A statement."""

    __slots__ = ()

    @property
    def simple_under(self) -> int:
        """The number of the simplifier that last left the statement as it is; -1 if none is known."""
        number: int = self.__dict__.get("_simple_under", -1)
        return number

    def note_simple(self, number: int) -> None:
        """Remember such a simplifier. It is no part of what the statement is."""
        self.__dict__["_simple_under"] = number

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in REMEMBERED}


ForKind: TypeAlias = str
"""``serial``, ``unroll``, ``vthread``, ``parallel``, ``vectorize`` or ``bind:<axis>``."""

SIMPLE_KINDS = ("serial", "unroll", "vthread", "parallel", "vectorize")


@quick_init
@dataclass(frozen=True)
class For(Stmt):
    """``for var in 0 .. extent-1: body``. ``extent`` may depend on outer loop variables; at most 0: no iteration."""

    var: Var
    extent: Expr
    kind: ForKind
    body: Stmt
    annotations: tuple[tuple[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in SIMPLE_KINDS and not self.kind.startswith("bind:"):
            raise IRError(f"unknown loop kind {self.kind!r}", at=f"loop {self.var.name!r}")
        if self.extent.dtype != "int64":
            raise IRError(f"the extent is {self.extent.dtype}, but must be int64", at=f"loop {self.var.name!r}")


@quick_init
@dataclass(frozen=True)
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        check_indices("store to", self.buffer, self.indices)
        if self.value.dtype != self.buffer.dtype:
            raise IRError(
                f"store of {self.value.dtype} to {self.buffer.name!r}, which holds {self.buffer.dtype}",
                hint=f"convert the value with .astype({self.buffer.dtype!r})",
            )


@quick_init
@dataclass(frozen=True)
class Seq(Stmt):
    """Statements one after another (never a Seq inside a Seq, at least two)."""

    body: tuple[Stmt, ...]


@quick_init
@dataclass(frozen=True)
class If(Stmt):
    """``then`` where ``cond`` holds."""

    cond: Expr
    then: Stmt


@quick_init
@dataclass(frozen=True)
class Allocate(Stmt):
    """``buffer`` lives while ``body`` runs; its contents are undefined before the first store."""

    buffer: Buffer
    body: Stmt


BlockKind: TypeAlias = Literal["spatial", "copy", "reduce", "reduce-init", "reduce-update"]
BLOCK_KINDS: tuple[BlockKind, ...] = ("spatial", "copy", "reduce", "reduce-init", "reduce-update")


@quick_init
@dataclass(frozen=True)
class Block(Stmt):
    """The store of one stage, inside the loops that drive it.

    ``reduce_vars`` are the enclosing loop variables that are reductions. Kind ``reduce`` has an ``init``: it is stored
    first, in the iteration in which all ``reduce_vars`` are 0. ``reduce-update`` is a reduction whose init is a block
    of its own (kind ``reduce-init``). ``copy`` is a ``spatial`` stage put in by cache_read or cache_write.
    ``source``: where in the user's program the stage is written, for messages; no part of the text form.
    """

    name: str
    kind: BlockKind
    body: Store
    reduce_vars: tuple[Var, ...] = ()
    init: Expr | None = None
    source: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.kind == "reduce") != (self.init is not None):
            raise IRError(f"block {self.name!r}: exactly the blocks of kind 'reduce' have an init")
        if self.reduce_vars and not self.kind.startswith("reduce"):
            raise IRError(f"block {self.name!r} of kind {self.kind!r} has reduction variables")


@dataclass(frozen=True)
class PrimFunc:
    """A function on buffers: ``params`` are given by the caller (inputs first, then outputs).

    ``origin``: what the function was before it was scheduled, where that is known. It computes the same, and is easier
    to prove things of.
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    origin: PrimFunc | None = field(default=None, init=False, compare=False, repr=False)

    def with_origin(self, origin: PrimFunc) -> PrimFunc:
        """The function, known to compute the same as ``origin``. Another body does not inherit that."""
        func = PrimFunc(self.name, self.params, self.body)
        object.__setattr__(func, "origin", origin.origin or origin)
        return func


def sequence(*statements: Stmt) -> Stmt:
    """The statements one after another, nested Seqs flattened; at least one."""
    flat: list[Stmt] = []
    for statement in statements:
        flat.extend(statement.body if isinstance(statement, Seq) else (statement,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def loop_nest(loops: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """Serial loops around ``body``, the first outermost."""
    for var, extent in reversed(loops):
        body = For(var, extent, "serial", body)
    return body


@lru_cache(maxsize=4096)
def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major array."""
    return tuple(_product(shape[axis + 1 :]) for axis in range(len(shape)))


def _product(extents: tuple[int, ...]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _index_tuple(indices: Expr | int | tuple[Expr | int, ...]) -> tuple[Expr, ...]:
    return tuple(as_expr(index) for index in (indices if isinstance(indices, tuple) else (indices,)))


def check_indices(what: str, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """IRError unless there is one ``int64`` index per dimension; ``what`` begins the message."""
    if len(indices) != buffer.ndim:
        raise IRError(f"{what} {buffer.name!r}: {buffer.ndim} dimensions, but {len(indices)} indices")
    for position, index in enumerate(indices):
        if index.dtype != "int64":
            raise IRError(f"{what} {buffer.name!r}: index {position} is {index.dtype}, but must be int64")
