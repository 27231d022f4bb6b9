"""From a graph to an ONNX model: a trained one with its parameters, a quantised one in QDQ form with its scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...files import write_atomically
from ..frontends.onnx.elementwise import BINARY, UNARY
from ..frontends.onnx.types import element_type
from ..graph import Array, Call, Constant, Expr, Function, Module, Tuple, Var, use_counts
from ..graph.dtypes import numpy_dtype
from ..graph.visit import topological_order
from ..passes.cleanup import dce, fold_constants
from ..passes.scans import unroll_loops
from .errors import ExportError

OPSET, IR_VERSION = 20, 9
LATER_OPSET, LATER_IR_VERSION = 21, 10
"""For what only they have: blocks, and integers of 4 and of 16 bits. Where it can be avoided it is, since onnxruntime
1.32 cannot load some models of int8 with that opset."""

LATER = ("int4", "uint4", "int16", "uint16")

NEWEST_OPSET, NEWEST_IR_VERSION = 26, 13
NEWEST = ("nn.bitcast", "nn.cumulative_product")
"""Operators that came with the newest opset that is written here."""

SAME: dict[str, str] = {
    **{ours: onnxs for onnxs, ours in BINARY.items()}, **{f"nn.{ours}": onnxs for onnxs, ours in UNARY.items()},
    "barrier": "Identity", "nn.determinant": "Det", "nn.is_infinite": "IsInf", "nn.matmul": "MatMul",
    "nn.maximum": "Max", "nn.minimum": "Min", "nn.where": "Where",
}  # fmt: skip
"""Operators with the same operands, without attributes that would need a word."""

REDUCTIONS = {
    "nn.reduce_max": "ReduceMax", "nn.reduce_mean": "ReduceMean", "nn.reduce_min": "ReduceMin",
    "nn.reduce_product": "ReduceProd", "nn.reduce_sum": "ReduceSum",
}  # fmt: skip

Writer = Callable[["_File", Call, list[str], str], None]
"""Adds the nodes of a call whose operands have these names, and whose result gets that name."""


def export_onnx(module: Module, path: str | Path | None = None) -> onnx.ModelProto:
    """The ONNX model of a module as it is read or quantised; written to ``path`` if there is one.

    Inputs, outputs and constants keep their names, values those of their tensors. Constants are folded, but for what
    a dequantise reads: integers stay integers, behind a DequantizeLinear. Raises `ExportError`, which lists all
    operators without a form, and OSError.
    """
    folded = dce(fold_constants(unroll_loops(module)))
    calls = [node for node in dict.fromkeys(topological_order(folded.main.body)) if isinstance(node, Call)]
    missing = [f"{_name(node)}: {reason}" for node in calls if (reason := _refusal(node))]
    if missing:
        listed = "".join(f"\n  {line}" for line in missing)
        raise ExportError(
            f"{len(missing)} {'call has' if len(missing) == 1 else 'calls have'} no form in ONNX:{listed}"
        )
    if both := {param.name for param in folded.main.params} & set(folded.main.output_names):
        raise ExportError(f"{min(both)!r} is an input and an output, but ONNX has one name for one value")
    model = _File(folded).model(*_versions(calls))
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(f"ONNX has these operators for other element types alone: {error}") from None
    if path is not None:
        write_atomically(Path(path), model.SerializeToString())
    return model


def _versions(calls: Sequence[Call]) -> tuple[int, int]:
    """The opset and the version of the format: the oldest that have all of the calls."""
    if any(node.op in NEWEST for node in calls):
        return NEWEST_OPSET, NEWEST_IR_VERSION
    later = any(node.attr("block") or {node.dtype, node.args[0].dtype} & {*LATER}
                for node in calls if node.op in ("quantise", "dequantise"))  # fmt: skip
    return (LATER_OPSET, LATER_IR_VERSION) if later else (OPSET, IR_VERSION)


def _name(node: Call) -> str:
    op = node.op if isinstance(node.op, str) else "a fused function"
    return f"{op} ({node.span})" if node.span else op


def _refusal(node: Call) -> str:
    """Why a call cannot be written; nothing if it can."""
    if not isinstance(node.op, str):
        return "give the module before a target's passes"
    if node.op == "nn.modulo":
        return "" if node.attr("truncated") or not node.dtype.startswith(("float", "bfloat")) else (
            "of floats, ONNX has the remainder of the sign of the dividend alone"
        )  # fmt: skip
    if node.op == "nn.cast":
        return "" if node.attr("rounding") == "nearest" else "ONNX has no other rounding than to the nearest"
    if node.op in ("nn.shift_left", "nn.shift_right"):
        return "" if node.dtype.startswith("u") else "ONNX shifts unsigned integers alone"
    return "" if node.op in SAME or node.op in WRITERS else "there is no such operator"


class _File:
    """The nodes, constants and names of a model in the making."""

    def __init__(self, module: Module) -> None:
        self.main = module.main
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.names: dict[Expr, str] = {}
        self.named: set[str] = set()  # nodes
        self.taken = {param.name for param in self.main.params} | set(self.main.output_names)

    def model(self, opset: int, version: int) -> onnx.ModelProto:
        main = self.main
        biases = _biases(main)
        outputs: dict[Expr, str] = {}
        for value, name in zip(main.results, main.output_names, strict=True):
            if isinstance(value, Call):
                outputs.setdefault(value, name)
        for param in main.params:
            self.names[param] = param.name
        for node in dict.fromkeys(topological_order(main.body)):
            if isinstance(node, Constant):
                self.names[node] = self.constant(node.value, node.name)
            elif isinstance(node, Call) and node not in biases.values():
                self._call(node, biases.get(node), outputs.get(node) or self.fresh(node.span.tensor))
            elif not isinstance(node, (Var, Call, Tuple)):
                raise ExportError(f"{type(node).__name__} has no form in ONNX")
        for value, name in zip(main.results, main.output_names, strict=True):
            if outputs.get(value) != name:
                self.node("Identity", [self.names[value]], name)
        used = {name for node in self.nodes for name in node.input}
        graph = helper.make_graph(
            self.nodes, str(main.attrs.get("name", "main")),
            inputs=[_value_info(param.name, param) for param in main.params],
            outputs=[_value_info(name, value) for name, value in zip(main.output_names, main.results, strict=True)],
            initializer=[each for each in self.initializers if each.name in used],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, producer_name="weft", opset_imports=opsets, ir_version=version)

    def _call(self, node: Call, product: Call | None, result: str) -> None:
        self.names[node] = result
        assert isinstance(node.op, str)
        if product is not None:
            bias = next(arg for arg in node.args if arg is not product)
            assert isinstance(bias, Constant)
            operands = [*(self.names[arg] for arg in product.args), self.constant(bias.value.reshape(-1), bias.name)]
            WRITERS[str(product.op)](self, product, operands, result)
            return
        operands = [self.names[arg] for arg in node.args]
        if node.op in SAME:
            self.node(SAME[node.op], operands[:1] if node.op == "barrier" else operands, result, node)
        else:
            WRITERS[node.op](self, node, operands, result)

    def node(
        self, op: str, operands: Sequence[str], result: str, call: Call | None = None, **attributes: Any
    ) -> None:  # fmt: skip
        name = call.span.node if call is not None else ""
        if name in self.named:  # onnxruntime refuses two nodes of one name; without any they are welcome
            name = ""
        self.named.add(name)
        self.nodes.append(helper.make_node(op, operands, [result], name or None, **attributes))

    def constant(self, value: Array, name: str = "") -> str:
        name = self.fresh(name or "constant")
        self.initializers.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, np.int64))

    def fresh(self, wanted: str = "") -> str:
        """A name that nothing else has."""
        name = unique = wanted or "value"
        number = 0
        while unique in self.taken:
            number += 1
            unique = f"{name}_{number}"
        self.taken.add(unique)
        return unique


def _value_info(name: str, value: Expr) -> onnx.ValueInfoProto:
    kind = value.tensor_type
    return helper.make_tensor_value_info(name, element_type(kind.dtype), kind.shape)


def _biases(main: Function) -> dict[Call, Call]:
    """Sums that become the bias of the product that they stand behind."""
    uses = use_counts(main.body)
    found: dict[Call, Call] = {}
    for node in dict.fromkeys(topological_order(main.body)):
        if not isinstance(node, Call) or node.op != "nn.add":
            continue
        for product, constant in (node.args, node.args[::-1]):
            if not (isinstance(product, Call) and product.op in ("nn.conv2d", "nn.conv3d", "nn.dense")):
                continue
            if not isinstance(constant, Constant) or uses[product] > 1 or node.shape != product.shape:
                continue
            shape = (1,) * (len(node.shape) - len(constant.shape)) + constant.shape
            if shape == tuple(size if axis == 1 else 1 for axis, size in enumerate(node.shape)):
                found[node] = product
    return found


def _steps(node: Call) -> dict[str, Any]:
    """How a window goes over its input."""
    return {name: node.attr(name) for name in ("strides", "pads", "dilations")}


def _convolution(file: _File, node: Call, operands: list[str], result: str) -> None:
    kernel = node.args[1].shape[2:]
    file.node("Conv", operands, result, node, group=node.attr("groups"), kernel_shape=kernel, **_steps(node))


def _dense(file: _File, node: Call, operands: list[str], result: str) -> None:
    file.node("Gemm", operands, result, node, transB=1)


def _pool(op: str) -> Writer:
    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        if op == "AveragePool" and node.attr("kernel") == node.args[0].shape[2:] and not any(node.attr("pads")):
            file.node("GlobalAveragePool", operands, result, node)
            return
        counts = {"count_include_pad": int(node.attr("count_include_pad"))} if op == "AveragePool" else {}
        file.node(op, operands, result, node, kernel_shape=node.attr("kernel"), **_steps(node), **counts)

    return write


def _clip(file: _File, node: Call, operands: list[str], result: str) -> None:
    low, high = node.attr("low"), node.attr("high")
    if (low, high) == (0.0, math.inf):
        file.node("Relu", operands, result, node)
        return
    limits = [file.constant(np.array(limit, numpy_dtype(node.dtype))) if math.isfinite(limit) else ""
              for limit in (low, high)]  # fmt: skip
    while limits and not limits[-1]:
        limits.pop()
    file.node("Clip", [*operands, *limits], result, node)


def _reduction(file: _File, node: Call, operands: list[str], result: str) -> None:
    axes = file.integers(node.attr("axes"))
    file.node(REDUCTIONS[str(node.op)], [*operands, axes], result, node, keepdims=int(node.attr("keepdims")),
              noop_with_empty_axes=1)  # fmt: skip


def _extreme_place(op: str) -> Writer:
    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        file.node(op, operands, result, node, axis=node.attr("axis"), keepdims=int(node.attr("keepdims")),
                  select_last_index=int(node.attr("last")))  # fmt: skip

    return write


def _with(op: str, **names: str) -> Writer:
    """An operator whose attributes have other names."""

    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        file.node(op, operands, result, node, **{theirs: node.attr(own) for theirs, own in names.items()})

    return write


def _cumulative(op: str) -> Writer:
    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        axis = file.constant(np.array(node.attr("axis"), np.int64))
        file.node(op, [*operands, axis], result, node, exclusive=int(node.attr("exclusive")),
                  reverse=int(node.attr("reverse")))  # fmt: skip

    return write


def _cast(file: _File, node: Call, operands: list[str], result: str) -> None:
    to = element_type(node.attr("to"))
    file.node("Cast", operands, result, node, to=to, saturate=int(node.attr("saturate")))


def _shape(op: str) -> Writer:
    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        attributes = {"allowzero": 1} if op == "Reshape" else {}
        file.node(op, [*operands, file.integers(node.attr("shape"))], result, node, **attributes)

    return write


def _pad(file: _File, node: Call, operands: list[str], result: str) -> None:
    pads = node.attr("pads")
    axes = len(pads) // 2
    front = (0,) * (len(node.shape) - axes)
    amounts = file.integers((*front, *pads[:axes], *front, *pads[axes:]))
    value = file.constant(np.array(node.attr("value"), numpy_dtype(node.dtype)))
    file.node("Pad", [*operands, amounts, value], result, node)


def _depth_to_space(file: _File, node: Call, operands: list[str], result: str) -> None:
    batch, channels, height, width = node.args[0].shape
    (down, right), (top, left, _, _) = node.attr("factors"), node.attr("left_out")
    split, turned, whole = (file.fresh() for _ in range(3))
    parts = file.integers((batch, down, right, channels // (down * right), height, width))
    file.node("Reshape", [*operands, parts], split, node, allowzero=1)
    file.node("Transpose", [split], turned, perm=(0, 3, 4, 1, 5, 2))
    joined = file.integers((*node.shape[:2], height * down, width * right))
    file.node("Reshape", [turned, joined], whole, allowzero=1)
    limits = [(top, left), (top + node.shape[2], left + node.shape[3]), (2, 3)]
    file.node("Slice", [whole, *map(file.integers, limits)], result)


def _slice(file: _File, node: Call, operands: list[str], result: str) -> None:
    starts, sizes, steps = node.attr("starts"), node.attr("sizes"), node.attr("steps")
    ends = [start + size * step for start, size, step in zip(starts, sizes, steps, strict=True)]
    ends = [end if end >= 0 else np.iinfo(np.int64).min for end in ends]  # -1 would be the last element
    limits = [file.integers(each) for each in (starts, ends, range(len(starts)), steps)]
    file.node("Slice", [*operands, *limits], result, node)


def _top_k(file: _File, node: Call, operands: list[str], result: str) -> None:
    k = file.integers([node.attr("k")])
    made = helper.make_node("TopK", [*operands, k], [file.fresh(), result], axis=node.attr("axis"),
                            largest=int(node.attr("largest")))  # fmt: skip
    file.nodes.append(made)


def _scatter(op: str) -> Writer:
    words = {"none": "none", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}

    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        axis = {"axis": node.attr("axis")} if "axis" in node.attrs else {}
        file.node(op, operands, result, node, reduction=words[node.attr("reduction")], **axis)

    return write


def _dilate(file: _File, node: Call, operands: list[str], result: str) -> None:
    """Zeros behind each element, along an axis of their own; those behind the last one are cut off."""
    x, factors = node.args[0], node.attr("factors")
    shape = list(x.shape)
    first = len(shape) - len(factors)
    name = operands[0]
    zero = file.constant(np.array(0, numpy_dtype(node.dtype)))
    for axis, factor in enumerate(factors, first):
        apart, padded, joined, cut = (file.fresh() for _ in range(4))
        split = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
        file.node("Reshape", [name, file.integers(split)], apart, node, allowzero=1)
        behind = [0] * len(split) + [factor - 1 if place == axis + 1 else 0 for place in range(len(split))]
        file.node("Pad", [apart, file.integers(behind), zero], padded)
        shape[axis] *= factor
        file.node("Reshape", [padded, file.integers(shape)], joined, allowzero=1)
        shape[axis] = node.shape[axis]
        limits = [file.integers([each]) for each in (0, shape[axis], axis)]
        file.node("Slice", [joined, *limits], cut)
        name = cut
    file.node("Identity", [name], result)


def _deform_convolution(file: _File, node: Call, operands: list[str], result: str) -> None:
    x, w, offset, mask = operands
    file.node("DeformConv", [x, w, offset, "", mask], result, node, group=node.attr("groups"),
              offset_group=node.attr("offset_groups"), kernel_shape=node.args[1].shape[2:], **_steps(node))  # fmt: skip


def _grid_sample(file: _File, node: Call, operands: list[str], result: str) -> None:
    file.node("GridSample", operands, result, node, mode=node.attr("mode"), padding_mode=node.attr("padding"),
              align_corners=int(node.attr("align_corners")))  # fmt: skip


def _roi_align(file: _File, node: Call, operands: list[str], result: str) -> None:
    height, width = node.attr("size")
    transform = "half_pixel" if node.attr("half_pixel") else "output_half_pixel"
    file.node("RoiAlign", operands, result, node, output_height=height, output_width=width, mode=node.attr("mode"),
              spatial_scale=node.attr("spatial_scale"), sampling_ratio=node.attr("sampling_ratio"),
              coordinate_transformation_mode=transform)  # fmt: skip


def _max_pool_indices(file: _File, node: Call, operands: list[str], result: str) -> None:
    made = helper.make_node("MaxPool", operands, [file.fresh(), result], kernel_shape=node.attr("kernel"),
                            storage_order=int(node.attr("column_major")), **_steps(node))  # fmt: skip
    file.nodes.append(made)


def _unpool(file: _File, node: Call, operands: list[str], result: str) -> None:
    """Each element added at its index: MaxUnpool leaves open what happens where windows share their maximum."""
    x, places, empty, image = (file.fresh() for _ in range(4))
    for name, flat in zip(operands, (x, places), strict=True):
        file.node("Reshape", [name, file.integers([-1])], flat)
    zero = file.constant(np.zeros(1, numpy_dtype(node.dtype)))
    file.node("Expand", [zero, file.integers([math.prod(node.shape)])], empty)
    file.node("ScatterElements", [empty, places, x], image, axis=0, reduction="add")
    file.node("Reshape", [image, file.integers(node.shape)], result, node, allowzero=1)


def _non_max_suppression(file: _File, node: Call, operands: list[str], result: str) -> None:
    """ONNX gives as many rows as there are boxes left: rows of -1 follow, up to the number that there can be."""
    kept, padded = file.fresh(), file.fresh()
    limits = [file.constant(np.array(node.attr("most"), np.int64)),
              file.constant(np.array(node.attr("overlap"), np.float32))]  # fmt: skip
    if node.attr("least") != -math.inf:
        limits.append(file.constant(np.array(node.attr("least"), np.float32)))
    file.node("NonMaxSuppression", [*operands, *limits], kept, node, center_point_box=int(node.attr("centred")))
    file.node("Concat", [kept, file.constant(np.full(node.shape, -1, np.int64))], padded, axis=0)
    file.node("Slice", [padded, *map(file.integers, ([0], [node.shape[0]], [0]))], result)


def _find(file: _File, node: Call, operands: list[str], result: str) -> None:
    """Each element beside all keys: the last that is equal, and behind the keys a place for what none is equal to."""
    x, keys = operands
    floats = node.args[0].dtype.startswith(("float", "bfloat"))
    apart, equal, number, place, some, last = (file.fresh() for _ in range(6))
    file.node("Unsqueeze", [x, file.integers([-1])], apart)
    file.node("Equal", [apart, keys], equal)
    if floats:
        nan, key_nan, both, equal_value = file.fresh(), file.fresh(), file.fresh(), equal
        equal = file.fresh()
        file.node("IsNaN", [apart], nan)
        file.node("IsNaN", [keys], key_nan)
        file.node("And", [nan, key_nan], both)
        file.node("Or", [equal_value, both], equal)
    file.node("Cast", [equal], number, to=element_type("int32"))
    file.node("ReduceMax", [number, file.integers([-1])], some, keepdims=0)
    file.node("ArgMax", [number], place, axis=-1, keepdims=0, select_last_index=1)
    file.node("Cast", [some], last, to=element_type("bool"))
    none = file.constant(np.array(node.args[1].shape[0], np.int64))
    file.node("Where", [last, place, none], result, node)


def _bitcast(file: _File, node: Call, operands: list[str], result: str) -> None:
    file.node("BitCast", operands, result, node, to=element_type(node.attr("to")))


def _quantised(op: str) -> Writer:
    def write(file: _File, node: Call, operands: list[str], result: str) -> None:
        attributes = {"block_size": node.attr("block")} if node.attr("block") else {}
        if node.args[1].shape:
            attributes["axis"] = node.attr("axis")
        if op == "QuantizeLinear":
            attributes["saturate"] = int(node.attr("saturate"))
        file.node(op, operands, result, node, **attributes)

    return write


WRITERS: dict[str, Writer] = {
    "concat": _with("Concat", axis="axis"), "depth_to_space": _depth_to_space,
    "dequantise": _quantised("DequantizeLinear"), "dilate": _dilate,
    "expand": _shape("Expand"), "gather": _with("Gather", axis="axis"),
    "gather_elements": _with("GatherElements", axis="axis"), "gather_nd": _with("GatherND", batch_dims="batch_dims"),
    "non_max_suppression": _non_max_suppression, "nn.bitcast": _bitcast,
    "nn.cumulative_product": _cumulative("CumProd"), "nn.deform_conv2d": _deform_convolution, "nn.find": _find,
    "nn.grid_sample": _grid_sample, "nn.max_pool_indices": _max_pool_indices, "nn.roi_align": _roi_align,
    "nn.unpool": _unpool,
    "nn.arg_max": _extreme_place("ArgMax"), "nn.arg_min": _extreme_place("ArgMin"),
    "nn.average_pool": _pool("AveragePool"), "nn.batch_norm": _with("BatchNormalization", epsilon="epsilon"),
    "nn.cast": _cast, "nn.clip": _clip, "nn.conv2d": _convolution, "nn.conv3d": _convolution,
    "nn.cumulative_sum": _cumulative("CumSum"), "nn.dense": _dense, "nn.einsum": _with("Einsum", equation="equation"),
    "nn.max_pool": _pool("MaxPool"), "nn.modulo": lambda file, node, operands, result: file.node(
        "Mod", operands, result, node, fmod=int(node.attr("truncated"))),
    "nn.shift_left": lambda file, node, operands, result: file.node(
        "BitShift", operands, result, node, direction="LEFT"),
    "nn.shift_right": lambda file, node, operands, result: file.node(
        "BitShift", operands, result, node, direction="RIGHT"),
    "nn.softmax": _with("Softmax", axis="axis"), "pad": _pad, "quantise": _quantised("QuantizeLinear"),
    "reshape": _shape("Reshape"), "scatter_elements": _scatter("ScatterElements"), "scatter_nd": _scatter("ScatterND"),
    "slice": _slice, "top_k": _top_k, "transpose": _with("Transpose", perm="perm"),
    **dict.fromkeys(REDUCTIONS, _reduction),
}  # fmt: skip
"""Operators whose attributes need a word."""
