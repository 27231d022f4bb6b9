"""What front ends have in common: a model as a user gave it, opened, and the choice of who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import onnx

from ..graph import Module
from ..graph.symbolic import SymbolicInput, SymbolicTypes
from .errors import ModelError
from .onnx.source import OnnxSource

Shapes = Mapping[str, Sequence[int]]


class Source(Protocol):
    """A model whose file was read. ``shapes`` fixes the shapes of the inputs that it names."""

    name: str
    output_names: tuple[str, ...]

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs, with a symbol for each size that is open."""

    def module(self, shapes: Shapes, *, takes_floats: bool) -> Module:
        """The graph. Without ``takes_floats`` a product with floating-point weights is refused. Raises ModelError."""

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every tensor, for any size. Raises ModelError."""


def read(model: str | Path | bytes | onnx.ModelProto) -> Source:
    """Open a model: an ONNX file, its bytes, or its protobuf. Raises ModelError for what no front end reads."""
    if isinstance(model, (str, Path, bytes, onnx.ModelProto)):
        return OnnxSource(model)
    raise ModelError(
        f"a {type(model).__name__} is no model that can be read",
        hint="give the path or the bytes of an ONNX file, a ModelProto, or a Module of the graph IR",
    )
