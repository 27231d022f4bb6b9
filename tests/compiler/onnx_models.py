"""Small ONNX models with random weights, quantised by onnxruntime, and onnxruntime's result for every layer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from weft.compiler.compile import prepared
from weft.compiler.graph import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Var,
    calls,
    evaluate,
    evaluate_function,
    topological_order,
)
from weft.compiler.graph.registry import apply
from weft.compiler.passes.pipeline import PassOptions
from weft.compiler.targets.accel.target import Accel, AccelOptions
from weft.hw.config import PYNQ

from examples.precise import precise_session

onnxruntime.set_default_logger_severity(3)


def for_core(module: Module, **blocks: int) -> Module:
    """A module as read after all passes for the core ``pynq``, each pass checked. With ``blocks`` its array has these,
    and no depthwise mode, which needs square ones."""
    core = replace(PYNQ, **blocks, depthwise=0) if blocks else PYNQ
    return prepared(module, Accel(), AccelOptions(core), PassOptions(check=True))


@dataclass
class FloatModel:
    """Builds a float model node by node; every method returns the name of its result."""

    shape: tuple[int, ...] = (1, 3, 12, 12)
    seed: int = 0
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initialisers: list[onnx.TensorProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)

    def weight(self, name: str, values: Array) -> str:
        self.initialisers.append(numpy_helper.from_array(values, name))
        return name

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attrs))
        return name

    def conv(self, x: str, channels: int, filters: int, kernel: int = 3, group: int = 1, **attrs: Any) -> str:
        fan_in = channels // group * kernel * kernel
        number = len(self.nodes)
        shape = (filters, channels // group, kernel, kernel)
        w = self.generator.normal(0, fan_in**-0.5, shape).astype(np.float32)
        b = self.generator.normal(0, 0.2, filters).astype(np.float32)
        attrs.setdefault("pads", [kernel // 2] * 4)
        if "auto_pad" in attrs:
            del attrs["pads"]
        names = self.weight(f"w{number}", w), self.weight(f"b{number}", b)
        return self.op("Conv", x, *names, kernel_shape=[kernel, kernel], group=group, **attrs)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        number = len(self.nodes)
        w = self.generator.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        b = self.generator.normal(0, 0.2, outputs).astype(np.float32)
        return self.op("Gemm", x, self.weight(f"w{number}", w), self.weight(f"b{number}", b), transB=1)

    def build(self, *outputs: str) -> onnx.ModelProto:
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "model", [info("x", TensorProto.FLOAT, self.shape)],
            [info(output, TensorProto.FLOAT, None) for output in outputs], self.initialisers,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


class _Calibration(CalibrationDataReader):
    def __init__(self, shape: tuple[int, ...]) -> None:
        generator = np.random.default_rng(7)
        self.batches = iter([{"x": generator.normal(size=shape).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.batches, None)


def quantise(
    model: onnx.ModelProto,
    folder: Path,
    form: str = "QDQ",
    activation: str = "QInt8",
    weight: str = "QInt8",
    per_channel: bool = True,
    **extra: Any,
) -> onnx.ModelProto:
    """The model as onnxruntime's static quantiser writes it."""
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(model, source)
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    quantize_static(
        source, target, _Calibration(shape), quant_format=QuantFormat[form], activation_type=QuantType[activation],
        weight_type=QuantType[weight], per_channel=per_channel, extra_options=extra,
    )  # fmt: skip
    return onnx.load(target)


def eight_bit_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of the 8-bit activations that a node of the model writes."""
    return [
        output
        for node in model.graph.node
        for output in node.output[:1]
        if node.op_type == "QuantizeLinear" or (node.op_type.startswith("QLinear") or node.op_type == "QGemm")
    ]


def onnxruntime_layers(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """Every 8-bit tensor and every output, as onnxruntime computes them."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    outputs = [output.name for output in model.graph.output]
    names = [name for name in eight_bit_tensors(model) if name not in outputs]
    exposed.graph.output.extend([onnx.ValueInfoProto(name=name) for name in names])
    session = precise_session(exposed.SerializeToString())
    return dict(zip([*outputs, *names], session.run([*outputs, *names], inputs), strict=True))


def run_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    return list(precise_session(model.SerializeToString()).run(None, inputs))


