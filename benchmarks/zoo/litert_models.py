"""LiteRT files made by their schema, and LiteRT's own interpreter, which is the judge of what they compute.

Needs LiteRT: pip install ai-edge-litert
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import flexbuffers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ai_edge_litert import interpreter as lite
    from ai_edge_litert import schema_py_generated as schema

Array = np.ndarray[Any, Any]
Names = Sequence[dict[str, int]]
"""Tensors by their names: those of the inputs, and those of the outputs."""

KERNELS = {
    "default": lite.OpResolverType.BUILTIN,
    "optimised": lite.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "reference": lite.OpResolverType.BUILTIN_REF,
}
"""LiteRT's three sets of kernels, which do not all agree with each other."""


class ModelWriter:
    """A model, tensor by tensor and operator by operator; both are named by what `tensor` and `op` return."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._buffers = [schema.BufferT()]
        self._operators: list[Any] = []
        self._codes: list[tuple[int, int, str]] = []
        self._bodies: list[Any] = []

    def body(self) -> ModelWriter:
        """A further graph of the same file, which control flow runs; `number` closes it."""
        made = ModelWriter()
        made._buffers, made._codes, made._bodies = self._buffers, self._codes, self._bodies
        return made

    def number(self, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """The number of a graph that `body` began, with these inputs and outputs."""
        self._bodies.append(self._graph(inputs, outputs, f"body{len(self._bodies)}"))
        return len(self._bodies)

    def _graph(self, inputs: Sequence[int], outputs: Sequence[int], name: str) -> Any:
        graph = schema.SubGraphT()
        graph.tensors, graph.operators = self._tensors, self._operators
        graph.inputs, graph.outputs, graph.name = list(inputs), list(outputs), name.encode()
        return graph

    def tensor(
        self, shape: Sequence[int], dtype: str = "int8", scale: Any = None, zero: Any = 0, axis: int = 0,
        data: Array | bytes | None = None, name: str = "", open_shape: Sequence[int] | None = None,
        variable: bool = False, sparsity: Any = None,
    ) -> int:  # fmt: skip
        """The number of a new tensor; a constant where ``data`` are given, of a sparse one what is stored."""
        tensor = schema.TensorT()
        tensor.sparsity = sparsity
        tensor.isVariable = variable
        tensor.shape = np.array(shape, np.int32)
        tensor.type = getattr(schema.TensorType, dtype.upper())
        tensor.name = (name or f"t{len(self._tensors)}").encode()
        tensor.buffer = 0
        if open_shape is not None:
            tensor.shapeSignature = np.array(open_shape, np.int32)
        if data is not None:
            buffer = schema.BufferT()
            content = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
            buffer.data = np.frombuffer(content, np.uint8)
            tensor.buffer = len(self._buffers)
            self._buffers.append(buffer)
        if scale is not None:
            quantisation = schema.QuantizationParametersT()
            quantisation.scale = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.atleast_1d(np.asarray(zero, np.int64)), quantisation.scale.shape)
            quantisation.zeroPoint = zeros.copy()
            quantisation.quantizedDimension = axis
            tensor.quantization = quantisation
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def constant(self, data: Any, dtype: str, **more: Any) -> int:
        array = np.asarray(data).astype(dtype if dtype != "bfloat16" else np.float32)
        return self.tensor(array.shape, dtype, data=array, **more)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Any = None,
        version: int = 1,
        intermediates: Sequence[int] = (),
    ) -> None:
        """An operator; ``options`` as `options` makes them. A name that the schema lacks is a custom one, whose
        options are a dict."""
        custom = "" if hasattr(schema.BuiltinOperator, name) else name
        code = getattr(schema.BuiltinOperator, "CUSTOM" if custom else name)
        key = (code, version, custom)
        if key not in self._codes:
            self._codes.append(key)
        operator = schema.OperatorT()
        operator.opcodeIndex = self._codes.index(key)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if intermediates:
            operator.intermediates = list(intermediates)
        if custom and options is not None:
            content = flexbuffers.Dumps(options)
            operator.customOptions = np.frombuffer(bytes(content), np.uint8)
        elif options is not None:
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = options
        self._operators.append(operator)

    def finish(
        self, inputs: Sequence[int], outputs: Sequence[int], names: Names | None = None,
        more: Mapping[str, tuple[int, Names]] = {},
    ) -> bytes:  # fmt: skip
        """The file. ``names``: of inputs and of outputs in a signature. ``more``: further signatures, each of a graph
        that `number` closed."""
        model = schema.ModelT()
        model.subgraphs = [self._graph(inputs, outputs, "main"), *self._bodies]
        model.version, model.buffers, model.description = 3, self._buffers, b"made"
        model.operatorCodes = []
        for code, version, custom in self._codes:
            each = schema.OperatorCodeT()
            each.builtinCode, each.deprecatedBuiltinCode, each.version = code, min(code, 127), version
            if custom:
                each.customCode = custom.encode()
            model.operatorCodes.append(each)
        signatures = ({} if names is None else {"serving_default": (0, names)}) | dict(more)
        model.signatureDefs = [_signature(key, *each) for key, each in signatures.items()] or None
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def _signature(key: str, graph: int, names: Names) -> Any:
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = key.encode(), graph
    made.inputs, made.outputs = ([_tensor_map(name, index) for name, index in each.items()] for each in names)
    return made


def _tensor_map(name: str, index: int) -> Any:
    found = schema.TensorMapT()
    found.name, found.tensorIndex = name.encode(), index
    return found


def options(kind: str, **values: Any) -> Any:
    """Options of an operator, by the schema's names: ``options("Conv2DOptions", strideH=2)``."""
    made = getattr(schema, f"{kind}T")()
    for key, value in values.items():
        if not hasattr(made, key):
            raise KeyError(f"{kind} has no {key}, but {sorted(vars(made))}")
        setattr(made, key, value)
    return made


def interpreted(model: bytes, arrays: Sequence[Array], kernels: str = "default") -> list[Array]:
    """What LiteRT's interpreter computes, on one thread. Raises what it raises for a model that it refuses."""
    return interpreted_runs(model, [arrays], kernels)[0]


def interpreted_runs(model: bytes, runs: Sequence[Sequence[Array]], kernels: str = "default") -> list[list[Array]]:
    """The results of runs one after the other, between which the interpreter keeps its variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = lite.Interpreter(
            model_content=model, experimental_op_resolver_type=KERNELS[kernels], num_threads=1
        )
    for detail, array in zip(interpreter.get_input_details(), runs[0], strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    found = []
    for arrays in runs:
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        found.append([interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()])
    return found
