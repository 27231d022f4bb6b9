"""onnxruntime as the judge of values, exact on every processor, and as a peer whose time is taken. Sessions are made
here alone, so that nobody judges by one that saturates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernelError

CPU = ("CPUExecutionProvider",)


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
        return onnxruntime.InferenceSession(model, options, providers=list(CPU))
    except NoKernelError:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(model, options, providers=list(CPU))


def fastest_session(
    model: bytes | str | Path, options: onnxruntime.SessionOptions | None = None, providers: Sequence[Any] = CPU
) -> onnxruntime.InferenceSession:
    """A session whose time is taken: as fast as onnxruntime is when nobody asks for exact values, which it may not
    give."""
    return onnxruntime.InferenceSession(model, options, providers=list(providers))
