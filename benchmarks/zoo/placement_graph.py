"""Quantised ONNX graphs written by hand, in any form: what other tools than onnxruntime's quantiser give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


class QuantisedGraph:
    """A model that grows by calls, each of which gives the name of its result. ``opset``: of ONNX's own domain."""

    def __init__(self, seed: int = 0, *, opset: int = 21) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def input(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value: object, kind: Any = None) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name := self._name()))
        return name

    def small(self, values: Array, kind: int) -> str:
        """A constant of an element type that NumPy lacks, such as ``TensorProto.INT4``."""
        name = self._name()
        self.constants.append(helper.make_tensor(name, kind, values.shape, values.ravel()))
        return name

    def op(self, kind: str, *inputs: str, results: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [self._name() for _ in range(results)]
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, domain=domain, **attributes))
        return names[0] if results == 1 else names

    def pair(self, x: str, scale: float, zero: int = 0, kind: type = np.int8) -> str:
        """Quantised and dequantised, with constants of its own."""
        s, z = self.constant(scale, np.float32), self.constant(zero, kind)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weights(self, *shape: int, scale: float = 0.0, by_channel: bool = True) -> str:
        """int8 weights, (outputs, ...); by default so that results are as large as what they are made of."""
        step = scale or 1 / (73 * float(np.prod(shape[1:])) ** 0.5)
        integers = self.constant(self.random.integers(-127, 128, shape), np.int8)
        if not by_channel:
            return self.op("DequantizeLinear", integers, self.constant(step, np.float32), self.constant(0, np.int8))
        scales = (step * self.random.uniform(0.5, 1.5, shape[0])).astype(np.float32)
        zeros = self.constant(np.zeros(shape[0]), np.int8)
        return self.op("DequantizeLinear", integers, self.constant(scales), zeros, axis=0)

    def conv(
        self, x: str, channels: int, filters: int, size: int = 3, *, group: int = 1, by_channel: bool = True,
        **attributes: Any,
    ) -> str:  # fmt: skip
        """A convolution with quantised weights and a float bias, the picture's size kept."""
        w = self.weights(filters, channels // group, size, size, by_channel=by_channel)
        attributes.setdefault("pads", [size // 2] * 4)
        return self.op("Conv", x, w, self.constant(self.random.normal(0, 0.3, filters), np.float32), group=group,
                       **attributes)  # fmt: skip

    def model(
        self, *results: str, domains: Sequence[str] = (), shapes: Sequence[Sequence[int]] = ()
    ) -> onnx.ModelProto:
        """``domains``: further ones that the nodes are of. ``shapes``: of the results, where ONNX cannot infer them."""
        known = [*shapes, *[None] * (len(results) - len(shapes))]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(results, known, strict=True)
        ]
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)
