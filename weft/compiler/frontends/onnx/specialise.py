"""Reading a model for one set of inputs: shapes are those of the inputs, and inputs whose values decide on shapes or on
the course of the model are built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from ...graph import Array, Module, Var, topological_order
from ...graph.strings import canonical
from ..errors import NeedsValueError
from .reader import from_onnx


@dataclass(frozen=True)
class Specialised:
    """A module for one set of inputs, and the inputs that are left."""

    module: Module
    inputs: dict[str, Array]
    built_in: tuple[str, ...]


def specialise(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Specialised:
    """Read ``model`` for these inputs: arrays, lists of arrays for sequences, ``None`` for what is not there.

    Only the inputs that have to be are built in. Raises `ModelError`.
    """
    tensors = {value.name for value in model.graph.input if value.type.HasField("tensor_type")}
    arrays = {name: canonical(value) for name, value in inputs.items() if name in tensors and value is not None}
    built_in = {name: value for name, value in inputs.items() if name not in arrays}
    while True:
        left = {name: value for name, value in arrays.items() if name not in built_in}
        shapes = {name: value.shape for name, value in left.items()}
        try:
            module = from_onnx(model, shapes, values=built_in, require_quantised=False, largest_results=False)
            return Specialised(module, left, tuple(built_in))
        except NeedsValueError as error:
            needed = [node.name for node in topological_order(error.value) if isinstance(node, Var)]
            if not needed:
                raise
            built_in.update({name: arrays[name] for name in needed})
