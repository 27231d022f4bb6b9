"""Packed primitive functions as tensor expressions, through the ``lower`` of each operator's entry (`operators`,
`window_operators`), and what a schedule has to know of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ... import tensor as te
from ...graph.ir import Array, Call, Constant, Expr, Function, Var
from ...graph.registry import Family, operator_of
from ...graph.visit import topological_order
from ...operators.lowering import lower_call
from ...tensor import ir as tir
from ...tensor.view import NotLoweredError, View
from ..errors import CompileError
from .builder import PackedBuilder, Window
from .operators import plain_form
from .packed_layout import Blocks, blocks_of


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

    @cached_property
    def signature(self) -> str:
        """What tilings and cycles depend on: shapes, the window, and the stages; not names, constants, nor scales or
        zero points."""
        names = {tensor.name: f"in{number}" for number, tensor in enumerate(self.inputs)}

        def renamed(value: Any) -> Any:
            if isinstance(value, str):
                return names.get(value) or names.get(value.removesuffix("_wide"), value)
            return [renamed(each) for each in value]

        described = {
            "kind": self.kind,
            "blocks": asdict(self.blocks),
            "inputs": [[list(tensor.shape), tensor.dtype] for tensor in self.inputs],
            "output": list(self.output.shape),
            "stages": {name: renamed(value) for name, value in asdict(self.stages).items()},
            "window": asdict(self.window) if self.window is not None else None,
            "input_groups": self.input_groups,
        }
        return json.dumps(described, sort_keys=True, separators=(",", ":"))

    @property
    def matrix_weights(self) -> str:
        """The packed tensor of weights that the anchor's reduction multiplies entries with, as matrices; or empty."""
        return next((name for stage, name in self.stages.parameters if stage == self.stages.reduce), "")


def lower_function(function: Function) -> Kernel:
    """The tensor expressions of a packed primitive function whose result is one int8 tensor.

    Raises CompileError naming the operator that has no compute rule.
    """
    calls = [node for node in topological_order(function.body) if isinstance(node, Call)]
    place = f"function {function.name!r}"
    if not calls:
        raise CompileError("it computes nothing", at=place)
    builder = PackedBuilder(blocks=blocks_of(calls[0].attrs["blocks"]))
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
                builder.narrow = node is function.body
                values[node] = _lowered(builder, node, tuple(values[arg] for arg in node.args), place)
    result = values[function.body]
    if result.dtype != "int8":
        result = builder.stage(result.shape, result.__getitem__, "narrow", narrow=True)
    output = _to_activation(builder, result)
    anchor = builder.anchor
    return Kernel(
        function.name,
        plain_form(str(anchor.op)) if anchor is not None else "elementwise",
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
    builder = PackedBuilder(blocks=blocks_of(blocks))
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


def _lowered(builder: PackedBuilder, node: Call, operands: tuple[te.Tensor, ...], place: str) -> te.Tensor:
    """The result of a packed operator."""
    entry, reason = operator_of(node), "only packed operators do"
    if entry is not None and entry.family is Family.PACKED:
        try:
            result = lower_call(builder, node, tuple(View.of(tensor) for tensor in operands)).tensor
        except NotLoweredError as error:
            reason = error.message
        else:
            if result is not None:
                return result
            reason = "its result is not a stage"
    raise CompileError(f"operator {node.op!r} cannot run on the accelerator: {reason}", at=place)


def _to_activation(builder: PackedBuilder, tensor: te.Tensor) -> te.Tensor:
    """The copy of the narrowed result into the activation layout."""
    outer, ko, height, width, rows, batch, lanes = tensor.shape
    entries = builder.blocks.input_rows
    parts = entries // rows

    def read(no: tir.Expr, cd: tir.Expr, y: tir.Expr, x: tir.Expr, r: tir.Expr, n: tir.Expr, s: tir.Expr) -> tir.Expr:
        if parts == 1:
            return tensor[(no, cd, y, x, r, n, s)]
        return tensor[(no, cd * parts + r // rows, y, x, r % rows, n, s)]

    return te.compute((outer, ko // parts, height, width, entries, batch, lanes), read, builder.name("output"))
