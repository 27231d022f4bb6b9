"""An ONNX model as the compiler takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from ...graph import Module
from ...graph.symbolic import SymbolicInput, SymbolicTypes
from .reader import from_onnx, load_model
from .symbolic import infer_types, symbolic_inputs


class OnnxSource:
    """A model given as a path, as the bytes of a file, or as a protobuf. Raises ModelError if it cannot be read."""

    def __init__(self, model: str | Path | bytes | onnx.ModelProto) -> None:
        self.name = Path(model).stem if isinstance(model, (str, Path)) else "model"
        self._model = load_model(model)
        self.output_names = tuple(value.name for value in self._model.graph.output)

    def inputs(self, shapes: Mapping[str, Sequence[int]]) -> tuple[SymbolicInput, ...]:
        return symbolic_inputs(self._model, shapes)

    def module(self, shapes: Mapping[str, Sequence[int]], *, require_quantised: bool) -> Module:
        return from_onnx(self._model, shapes, require_quantised=require_quantised)

    def types(self, shapes: Mapping[str, Sequence[int]]) -> SymbolicTypes:
        return infer_types(self._model, shapes)
