"""The loop IR: expressions, buffers and statements. Immutable, typed, neutral to the target.

Equality of all nodes is structural (``==`` compares; use ``Expr.eq`` to build a comparison). Loop variables are
``int64`` and unique by name inside a function; loops start at 0 and step by 1, and the extent of a loop may depend on
the variables of the loops around it. Integer arithmetic wraps at the width of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .errors import IRError

DType: TypeAlias = Literal["int8", "uint8", "int32", "int64", "float32", "bool"]
DTYPES: tuple[DType, ...] = ("int8", "uint8", "int32", "int64", "float32", "bool")

INTEGER_RANGES: dict[DType, tuple[int, int]] = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "bool": (0, 1),
}

ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "shl", "shr")
LOGIC = ("and", "or")
COMPARISONS = ("lt", "le", "eq", "ne")
OPERATORS = ARITHMETIC + LOGIC + COMPARISONS

Number: TypeAlias = int | float | bool


class Expr:
    """A scalar value. Operators build new expressions; both operands have one type, Python numbers adapt to it."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """Type of the value."""
        raise NotImplementedError

    def __add__(self, other: Expr | Number) -> Expr:
        return BinOp("add", self, _like(other, self))

    def __radd__(self, other: Number) -> Expr:
        return BinOp("add", _like(other, self), self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return BinOp("sub", self, _like(other, self))

    def __rsub__(self, other: Number) -> Expr:
        return BinOp("sub", _like(other, self), self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return BinOp("mul", self, _like(other, self))

    def __rmul__(self, other: Number) -> Expr:
        return BinOp("mul", _like(other, self), self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return BinOp("floordiv", self, _like(other, self))

    def __mod__(self, other: Expr | Number) -> Expr:
        return BinOp("mod", self, _like(other, self))

    def __lshift__(self, other: Expr | Number) -> Expr:
        return BinOp("shl", self, _like(other, self))

    def __rlshift__(self, other: Number) -> Expr:
        return BinOp("shl", _like(other, self), self)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return BinOp("shr", self, _like(other, self))

    def __and__(self, other: Expr | Number) -> Expr:
        return BinOp("and", self, _like(other, self))

    def __or__(self, other: Expr | Number) -> Expr:
        return BinOp("or", self, _like(other, self))

    def __neg__(self) -> Expr:
        return BinOp("sub", _like(0, self), self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return BinOp("lt", self, _like(other, self))

    def __le__(self, other: Expr | Number) -> Expr:
        return BinOp("le", self, _like(other, self))

    def __gt__(self, other: Expr | Number) -> Expr:
        return BinOp("lt", _like(other, self), self)

    def __ge__(self, other: Expr | Number) -> Expr:
        return BinOp("le", _like(other, self), self)

    def eq(self, other: Expr | Number) -> Expr:
        """The comparison ``self == other`` as an expression."""
        return BinOp("eq", self, _like(other, self))

    def ne(self, other: Expr | Number) -> Expr:
        """The comparison ``self != other`` as an expression."""
        return BinOp("ne", self, _like(other, self))

    def astype(self, dtype: DType) -> Expr:
        """The value converted to ``dtype``; integers wrap. A conversion to the same type is left out."""
        return self if dtype == self.dtype else Cast(dtype, self)

    def __bool__(self) -> bool:
        raise IRError(
            "an expression has no truth value while the program is built",
            hint="use select(condition, a, b), & and | instead of if, and, or",
        )


@dataclass(frozen=True)
class Var(Expr):
    """A loop variable (``int64``) or a scalar parameter of an intrinsic (any type)."""

    name: str
    type: DType = "int64"

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Const(Expr):
    """A literal. Integers must fit ``type``; IRError otherwise."""

    value: Number
    type: DType = "int64"

    def __post_init__(self) -> None:
        limits = INTEGER_RANGES.get(self.type)
        if limits is None:
            object.__setattr__(self, "value", float(self.value))
        elif not limits[0] <= self.value <= limits[1]:
            raise IRError(f"constant {self.value!r} does not fit {self.type}, which holds {limits[0]}..{limits[1]}")
        elif self.value != int(self.value):
            raise IRError(f"constant {self.value!r} is not an integer, but its type is {self.type}")
        else:
            object.__setattr__(self, "value", bool(self.value) if self.type == "bool" else int(self.value))

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class BinOp(Expr):
    """``a op b`` with one of ``OPERATORS``. ``floordiv``, ``mod`` and ``shr`` round down; comparisons give bool."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise IRError(f"unknown operator {self.op!r}", hint=f"the operators are {', '.join(OPERATORS)}")
        if self.a.dtype != self.b.dtype:
            raise IRError(
                f"{self.op!r} of {self.a.dtype} and {self.b.dtype}: both operands must have one type",
                hint="convert one of them with .astype(...)",
            )
        if self.a.dtype == "float32" and self.op in ("shl", "shr", "and", "or", "floordiv", "mod"):
            raise IRError(f"{self.op!r} is not defined for float32")
        if self.a.dtype == "bool" and self.op in ARITHMETIC:
            raise IRError(f"{self.op!r} is not defined for bool", hint="convert with .astype('int32') first")

    @property
    def dtype(self) -> DType:
        return "bool" if self.op in COMPARISONS else self.a.dtype


