"""Small float models, node by node, with seeded weights and the shape of every value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.quantised_forms import Inputs

Array = npt.NDArray[Any]

IR_VERSION = 9
BATCHES = 3
"""Of calibration data."""


class MisfitError(ValueError):
    """A node that ONNX does not allow for its operands."""


@dataclass
class Net:
    """A model under construction. ``ranges``: of whole-number inputs, the values that they may have."""

    seed: int = 0
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def input(self, name: str, shape: Sequence[int | str]) -> str:
        """A float input; a size that is a text is open, and 1 while the model is built."""
        self.inputs[name] = helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
        self.shapes[name] = tuple(size if isinstance(size, int) else 1 for size in shape)
        return name

    def index_input(self, name: str, shape: Sequence[int], count: int) -> str:
        """An int64 input of values below ``count``."""
        self.inputs[name] = helper.make_tensor_value_info(name, TensorProto.INT64, list(shape))
        self.shapes[name], self.ranges[name] = tuple(shape), count
        return name

    def constant(self, value: Any, name: str = "") -> str:
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        name = name or f"c{len(self.constants)}"
        self.constants[name], self.shapes[name] = array, array.shape
        return name

    def whole(self, *values: int) -> str:
        """A constant of int64."""
        return self.constant(np.array(values, np.int64))

    def normal(self, shape: Sequence[int], deviation: float = 1.0, mean: float = 0.0) -> str:
        return self.constant((self.random.normal(mean, deviation, tuple(shape))).astype(np.float32))

    def node(self, kind: str, *inputs: str, **attrs: Any) -> str:
        return self.several(kind, 1, *inputs, **attrs)[0]

    def several(self, kind: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """A node of ``count`` results. Raises MisfitError."""
        name = f"{kind.lower()}{len(self.nodes)}"
        names = [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name, **attrs))
        try:
            self._infer(names)
        except Exception as error:
            self.nodes.pop()
            raise MisfitError(str(error)) from error
        return names

    def _infer(self, names: list[str]) -> None:
        """Shapes of the last node's results."""
        node = self.nodes[-1]
        operands = [
            helper.make_tensor_value_info(name, self._type(name), self.shapes[name])
            for name in dict.fromkeys(node.input) if name and name not in self.constants
        ]  # fmt: skip
        used = [numpy_helper.from_array(self.constants[name], name) for name in node.input if name in self.constants]
        results = [onnx.ValueInfoProto(name=name) for name in names]
        graph = helper.make_graph([node], "node", operands, results, used)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        for value in inferred.graph.output:
            dims = value.type.tensor_type.shape.dim
            shape = tuple(dim.dim_value for dim in dims)
            if not value.type.tensor_type.HasField("shape") or any(size < 1 for size in shape):
                raise MisfitError(f"{value.name} has the shape {shape}")
            self.shapes[value.name] = shape

    def _type(self, name: str) -> int:
        return int(self.inputs[name].type.tensor_type.elem_type) if name in self.inputs else int(TensorProto.FLOAT)

    # What many networks share

    def conv(self, x: str, filters: int, kernel: int | Sequence[int] = 3, *, bias: bool = True, **attrs: Any) -> str:
        """A convolution over all axes behind the channels, padded to keep the size at stride 1 unless told."""
        axes = len(self.shapes[x]) - 2
        kernel = [kernel] * axes if isinstance(kernel, int) else list(kernel)
        group = attrs.get("group", 1)
        fan_in = self.shapes[x][1] // group * math.prod(kernel)
        if "pads" not in attrs and "auto_pad" not in attrs:
            attrs["pads"] = [k // 2 for k in kernel] * 2
        w = self.normal((filters, self.shapes[x][1] // group, *kernel), fan_in**-0.5)
        operands = [x, w, self.normal((filters,), 0.2)] if bias else [x, w]
        return self.node("Conv", *operands, **attrs)

    def deconv(self, x: str, filters: int, kernel: int | Sequence[int] = 2, *, bias: bool = True, **attrs: Any) -> str:
        """A transposed convolution."""
        axes = len(self.shapes[x]) - 2
        kernel = [kernel] * axes if isinstance(kernel, int) else list(kernel)
        channels = self.shapes[x][1]
        w = self.normal((channels, filters // attrs.get("group", 1), *kernel), (channels * math.prod(kernel)) ** -0.5)
        operands = [x, w, self.normal((filters,), 0.2)] if bias else [x, w]
        return self.node("ConvTranspose", *operands, **attrs)

    def dense(self, x: str, outputs: int) -> str:
        """A Gemm with a bias on (N, C), on other ranks MatMul and Add."""
        inputs = self.shapes[x][-1]
        if len(self.shapes[x]) == 2:
            w = self.normal((outputs, inputs), inputs**-0.5)
            return self.node("Gemm", x, w, self.normal((outputs,), 0.2), transB=1)
        product = self.node("MatMul", x, self.normal((inputs, outputs), inputs**-0.5))
        return self.node("Add", product, self.normal((outputs,), 0.2))

    def batch_norm(self, x: str) -> str:
        channels = self.shapes[x][1]
        variance = self.constant(self.random.uniform(0.5, 2, channels))
        return self.node(
            "BatchNormalization", x, self.normal((channels,), 0.3, 1), self.normal((channels,), 0.3),
            self.normal((channels,), 0.3), variance,
        )  # fmt: skip

    def layer_norm(self, x: str) -> str:
        """As LayerNormalization, or as its parts where the opset has no such operator."""
        channels = self.shapes[x][-1]
        scale, shift = self.normal((channels,), 0.2, 1), self.normal((channels,), 0.2)
        if self.opset >= 17:
            return self.node("LayerNormalization", x, scale, shift, axis=-1)
        centred = self.node("Sub", x, self.mean(x, [-1]))
        squares = self.node("Pow", centred, self.constant(np.float32(2)))
        deviation = self.node("Sqrt", self.node("Add", self.mean(squares, [-1]), self.constant(np.float32(1e-5))))
        return self.node("Add", self.node("Mul", self.node("Div", centred, deviation), scale), shift)

    def mean(self, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
        if self.opset >= 18:
            return self.node("ReduceMean", x, self.whole(*axes), keepdims=keepdims)
        return self.node("ReduceMean", x, axes=list(axes), keepdims=keepdims)

    def split(self, x: str, axis: int, sizes: Sequence[int]) -> list[str]:
        return self.several("Split", len(sizes), x, self.whole(*sizes), axis=axis)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.whole(*shape))

    def gelu(self, x: str) -> str:
        """``x / 2 * (1 + erf(x / sqrt(2)))``, as exporters write it."""
        bent = self.node("Erf", self.node("Div", x, self.constant(np.float32(math.sqrt(2)))))
        bent = self.node("Add", bent, self.constant(np.float32(1)))
        return self.node("Mul", self.node("Mul", x, bent), self.constant(np.float32(0.5)))

    def hard_swish(self, x: str) -> str:
        return self.node("Mul", x, self.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    def swish(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def squeeze_excite(self, x: str, squeezed: int = 0, *, hard: bool = True) -> str:
        """Every channel times a gate between 0 and 1 that depends on the means of all channels, through ``squeezed``
        channels (0: a quarter of them)."""
        channels = self.shapes[x][1]
        gate = self.node("Relu", self.conv(self.node("GlobalAveragePool", x), squeezed or max(channels // 4, 1), 1))
        gate = self.conv(gate, channels, 1)
        return self.node("Mul", x, self.node("HardSigmoid", gate) if hard else self.node("Sigmoid", gate))

    def attention(self, x: str, heads: int) -> str:
        """Self-attention over (N, T, C)."""
        batch, tokens, channels = self.shapes[x]
        parts = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            projected = self.reshape(self.dense(x, channels), batch, tokens, heads, channels // heads)
            parts.append(self.node("Transpose", projected, perm=perm))
        query, key, value = parts
        scores = self.node("MatMul", query, key)
        scores = self.node("Div", scores, self.constant(np.float32(math.sqrt(channels // heads))))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        joined = self.reshape(self.node("Transpose", mixed, perm=[0, 2, 1, 3]), batch, tokens, channels)
        return self.dense(joined, channels)

    def shuffle(self, x: str, groups: int) -> str:
        """Channels of the groups in turn."""
        n, c, *size = self.shapes[x]
        split = self.reshape(x, n, groups, c // groups, *size)
        turned = self.node("Transpose", split, perm=[0, 2, 1, *range(3, 3 + len(size))])
        return self.reshape(turned, n, c, *size)

    def resize(self, x: str, factor: float, **attrs: Any) -> str:
        factors = [1.0, 1.0, *[factor] * (len(self.shapes[x]) - 2)]
        return self.node("Resize", x, "", self.constant(np.array(factors, np.float32)), **attrs)

    def recurrent(self, kind: str, x: str, hidden: int, **attrs: Any) -> str:
        """All hidden states (T, directions, N, H) of an RNN, GRU or LSTM over (T, N, C)."""
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
        count = 2 if attrs.get("direction") == "bidirectional" else 1
        w = self.normal((count, gates * hidden, self.shapes[x][-1]), self.shapes[x][-1] ** -0.5)
        r = self.normal((count, gates * hidden, hidden), hidden**-0.5)
        b = self.normal((count, 2 * gates * hidden), 0.1)
        return self.node(kind, x, w, r, b, hidden_size=hidden, **attrs)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model, with only those constants and nodes that its outputs need. Raises onnx's errors."""
        needed, kept = set(outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                kept.append(node)
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(
            kept[::-1], "net", [value for name, value in self.inputs.items() if name in needed], results,
            [numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in needed],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model, full_check=True)
        return model

    def batches(self, model: onnx.ModelProto, count: int = BATCHES) -> list[Inputs]:
        """Data for the inputs of ``model``."""
        return [
            {
                value.name: self.random.integers(0, self.ranges[value.name], self.shapes[value.name])
                if value.name in self.ranges else self.random.normal(size=self.shapes[value.name]).astype(np.float32)
                for value in model.graph.input
            } for _ in range(count)
        ]  # fmt: skip
