"""onnxruntime as the judge of integers: exact on every processor."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernelError


def precise_session(
    model: bytes | str | Path, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """A session on the processor whose products of bytes are exact.

    On x86-64 without VNNI onnxruntime otherwise adds pairs of products in 16 bits, where they saturate: 8-bit layers
    then differ from their definition by as much as half of their range. Where its rewriting for that leaves types
    that it has no kernel for (QGemm of int8), the model runs as it stands in the file.
    """
    options = options or onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except NoKernelError:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
