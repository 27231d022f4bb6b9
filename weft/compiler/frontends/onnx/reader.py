"""The ONNX front end: `from_onnx` reads a model into the graph IR.

For the accelerator (``require_quantised``) the QDQ form, the QLinear* form and the *Integer form with constant scales
are accepted, as onnxruntime's quantiser writes them, with 8-bit activations and weights; parts of such a model may
be in floating point. For other targets any operator
with a converter, or with a definition by a function, is. What cannot be read is refused with a `ModelError` that names
the node.

Every size is known once a model is read: dimensions that the model leaves open are given by ``shapes``, and inputs
whose value decides on a shape by ``values``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ....files import ONNX_START
from ....whole import require_mapping
from ...graph import Attrs, Constant, Expr, Function, GraphError, Module, Span, TensorType, Tuple, Var
from ...graph.dtypes import DTYPES
from ...graph.symbolic import LEFT_OPEN
from ..errors import ModelError, in_python
from ..refusals import refuse_floats, refuse_unknown_shapes
from . import (
    activation,
    attention,
    constant,
    control,
    elementwise,
    encode,
    experts,
    fused,
    image,
    index,
    linear_attention,
    litert_tail,
    move,
    norm,
    packed_weights,
    product,
    qonnx,
    quantised,
    recurrent,
    reduce,
    resize,
    signal,
    strings,
    text,
    training,
    trees,
    window,
)
from .node import CONVERTERS, Nothing, SequenceValue, Value
from .reading import Reading
from .scope import Scope, as_value, has_body, operator_key
from .types import dtype_name, known_size, symbol_of
from .unknown import unknown_operators

CONVERTER_MODULES = (
    activation, attention, constant, control, elementwise, encode, experts, fused, image, index, linear_attention,
    litert_tail, move, norm, packed_weights, product, qonnx, quantised, recurrent, reduce, resize, signal, strings,
    text, training, trees, window,
)  # fmt: skip
"""The modules that fill `CONVERTERS`."""


UNREADABLE = (DecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError, ValueError)
"""What `onnx.load` raises for files that hold no model: it reads texts, too, by how a file's name ends."""

ZIP = b"PK\x03\x04"
"""What zip files begin with, and protobufs cannot."""


def from_onnx(
    source: str | Path | bytes | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    require_quantised: bool = True,
    largest_results: bool = True,
) -> Module:
    """The module of a model given as a path, as the bytes of a file, or as a protobuf.

    ``shapes`` gives the shape of inputs whose dimensions are not fixed in the model. ``values`` gives the values of
    inputs that are known at compile time (arrays; a list of arrays for a sequence; ``None`` for an optional that is not
    there): they are no inputs of the module. With ``require_quantised`` (the default) a model with weights but without
    a quantised tensor is refused. With ``largest_results`` (the default) a result whose size depends on the values of
    a run, such as the boxes of NonMaxSuppression, has the largest size that it can have; else they must be known.
    A result that is a sequence becomes the outputs ``name[0]``, ``name[1]``, ...
    Raises `ModelError`; its kind `NeedsValueError` has the expression whose value must be known.
    """
    for name, given in (("shapes", shapes), ("values", values)):
        require_mapping(given or {}, name, ModelError)
    model = load_model(source)
    reading = Reading(require_quantised, largest_results=largest_results)
    module = _Reader(model, dict(shapes or {}), dict(values or {}), reading).module()
    if require_quantised:
        refuse_floats(module)
    return module


def tensor_types(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, TensorType]:
    """The types of the inputs and of what the nodes produce, by the names in ``model``. Raises `ModelError`."""
    reader = _Reader(model, dict(shapes), {}, Reading(quantised=False))
    params = reader.module().main.params
    named = [param.name for param in params] + [name for node in model.graph.node for name in node.output]
    values = {name: reader.values.get(name) for name in named}
    return {name: value.type for name, value in values.items()
            if isinstance(value, Expr) and isinstance(value.type, TensorType)}  # fmt: skip


def values_of(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], names: Iterable[str]) -> dict[str, Expr]:
    """What the tensors ``names`` of ``model`` are in the graph: constants where that is known. Raises `ModelError`,
    also for what is no tensor."""
    reader = _Reader(model, dict(shapes), {}, Reading(quantised=False))
    reader.module()
    found: dict[str, Expr] = {}
    for name in names:
        value = reader.values.get(name)
        if not isinstance(value, Expr):
            raise ModelError(f"{name!r} is no tensor, so the model cannot be cut there")
        known = reader.static_value(value)
        found[name] = value if known is None else Constant(known)
    return found


