"""What the lowerings of packed operators build kernels with: windows, the padded copy, the accumulator layout.

Every stage does one thing on whole entries: a copy into an entry layout (with padding), a reduction, or one arithmetic
step. So a target can tensorize stage by stage. Between operators values are int32 in the accumulator layout
``(No, Ko, H, W, ro, n, bs)``, also those that the graph calls int8: their range is the same. Only the last stage
narrows, and one more copies it to the activation layout ``(No, Cd, H, W, r, n, bs)``.

That is how formulas name values. In the scratchpads all but the sums of a matrix product lie as activations do. Where a
pixel takes several entries, these are then neighbours there as in DRAM, and a row of pixels is one burst, not one an
entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .... import tensor as te
from ....graph.ir import Call
from ....graph.registry import Lowering
from ....tensor import ir as tir
from ....tensor.view import Builder, Index, NotLoweredError, View
from .packed_layout import Blocks

Size = TypeVar("Size", int, npt.NDArray[np.int64])

Value = TypeVar("Value", tir.Expr, te.Reduction)

Formula = Callable[[Index], tir.Expr]
"""From an index in the accumulator layout to the int32 (or int64) value there."""


@dataclass(frozen=True)
class Window:
    """A sliding window over padded rows and columns; ``pads`` is (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]

    @property
    def is_pixel(self) -> bool:
        """Whether each output reads the input's pixel in the same place, and there are as many."""
        return (self.kernel, self.strides, self.pads) == ((1, 1), (1, 1), (0, 0, 0, 0))

    @property
    def row_step(self) -> int:
        """The padded copy holds every ``row_step``-th row: those that no window of one row meets are left out."""
        return self.strides[0] if self.kernel[0] == 1 else 1

    @property
    def steps(self) -> tuple[int, int]:
        """Rows and columns of the padded copy from one output to the next."""
        return (self.strides[0] // self.row_step, self.strides[1])

    def place(self, y: tir.Expr, x: tir.Expr, kh: tir.Expr, kw: tir.Expr) -> tuple[tir.Expr, tir.Expr]:
        """Row and column of the padded copy that tap (kh, kw) of output (y, x) reads."""
        step_y, step_x = self.steps
        dilation_y, dilation_x = self.dilations
        return y * step_y + kh * dilation_y, x * step_x + kw * dilation_x

    def reach(self, rows: Size, columns: Size) -> tuple[Size, Size]:
        """Rows and columns of the padded copy that ``rows x columns`` outputs need; sizes may be arrays."""
        height = (rows - 1) * self.steps[0] + (self.kernel[0] - 1) * self.dilations[0] + 1
        width = (columns - 1) * self.steps[1] + (self.kernel[1] - 1) * self.dilations[1] + 1
        return height, width


@dataclass
class PackedBuilder(Builder):
    """Collects the stages of one layer on packed tensors. ``narrow``: whether the operator that is lowered now makes
    the layer's result, so int8. ``stays``: that result is read by the next layer of a chain, and by nothing else.
    ``links``: such results of the layers before. They are no stages: whoever reads one computes it where it is needed,
    with the padding that it needs. ``ending``: names of operands that nothing reads behind the operator that is lowered
    now."""

    blocks: Blocks = field(kw_only=True)
    narrow: bool = False
    ending: frozenset[str] = frozenset()
    stays: bool = False
    links: dict[str, Formula] = field(default_factory=dict)
    data: str = ""
    widened: list[str] = field(default_factory=list)
    weights: str = ""
    reduce: str = ""
    vector: list[str] = field(default_factory=list)
    in_place: list[tuple[str, str]] = field(default_factory=list)
    parameters: list[tuple[str, str]] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    tables: list[tuple[str, str]] = field(default_factory=list)
    window: Window | None = None
    input_groups: int = 0
    tapped: bool = False
    own_matrices: bool = False
    anchor: Call | None = None
    _widened: dict[str, te.Tensor] = field(default_factory=dict)
    _shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def accumulator_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Accumulator layout of a packed tensor of either layout."""
        outer, groups, height, width, rows, batch, lanes = shape
        ko = groups * rows // self.blocks.output_rows
        return (outer, ko, height, width, self.blocks.output_rows, batch, lanes)

    def in_accumulator(self, tensor: te.Tensor) -> Accumulated:
        """The tensor as int32 in the accumulator layout; one from DRAM is widened by a copy of its own."""
        rows = self.blocks.output_rows
        if tensor.dtype == "int32":
            return Accumulated(tensor, rows)
        if tensor.name in self.links:
            raise NotLoweredError(f"{tensor.name!r} does not leave the core, so only a window can read it")
        if tensor.name not in self._widened:
            name = self.name(f"{tensor.name}_wide")
            wide = te.compute(tensor.shape, lambda *index: tensor[index].astype("int32"), name)
            self._widened[tensor.name] = wide
            self.widened.append(name)
        return Accumulated(self._widened[tensor.name], rows)

    def lies(
        self, shape: tuple[int, ...], formula: Callable[[Index], Value]
    ) -> tuple[tuple[int, ...], Callable[..., Value]]:
        """Shape and formula of a tensor as it lies in a scratchpad, from those in the accumulator layout."""
        outer, groups, height, width, rows, batch, lanes = shape
        parts = self.blocks.input_rows // rows
        if parts <= 1:
            return shape, lambda *index: formula(index)

        def value(no: tir.Expr, cd: tir.Expr, y: tir.Expr, x: tir.Expr, r: tir.Expr, n: tir.Expr, s: tir.Expr) -> Value:
            return formula((no, cd * parts + r // rows, y, x, r % rows, n, s))

        return (outer, groups // parts, height, width, parts * rows, batch, lanes), value

    def read_parameters(self, stage: te.Tensor, params: te.Tensor) -> None:
        """Let a stage read the parameters of a requantise (Ko, 3, ...), or (1, 3, ...) that all its groups share."""
        self.parameters.append((stage.name, params.name))
        if params.shape[0] < Accumulated(stage, self.blocks.output_rows).shape[1]:
            self.shared.append(params.name)

    def table(self, tensor: te.Tensor) -> te.Tensor:
        """A table (256, ...) from DRAM, in the lanes: by way of the accumulator, which it passes as int32."""
        wide = te.compute(tensor.shape, lambda *index: tensor[index].astype("int32"), self.name(f"{tensor.name}_wide"))
        table = te.compute(tensor.shape, lambda *index: wide[index].astype("int8"), self.name("table"))
        self.tables.append((wide.name, table.name))
        return table

    def repeated(self, shape: tuple[int, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The stages that have one entry for several of a layer's result, of accumulator ``shape``, each with the axes
        along which it has."""
        rows = self.blocks.output_rows
        shapes = {wide.name: Accumulated(wide, rows).shape for wide in self._widened.values()} | self._shapes
        found = ((name, _repeated_axes(own, shape)) for name, own in shapes.items())
        return tuple((name, axes) for name, axes in found if axes)

    def anchor_repeated(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """As :meth:`repeated`: the axes along which the anchor has one entry for several of a result."""
        return _repeated_axes(self.accumulator_shape(self.anchor.shape), shape) if self.anchor is not None else ()

    def stage(self, shape: tuple[int, ...], formula: Formula, wish: str, *, narrow: bool) -> te.Tensor:
        """An arithmetic stage of accumulator ``shape``; with ``narrow`` its result is int8, and perhaps a link."""
        name = self.name(wish)
        self.vector.append(name)
        self._shapes[name] = shape
        if narrow and self.stays:
            self.links[name] = formula
            return te.placeholder(shape, "int8", name)
        dtype: tir.DType = "int8" if narrow else "int32"
        lying, value = self.lies(shape, lambda index: formula(index).astype(dtype))
        return te.compute(lying, value, name)


@dataclass(frozen=True)
class Accumulated:
    """A tensor of either layout, read as groups of ``rows`` rows: in the accumulator layout, where ``rows`` are its."""

    tensor: te.Tensor
    rows: int

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def parts(self) -> int:
        """Groups in one of the tensor's."""
        return self.tensor.shape[4] // self.rows

    @property
    def shape(self) -> tuple[int, ...]:
        outer, groups, height, width, _, batch, lanes = self.tensor.shape
        return (outer, groups * self.parts, height, width, self.rows, batch, lanes)

    def __getitem__(self, index: Index) -> tir.Expr:
        outer, group, height, width, row, batch, lane = index
        if self.parts == 1:
            return self.tensor[(outer, group, height, width, row, batch, lane)]
        place = group % self.parts * self.rows + row
        return self.tensor[(outer, group // self.parts, height, width, place, batch, lane)]


PackedRule = Callable[[PackedBuilder, Call, tuple[te.Tensor, ...]], te.Tensor]
"""From operands, which are DRAM tensors or accumulator tensors, to the result."""


def packed(rule: PackedRule) -> Lowering:
    """The entry's ``lower`` of a packed operator."""

    def lower(builder: Builder, call: Call, operands: tuple[View, ...]) -> View:
        tensors = tuple(view.tensor for view in operands if view.tensor is not None)
        if not isinstance(builder, PackedBuilder) or len(tensors) != len(operands):
            raise NotLoweredError(f"{call.op} computes on packed tensors, which only the accelerator has")
        return View.of(rule(builder, call, tensors))

    return lower


def window_of(attrs: Mapping[str, Any], kernel: tuple[int, int]) -> Window:
    return Window(kernel, attrs["strides"], attrs["pads"], attrs.get("dilations", (1, 1)))


def padded_copy(
    builder: PackedBuilder, tensor: te.Tensor, window: Window, rows: int, pad_value: int, dtype: tir.DType
) -> Accumulated:
    """The activation with its padding, read in groups of ``rows`` rows, as ``dtype``.

    Index (no, group, y, x, ...) holds the input's row ``y * step - top`` and column ``x - left``, or ``pad_value``. A
    link is computed here.
    """
    height, width = tensor.shape[2:4]
    top, left, bottom, right = window.pads
    step = window.row_step
    padded = ((height + top + bottom - 1) // step + 1, width + left + right)
    shape = (*tensor.shape[:2], *padded, *tensor.shape[4:])
    link = builder.links.get(tensor.name)
    if link is not None and tensor.shape[4] != rows:
        raise NotLoweredError("results become inputs on the core only where block_in and block_out are equal")
    read = link or tensor.__getitem__

    def value(no: tir.Expr, g: tir.Expr, y: tir.Expr, x: tir.Expr, r: tir.Expr, n: tir.Expr, s: tir.Expr) -> tir.Expr:
        row, column = y * step - top, x - left
        inside: tir.Expr = tir.Const(True, "bool")
        if top or bottom:
            inside = inside & (tir.Const(0) <= row) & (row < height)
        if left or right:
            inside = inside & (tir.Const(0) <= column) & (column < width)
        source = read((no, g, row, column, r, n, s))
        if isinstance(inside, tir.Const):
            return source.astype(dtype)
        if link is not None:
            return tir.select(_without_true(inside), source.astype(dtype), tir.Const(pad_value, dtype))
        return tir.select(_without_true(inside), source, tir.Const(pad_value, "int8")).astype(dtype)

    builder.data, builder.window = builder.name("data") if link is None else tensor.name, window
    return Accumulated(te.compute(shape, value, builder.data), rows)


def _repeated_axes(own: tuple[int, ...], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Of two accumulator shapes, the axes along which the first has one entry, the second several."""
    return tuple(axis for place, axis in enumerate(("cd", "y", "x"), 1) if own[place] == 1 < shape[place])


def _without_true(condition: tir.Expr) -> tir.Expr:
    """A conjunction without the constant True at its start."""
    if isinstance(condition, tir.BinOp) and condition.op == "and":
        if isinstance(condition.a, tir.Const):
            return condition.b
        return tir.BinOp("and", _without_true(condition.a), condition.b)
    return condition
