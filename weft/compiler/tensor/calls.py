"""Tensor intrinsics, and the calls that tensorize puts into a function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .errors import IRError
from .expressions import Const, DType, Expr, Var, int_value
from .statements import Buffer, For, Stmt, Store, check_indices


@dataclass(frozen=True)
class Region:
    """A tile inside a buffer: element ``t`` of the tile is at flat position ``offset + sum(t[d] * strides[d])``.

    ``indices`` is the position of the tile's first element, one expression of the outer loop variables per dimension
    of the buffer. ``shape`` and ``strides`` (in elements) are the tile's.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        check_indices("region of", self.buffer, self.indices)

    @property
    def offset(self) -> Expr:
        """Flat position of the tile's first element in the buffer, in elements."""
        total: Expr = Const(0)
        for index, stride in zip(self.indices, self.buffer.strides, strict=True):
            total = total + index * stride
        return total


OperandMode: TypeAlias = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Operand:
    """A tile that an intrinsic reads or writes.

    ``strides`` (elements) are row-major unless declared; None: any that is a positive multiple of ``align``, which the
    call says. ``align`` (elements) is what the tile's flat position must be a multiple of; by default the size of the
    tile, for memories that are addressed in whole entries.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: str
    mode: OperandMode
    strides: tuple[int | None, ...]
    align: int

    @property
    def tile(self) -> Buffer:
        """The buffer that stands for the tile in the intrinsic's meaning."""
        return Buffer(self.name, self.shape, self.dtype, self.scope)


@dataclass(frozen=True)
class ScalarParam:
    """An immediate of an intrinsic; an integer constant must lie in ``low .. high`` where these are given."""

    name: str
    dtype: DType
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class TensorIntrinsic:
    """What a hardware instruction computes: ``body`` is a nest of loops with constant extents around one store.

    ``emits`` is what the target makes of it; this package hands it on unseen.
    """

    name: str
    operands: tuple[Operand, ...]
    scalars: tuple[ScalarParam, ...]
    body: Stmt
    emits: object = field(default=None, compare=False, repr=False)

    @property
    def loops(self) -> tuple[tuple[Var, int], ...]:
        """Loop variables and extents of the meaning, outermost first."""
        loops: list[tuple[Var, int]] = []
        node = self.body
        while isinstance(node, For):
            loops.append((node.var, int_value(node.extent)))
            node = node.body
        return tuple(loops)

    @property
    def store(self) -> Store:
        """The one store of the meaning."""
        node = self.body
        while isinstance(node, For):
            node = node.body
        if not isinstance(node, Store):
            raise IRError(f"the meaning of intrinsic {self.name!r} must be loops around one store")
        return node


@dataclass(frozen=True)
class IntrinsicCall(Stmt):
    """What tensorize puts in place of a loop nest: the intrinsic applied to one tile of each operand's buffer.

    ``operands`` stand in the order of ``intrinsic.operands``, ``scalars`` are expressions of the outer loop variables.
    ``init`` is None if the call only updates its output (or overwrites it). Otherwise the output tile is first filled
    with ``init_value`` in the iteration in which all variables in ``init`` (outer reduction loops) are 0: always, if
    ``init`` is empty. ``block`` is the name of the stage and ``reduce_vars`` its outer reduction loops.
    """

    intrinsic: TensorIntrinsic
    operands: tuple[Region, ...]
    scalars: tuple[tuple[str, Expr], ...]
    block: str
    reduce_vars: tuple[Var, ...] = ()
    init: tuple[Var, ...] | None = None
    init_value: Const | None = None

    def operand(self, name: str) -> Region:
        """Region of the operand ``name``; KeyError if the intrinsic has none of that name."""
        for declared, region in zip(self.intrinsic.operands, self.operands, strict=True):
            if declared.name == name:
                return region
        raise KeyError(name)

    def scalar(self, name: str) -> Expr:
        """Value of the scalar parameter ``name``; KeyError if the intrinsic has none of that name."""
        return dict(self.scalars)[name]
