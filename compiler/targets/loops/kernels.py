"""A group of operators as a scheduled function: which buffers it takes, and what LLVM is to make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import tensor as te
from ...graph.ir import Call, Constant, Expr
from ...operators.lowering import lower_call
from ...tensor import ir as tir
from ...tensor.view import Builder, View, element_type
from ..cpu.schedules import schedule_blocked, schedule_plain
from .fusion import Group
from .layouts import Layout, folded, to_memory, unfolded_row, view_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Kernel:
    """A function with its arguments and its schedule.

    ``func`` is not scheduled yet: ``arrange`` does it, and ``recipe`` says how in a few words, which stand for it in
    keys of the cache. ``inputs``: values that it reads, in the order of its first parameters, each in the given layout.
    ``constants``: arrays for the parameters that follow. The last parameter is the result; ``windows`` gives its
    strides where it is the inside of a tensor with a halo, and ``offset`` (elements) where in that tensor it starts.
    """

    func: tir.PrimFunc
    recipe: str
    arrange: Callable[[te.Schedule], None] = field(compare=False, repr=False)
    inputs: tuple[Expr, ...]
    constants: tuple[Array, ...]
    windows: Mapping[str, tuple[int, ...]]
    offset: int

    def schedule(self) -> te.Schedule:
        """The function, scheduled."""
        schedule = te.Schedule(self.func)
        self.arrange(schedule)
        return schedule


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
        tensor = te.placeholder(value.shape, element_type(value.dtype.name), name)
        self.constants.append((tensor, np.ascontiguousarray(value)))
        return tensor

    def constant(self, node: Constant, channel_axis: int | None = None) -> View:
        """A constant of the graph. With ``channel_axis`` that axis lies innermost, so that its elements are neighbours.
        A single element becomes part of the code."""
        value, dtype = node.value, element_type(node.dtype)
        if value.size == 1:
            literal = tir.Const(value.reshape(-1)[0].item(), dtype)
            return View(value.shape, dtype, lambda index: literal)
        if channel_axis is None:
            plain = self.array(value)
            return View(value.shape, dtype, lambda index: plain[index])
        moved = self.array(np.moveaxis(value, channel_axis, -1))
        axis = channel_axis
        return View(
            value.shape, dtype, lambda index: moved[(*index[:axis], *index[axis + 1 :], index[axis])]
        )

    @property
    def parameters(self) -> list[te.Tensor]:
        return [*self.inputs.values(), *(tensor for tensor, _ in self.constants)]


def lower_members(
    group: Group, operands: Operands, known: dict[Expr, View], constant: Callable[[Call, int, Constant], View]
) -> View:
    """The result of a group; ``known`` holds members that are computed already. ``constant`` makes the view of an
    operand (of a call, at a position) that is constant."""
    for node in group.members:
        if node in known:
            continue
        views: list[View] = []
        for place, arg in enumerate(node.args):
            if isinstance(arg, Constant):
                views.append(constant(node, place, arg))
            else:
                views.append(known[arg] if arg in known else operands.view(arg))
        known[node] = lower_call(operands.builder, node, views)
    return known[group.root]


def finished(
    operands: Operands, shape: tuple[int, ...], output: te.Tensor, layout: Layout, name: str, recipe: str,
    arrange: Callable[[te.Schedule], None],
) -> Kernel:
    """The kernel that makes ``output``, which the graph sees as ``shape``. With a halo it is written into the inside of
    its tensor."""
    windows: dict[str, tuple[int, ...]] = {}
    offset = 0
    if layout.halo != (0, 0, 0, 0):
        strides = tir.row_major_strides(layout.shape(shape))
        offset = layout.halo[0] * strides[2] + layout.halo[1] * strides[3]
        outer = output.shape[1] if len(output.shape) == 5 else output.shape[2]
        windows[output.name] = strides if len(output.shape) == 5 else (
            strides[0], strides[1] * outer, *strides[1:]
        )  # fmt: skip
    constants = tuple(value for _, value in operands.constants)
    func = te.lower([output], operands.parameters, name)
    return Kernel(func, recipe, arrange, tuple(operands.inputs), constants, windows, offset)


class BlockedBuilder(Builder):
    """Reductions in the blocked layout: a stage over (N, C, ...) becomes one over (N, C/b, ..., b)."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def reduction(self, shape: tuple[int, ...], value: Callable[..., te.Reduction], wish: str) -> View:
        block = self.block
        physical = (shape[0], -(-shape[1] // block), *shape[2:], block)

        def at(*index: tir.Expr) -> te.Reduction:
            n, outer, *rest, lane = index
            return value(n, outer * block + lane, *rest)

        tensor = te.compute(physical, at, self.name(wish))
        self.reductions.append(tensor)

        def read(index: tuple[tir.Expr, ...]) -> tir.Expr:
            n, c, *rest = index
            return tensor[(n, c // block, *rest, c % block)]

        return View(shape, tensor.dtype, read)


def plain_kernel(group: Group, layouts: Mapping[Expr, Layout], name: str) -> Kernel:
    """Any group whose result is plain."""
    operands = Operands(Builder(), layouts)
    result = lower_members(group, operands, {}, lambda call, place, node: operands.constant(node))
    output = te.compute(result.shape, lambda *index: result[index], operands.builder.name("out"))
    return finished(operands, result.shape, output, Layout(), name, "plain", schedule_plain)


def blocked_kernel(group: Group, layouts: Mapping[Expr, Layout], layout: Layout, name: str, registers: int) -> Kernel:
    """Poolings, depthwise convolutions and elementwise operators on (N, C, H, W), channels in blocks."""
    operands = Operands(BlockedBuilder(layout.block), layouts)

    def constant(call: Call, place: int, node: Constant) -> View:
        axis = 0 if len(node.shape) == 1 or (call is group.anchor and place) else 1
        return operands.constant(node, axis if len(node.shape) > axis else None)

    result = lower_members(group, operands, {}, constant)
    block = layout.block

    def value(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
        return to_memory(result[n, cb * block + lane, y, x], layout)

    n, c, h, w = group.root.shape
    output = te.compute((n, c // block, h, w, block), value, operands.builder.name("out"))
    reductions = [stage.name for stage in operands.builder.reductions]

    def arrange(schedule: te.Schedule) -> None:
        schedule_blocked(schedule, reductions, registers)

    recipe = f"blocked {reductions} {registers}"
    return finished(operands, group.root.shape, output, layout, name, recipe, arrange)


def converting_kernel(value: Expr, source: Layout, layout: Layout, name: str) -> Kernel:
    """The same tensor in another layout. Channels that pad the last block become 0."""
    builder = Builder()
    operands = Operands(builder, {value: source})
    view = operands.view(value)
    channels, block = value.shape[1], source.block
    if layout.is_plain and block and channels % block == 0:
        # The same memory as of (N, C, ...), with the channels of a block as an axis.
        shape = (value.shape[0], channels // block, block, *value.shape[2:])
        output = te.compute(
            shape, lambda n, cb, lane, *rest: view[(n, cb * block + lane, *rest)], builder.name("out")
        )
    elif layout.is_plain:
        output = te.compute(value.shape, lambda *index: view[index], builder.name("out"))
    else:
        channels, block = value.shape[1], layout.block
        zero = tir.Const(0, view.dtype)

        def read(n: tir.Expr, cb: tir.Expr, y: tir.Expr, x: tir.Expr, lane: tir.Expr) -> tir.Expr:
            c = cb * block + lane
            element = view[(n, c, *unfolded_row(y, value.shape), x)]
            return to_memory(element if channels % block == 0 else tir.select(c < channels, element, zero), layout)

        n, _, h, w = folded(value.shape)
        output = te.compute((n, -(-channels // block), h, w, block), read, builder.name("out"))

    def arrange(schedule: te.Schedule) -> None:
        schedule_blocked(schedule, [], 1)

    if layout.is_plain:
        return finished(operands, value.shape, output, layout, name, "plain", schedule_plain)
    return finished(operands, value.shape, output, layout, name, "blocked [] 1", arrange)