@dataclass(frozen=True)
class Select(Expr):
    """``a`` where ``cond`` holds, else ``b``. Only the chosen side is evaluated, so it may guard a load."""

    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.cond.dtype != "bool":
            raise IRError(f"the condition of select is {self.cond.dtype}, but must be bool")
        if self.a.dtype != self.b.dtype:
            raise IRError(f"select between {self.a.dtype} and {self.b.dtype}: both sides must have one type")

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True)
class Cast(Expr):
    """``x`` converted to ``type``. Integers wrap to the narrower type; float to integer rounds toward zero."""

    type: DType
    x: Expr

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Load(Expr):
    """Element of ``buffer`` at ``indices``, one index per dimension."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _check_indices("load from", self.buffer, self.indices)

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True)
class Buffer:
    """A dense row-major array. ``scope`` is a free word which the target defines ("global", "inp", "acc", ...)."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: str = "global"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise IRError(f"unknown type {self.dtype!r} of buffer {self.name!r}", hint=f"one of {', '.join(DTYPES)}")
        if any(extent < 1 for extent in self.shape):
            raise IRError(f"buffer {self.name!r} has shape {self.shape}: every extent must be at least 1")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return _product(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance in elements between neighbours along each dimension."""
        return row_major_strides(self.shape)

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Expr:
        return Load(self, _index_tuple(indices))

    def store(self, indices: Expr | int | tuple[Expr | int, ...], value: Expr | Number) -> Store:
        """The statement ``self[indices] = value``."""
        return Store(self, _index_tuple(indices), as_expr(value, self.dtype))


class Stmt:
    """A statement."""

    __slots__ = ()


ForKind: TypeAlias = str
"""``serial``, ``unroll``, ``vthread``, ``parallel``, ``vectorize`` or ``bind:<axis>``."""

SIMPLE_KINDS = ("serial", "unroll", "vthread", "parallel", "vectorize")


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


@dataclass(frozen=True)
class Store(Stmt):
    """``buffer[indices] = value``."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        _check_indices("store to", self.buffer, self.indices)
        if self.value.dtype != self.buffer.dtype:
            raise IRError(
                f"store of {self.value.dtype} to {self.buffer.name!r}, which holds {self.buffer.dtype}",
                hint=f"convert the value with .astype({self.buffer.dtype!r})",
            )


@dataclass(frozen=True)
class Seq(Stmt):
    """Statements one after another (never a Seq inside a Seq, at least two)."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Stmt):
    """``then`` where ``cond`` holds."""

    cond: Expr
    then: Stmt


@dataclass(frozen=True)
class Allocate(Stmt):
    """``buffer`` lives while ``body`` runs; its contents are undefined before the first store."""

    buffer: Buffer
    body: Stmt


BlockKind: TypeAlias = Literal["spatial", "copy", "reduce", "reduce-init", "reduce-update"]
BLOCK_KINDS: tuple[BlockKind, ...] = ("spatial", "copy", "reduce", "reduce-init", "reduce-update")


@dataclass(frozen=True)
class Block(Stmt):
    """The store of one stage, inside the loops that drive it.

    ``reduce_vars`` are the enclosing loop variables that are reductions. Kind ``reduce`` has an ``init``: it is stored
    first, in the iteration in which all ``reduce_vars`` are 0. ``reduce-update`` is a reduction whose init is a block
    of its own (kind ``reduce-init``). ``copy`` is a ``spatial`` stage put in by cache_read or cache_write.
    """

    name: str
    kind: BlockKind
    body: Store
    reduce_vars: tuple[Var, ...] = ()
    init: Expr | None = None

    def __post_init__(self) -> None:
        if (self.kind == "reduce") != (self.init is not None):
            raise IRError(f"block {self.name!r}: exactly the blocks of kind 'reduce' have an init")
        if self.reduce_vars and not self.kind.startswith("reduce"):
            raise IRError(f"block {self.name!r} of kind {self.kind!r} has reduction variables")


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
        _check_indices("region of", self.buffer, self.indices)

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

    ``strides`` (elements) are row-major unless declared. ``align`` (elements) is what the tile's flat position must be
    a multiple of; by default the size of the tile, for memories that are addressed in whole entries.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scope: str
    mode: OperandMode
    strides: tuple[int, ...]
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
        found: list[tuple[Var, int]] = []
        node = self.body
        while isinstance(node, For):
            found.append((node.var, int_value(node.extent)))
            node = node.body
        return tuple(found)

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


@dataclass(frozen=True)
class PrimFunc:
    """A function on buffers: ``params`` are given by the caller (inputs first, then outputs)."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt


def as_expr(value: Expr | Number, dtype: DType = "int64") -> Expr:
    """``value`` as an expression; Python numbers become constants of ``dtype``."""
    return value if isinstance(value, Expr) else Const(value, dtype)


def int_value(expr: Expr) -> int:
    """Value of an integer constant; IRError if ``expr`` is anything else."""
    if not isinstance(expr, Const) or isinstance(expr.value, float):
        raise IRError(f"expected an integer constant, not {expr}")
    return int(expr.value)


def select(cond: Expr, a: Expr | Number, b: Expr | Number) -> Expr:
    """``a`` where ``cond`` holds, else ``b``."""
    return Select(cond, *_pair(a, b))


def minimum(a: Expr | Number, b: Expr | Number) -> Expr:
    """The smaller of both."""
    return BinOp("min", *_pair(a, b))


def maximum(a: Expr | Number, b: Expr | Number) -> Expr:
    """The larger of both."""
    return BinOp("max", *_pair(a, b))


def clamp(x: Expr, low: Expr | Number, high: Expr | Number) -> Expr:
    """``x`` limited to ``low .. high``."""
    return minimum(maximum(x, low), high)


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


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major array."""
    return tuple(_product(shape[axis + 1 :]) for axis in range(len(shape)))


def _product(extents: tuple[int, ...]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _pair(a: Expr | Number, b: Expr | Number) -> tuple[Expr, Expr]:
    if isinstance(a, Expr):
        return a, as_expr(b, a.dtype)
    if isinstance(b, Expr):
        return as_expr(a, b.dtype), b
    return as_expr(a), as_expr(b)


def _like(value: Expr | Number, other: Expr) -> Expr:
    return as_expr(value, other.dtype)


def _index_tuple(indices: Expr | int | tuple[Expr | int, ...]) -> tuple[Expr, ...]:
    return tuple(as_expr(index) for index in (indices if isinstance(indices, tuple) else (indices,)))


def _check_indices(what: str, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    if len(indices) != buffer.ndim:
        raise IRError(f"{what} {buffer.name!r}: {buffer.ndim} dimensions, but {len(indices)} indices")
    for position, index in enumerate(indices):
        if index.dtype != "int64":
            raise IRError(f"{what} {buffer.name!r}: index {position} is {index.dtype}, but must be int64")


Rewrite: TypeAlias = Callable[[Expr], Expr | None]
"""A rule on expressions: the new node, or None for "does not apply"."""