def load_model(source: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The protobuf of a model given as a path or as the bytes of a file. Raises `ModelError`."""
    if isinstance(source, onnx.ModelProto):
        model, name = source, "the model"
    else:
        name = "the model" if isinstance(source, bytes) else repr(str(source))
        try:
            model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(str(source))
        except UNREADABLE as error:
            if _begin_of(source) == ZIP:
                raise ModelError(
                    f"{name} is no ONNX file but a zip, as the artifacts of 'weft compile' are",
                    hint="give the model that it was made from; 'weft run' takes artifacts",
                ) from None
            raise ModelError(
                f"{name} is not a complete ONNX file: {_first_line(error)}", hint=_why_incomplete(source)
            ) from None
        except OSError as error:
            raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None
        except (onnx.checker.ValidationError, RuntimeError) as error:  # the latter of names that no file can have
            raise ModelError(f"{name} is not a valid ONNX file: {str(error).splitlines()[0]}") from None
    if not model.HasField("graph") or not model.graph.output:
        raise ModelError(
            f"{name} is not a complete ONNX file: it has no graph with outputs", hint=_why_incomplete(source)
        )
    return model


def _first_line(error: Exception) -> str:
    """What an error says; ONNX's parser says it in lines of bytes, and JSON's names all fields in a second line."""
    said = error.args[0] if error.args else ""
    if isinstance(said, bytes):
        return " ".join(said.decode(errors="replace").split())
    return next(iter(str(error).splitlines()), type(error).__name__)


def _why_incomplete(source: str | Path | bytes | onnx.ModelProto) -> str:
    begin = ONNX_START if isinstance(source, onnx.ModelProto) else _begin_of(source)
    if not begin or begin.startswith(ONNX_START):
        return "is it truncated?"
    return "it begins as another kind of file: models are .onnx, .tflite, .pt2 of PyTorch or .mlir of StableHLO"


def _begin_of(source: str | Path | bytes) -> bytes:
    """As many bytes as :data:`ZIP` has."""
    if isinstance(source, bytes):
        return source[: len(ZIP)]
    with open(source, "rb") as file:
        return file.read(len(ZIP))


class _Reader(Scope):
    """Reads one model: every tensor name becomes a value of the graph."""

    def __init__(
        self, model: onnx.ModelProto, shapes: dict[str, Sequence[int]], given: dict[str, Any], reading: Reading
    ) -> None:
        reading.functions.update({(function.domain, function.name): function for function in model.functions})
        opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
        super().__init__(reading, opsets)
        self.graph, self.shapes, self.given = model.graph, shapes, given
        self.used = {tensor for node in self.graph.node for tensor in node.input}
        self.used |= {output.name for output in self.graph.output}
        self.params: list[Var] = []
        self.sizes: dict[str, int] = {}  # of symbols, by name

    def module(self) -> Module:
        self.add_initialisers(self.graph)
        self._given_values()
        self._inputs()
        nodes = self._ordered_nodes()
        self._refuse_unknown_operators(nodes)
        for name, node in nodes:
            self.convert(name, node)
        results: dict[str, Expr] = {}
        for output in self.graph.output:
            if output.name not in self.values:
                raise ModelError(f"output {output.name!r} is not produced by any node")
            results.update(_results(output.name, self.values[output.name]))
        body = next(iter(results.values())) if len(results) == 1 else Tuple(tuple(results.values()))
        return Module(Function(tuple(self.params), body, Attrs({"name": "main", "outputs": tuple(results)})))

    def is_used(self, tensor: str) -> bool:
        return tensor in self.used

    def _given_values(self) -> None:
        inputs = {value.name for value in self.graph.input}
        unknown = sorted(set(self.given) - inputs)
        if unknown:
            known = ", ".join(map(repr, sorted(inputs)))
            raise ModelError(f"a value is given for {unknown[0]!r}, but the inputs are {known}")
        for name, given in self.given.items():
            self.values[name] = Nothing() if given is None else as_value(given, name)

    def _inputs(self) -> None:
        inputs = [value for value in self.graph.input if value.name not in self.values]
        refuse_unknown_shapes(self.shapes, [value.name for value in inputs])
        self._fix_symbols(inputs)
        for value in inputs:
            if not value.type.HasField("tensor_type"):
                raise ModelError(
                    f"input {value.name!r} is not a tensor, so its value must be known",
                    hint=f"give it {in_python([value.name])}",
                )
            dtype = dtype_name(value.type.tensor_type.elem_type)
            accepted = DTYPES
            if dtype not in accepted:
                raise ModelError(f"input {value.name!r} is {dtype}, but must be one of {', '.join(accepted)}")
            shape = self._shape(value)
            try:
                kind = TensorType(shape, dtype)
            except GraphError as error:
                raise ModelError(f"input {value.name!r}: {error.message}") from error
            var = Var(value.name, kind, Span((), value.name))
            self.params.append(var)
            self.values[value.name] = var

    def _fix_symbols(self, inputs: list[onnx.ValueInfoProto]) -> None:
        """A shape that is given for one input fixes the named dimensions of the others."""
        for value in inputs:
            dims = value.type.tensor_type.shape.dim
            given = self.shapes.get(value.name, ())
            if len(given) == len(dims):
                for dim, size in zip(dims, given, strict=True):
                    if size == LEFT_OPEN:
                        continue
                    self.sizes.setdefault(symbol_of(dim), int(size))

    def _shape(self, value: onnx.ValueInfoProto) -> tuple[int, ...]:
        kind = value.type.tensor_type
        if not kind.HasField("shape"):
            if value.name in self.shapes:
                return tuple(self.shapes[value.name])
            raise ModelError(
                f"input {value.name!r} has no shape",
                hint=f"give it: shapes={{{value.name!r}: (1, 3, 224, 224)}}, with your sizes",
            )
        declared = [known_size(dim) for dim in kind.shape.dim]
        if value.name in self.shapes:
            given = tuple(int(size) for size in self.shapes[value.name])
            fits = len(given) == len(declared) and all(
                g == LEFT_OPEN or (g >= 0 and d in (None, g)) for g, d in zip(given, declared, strict=True)
            )
            if not fits:
                wanted = tuple("any" if size is None else size for size in declared)
                raise ModelError(f"input {value.name!r} has the shape {wanted}, but {given} is given")
            if LEFT_OPEN not in given:
                return given
            declared = [d if g == LEFT_OPEN else g for g, d in zip(given, declared, strict=True)]
        sizes: list[int] = []
        for axis, (size, dim) in enumerate(zip(declared, kind.shape.dim, strict=True)):
            if size is not None:
                sizes.append(size)
            elif symbol_of(dim) and symbol_of(dim) in self.sizes:
                sizes.append(self.sizes[symbol_of(dim)])
            else:
                known = [*sizes, *declared[axis:]]
                example = tuple(1 if other is None else other for other in known)
                called = f" ({dim.dim_param!r})" if dim.dim_param else ""
                option = f"--shape {value.name}={'x'.join(map(str, example))}"
                raise ModelError(
                    f"input {value.name!r}: dimension {axis}{called} is dynamic, but must be known",
                    hint=f"give the shape, for example shapes={{{value.name!r}: {example}}}, or {option}",
                )
        return tuple(sizes)

    def _ordered_nodes(self) -> list[tuple[str, onnx.NodeProto]]:
        """The nodes with their names, producers first, else as they stand. Refuses missing tensors and cycles."""
        nodes = [(node.name or f"{node.op_type}_{i}", node) for i, node in enumerate(self.graph.node)]
        produced = self._produced(nodes)
        readers: dict[str, list[int]] = {}
        missing: list[int] = []  # of each node: tensors that are not there yet
        for number, (name, node) in enumerate(nodes):
            needed = {tensor for tensor in (*node.input, *captured(node)) if tensor and tensor not in self.values}
            for tensor in needed:
                if tensor not in produced:
                    raise ModelError(f"needs the tensor {tensor!r}, which nothing produces", at=Span((name,)))
                readers.setdefault(tensor, []).append(number)
            missing.append(len(needed))
        ready = [number for number, count in enumerate(missing) if not count]
        ordered: list[tuple[str, onnx.NodeProto]] = []
        while ready:
            name, node = nodes[heappop(ready)]
            ordered.append((name, node))
            for reader in [each for output in node.output for each in readers.pop(output, ())]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, reader)
        if len(ordered) < len(nodes):
            blocked = [repr(nodes[number][0]) for number, count in enumerate(missing) if count]
            names = ", ".join(blocked[:4])
            raise ModelError(f"the graph has a cycle through or before the nodes {names}")
        return ordered

    def _produced(self, nodes: list[tuple[str, onnx.NodeProto]]) -> dict[str, str]:
        """The node of each tensor that a node makes. Refuses names that stand for two tensors."""
        produced: dict[str, str] = {}
        for name, node in nodes:
            for tensor in filter(None, node.output):
                if tensor in produced or tensor in self.values:
                    other = f"node {produced[tensor]!r} makes" if tensor in produced else "is an input or initializer"
                    raise ModelError(f"makes the tensor {tensor!r}, which {other}, too", at=Span((name,)))
                produced[tensor] = name
        return produced

    def _refuse_unknown_operators(self, nodes: list[tuple[str, onnx.NodeProto]]) -> None:
        unknown = [
            (name, node.domain, node.op_type)
            for name, node in nodes
            if operator_key(node.domain, node.op_type) not in CONVERTERS
            and (node.domain, node.op_type) not in self.reading.functions
            and not has_body(node, self.opsets.get(node.domain, self.opset))
        ]
        if unknown:
            raise unknown_operators(unknown)


def _results(name: str, value: Value | None) -> dict[str, Expr]:
    """The tensors of one output of the model, by name."""
    if isinstance(value, Expr):
        return {name: value}
    items = value.items if isinstance(value, SequenceValue) else ()
    return {f"{name}[{i}]": item for i, item in enumerate(items)}


def captured(node: onnx.NodeProto) -> list[str]:
    """Tensors of the surrounding graph that the subgraphs of a node use."""
    found: list[str] = []
    for graph in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {output for inner in graph.node for output in inner.output}
        used = [tensor for inner in graph.node for tensor in (*inner.input, *captured(inner))]
        found += [tensor for tensor in (*used, *(output.name for output in graph.output)) if tensor not in own]
    return found
