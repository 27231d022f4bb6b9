"""Compute rules: what each packed operator computes, as tensor expressions. They know layouts, but no instructions.

Every stage does one thing on whole entries: a copy into an entry layout (with padding), a reduction, or one arithmetic
step. So a target can tensorize stage by stage. Between operators values are int32 in the accumulator layout
``(No, Ko, H, W, ro, n, bs)``, also those that the graph calls int8: their range is the same. Only the last stage
narrows, and one more copies it to the activation layout ``(No, Cd, H, W, r, n, bs)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import tensor as te
from ...graph.ir import Array, Call, Constant, Expr, Function, Var
from ...graph.registry import Unsupported, operator, set_lowering
from ...graph.visit import topological_order
from ...operators.packed_layout import Blocks, blocks_of
from ...tensor import ir as tir
from ..errors import CompileError

Index = tuple[tir.Expr, ...]
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

    def reach(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the padded copy that ``rows x columns`` outputs need."""
        height = (rows - 1) * self.steps[0] + (self.kernel[0] - 1) * self.dilations[0] + 1
        width = (columns - 1) * self.steps[1] + (self.kernel[1] - 1) * self.dilations[1] + 1
        return height, width


@dataclass(frozen=True)
class Stages:
    """Names of the stages of a kernel by what they are, which is all that a schedule rule looks at.

    ``data``: the anchor's padded input. ``widened``: other activations from DRAM as int32. ``weights``: widened weights
    from DRAM. ``reduce``: the anchor's reduction. ``vector``: arithmetic in the accumulator layout in the order of
    execution, the last of which narrows. ``in_place``: of these, (stage, tensor to overwrite). ``parameters``:
    (stage, packed tensor that it reads from DRAM). ``output`` copies to DRAM. Without an anchor its names are empty.
    """

    data: str
    widened: tuple[str, ...]
    weights: str
    reduce: str
    vector: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, str], ...]
    output: str


@dataclass(frozen=True)
class Kernel:
    """A fused function as tensor expressions. ``inputs`` are the function's parameters, then its constants."""

    name: str
    kind: str
    inputs: tuple[te.Tensor, ...]
    constants: tuple[tuple[te.Tensor, Array], ...]
    output: te.Tensor
    stages: Stages
    blocks: Blocks
    window: Window | None = None  # of the anchor, in the coordinates of its padded input
    input_groups: int = 0  # that the anchor's reduction runs over; 0: each output group reads only its own input group

    @property
    def matrix_weights(self) -> str:
        """The packed tensor of weights that the anchor's reduction multiplies entries with, as matrices; or empty."""
        return next((name for stage, name in self.stages.parameters if stage == self.stages.reduce), "")


