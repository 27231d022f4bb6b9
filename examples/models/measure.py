"""Figures of an ONNX model that need no run: how much work it is."""

from __future__ import annotations

import math

import onnx


def multiply_accumulates(model: onnx.ModelProto) -> dict[str, int]:
    """Useful multiply-accumulates of every Conv and Gemm by node name; float and QDQ models with static shapes.

    Padding counts as work, as in the figures that papers print.
    """
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shapes[value.name] = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    work: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "Conv":
            weight = shapes[node.input[1]]  # (O, C / groups, KH, KW): one output needs all but the first
            work[node.name] = math.prod(shapes[node.output[0]]) * math.prod(weight[1:])
        elif node.op_type == "Gemm":
            rows = math.prod(shapes[node.output[0]][:-1])
            work[node.name] = rows * math.prod(shapes[node.input[1]])
    return work
