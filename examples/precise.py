"""onnxruntime as the judge of values, exact on every processor, and as a peer whose time is taken. Sessions are made
here alone, so that nobody judges by one that saturates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernelError

UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
CPU = ("CPUExecutionProvider",)


def precise_session(
    model: bytes | str | Path, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """A session on the processor whose products of bytes are exact.

    On x86-64 without VNNI onnxruntime otherwise adds pairs of products in 16 bits, where they saturate: 8-bit layers
    then differ from their definition by as much as half of their range. `ConvInteger` of int8 data and uint8 weights
    stays inexact there with it (`findings/onnxruntime-conv-integer-precise.sh`). Where its rewriting for that leaves
    types that it has no kernel for (QGemm of int8), the model runs as it stands in the file. It is its optimiser that
    rewrites: where ``options`` leave that out, weights are rewritten here.
    """
    options = options or onnxruntime.SessionOptions()
    if options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
        model = with_unsigned_weights(model)
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=list(CPU))
    except NoKernelError:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(model, options, providers=list(CPU))


PRODUCTS = {"QLinearConv": (2, 3, 5), "QLinearMatMul": (2, 3, 5)}
"""Operators of bytes with constant weights: which operands are the data's zero point, the weights and theirs."""


def with_unsigned_weights(model: bytes | str | Path) -> bytes | str | Path:
    """The model with each int8 weight, and its zero point, 128 higher, as uint8, where the data are uint8 as well: the
    same products, which onnxruntime adds up exactly on every processor."""
    made = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    constants = {each.name: each for each in made.graph.initializer}
    readers = Counter(name for node in made.graph.node for name in node.input)
    unsigned: dict[str, str] = {}
    for node in made.graph.node:
        if node.op_type not in PRODUCTS:
            continue
        data_zero, *both = (node.input[index] for index in PRODUCTS[node.op_type])
        if not all(name in constants for name in (data_zero, *both)):
            continue
        if [constants[name].data_type for name in (data_zero, *both)] != [UINT8, INT8, INT8]:
            continue
        for index, name in zip(PRODUCTS[node.op_type][1:], both, strict=True):
            if name not in unsigned:
                unsigned[name] = f"{name}/unsigned"
                value = onnx.numpy_helper.to_array(constants[name]).astype(np.int16) + 128
                made.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.uint8), unsigned[name]))
            node.input[index] = unsigned[name]
            readers[name] -= 1
    if not unsigned:
        return model
    for name in unsigned:
        if not readers[name]:
            made.graph.initializer.remove(constants[name])
    return bytes(made.SerializeToString())


def fastest_session(
    model: bytes | str | Path, options: onnxruntime.SessionOptions | None = None, providers: Sequence[Any] = CPU
) -> onnxruntime.InferenceSession:
    """A session whose time is taken: as fast as onnxruntime is when nobody asks for exact values, which it may not
    give."""
    return onnxruntime.InferenceSession(model, options, providers=list(providers))
