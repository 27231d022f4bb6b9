"""A value while a function is lowered: what its element at an index is, as an expression.

Elementwise operators and moves only compose expressions, so what consists of such becomes one stage. Reductions make a
stage of their own, which the builder collects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ... import tensor as te
from ...graph.ir import Call
from ...graph.registry import Fusion, Unsupported, operator, set_lowering
from ...targets.errors import CompileError
from ...tensor import ir as tir

Index = tuple[tir.Expr, ...]
Read = Callable[[Index], tir.Expr]


HALVES = ("float16", "bfloat16")


class NotLoweredError(CompileError):
    """An operator, or this use of it, has no tensor expression. The message is the reason."""


@dataclass(frozen=True)
class View:
    """A tensor of the graph: its logical shape, and its element at an index of that shape.

    ``halo``: rows and columns (top, left, bottom, right) around an image (N, C, H, W) that may be read too, and hold
    ``fill``.
    """

    shape: tuple[int, ...]
    dtype: tir.DType
    read: Read
    halo: tuple[int, int, int, int] = (0, 0, 0, 0)
    fill: int = 0

    def __getitem__(self, index: Index) -> tir.Expr:
        return self.read(index)


@dataclass
class Builder:
    """Gives names to the stages of one kernel; ``reductions`` are those that reduce, in the order of their making."""

    reductions: list[te.Tensor] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def name(self, wish: str) -> str:
        """``wish``, or the first of ``wish1``, ``wish2``, ... that is free."""
        number, name = 0, wish
        while name in self._taken:
            number += 1
            name = f"{wish}{number}"
        self._taken.add(name)
        return name

    def reduction(self, shape: tuple[int, ...], value: Callable[..., te.Reduction], wish: str) -> View:
        """A stage that reduces; ``value`` takes the index of the result."""
        tensor = te.compute(shape, value, self.name(wish))
        self.reductions.append(tensor)
        return View(shape, tensor.dtype, lambda index: tensor[index])

    def stored(self, view: View, wish: str) -> View:
        """The view computed once into a buffer, where it is read more often than it is long."""
        tensor = te.compute(view.shape, lambda *index: view[index], self.name(wish))
        return View(view.shape, tensor.dtype, lambda index: tensor[index])

    def axis(self, extent: int, wish: str) -> te.ReduceAxis:
        return te.reduce_axis(extent, self.name(wish))


Rule = Callable[[Builder, Call, tuple[View, ...]], View]


def element_type(dtype: str) -> tir.DType:
    """The type in the loop IR; NotLoweredError if it has none."""
    if dtype not in tir.DTYPES:
        raise NotLoweredError(f"the loop IR has no type {dtype}")
    return dtype


def lower_call(builder: Builder, call: Call, operands: Sequence[View]) -> View:
    """The result of an operator; NotLoweredError says why it has no rule."""
    name = call.op if isinstance(call.op, str) else call.op.name
    rule = operator(name, call.span).lower
    if isinstance(rule, Unsupported):
        raise NotLoweredError(f"{name}: {rule.reason}")
    if 0 in call.shape or any(0 in view.shape for view in operands):
        raise NotLoweredError(f"{name}: a tensor without elements")
    moves = operator(name).fusion is Fusion.LAYOUT
    if moves or not any(view.dtype in HALVES for view in operands):
        result: View = rule(builder, call, tuple(operands))
        return result
    wide = rule(builder, call, tuple(widened(view) for view in operands))
    dtype = element_type(call.dtype)
    return View(wide.shape, dtype, lambda index: wide[index].astype(dtype))


def widened(view: View) -> View:
    """Floats of 16 bits as float32: operators compute with those, and round once at their end."""
    if view.dtype not in HALVES:
        return view
    return View(view.shape, "float32", lambda index: view[index].astype("float32"), view.halo, view.fill)


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """The view under NumPy's broadcasting."""
    if view.shape == shape:
        return view
    missing = len(shape) - len(view.shape)

    def read(index: Index) -> tir.Expr:
        return view[tuple(
            tir.Const(0) if size == 1 else place for size, place in zip(view.shape, index[missing:], strict=True)
        )]  # fmt: skip

    return View(shape, view.dtype, read)


def along(view: View, rank: int, axis: int) -> Read:
    """Reads a scalar, or one value for each index of ``axis``, at an index of ``rank`` dimensions."""
    return lambda index: view[()] if not view.shape else view[(index[axis],)]


def register_rules(rules: dict[str, Rule]) -> None:
    for name, rule in rules.items():
        set_lowering(name, rule)
