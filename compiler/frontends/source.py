"""What front ends have in common: a model as a user gave it, opened, and the choice of who reads it.

A package that wants to add a front end names a function in its ``pyproject.toml``, from a model to a `Source`, or to
None for what it does not read:

    [project.entry-points."weft.frontends"]
    mine = "my_package.my_module:open_model"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import onnx

from ...plugins import FRONT_ENDS, load_plugin, plugins
from ..graph import Module
from ..graph.symbolic import SymbolicInput, SymbolicTypes
from .errors import ModelError
from .litert import open_model as open_litert
from .onnx.source import OnnxSource
from .torch import open_model as open_torch

Shapes = Mapping[str, Sequence[int]]


@runtime_checkable
class Source(Protocol):
    """A model whose file was read. ``shapes`` fixes the shapes of the inputs that it names."""

    name: str
    output_names: tuple[str, ...]

    def inputs(self, shapes: Shapes) -> tuple[SymbolicInput, ...]:
        """The inputs, with a symbol for each size that is open."""

    def module(self, shapes: Shapes, *, require_quantised: bool) -> Module:
        """The graph. With ``require_quantised`` a product with floating-point weights is refused. Raises ModelError."""

    def types(self, shapes: Shapes) -> SymbolicTypes:
        """The type of every tensor, for any size. Raises ModelError."""


Opener = Callable[[Any], Source | None]
"""From a model as a user gave it to its source, or None for what this front end does not read. Raises ModelError."""


def read(model: Any) -> Source:
    """Open a model: a `Source`, an exported program of PyTorch or its file, a LiteRT file or its bytes, an ONNX file,
    its bytes or its protobuf, or what an installed front end reads. Raises ModelError for what no front end reads."""
    if isinstance(model, Source):
        return model
    for opener in _openers():
        source = opener(model)
        if source is not None:
            return source
    kind = type(model)
    if any(each.__module__.startswith("torch.nn") for each in kind.__mro__):
        raise ModelError(
            f"{kind.__name__!r} is a PyTorch module: its graph has to be exported first",
            hint="weft.from_torch(module, (example,)), or torch.onnx.export(module, (example,), 'model.onnx')",
        )
    raise ModelError(
        f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__} is no model that can be read",
        hint="give the path or the bytes of an ONNX or LiteRT file, a ModelProto, a PyTorch program "
             "(weft.from_torch), or a Module of the graph IR",
    )  # fmt: skip


def _openers() -> Iterator[Opener]:
    """Who reads models, the installed ones before ONNX's, which takes every file."""
    yield open_torch
    yield open_litert
    for point in plugins(FRONT_ENDS).values():
        yield load_plugin(point, "front end", ModelError)
    yield _open_onnx


WEIGHTS = {
    ".pt": "weights or a module of PyTorch", ".pth": "weights or a module of PyTorch",
    ".bin": "weights of PyTorch", ".ckpt": "a checkpoint of a training", ".safetensors": "weights without a graph",
    ".pb": "a graph of TensorFlow",
}  # fmt: skip
"""Files of others that people try, by their ending: what they are."""

EXPORTS = {
    "PyTorch": "torch.onnx.export(model, (example,), 'model.onnx')",
    "TensorFlow": "python -m tf2onnx.convert --graphdef model.pb --output model.onnx",
    "": "load them into the model that they belong to, then torch.onnx.export(model, (example,), 'model.onnx')",
}
"""How each becomes a file that can be read."""


ONNX_START = b"\x08"
"""The first byte of an ONNX file: its field 1, a number, is the version of the format."""


def _refuse_weights(path: Path) -> None:
    """ModelError for a file of another kind, by its ending: what it is, and the line that exports it."""
    what = WEIGHTS.get(path.suffix.lower())
    if what is None or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            if file.read(1) == ONNX_START:  # whatever its name
                return
    except OSError:  # told by the reader of ONNX
        return
    line = next(line for name, line in EXPORTS.items() if name in what)
    raise ModelError(f"{str(path)!r} is {what}, not a graph that can be compiled", hint=f"export it: {line}")


def _open_onnx(model: Any) -> Source | None:
    if isinstance(model, (str, Path)):
        _refuse_weights(Path(model))
    return OnnxSource(model) if isinstance(model, (str, Path, bytes, onnx.ModelProto)) else None
