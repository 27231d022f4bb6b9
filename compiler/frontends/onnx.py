"""The ONNX front end: `from_onnx` reads a quantised model into the graph IR.

Accepted are the QDQ form, the QLinear* form and the *Integer form with constant scales, as onnxruntime's quantiser
writes them, with 8-bit activations and weights. What cannot be read is refused with a `ModelError` that names the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from ..graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    topological_order,
)
from .errors import ModelError
from .onnx_node import Node
from .onnx_operators import CONVERTERS

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_INPUT_TYPES = ("float32", "int8", "uint8")
_DYNAMIC_OUTPUTS = ("DynamicQuantizeLinear",)  # refused by their converters, whatever the number of their outputs


def from_onnx(
    source: str | Path | bytes | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    require_quantised: bool = True,
) -> Module:
    """The module of a model given as a path, as the bytes of a file, or as a protobuf.

    ``shapes`` gives the shape of inputs whose dimensions are not fixed in the model. With ``require_quantised``
    (the default) a convolution or a matrix product with floating-point weights is refused.
    Raises `ModelError`.
    """
    model = _load(source)
    module = _Reader(model, dict(shapes or {})).module()
    if require_quantised:
        _require_quantised(module)
    return module


def _load(source: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(source, onnx.ModelProto):
        model, name = source, "the model"
    else:
        name = "the model" if isinstance(source, bytes) else repr(str(source))
        try:
            model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
        except (DecodeError, ValueError) as error:
            raise ModelError(f"{name} is not a complete ONNX file: {error}", hint="is it truncated?") from None
        except OSError as error:
            raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None
        except onnx.checker.ValidationError as error:
            raise ModelError(f"{name} is not a valid ONNX file: {str(error).splitlines()[0]}") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(f"{name} is not a complete ONNX file: it has no graph with outputs", hint="is it truncated?")
    return model


class _Reader:
    """Reads one model: every tensor name becomes a value of the graph."""

    def __init__(self, model: onnx.ModelProto, shapes: dict[str, Sequence[int]]) -> None:
        self.graph = model.graph
        self.shapes = shapes
        versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
        self.opset = max(versions, default=1)
        self.values: dict[str, Expr] = {}
        self.params: list[Var] = []

    def module(self) -> Module:
        self._initialisers()
        self._inputs()
        nodes = self._ordered_nodes()
        self._refuse_unknown_operators(nodes)
        for name, node in nodes:
            self._convert(name, node)
        outputs = [output.name for output in self.graph.output]
        for output in outputs:
            if output not in self.values:
                raise ModelError(f"output {output!r} is not produced by any node")
        results = tuple(self.values[output] for output in outputs)
        body = results[0] if len(results) == 1 else Tuple(results)
        return Module(Function(tuple(self.params), body, Attrs({"name": "main", "outputs": tuple(outputs)})))

    def _initialisers(self) -> None:
        if self.graph.sparse_initializer:
            raise ModelError("sparse initializers are not supported")
        for tensor in self.graph.initializer:
            self.values[tensor.name] = Constant(_array(tensor, f"initializer {tensor.name!r}"), tensor.name)

    def _inputs(self) -> None:
        inputs = [value for value in self.graph.input if value.name not in self.values]
        unknown = sorted(set(self.shapes) - {value.name for value in inputs})
        if unknown:
            known = ", ".join(repr(value.name) for value in inputs)
            raise ModelError(f"a shape is given for {unknown[0]!r}, but the inputs are {known}")
        for value in inputs:
            kind = value.type.tensor_type
            dtype = _dtype_name(kind.elem_type)
            if dtype not in _INPUT_TYPES:
                raise ModelError(f"input {value.name!r} is {dtype}, but must be one of {', '.join(_INPUT_TYPES)}")
            var = Var(value.name, TensorType(self._shape(value), dtype), Span((), value.name))
            self.params.append(var)
            self.values[value.name] = var

    def _shape(self, value: onnx.ValueInfoProto) -> tuple[int, ...]:
        kind = value.type.tensor_type
        if not kind.HasField("shape"):
            if value.name in self.shapes:
                return tuple(self.shapes[value.name])
            raise ModelError(
                f"input {value.name!r} has no shape",
                hint=f"give it: shapes={{{value.name!r}: (1, 3, 224, 224)}}, with your sizes",
            )
        declared = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in kind.shape.dim]
        if value.name in self.shapes:
            given = tuple(int(size) for size in self.shapes[value.name])
            fits = len(given) == len(declared) and all(
                g > 0 and d in (0, g) for g, d in zip(given, declared, strict=True)
            )
            if not fits:
                wanted = tuple(size or "any" for size in declared)
                raise ModelError(f"input {value.name!r} has the shape {wanted}, but {given} is given")
            return given
        for axis, (size, dim) in enumerate(zip(declared, kind.shape.dim, strict=True)):
            if size <= 0:
                example = tuple(other or 1 for other in declared)
                called = f" ({dim.dim_param!r})" if dim.dim_param else ""
                raise ModelError(
                    f"input {value.name!r}: dimension {axis}{called} is dynamic, but must be known",
                    hint=f"give the shape, for example shapes={{{value.name!r}: {example}}}",
                )
        return tuple(declared)

    def _ordered_nodes(self) -> list[tuple[str, onnx.NodeProto]]:
        """The nodes with their names, producers first. Refuses missing tensors and cycles."""
        waiting = [(node.name or f"{node.op_type}_{i}", node) for i, node in enumerate(self.graph.node)]
        produced = {output for _, node in waiting for output in node.output if output}
        ready = set(self.values)
        ordered: list[tuple[str, onnx.NodeProto]] = []
        while waiting:
            blocked: list[tuple[str, onnx.NodeProto]] = []
            for name, node in waiting:
                needed = [tensor for tensor in node.input if tensor]
                for tensor in needed:
                    if tensor not in ready and tensor not in produced:
                        raise ModelError(f"needs the tensor {tensor!r}, which nothing produces", at=Span((name,)))
                if all(tensor in ready for tensor in needed):
                    ordered.append((name, node))
                    ready.update(node.output)
                else:
                    blocked.append((name, node))
            if len(blocked) == len(waiting):
                names = ", ".join(repr(name) for name, _ in blocked[:4])
                raise ModelError(f"the graph has a cycle through or before the nodes {names}")
            waiting = blocked
        return ordered

    def _refuse_unknown_operators(self, nodes: list[tuple[str, onnx.NodeProto]]) -> None:
        constant = set(self.values) - {param.name for param in self.params}
        unknown: list[tuple[str, str]] = []
        for name, node in nodes:
            folds = all(tensor in constant for tensor in node.input if tensor) or node.op_type == "Shape"
            if folds:
                constant.update(node.output)
            if node.domain not in _DOMAINS or not (node.op_type in CONVERTERS or folds):
                unknown.append((name, node.op_type if node.domain in _DOMAINS else f"{node.domain}.{node.op_type}"))
        if unknown:
            name, op = unknown[0]
            others = sorted({other for _, other in unknown[1:]} - {op})
            more = f"; neither are {', '.join(map(repr, others))}" if others else ""
            supported = ", ".join(sorted(CONVERTERS))
            raise ModelError(
                f"operator {op!r} is not supported{more}", at=Span((name,)), hint=f"supported: {supported}"
            )

    def _convert(self, name: str, proto: onnx.NodeProto) -> None:
        span = Span((name,), proto.output[0] if proto.output else "")
        try:
            attrs = {attr.name: onnx.helper.get_attribute_value(attr) for attr in proto.attribute}
            inputs = tuple(self.values[tensor] if tensor else None for tensor in proto.input)
            node = Node(name, proto.op_type, inputs, attrs, self.opset, span)
            if self._fold(node, proto):
                return
            extra = [output for output in proto.output[1:] if output and self._is_used(output)]
            if extra and proto.op_type not in _DYNAMIC_OUTPUTS:
                raise node.error(f"its output {extra[0]!r} is not supported; only the first one is")
            value = CONVERTERS[proto.op_type](node)
        except ModelError:
            raise
        except GraphError as error:
            raise ModelError(error.message, at=span, hint=error.hint) from None
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError) as error:
            raise ModelError(f"{proto.op_type} cannot be read: {error}", at=span) from error
        self.values[proto.output[0]] = value

    def _fold(self, node: Node, proto: onnx.NodeProto) -> bool:
        """Compute a node of constants (shape arithmetic, ``Constant``) right away; tells whether it did."""
        if node.op == "Shape" and node.inputs:
            start, end = node.integer("start", 0), node.attrs.get("end")
            self.values[proto.output[0]] = Constant(np.array(node.input(0).shape[start:end], np.int64))
            return True
        operands = [value for value in node.inputs if value is not None]
        if node.op in ("QuantizeLinear", "DequantizeLinear") or not all(isinstance(v, Constant) for v in operands):
            return False
        if node.op in CONVERTERS and any(value.dtype == "float32" for value in operands):
            return False  # constant folding does it with the same operators as everything else
        names = [tensor for tensor in proto.input if tensor]
        graph = onnx.helper.make_graph(
            [proto], "fold", [onnx.ValueInfoProto(name=tensor) for tensor in dict.fromkeys(names)],
            [onnx.ValueInfoProto(name=tensor) for tensor in proto.output],
        )  # fmt: skip
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        try:
            results = ReferenceEvaluator(model).run(
                None, {name: v.value for name, v in zip(names, operands, strict=True) if isinstance(v, Constant)}
            )
        except Exception as error:  # the reference implementation raises whatever NumPy does
            raise node.error(f"cannot be computed from its constants: {error}") from error
        for tensor, result in zip(proto.output, results, strict=True):
            self.values[tensor] = Constant(np.asarray(result), tensor, node.span)
        return True

    def _is_used(self, tensor: str) -> bool:
        return any(tensor in node.input for node in self.graph.node) or any(
            tensor == output.name for output in self.graph.output
        )


def _array(tensor: onnx.TensorProto, what: str) -> Array:
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OSError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{what} cannot be read: {error}") from None
    if array.dtype.name not in ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "float32",
                                "float16", "float64"):  # fmt: skip
        raise ModelError(f"{what} has the element type {array.dtype.name}, which is not supported")
    return array


def _dtype_name(element_type: int) -> str:
    try:
        return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type)).name)
    except (KeyError, ValueError, TypeError):
        return f"of unknown type {element_type}"


def _require_quantised(module: Module) -> None:
    """Refuse a convolution or a matrix product whose weights are floating point."""
    products: list[Any] = [
        node
        for node in topological_order(module.main.body)
        if isinstance(node, Call) and node.op in ("nn.conv2d", "nn.dense")
    ]
    for node in products:
        match node.args[1]:
            case Call(op="dequantise", args=(Constant() | Call(op="quantise"), _, _)):
                continue
        raise ModelError(
            "is not quantised: its weights are floating point",
            at=node.span,
            hint="run onnxruntime's quantize_static on the model first",
        )
