"""Names and what they stand for while a model is read: the model itself, the body of a function, a subgraph.

A node becomes graph values through its converter (`node.CONVERTERS`); one without a converter that ONNX, or the
model, defines by a function is read through the body of that function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
from onnx.defs import SchemaError

from ...graph import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Span,
    TensorType,
    evaluate_function,
    topological_order,
)
from ...graph.dtypes import numpy_dtype
from ...graph.registry import operator
from ...graph.strings import StringsError
from ...graph.visit import respan
from ..errors import ModelError
from .node import CONVERTERS, Converted, Node, SequenceValue, Value
from .reading import Reading
from .types import array_of, check_constant_size, dense_array, type_proto

_DEFAULT_DOMAINS = ("", "ai.onnx", "com.microsoft")
NODES_AT_MOST = 1 << 20
"""Nodes that are read: a few functions that call each other can stand for any number."""

_KEPT_AS_THEY_ARE = (
    "QuantizeLinear", "DequantizeLinear", "ExtendedQuantizeLinear", "ExtendedDequantizeLinear", "VitisQuantizeLinear",
    "VitisDequantizeLinear",
)  # fmt: skip


def operator_key(domain: str, op: str) -> str:
    """The name of an operator in `CONVERTERS`. What onnxruntime calls as ONNX does, but computes otherwise, is there
    under its full name."""
    full = f"{domain}.{op}"
    return full if full in CONVERTERS else op if domain in _DEFAULT_DOMAINS else f"{domain}.{op}"


class Scope:
    """Values by name, of one graph or function; ``outer`` holds those that a subgraph may use, too."""

    def __init__(
        self, reading: Reading, opsets: Mapping[str, int], outer: Scope | None = None,
        attributes: Mapping[str, onnx.AttributeProto] | None = None, span: Span | None = None,
    ) -> None:  # fmt: skip
        self.reading, self.opsets, self.outer, self.span = reading, dict(opsets), outer, span
        self.values: dict[str, Value | None] = {}
        self.attributes = dict(attributes or {})

    @property
    def opset(self) -> int:
        return self.opsets.get("", 1)

    def __contains__(self, name: str) -> bool:
        return name in self.values or (self.outer is not None and name in self.outer)

    def lookup(self, name: str, at: Span) -> Value | None:
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            raise ModelError(f"needs the tensor {name!r}, which nothing produces", at=at)
        return self.outer.lookup(name, at)

    def static_value(self, value: Expr) -> Array | None:
        """The value of an expression of constants; ``None`` when it depends on an input."""
        if isinstance(value, Constant):
            return value.value
        if not value.static:
            return None
        kinds = (node.type for node in topological_order(value) if not isinstance(node, Constant))
        nbytes = sum(kind.size * numpy_dtype(kind.dtype).itemsize for kind in kinds if isinstance(kind, TensorType))
        check_constant_size([nbytes], 1, "a constant")
        result = evaluate_function(Function((), value), ())
        return None if isinstance(result, tuple) else result

    # Nodes

    def convert(self, name: str, proto: onnx.NodeProto) -> None:
        """Add what a node produces. Raises `ModelError` that names the node."""
        span = self.span or Span((name,), proto.output[0] if proto.output else "")
        self.reading.nodes += 1
        if self.reading.nodes > NODES_AT_MOST:
            raise ModelError(f"the model has more than {NODES_AT_MOST:,} nodes, with those of functions and loops "
                             "counted each time that they run", at=span)  # fmt: skip
        try:
            inputs = tuple(self.lookup(tensor, span) if tensor else None for tensor in proto.input)
            attrs = {attr.name: attribute_value(attr) for attr in self._resolved(proto.attribute)}
            opset = self.opsets.get(proto.domain, 1) if proto.domain not in _DEFAULT_DOMAINS else self.opset
            node = Node(name, proto.op_type, inputs, attrs, opset, span, self, tuple(proto.output))
            convert = CONVERTERS.get(operator_key(proto.domain, proto.op_type))
            if (proto.domain, proto.op_type) in self.reading.functions or convert is None:
                results = self._expand(node, proto)
            else:
                results = convert(node)
        except ModelError:
            raise
        except GraphError as error:
            raise ModelError(error.message, at=span, hint=error.hint) from None
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError) as error:
            raise ModelError(f"{proto.op_type} cannot be read: {error}", at=span) from error
        self._bind(node, proto.output, results)

    def _bind(self, node: Node, names: Sequence[str], results: Converted) -> None:
        values = results if isinstance(results, tuple) else (results,)
        for i, tensor in enumerate(names):
            if not tensor:
                continue
            value = values[i] if i < len(values) else None
            if value is None and (i < 1 or self.is_used(tensor)):
                raise node.error(f"its output {tensor!r} is not supported; only the first one is")
            if i and isinstance(value, Call) and value.span == node.span:
                value = respan(value, Span(node.span.nodes, tensor))  # the span names the first output
            self.values[tensor] = self._folded(node, value, tensor) if isinstance(value, Expr) else value

    def is_used(self, tensor: str) -> bool:
        """Whether a node or an output of the graph needs ``tensor``; a scope that does not know says yes."""
        return True

    def _folded(self, node: Node, value: Expr, tensor: str) -> Expr:
        """Shape arithmetic is computed right away; float32 stays, for the passes to fold with everything else."""
        operands = [operand for operand in node.inputs if operand is not None]
        fits = all(isinstance(operand, Constant) and operand.dtype != "float32" for operand in operands)
        if isinstance(value, Constant) or not fits or node.op in _KEPT_AS_THEY_ARE:
            return value
        if not all(operator(str(item.op)).folds for item in topological_order(value) if isinstance(item, Call)):
            return value
        found = self.static_value(value)
        return value if found is None else Constant(found, tensor, node.span)

    def _resolved(self, attributes: Iterable[onnx.AttributeProto]) -> list[onnx.AttributeProto]:
        """Attributes with those that a function's body takes from its call filled in."""
        result = []
        for attribute in attributes:
            if not attribute.ref_attr_name:
                result.append(attribute)
            elif attribute.ref_attr_name in self.attributes:
                given = onnx.AttributeProto()
                given.CopyFrom(self.attributes[attribute.ref_attr_name])
                given.name = attribute.name
                result.append(given)
        return result

    # Functions and subgraphs

    def _expand(self, node: Node, proto: onnx.NodeProto) -> Converted:
        given = {attr.name: attr for attr in self._resolved(proto.attribute)}
        body = self.reading.functions.get((proto.domain, proto.op_type))
        defaults = {attr.name: attr for attr in body.attribute_proto} if body is not None else {}
        if body is None:
            schema = schema_of(proto, node.opset)
            body = function_body(schema, proto, given, node) if schema is not None else None
            if schema is None or body is None:
                name = operator_key(proto.domain, proto.op_type)
                raise ModelError(f"operator {name!r} is not supported", at=node.span)
            defaults = {name: item.default_value for name, item in schema.attributes.items() if item.default_value.name}
        key, called = operator_key(proto.domain, proto.op_type), self.reading.open_functions
        if key in called:
            raise ModelError(f"function {key!r} calls itself: {' -> '.join([*called, key])}", at=node.span)
        opsets = {**self.opsets, **{_domain(entry.domain): entry.version for entry in body.opset_import}}
        inner = Scope(self.reading, opsets, attributes={**defaults, **given}, span=node.span)
        for i, name in enumerate(body.input):
            inner.values[name] = node.inputs[i] if i < len(node.inputs) else None
        called.append(key)
        try:
            inner.convert_all(body.node, node.name)
        finally:
            called.pop()
        return tuple(inner.values.get(name) for name in body.output)

    def subgraph(self, graph: onnx.GraphProto, values: Mapping[str, Value], prefix: str) -> list[Value]:
        """The results of a graph inside this scope, with ``values`` for its inputs."""
        inner = Scope(self.reading, self.opsets, self, self.attributes, self.span)
        inner.add_initialisers(graph)
        inner.values.update(values)
        inner.convert_all(graph.node, prefix)
        results = [inner.lookup(output.name, Span((prefix,))) for output in graph.output]
        return [value for value in results if value is not None]

    def convert_all(self, nodes: Iterable[onnx.NodeProto], prefix: str) -> None:
        for i, node in enumerate(nodes):
            self.convert(f"{prefix}/{node.name or f'{node.op_type}_{i}'}", node)

    def add_initialisers(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.values[tensor.name] = Constant(array_of(tensor, f"initializer {tensor.name!r}"), tensor.name)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            self.values[name] = Constant(dense_array(sparse, f"initializer {name!r}"), name)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute; a tensor as an array."""
    if attribute.type == onnx.AttributeProto.TENSOR:
        return array_of(attribute.t, f"attribute {attribute.name!r}")
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
        return dense_array(attribute.sparse_tensor, f"attribute {attribute.name!r}")
    return onnx.helper.get_attribute_value(attribute)


def schema_of(proto: onnx.NodeProto, opset: int) -> Any:
    """ONNX's definition of a node's operator (an `onnx.defs.OpSchema`, of which a part is typed); ``None``: unknown."""
    try:
        return onnx.defs.get_schema(proto.op_type, opset, _domain(proto.domain))
    except (SchemaError, TypeError):  # a name that is no text
        return None


def has_body(proto: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines a node's operator by a function."""
    schema = schema_of(proto, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def function_body(
    schema: Any, proto: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto], node: Node
) -> onnx.FunctionProto | None:
    """The function by which ONNX defines a node's operator, for operands of these types."""
    if schema.has_function:
        return schema.function_body  # type: ignore[no-any-return]
    if not schema.has_context_dependent_function:
        return None
    concrete = onnx.NodeProto()
    concrete.CopyFrom(proto)
    del concrete.attribute[:]
    concrete.attribute.extend(given.values())
    types = []
    for value in node.inputs:
        if isinstance(value, SequenceValue) and value.items:
            types.append(onnx.helper.make_sequence_type_proto(type_proto(value.items[0].tensor_type)))
        else:
            types.append(type_proto(value.tensor_type) if isinstance(value, Expr) else onnx.TypeProto())
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    text = schema.get_context_dependent_function_with_opset_version(
        max(versions, default=schema.since_version), concrete.SerializeToString(),
        [kind.SerializeToString() for kind in types],
    )  # fmt: skip
    if not text:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body


def as_value(given: Any, name: str) -> Value:
    """A value that is known at compile time, as it is given for an input: an array, a list of arrays, or nothing."""
    try:
        if isinstance(given, (list, tuple)):
            return SequenceValue(tuple(Constant(item, f"{name}[{i}]") for i, item in enumerate(given)))
        return Constant(given, name)
    except StringsError as error:
        raise ModelError(f"the value of {name!r}: {error.message}") from error
