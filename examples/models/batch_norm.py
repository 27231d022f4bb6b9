"""Batch normalisation of an untrained network: its statistics, measured instead of learnt, and its folding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..precise import precise_session
from .network import IR_VERSION, OPSET, Array

Report = Callable[[str], None]
"""Is given a line of text at every step."""

LOGIT_DEVIATION = 3.0  # of one class over images: about that of trained classifiers
EPSILON = 1e-5  # ONNX's default for BatchNormalization


def measured(model: onnx.ModelProto, images: Array, report: Report = lambda _: None) -> onnx.ModelProto:
    """``model`` with every BatchNormalization set to the mean and variance that it sees on ``images`` (N, C, H, W).

    Goes through the nodes once, so that each statistic already sees the normalised layers before it. The last dense
    layer gets the bias and the scale that make its outputs vary around zero.
    """
    model = _copy(model)
    weights = weights_of(model)
    values: dict[str, Array] = {model.graph.input[0].name: images}
    last_use = {name: index for index, node in enumerate(model.graph.node) for name in node.input}
    for index, node in enumerate(model.graph.node):
        source = values[node.input[0]]
        if node.op_type == "BatchNormalization":
            report(f"statistics of {node.name} ({index + 1} of {len(model.graph.node)} nodes)")
            weights[node.input[3]] = source.mean(axis=(0, 2, 3))
            weights[node.input[4]] = source.var(axis=(0, 2, 3))
        elif node.op_type == "Gemm":
            _centre(node, source, weights)
        values[node.output[0]] = _run_node(node, values, weights)
        for name in node.input:
            if last_use[name] == index:
                values.pop(name, None)
    _set_weights(model, weights)
    return model


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with every BatchNormalization, each the only user of a Conv, multiplied into that Conv's weights."""
    model = _copy(model)
    weights = weights_of(model)
    producers = {node.output[0]: node for node in model.graph.node}
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            kept.append(node)
            continue
        convolution = producers[node.input[0]]
        scale, shift, mean, variance = (weights.pop(name) for name in node.input[1:])
        factor = scale / np.sqrt(variance + EPSILON)
        bias = convolution.input[1].removesuffix(".weight") + ".bias"
        weights[convolution.input[1]] = weights[convolution.input[1]] * factor[:, np.newaxis, np.newaxis, np.newaxis]
        weights[bias] = shift - mean * factor
        convolution.input.append(bias)
        convolution.output[0] = node.output[0]
    # The name of the convolution says more than that of its normalisation.
    renamed = {node.output[0]: node.name for node in kept if node.op_type == "Conv"}
    for node in kept:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    _set_weights(model, weights)
    onnx.checker.check_model(model, full_check=True)
    return model


def weights_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The initialisers by name."""
    return {value.name: numpy_helper.to_array(value) for value in model.graph.initializer}


def _set_weights(model: onnx.ModelProto, weights: dict[str, Array]) -> None:
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()
    )


def _centre(node: onnx.NodeProto, features: Array, weights: dict[str, Array]) -> None:
    """Remove the part of the features that all images share: it would let one class win for every image."""
    weight = weights[node.input[1]]
    logits = features @ weight.T
    weight = weight * np.float32(LOGIT_DEVIATION / logits.std(axis=0).mean())
    weights[node.input[1]] = weight
    weights[node.input[2]] = -(features @ weight.T).mean(axis=0)


def _run_node(node: onnx.NodeProto, values: dict[str, Array], weights: dict[str, Array]) -> Array:
    """The output of one node on a batch of any size."""
    names = [name for name in dict.fromkeys(node.input) if name in values]
    graph = helper.make_graph(
        [node],
        node.name,
        inputs=[helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * values[name].ndim) for name in names],
        outputs=[helper.make_empty_tensor_value_info(node.output[0])],
        initializer=[numpy_helper.from_array(weights[name], name) for name in node.input if name in weights],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    session = precise_session(model.SerializeToString())
    result: Array = session.run(None, {name: values[name] for name in names})[0]
    return result


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