@dataclass
class Builder:
    """Collects the stages of one kernel."""

    blocks: Blocks
    data: str = ""
    widened: list[str] = field(default_factory=list)
    weights: str = ""
    reduce: str = ""
    vector: list[str] = field(default_factory=list)
    in_place: list[tuple[str, str]] = field(default_factory=list)
    parameters: list[tuple[str, str]] = field(default_factory=list)
    window: Window | None = None
    input_groups: int = 0
    anchor: Call | None = None
    _names: set[str] = field(default_factory=set)
    _widened: dict[str, te.Tensor] = field(default_factory=dict)

    def name(self, wish: str) -> str:
        """``wish``, or the first of ``wish1``, ``wish2``, ... that is free."""
        number, name = 0, wish
        while name in self._names:
            number += 1
            name = f"{wish}{number}"
        self._names.add(name)
        return name

    def accumulator_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Accumulator layout of a packed tensor of either layout."""
        outer, groups, height, width, rows, batch, lanes = shape
        ko = groups * rows // self.blocks.output_rows
        return (outer, ko, height, width, self.blocks.output_rows, batch, lanes)

    def in_accumulator(self, tensor: te.Tensor) -> te.Tensor:
        """The tensor as int32 in the accumulator layout; one from DRAM is widened by a copy of its own."""
        if tensor.dtype == "int32":
            return tensor
        if tensor.name not in self._widened:
            shape = self.accumulator_shape(tensor.shape)
            source = activation_reader(tensor, self.blocks.output_rows)
            name = self.name(f"{tensor.name}_wide")
            self._widened[tensor.name] = te.compute(shape, lambda *index: source(index).astype("int32"), name)
            self.widened.append(name)
        return self._widened[tensor.name]

    def stage(self, shape: tuple[int, ...], formula: Formula, wish: str, *, narrow: bool) -> te.Tensor:
        """An arithmetic stage; with ``narrow`` its result is int8."""
        name = self.name(wish)
        self.vector.append(name)
        dtype: tir.DType = "int8" if narrow else "int32"
        return te.compute(shape, lambda *index: formula(index).astype(dtype), name)


LoweringRule = Callable[[Builder, Call, tuple[te.Tensor, ...], bool], te.Tensor]
"""From builder, call, operands (DRAM tensors or accumulator tensors) and whether to narrow, to the result."""


def lower_function(function: Function) -> Kernel:
    """The tensor expressions of a packed primitive function whose result is one int8 tensor.

    Raises CompileError naming the operator that has no compute rule.
    """
    calls = [node for node in topological_order(function.body) if isinstance(node, Call)]
    place = f"function {function.name!r}"
    if not calls:
        raise CompileError("it computes nothing", at=place)
    builder = Builder(blocks_of(calls[0].attrs["blocks"]))
    values: dict[Expr, te.Tensor] = {}
    constants: list[tuple[te.Tensor, Array]] = []
    for param in function.params:
        values[param] = te.placeholder(param.shape, _dtype(param), builder.name(param.name))
    for node in topological_order(function.body):
        match node:
            case Var() if node not in values:
                raise CompileError(f"variable {node.name!r} is no parameter", at=place)
            case Constant():
                tensor = te.placeholder(node.shape, _dtype(node), builder.name(f"constant{len(constants)}"))
                constants.append((tensor, node.value))
                values[node] = tensor
            case Call():
                operands = tuple(values[arg] for arg in node.args)
                values[node] = _rule(node, place)(builder, node, operands, node is function.body)
    result = values[function.body]
    if result.dtype != "int8":
        result = builder.stage(result.shape, result.__getitem__, "narrow", narrow=True)
    output = _to_activation(builder, result)
    anchor = builder.anchor
    return Kernel(
        function.name,
        str(anchor.op).removeprefix("packed_") if anchor is not None else "elementwise",
        (*(values[param] for param in function.params), *(tensor for tensor, _ in constants)),
        tuple(constants),
        output,
        Stages(builder.data, tuple(builder.widened), builder.weights, builder.reduce, tuple(builder.vector),
               tuple(builder.in_place), tuple(builder.parameters), output.name),
        builder.blocks,
        builder.window,
        builder.input_groups,
    )  # fmt: skip


def copy_kernel(name: str, shape: tuple[int, ...], blocks: object) -> Kernel:
    """Copies an activation of packed ``shape`` through the core, as it is."""
    builder = Builder(blocks_of(blocks))
    source = te.placeholder(shape, "int8", builder.name("x0"))
    wide = builder.in_accumulator(source)
    output = _to_activation(builder, builder.stage(wide.shape, wide.__getitem__, "narrow", narrow=True))
    stages = Stages("", tuple(builder.widened), "", "", tuple(builder.vector), (), (), output.name)
    return Kernel(name, "elementwise", (source,), (), output, stages, builder.blocks)


def _dtype(node: Expr) -> tir.DType:
    if node.dtype == "int8":
        return "int8"
    if node.dtype == "int32":
        return "int32"
    raise CompileError(f"a packed tensor is int8 or int32, not {node.dtype}")


def _rule(call: Call, place: str) -> LoweringRule:
    name = call.op if isinstance(call.op, str) else call.op.name
    rule = operator(name, call.span).lower
    if isinstance(rule, Unsupported):
        raise CompileError(f"operator {name!r} cannot run on the accelerator: {rule.reason}", at=place)
    return rule


def activation_reader(tensor: te.Tensor, rows: int) -> Formula:
    """Reads an activation tensor (No, Cd, H, W, r, n, bs) as groups of ``rows`` rows: (No, G, H, W, rows, n, bs)."""
    parts = tensor.shape[4] // rows

    def read(index: Index) -> tir.Expr:
        outer, group, height, width, row, batch, lane = index
        if parts == 1:
            return tensor[(outer, group, height, width, row, batch, lane)]
        return tensor[(outer, group // parts, height, width, group % parts * rows + row, batch, lane)]

    return read


def _to_activation(builder: Builder, tensor: te.Tensor) -> te.Tensor:
    """The copy of the narrowed result into the activation layout."""
    outer, ko, height, width, rows, batch, lanes = tensor.shape
    entries = builder.blocks.input_rows
    parts = entries // rows

    def read(no: tir.Expr, cd: tir.Expr, y: tir.Expr, x: tir.Expr, r: tir.Expr, n: tir.Expr, s: tir.Expr) -> tir.Expr:
        if parts == 1:
            return tensor[(no, cd, y, x, r, n, s)]
        return tensor[(no, cd * parts + r // rows, y, x, r % rows, n, s)]

    return te.compute((outer, ko // parts, height, width, entries, batch, lanes), read, builder.name("output"))


def _window(attrs: Mapping[str, Any], kernel: tuple[int, int]) -> Window:
    return Window(kernel, attrs["strides"], attrs["pads"], attrs.get("dilations", (1, 1)))


def padded_copy(
    builder: Builder, tensor: te.Tensor, window: Window, rows: int, pad_value: int, dtype: tir.DType
) -> te.Tensor:
    """The activation with its padding, in groups of ``rows`` rows, as ``dtype``.

    Index (no, group, y, x, ...) holds the input's row ``y * step - top`` and column ``x - left``, or ``pad_value``.
    """
    height, width = tensor.shape[2:4]
    top, left, bottom, right = window.pads
    step = window.row_step
    parts = tensor.shape[4] // rows
    padded = ((height + top + bottom - 1) // step + 1, width + left + right)
    shape = (tensor.shape[0], tensor.shape[1] * parts, *padded, rows, *tensor.shape[5:])
    read = activation_reader(tensor, rows)

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
        return tir.select(_without_true(inside), source, tir.Const(pad_value, "int8")).astype(dtype)

    builder.data, builder.window = builder.name("data"), window
    return te.compute(shape, value, builder.data)


def _without_true(condition: tir.Expr) -> tir.Expr:
    """A conjunction without the constant True at its start."""
    if isinstance(condition, tir.BinOp) and condition.op == "and":
        if isinstance(condition.a, tir.Const):
            return condition.b
        return tir.BinOp("and", _without_true(condition.a), condition.b)
    return condition


def _conv2d(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    x, w = operands
    blocks = builder.blocks
    _, kc, kernel_h, kernel_w, _, _ = w.shape
    window = _window(call.attrs, (kernel_h, kernel_w))
    rows, sub = blocks.block_in // blocks.sub_block, blocks.sub_block
    data = padded_copy(builder, x, window, rows, call.attr("pad_value"), "int8")
    axes = [te.reduce_axis(kc, "kc"), te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw"),
            te.reduce_axis(rows, "rk"), te.reduce_axis(sub, "sk")]  # fmt: skip
    k, kh, kw, rk, sk = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, k, *window.place(y, x, kh, kw), rk, n, sk)]
        weight = w[ko, k, kh, kw, ro * sub + so, rk * sub + sk]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce, builder.input_groups = call, builder.name("acc"), kc
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


def _grouped_conv2d(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    x, w = operands
    _, kernel_h, kernel_w, _, block = w.shape
    window = _window(call.attrs, (kernel_h, kernel_w))
    data = padded_copy(builder, x, window, 1, call.attr("pad_value"), "int8")
    axes = [te.reduce_axis(kernel_h, "kh"), te.reduce_axis(kernel_w, "kw"),
            te.reduce_axis(1, "rk"), te.reduce_axis(block, "sk")]  # fmt: skip
    kh, kw, rk, sk = axes

    def product(
        no: tir.Expr, ko: tir.Expr, y: tir.Expr, x: tir.Expr, ro: tir.Expr, n: tir.Expr, so: tir.Expr
    ) -> te.Reduction:
        value = data[(no, ko, *window.place(y, x, kh, kw), rk, n, sk)]
        weight = w[ko, kh, kw, ro * block + so, rk * block + sk]
        return te.sum(value.astype("int32") * weight.astype("int32"), axes)

    builder.anchor, builder.reduce = call, builder.name("acc")
    builder.parameters.append((builder.reduce, w.name))
    return te.compute(call.shape, product, builder.reduce)


def _depthwise(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    x, w = operands
    window = _window(call.attrs, (w.shape[1], w.shape[2]))
    data = padded_copy(builder, x, window, builder.blocks.output_rows, call.attr("pad_value"), "int32")
    builder.weights = builder.name("weights")
    weights = te.compute(w.shape, lambda *index: w[index].astype("int32"), builder.weights)
    return _windowed(builder, call, data, window, lambda value, index, kh, kw: te.sum(
        value * weights[index[1], kh, kw, index[4], index[5], index[6]], [kh, kw]))  # fmt: skip


def _pool(pad_value: str | int, reduction: Callable[..., te.Reduction]) -> LoweringRule:
    def rule(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
        window = _window(call.attrs, call.attr("kernel"))
        pad = pad_value if isinstance(pad_value, int) else call.attr(pad_value)
        data = padded_copy(builder, operands[0], window, builder.blocks.output_rows, pad, "int32")
        return _windowed(builder, call, data, window, lambda value, index, kh, kw: reduction(value, [kh, kw]))

    return rule


def _windowed(
    builder: Builder, call: Call, data: te.Tensor, window: Window,
    reduction: Callable[[tir.Expr, Index, te.ReduceAxis, te.ReduceAxis], te.Reduction],
) -> te.Tensor:  # fmt: skip
    """A reduction over the window of every element of the accumulator layout."""
    kh, kw = te.reduce_axis(window.kernel[0], "kh"), te.reduce_axis(window.kernel[1], "kw")
    shape = builder.accumulator_shape(call.shape)

    def value(*index: tir.Expr) -> te.Reduction:
        no, ko, y, x, ro, n, so = index
        return reduction(data[(no, ko, *window.place(y, x, kh, kw), ro, n, so)], index, kh, kw)

    builder.anchor, builder.reduce = call, builder.name("acc")
    return te.compute(shape, value, builder.reduce)


def _requantise(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    x, params = builder.in_accumulator(operands[0]), operands[1]
    zero_point, left_shift = call.attr("zero_point"), call.attr("left_shift")

    def formula(index: Index) -> tir.Expr:
        bias, multiplier, shift = (params[(index[1], entry, *index[4:])] for entry in range(3))
        product = (x[index] + bias).astype("int64") * multiplier.astype("int64")
        amount = shift.astype("int64")
        value = (product + (tir.Const(1) << (amount - 1))) >> amount
        value = value + zero_point if zero_point else value
        value = tir.clamp(value, call.attr("low"), call.attr("high"))
        return value << left_shift if left_shift else value

    result = builder.stage(x.shape, formula, "requantised", narrow=narrow)
    builder.parameters.append((result.name, params.name))
    return result


def _multiply(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    a, b = (builder.in_accumulator(operand) for operand in operands)
    return builder.stage(a.shape, lambda index: a[index] * b[index], "product", narrow=narrow)


def _immediate(attribute: str, formula: Callable[[tir.Expr, int], tir.Expr]) -> LoweringRule:
    def rule(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
        x, value = builder.in_accumulator(operands[0]), call.attr(attribute)
        return builder.stage(x.shape, lambda index: formula(x[index], value), "scaled", narrow=narrow)

    return rule


def _multiply_accumulate(builder: Builder, call: Call, operands: tuple[te.Tensor, ...], narrow: bool) -> te.Tensor:
    accumulator, x = (builder.in_accumulator(operand) for operand in operands)
    weight = call.attr("weight")
    result = builder.stage(
        accumulator.shape, lambda index: accumulator[index] + x[index] * weight, "accumulated", narrow=False
    )
    builder.in_place.append((result.name, accumulator.name))
    return result


RULES: dict[str, LoweringRule] = {
    "packed_conv2d": _conv2d,
    "packed_grouped_conv2d": _grouped_conv2d,
    "packed_depthwise_conv2d": _depthwise,
    "packed_max_pool": _pool(-128, te.max),
    "packed_sum_pool": _pool("pad_value", te.sum),
    "packed_requantise": _requantise,
    "packed_multiply": _multiply,
    "packed_multiply_immediate": _immediate("weight", lambda x, value: x * value),
    "packed_subtract_immediate": _immediate("value", lambda x, value: x - value),
    "packed_multiply_accumulate": _multiply_accumulate,
}

for _name, _lower in RULES.items():
    set_lowering(_name, _lower)
