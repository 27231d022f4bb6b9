"""A group of operators as a function with a schedule: which buffers it takes, and where in memory its result lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ... import tensor as te
from ...graph.dtypes import STORAGE
from ...graph.ir import Call, Constant, Expr
from ...operators.lowering import lower_call
from ...tensor import ir as tir
from ...tensor.view import Builder, View, element_type
from .fusion import FusedGroup
from .layouts import NO_HALO, Layout, view_of
from .narrow_requantise import is_requantise, narrow_requantise

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tile:
    """``rows`` of a result (pixels of an image's row) times ``lanes`` (output channels) are accumulated in
    registers."""

    rows: int
    lanes: int


@dataclass(frozen=True)
class Kernel:
    """A function with its arguments and its schedule.

    ``func`` is not scheduled yet: ``arrange`` does it. ``inputs``: values that it reads, in the order of its first
    parameters, each in the given layout. ``constants``: arrays for the parameters that follow. The last parameter is
    the result; ``windows`` gives its strides where it is the inside of a tensor with a halo, and ``offset`` (elements)
    where in that tensor it starts; the halo, which it may write into, is filled afterwards. ``form``: as `Layer.form`.
    """

    func: tir.PrimFunc
    arrange: Callable[[te.Schedule], None] = field(compare=False, repr=False)
    inputs: tuple[Expr, ...]
    constants: tuple[Array, ...]
    windows: Mapping[str, tuple[int, ...]]
    offset: int
    form: str = ""

    def schedule(self) -> te.Schedule:
        """The function, scheduled."""
        schedule = te.Schedule(self.func)
        self.arrange(schedule)
        return schedule


def in_loops(value: Array) -> Array:
    """A constant as loops see it: small types are bytes."""
    return value.view(np.uint8) if value.dtype.name in STORAGE else value


@dataclass
class Operands:
    """Collects the parameters of a kernel while its expressions are made."""

    builder: Builder
    layouts: Mapping[Expr, Layout]
    inputs: dict[Expr, te.Tensor] = field(default_factory=dict)
    constants: list[tuple[te.Tensor, Array]] = field(default_factory=list)

    def tensor(self, value: Expr) -> te.Tensor:
        """The parameter that holds a value from outside, as it lies in memory."""
        if value not in self.inputs:
            layout, dtype = self.layouts[value], element_type(value.dtype)
            shape = layout.shape(value.shape)
            self.inputs[value] = te.placeholder(shape, layout.dtype(dtype), self.builder.name(f"x{len(self.inputs)}"))
        return self.inputs[value]

    def view(self, value: Expr) -> View:
        """A value from outside as the graph sees it."""
        return view_of(self.tensor(value), value.shape, element_type(value.dtype), self.layouts[value])

    def array(self, value: Array) -> te.Tensor:
        """A parameter that holds a constant."""
        name = self.builder.name(f"c{len(self.constants)}")
        value = in_loops(value)
        tensor = te.placeholder(value.shape, element_type(value.dtype.name), name)
        self.constants.append((tensor, np.ascontiguousarray(value)))
        return tensor

    def constant(self, node: Constant, channel_axis: int | None = None, *, in_memory: bool = False) -> View:
        """A constant of the graph. With ``channel_axis`` that axis lies innermost, so that its elements are neighbours.
        A single element becomes part of the code, unless it is wanted ``in_memory``."""
        value, dtype = in_loops(node.value), element_type(node.dtype)
        if value.size == 1 and not in_memory:
            literal = tir.Const(value.reshape(-1)[0].item(), dtype)
            return View(value.shape, dtype, lambda index: literal)
        if channel_axis is None:
            plain = self.array(value)
            return View(value.shape, dtype, lambda index: plain[index])
        moved = self.array(np.moveaxis(value, channel_axis, -1))
        axis = channel_axis
        return View(value.shape, dtype, lambda index: moved[(*index[:axis], *index[axis + 1 :], index[axis])])

    @property
    def parameters(self) -> list[te.Tensor]:
        return [*self.inputs.values(), *(tensor for tensor, _ in self.constants)]


def lower_members(
    group: FusedGroup, operands: Operands, known: dict[Expr, View], constant: Callable[[Call, int, Constant], View]
) -> View:
    """The result of a group; ``known`` holds members that are computed already. ``constant`` makes the view of an
    operand (of a call, at a position) that is constant."""
    for node in group.members:
        if node in known:
            continue

        def view(place: int, arg: Expr, node: Call = node) -> View:
            if isinstance(arg, Constant):
                return constant(node, place, arg)
            return known[arg] if arg in known else operands.view(arg)

        narrow = None
        if is_requantise(node):
            narrow = narrow_requantise(node, view(0, node.args[0]), partial(constant, node))
        if narrow is None:
            narrow = lower_call(operands.builder, node, [view(place, arg) for place, arg in enumerate(node.args)])
        known[node] = operands.builder.stored(narrow, "moved") if node in group.moved_rows else narrow
    return known[group.root]


def finished(
    operands: Operands,
    shape: tuple[int, ...],
    output: te.Tensor,
    layout: Layout,
    name: str,
    arrange: Callable[[te.Schedule], None],
) -> Kernel:
    """The kernel that makes ``output``, which the graph sees as ``shape``. With a halo it is written into the inside of
    its tensor."""
    windows: dict[str, tuple[int, ...]] = {}
    offset = 0
    if layout.halo != NO_HALO:
        strides = tir.row_major_strides(layout.shape(shape))
        before, _ = layout.around(len(shape) - 2)
        offset = sum(first * stride for first, stride in zip(before, strides[2:-1], strict=True))
        tiled = len(output.shape) > len(strides)
        windows[output.name] = (strides[0], strides[1] * output.shape[2], *strides[1:]) if tiled else strides
    constants = tuple(value for _, value in operands.constants)
    func = te.lower([output], operands.parameters, name)
    return Kernel(func, arrange, tuple(operands.inputs), constants, windows, offset)