def our_layers(module: Module, inputs: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs, and every int8 tensor that is computed in integers, by the name of the user's tensor it is."""
    on_host = {node for function in module.functions if function.host_reason for node in calls(function.body)}
    layers: dict[str, Array] = {}

    def observe(node: Expr, value: Any) -> None:
        if not isinstance(node, Call) or not isinstance(node.op, str) or node in on_host:
            return
        if node.span.tensor and isinstance(value, np.ndarray) and value.dtype == np.int8:
            layers[node.span.tensor] = value

    return evaluate(module, inputs, observe), layers


@dataclass(frozen=True)
class Agreement:
    """How our integers compare with onnxruntime's over all layers."""

    layers: int
    elements: int
    equal: float  # the smallest fraction of equal integers of any layer
    worst: int  # largest difference
    unequal: int  # integers that differ, of all layers


def agreement(
    model: onnx.ModelProto, module: Module, inputs: dict[str, Array], in_isolation: bool = False
) -> Agreement:
    """Compare every layer of an integer module that both know.

    ``in_isolation``: each layer gets onnxruntime's integers as its input, so that a tie that is rounded the other way
    counts once, and not again in all that follows from it.
    """
    theirs = {
        name: value.astype(np.int32) - (128 if value.dtype == np.uint8 else 0)
        for name, value in onnxruntime_layers(model, inputs).items()
        if value.dtype in (np.int8, np.uint8)
    }
    ours = isolated_layers(module, inputs, theirs) if in_isolation else our_layers(module, inputs)[1]
    layers = elements = worst = unequal = 0
    equal = 1.0
    for name in ours.keys() & theirs.keys():
        difference = np.abs(theirs[name] - ours[name].astype(np.int32).reshape(theirs[name].shape))
        layers, elements = layers + 1, elements + difference.size
        worst = max(worst, int(difference.max()))
        unequal += int(np.count_nonzero(difference))
        equal = min(equal, float(np.mean(difference == 0)))
    return Agreement(layers, elements, equal, worst, unequal)


def isolated_layers(module: Module, inputs: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
    """Every int8 tensor of an integer module, computed from the tensors of ``given`` where it has them."""
    layers: dict[str, Array] = {}
    values: dict[int, Any] = {}
    for node in topological_order(module.main.body):
        match node:
            case Var():
                values[id(node)] = inputs[node.name]
            case Constant():
                values[id(node)] = node.value
            case Call(op=Function() as function):
                values[id(node)] = evaluate_function(function, [values[id(arg)] for arg in node.args])
            case Call():
                values[id(node)] = value = apply(node, [values[id(arg)] for arg in node.args])
                tensor = node.span.tensor
                if tensor in given and value.dtype == np.int8:
                    layers[tensor] = value
                    values[id(node)] = given[tensor].astype(np.int8).reshape(value.shape)
    return layers


def suite_model(case: Any) -> onnx.ModelProto:
    """The model of a test of ONNX's backend suite."""
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def quantised_around(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with its float inputs and outputs quantised to int8 and back; None without float inputs."""
    wrapped = onnx.ModelProto()
    wrapped.CopyFrom(model)
    graph = wrapped.graph
    floats = {
        value.name for value in (*graph.input, *graph.output) if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    inputs = [value.name for value in graph.input if value.name in floats]
    outputs = [value.name for value in graph.output if value.name in floats and value.name not in inputs]
    if not inputs:
        return None
    inside = {name: f"{name}_inside" for name in (*inputs, *outputs)}
    nodes = list(graph.node)
    for node in nodes:
        node.input[:] = [inside.get(name, name) for name in node.input]
        node.output[:] = [inside.get(name, name) for name in node.output]

    def around(source: str, target: str) -> list[onnx.NodeProto]:
        middle, scales = f"{source}_integers", ["weft_scale", "weft_zero_point"]
        return [
            helper.make_node("QuantizeLinear", [source, *scales], [middle], name=f"quantise_{source}"),
            helper.make_node("DequantizeLinear", [middle, *scales], [target], name=f"dequantise_{source}"),
        ]

    del graph.node[:]
    graph.node.extend([each for name in inputs for each in around(name, inside[name])])
    graph.node.extend(nodes)
    graph.node.extend([each for name in outputs for each in around(inside[name], name)])
    graph.initializer.extend([
        numpy_helper.from_array(np.float32(0.05), "weft_scale"), numpy_helper.from_array(np.int8(3), "weft_zero_point"),
    ])  # fmt: skip
    for opset in wrapped.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = max(opset.version, 13)
    return wrapped
