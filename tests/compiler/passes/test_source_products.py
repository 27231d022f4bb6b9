"""Useful arithmetic is the model's: what layers say adds up to what the ONNX graph asks for, however it is computed."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import from_onnx
from weft.compiler.model import Layer, with_products

from benchmarks.zoo import quantised_forms, quantised_networks

NETWORKS = (
    "unet", "image-generator", "unet-3d", "gru-keyword-spotter", "vit-block", "densenet-block", "gated-convolutions",
    "keyword-ds-cnn",
)  # fmt: skip


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    shapes = {each.name: tuple(d.dim_value for d in each.type.tensor_type.shape.dim) for each in infos}
    return shapes | {each.name: tuple(each.dims) for each in graph.initializer}


def products(model: onnx.ModelProto) -> int:
    """Multiply-accumulates from the shapes in the file; taps in the padding of a Conv count, as everywhere."""
    shapes = shapes_of(model)
    return sum(_products(node, shapes) for node in model.graph.node)


def _products(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    given = [shapes.get(name, ()) for name in node.input]
    attrs = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    match node.op_type:
        case "Conv":
            return math.prod(shapes[node.output[0]]) * math.prod(given[1][1:])
        case "ConvTranspose":
            x, w, y = given[0], given[1], shapes[node.output[0]]
            rank = len(x) - 2
            strides, pads = attrs.get("strides", [1] * rank), attrs.get("pads", [0] * 2 * rank)
            places = [
                sum(0 <= i * strides[a] + k - pads[a] < y[2 + a] for i in range(x[2 + a]) for k in range(w[2 + a]))
                for a in range(rank)
            ]
            return math.prod(x[:2]) * w[1] * math.prod(places)
        case "Gemm" | "MatMul":
            return math.prod(shapes[node.output[0]]) * given[0][-1]
        case "GRU":
            (steps, batch, width), hidden = given[0], attrs["hidden_size"]
            return given[1][0] * steps * batch * 3 * hidden * (width + hidden)
    return 0


@pytest.mark.parametrize("target", ["cpu", "accel"])
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_together_do_what_the_file_asks_for(name: str, target: str) -> None:
    model, batches = quantised_networks.network(name)
    wanted = products(model)
    assert wanted > 0
    if target == "accel":
        model = quantised_forms.quantised(model, batches, quantised_forms.Form())
        assert products(model) == wanted
    layers = weft.compile(from_onnx(model, require_quantised=False), target=target).layers
    assert sum(layer.macs for layer in layers) == wanted


def quantised_model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], x: list[int]) -> onnx.ModelProto:
    """``nodes`` from "q", an int8 value of shape ``x``, to "y"."""
    scale, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(3), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["i"], "quantise"),
        helper.make_node("DequantizeLinear", ["i", "s", "z"], ["q"], "dequantise"),
        *nodes,
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["j"], "quantise_result"),
        helper.make_node("DequantizeLinear", ["j", "s", "z"], ["r"], "dequantise_result"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [scale, zero, *(numpy_helper.from_array(value, name) for name, value in constants.items())],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_mean_over_volumes_is_no_product() -> None:
    pool = helper.make_node("AveragePool", ["q"], ["y"], "pool", kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    layers = weft.compile(quantised_model([pool], {}, [1, 8, 4, 4, 4]), target="accel").layers
    assert any(layer.device == "core" for layer in layers)
    assert sum(layer.macs for layer in layers) == 0


def test_a_transposed_convolution_multiplies_no_zeros() -> None:
    w = np.random.default_rng(1).normal(0, 0.1, (16, 8, 3, 3)).astype(np.float32)
    bytes_ = numpy_helper.from_array(np.clip(np.rint(w / 0.01), -127, 127).astype(np.int8), "w8")
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "ws", "z0"], ["w"], "weights"),
        helper.make_node("ConvTranspose", ["q", "w"], ["y"], "up", strides=[2, 2]),
    ]
    constants = {"w8": numpy_helper.to_array(bytes_), "ws": np.array(0.01, np.float32), "z0": np.array(0, np.int8)}
    model = quantised_model(nodes, constants, [1, 16, 8, 8])
    compiled = weft.compile(model, target="accel")
    assert sum(layer.macs for layer in compiled.layers if layer.device == "core") == 16 * 8 * 9 * 64
    assert all(program.layers == compiled.layers[step.first_layer :][: len(program.layers)]
               for step in compiled.steps if (program := getattr(step, "program", None)) is not None
               and hasattr(step, "first_layer"))  # fmt: skip


def layer(macs: int, *nodes: str) -> Layer:
    return Layer("l", nodes, "conv2d", "core", "y", (1,), macs)


def test_products_belong_to_the_layer_that_a_node_leads_and_are_divided_among_copies() -> None:
    layers = [layer(50, "a", "relu"), layer(70, "b", "a"), layer(0, "a"), layer(30, "c"), layer(10, "c"), layer(9)]
    found = with_products(layers, {"a": 7, "b": 5, "c": 10})
    assert [each.macs for each in found] == [7, 5, 0, 7, 3, 9]
    chained = with_products([layer(6, "a", "b"), layer(4, "pool")], {"a": 1, "b": 2})
    assert [each.macs for each in chained] == [3, 0]
