"""Backends in the sense of `onnx.backend.base`, by which ONNX's own test suite drives a compiler.

A backend differs from another in how it runs a module; `reference` runs it in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep

from ...graph import Array, Module, evaluate
from ...graph.dtypes import STRING, dtype_name
from .specialise import specialise

Execute = Callable[[Module, Mapping[str, Array]], Mapping[str, Array]]


class PreparedModel(BackendRep):
    """A model that waits for its inputs: shapes are known only then, so it is read then."""

    def __init__(self, model: onnx.ModelProto, execute: Execute) -> None:
        self.model, self.execute = model, execute

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for ``inputs``, in the model's order; a sequence is a list of arrays."""
        initialised = {tensor.name for tensor in self.model.graph.initializer}
        names = [value.name for value in self.model.graph.input]
        if len(inputs) < len(names):  # what has a default may be left out
            names = [name for name in names if name not in initialised]
        found = specialise(self.model, dict(zip(names, inputs, strict=True)))
        results = self.execute(found.module, found.inputs)
        return tuple(_output(value, results) for value in self.model.graph.output)


def _output(value: onnx.ValueInfoProto, results: Mapping[str, Array]) -> Any:
    if value.name in results:
        return _array(results[value.name])
    items: list[Array] = []
    while f"{value.name}[{len(items)}]" in results:
        items.append(_array(results[f"{value.name}[{len(items)}]"]))
    optional = value.type.HasField("optional_type") and not value.type.optional_type.elem_type.HasField("sequence_type")
    return None if optional and not items else items


def _array(result: Array) -> Array:
    """Strings as objects, which is what ONNX calls an array of them."""
    return result.astype(object) if dtype_name(result.dtype) == STRING else result


class ExecutingBackend(Backend):
    """What the backends share; ``execute`` runs a module."""

    execute: Execute

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        return PreparedModel(model, cls.execute)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class ReferenceBackend(ExecutingBackend):
    """Runs the graph IR in NumPy."""

    execute = staticmethod(evaluate)
