"""An ONNX model as the compiler takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import numpy_helper

from ...graph import Array, Module
from ...graph.symbolic import SymbolicInput, SymbolicTypes
from ...graph.tail import Tail
from ..errors import ModelError, NeedsValueError
from .cut import cut
from .reader import from_onnx, load_model
from .symbolic import infer_types, symbolic_inputs


class OnnxSource:
    """A model given as a path, as the bytes of a file, or as a protobuf. ``largest_results``: as `from_onnx` has it.
    Raises ModelError if it cannot be read."""

    def __init__(self, model: str | Path | bytes | onnx.ModelProto, *, largest_results: bool = True) -> None:
        self._largest_results = largest_results
        self.name = Path(model).stem if isinstance(model, (str, Path)) else "model"
        self._model = load_model(model)
        self.output_names = tuple(value.name for value in self._model.graph.output)

    def inputs(self, shapes: Mapping[str, Sequence[int]]) -> tuple[SymbolicInput, ...]:
        return symbolic_inputs(self._model, shapes)

    def module(self, shapes: Mapping[str, Sequence[int]], *, require_quantised: bool) -> Module:
        return from_onnx(
            self._model, shapes, require_quantised=require_quantised, largest_results=self._largest_results
        )

    def with_values(self, values: Mapping[str, Array]) -> OnnxSource:
        """The model with these values of inputs, which it then has no more."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        for tensors in (model.graph.input, model.graph.initializer):
            for place in reversed([place for place, each in enumerate(tensors) if each.name in values]):
                del tensors[place]
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
        made = OnnxSource(model, largest_results=self._largest_results)
        made.name = self.name
        return made

    def cut(self, shapes: Mapping[str, Sequence[int]], error: NeedsValueError) -> tuple[OnnxSource, Tail]:
        """The part that can be compiled, and what depends on results whose size, or course, the values of a run
        decide, which ``error`` met. Raises ``error`` where the model cannot be cut."""
        head, tail = cut(self._model, shapes, error)
        made = OnnxSource(head)
        made.name = self.name
        return made, tail

    def with_batch(self, batch: int) -> OnnxSource:
        """The model for ``batch`` samples at once: what it knew of inner shapes is forgotten. ModelError for an input
        whose file fixes more than one sample."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        constants = {each.name for each in model.graph.initializer}
        for value in (*model.graph.input, *model.graph.output):
            sizes = value.type.tensor_type.shape.dim
            if value.name in constants or not sizes:
                continue
            if sizes[0].dim_value > 1:
                raise ModelError(
                    f"{value.name!r} has a batch of {sizes[0].dim_value}, so a batch of {batch} cannot be told",
                    hint="export the network with a batch of 1 or an open one",
                )
            sizes[0].dim_value = batch
        del model.graph.value_info[:]
        made = OnnxSource(model, largest_results=self._largest_results)
        made.name = self.name
        return made

    def types(self, shapes: Mapping[str, Sequence[int]]) -> SymbolicTypes:
        return infer_types(self._model, shapes)
