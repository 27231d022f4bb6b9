"""A value while a function is lowered: what its element at an index is, as an expression.

Elementwise operators and moves only compose expressions, so what consists of such becomes one stage. Reductions make a
stage of their own, which the builder collects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from .compute import ReduceAxis, Reduction, Tensor, compute, reduce_axis
from .errors import TensorError
from .ir import DTYPES, Const, DType, Expr

Index = tuple[Expr, ...]
Read = Callable[[Index], Expr]

HALVES = ("float16", "bfloat16")


class NotLoweredError(TensorError):
    """An operator, or this use of it, has no tensor expression. The message is the reason."""


@dataclass(frozen=True)
class View:
    """A tensor of the graph: its logical shape, and its element at an index of that shape.

    ``halo``: elements before each axis of an image or a volume (N, C, ...), then behind each, that may be read too and
    hold ``fill``; () if there are none. ``tensor``: the placeholder or stage whose elements these are, index by index,
    where there is one.
    """

    shape: tuple[int, ...]
    dtype: DType
    read: Read
    halo: tuple[int, ...] = ()
    fill: int = 0
    tensor: Tensor | None = None

    @staticmethod
    def of(tensor: Tensor) -> View:
        """All elements of a placeholder or a stage."""
        return View(tensor.shape, tensor.dtype, lambda index: tensor[index], tensor=tensor)

    def __getitem__(self, index: Index) -> Expr:
        return self.read(index)


@dataclass
class Builder:
    """Gives names to the stages of one kernel; ``reductions`` are those that reduce, in the order of their making."""

    reductions: list[Tensor] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def name(self, wish: str) -> str:
        """``wish``, or the first of ``wish1``, ``wish2``, ... that is free."""
        number, name = 0, wish
        while name in self._taken:
            number += 1
            name = f"{wish}{number}"
        self._taken.add(name)
        return name

    def reduction(self, shape: tuple[int, ...], value: Callable[..., Reduction], wish: str) -> View:
        """A stage that reduces; ``value`` takes the index of the result."""
        tensor = compute(shape, value, self.name(wish))
        self.reductions.append(tensor)
        return View.of(tensor)

    def stored(self, view: View, wish: str) -> View:
        """The view computed once into a buffer, where it is read more often than it is long."""
        return View.of(compute(view.shape, lambda *index: view[index], self.name(wish)))

    def axis(self, extent: int, wish: str) -> ReduceAxis:
        return reduce_axis(extent, self.name(wish))


def element_type(dtype: str) -> DType:
    """The type in the loop IR; NotLoweredError if it has none. Small types are bytes there, which are moved: operators
    that know what they mean look at the graph's types."""
    if dtype in DTYPES:
        return dtype
    small = getattr(ml_dtypes, dtype, None)
    if small is None or np.dtype(small).itemsize != 1:
        raise NotLoweredError(f"the loop IR has no type {dtype}")
    return "uint8"


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

    def read(index: Index) -> Expr:
        return view[tuple(
            Const(0) if size == 1 else place for size, place in zip(view.shape, index[missing:], strict=True)
        )]  # fmt: skip

    return View(shape, view.dtype, read)


def along(view: View, rank: int, axis: int) -> Read:
    """Reads a scalar, or one value for each index of ``axis``, at an index of ``rank`` dimensions."""
    return lambda index: view[()] if not view.shape else view[(index[axis],)]
