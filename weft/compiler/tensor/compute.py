"""Defining what is computed: placeholders, elementwise stages and reductions, as a graph of tensors."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...whole import whole, whole_tuple
from .errors import IRError
from .evaluate import identity
from .ir import (
    Allocate,
    BinOp,
    Block,
    Buffer,
    Const,
    DType,
    Expr,
    Load,
    PrimFunc,
    Stmt,
    Store,
    Var,
    as_expr,
    loop_nest,
    sequence,
)
from .names import fresh_name
from .visitor import map_exprs, substitute

_COMPILER = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class ReduceAxis(Expr):
    """A reduction index, 0 .. extent-1. It may be used in several stages."""

    name: str
    extent: int

    @property
    def dtype(self) -> DType:
        return "int64"


@dataclass(frozen=True)
class TensorRead(Expr):
    """Element of a tensor while a stage is being defined; becomes a Load of its buffer."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype


@dataclass(frozen=True)
class Reduction:
    """The value of a reducing stage: ``op`` over ``value`` along ``axes``, starting from ``init``."""

    op: str
    value: Expr
    axes: tuple[ReduceAxis, ...]
    init: Const


@dataclass(frozen=True)
class Stage:
    """How a tensor is computed. ``init`` is given for reductions, whose ``value`` contains the load of the output.
    ``source``: the file and line of the function that says it, for messages."""

    axes: tuple[Var, ...]
    reduce_axes: tuple[ReduceAxis, ...]
    value: Expr
    init: Const | None
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class Tensor:
    """A placeholder (no ``stage``) or a computed tensor with the tensors it reads."""

    buffer: Buffer
    stage: Stage | None = None
    inputs: tuple[Tensor, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Expr:
        index_tuple = indices if isinstance(indices, tuple) else (indices,)
        if len(index_tuple) != len(self.shape):
            raise IRError(f"tensor {self.name!r} has {len(self.shape)} dimensions, but is read with {len(index_tuple)}")
        return TensorRead(self, tuple(as_expr(index) for index in index_tuple))


def placeholder(shape: tuple[int, ...], dtype: DType, name: str) -> Tensor:
    """A tensor that the caller gives."""
    return Tensor(Buffer(_identifier(name), shape, dtype))


def reduce_axis(extent: int, name: str) -> ReduceAxis:
    """A reduction index, 0 .. extent-1; IRError if there is nothing to reduce."""
    times = whole(extent)
    if times is None:
        raise IRError(f"reduction axis {name!r} runs {extent!r:.80} times, but must run a whole number of times")
    if times < 1:
        raise IRError(f"reduction axis {name!r} runs {extent} times, but must run at least once")
    return ReduceAxis(name, times)


def sum(expr: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """Sum of ``expr`` along ``axes``; integers wrap."""
    return _reduction("add", expr, axes)


def product(expr: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """Product of ``expr`` along ``axes``; integers wrap."""
    return _reduction("mul", expr, axes)


def max(expr: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """Largest ``expr`` along ``axes``."""
    return _reduction("max", expr, axes)


def min(expr: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """Smallest ``expr`` along ``axes``."""
    return _reduction("min", expr, axes)


def _reduction(op: str, expr: Expr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    chosen = (axes,) if isinstance(axes, ReduceAxis) else tuple(axes)
    if not chosen:
        raise IRError("a reduction needs at least one axis")
    init = identity(op, expr.dtype)
    if init is None:
        raise IRError(f"there is no reduction by {op!r} of {expr.dtype}")
    return Reduction(op, expr, chosen, init)


def compute(shape: tuple[int, ...], fn: Callable[..., Expr | Reduction], name: str) -> Tensor:
    """The tensor whose element at ``(i, j, ...)`` is ``fn(i, j, ...)``.

    The loops take the names of the function's parameters. A reduction must be the outermost thing that ``fn`` gives.
    """
    extents = whole_tuple(shape)
    if extents is None:
        raise IRError(f"the shape of stage {name!r} is {shape!r:.80}, but must be a tuple of whole numbers")
    axes = tuple(Var(axis) for axis in _axis_names(fn, len(extents)))
    result = fn(*axes)
    value = result.value if isinstance(result, Reduction) else result
    reads: dict[str, Tensor] = {}
    used: dict[str, ReduceAxis] = {}
    value = _resolve(value, reads, used)
    buffer = Buffer(_identifier(name), extents, value.dtype)
    reduced = result.axes if isinstance(result, Reduction) else ()
    stray = sorted(set(used) - {axis.name for axis in reduced})
    if stray:
        raise IRError(f"stage {name!r} uses reduction axis {stray[0]!r}, but does not reduce it")
    clash = {axis.name for axis in axes} & {axis.name for axis in reduced}
    if clash:
        raise IRError(f"stage {name!r} has an axis and a reduction axis of one name, {sorted(clash)[0]!r}")
    init = None
    if isinstance(result, Reduction):
        value, init = BinOp(result.op, Load(buffer, axes), value), result.init
    return Tensor(buffer, Stage(axes, reduced, value, init, _source(fn)), tuple(reads.values()))


def lower(outputs: Sequence[Tensor], inputs: Sequence[Tensor] | None = None, name: str = "main") -> PrimFunc:
    """One loop nest a stage, in the order in which they need each other.

    Parameters of the function are the ``inputs`` (by default the placeholders in order of first use), then the
    ``outputs``; all other tensors are allocated.
    """
    order: dict[str, Tensor] = {}
    for output in outputs:
        _visit(output, order)
    leaves = [tensor for tensor in order.values() if tensor.stage is None]
    placeholders = leaves if inputs is None else list(inputs)
    missing = sorted({tensor.name for tensor in leaves} - {tensor.name for tensor in placeholders})
    if missing:
        raise IRError(f"placeholder {missing[0]!r} is read, but is not among the inputs of {name!r}")
    names = {tensor.name for tensor in order.values()}
    nests: list[Stmt] = []
    for tensor in order.values():
        if tensor.stage is not None:
            nests.append(_nest(tensor.buffer, tensor.stage, names))
    params = (*(tensor.buffer for tensor in placeholders), *(tensor.buffer for tensor in outputs))
    if not nests:
        raise IRError(f"function {name!r} computes nothing: its outputs are placeholders")
    body = sequence(*nests)
    for tensor in reversed(order.values()):
        if tensor.buffer not in params:
            body = Allocate(tensor.buffer, body)
    return PrimFunc(name, params, body)


def _nest(buffer: Buffer, stage: Stage, names: set[str]) -> Stmt:
    bindings: dict[Var, Expr] = {}
    spatial: list[tuple[Var, Expr]] = []
    for axis, extent in zip(stage.axes, buffer.shape, strict=True):
        bindings[axis] = var = Var(fresh_name(axis.name, names, prefix=buffer.name))
        spatial.append((var, Const(extent)))
    reduced: list[tuple[Var, Expr]] = []
    for reduce in stage.reduce_axes:
        bindings[Var(reduce.name)] = var = Var(fresh_name(reduce.name, names, prefix=buffer.name))
        reduced.append((var, Const(reduce.extent)))
    store = Store(buffer, tuple(var for var, _ in spatial), substitute(stage.value, bindings))
    reduce_vars = tuple(var for var, _ in reduced)
    return loop_nest(
        [*spatial, *reduced],
        Block(buffer.name, "reduce" if reduced else "spatial", store, reduce_vars, stage.init, stage.source),
    )


def _visit(tensor: Tensor, order: dict[str, Tensor]) -> None:
    if order.get(tensor.name) is tensor:
        return
    for source in tensor.inputs:
        _visit(source, order)
    if order.setdefault(tensor.name, tensor) != tensor:
        raise IRError(f"two tensors are called {tensor.name!r}")


def _identifier(name: str) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise IRError(
            f"a tensor cannot be called {name!r}, since its text form could not be read back",
            hint="use letters, digits and _",
        )
    return name


def _source(fn: Callable[..., object]) -> str:
    """The file and line of a function of the user's; empty for those of the compiler, which say nothing to anybody."""
    code = getattr(fn, "__code__", None)
    if code is None or code.co_filename.startswith(_COMPILER):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


def _axis_names(fn: Callable[..., object], ndim: int) -> list[str]:
    parameters = list(inspect.signature(fn).parameters.values())
    if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        return [f"i{axis}" for axis in range(ndim)]
    names = [parameter.name for parameter in parameters]
    if len(names) != ndim:
        raise IRError(f"the shape has {ndim} dimensions, but the function takes {len(names)} indices")
    return names


def _resolve(value: Expr, reads: dict[str, Tensor], used: dict[str, ReduceAxis]) -> Expr:
    def rule(node: Expr) -> Expr | None:
        if isinstance(node, TensorRead):
            tensor = node.tensor
            if reads.setdefault(tensor.name, tensor) is not tensor:
                raise IRError(f"two tensors are called {tensor.name!r}")
            return Load(tensor.buffer, tuple(_resolve(index, reads, used) for index in node.indices))
        if isinstance(node, ReduceAxis):
            used[node.name] = node
            return Var(node.name)
        return None

    return map_exprs(value, rule)
