"""The part of a model that no compiler sees: what depends on results whose size, or course, a run's values decide."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tail:
    """The part of a model that is read in every run. ``model``: the bytes of an ONNX model of its own, or of a LiteRT
    file with what is computed of it (`compiler/frontends/litert/cut.py`); ``inputs``: the
    tensors that it takes; ``outputs``: those of the whole model, in order; ``operators``: by node; ``reason``: why it
    is not compiled."""

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[tuple[str, str], ...]
    reason: str
