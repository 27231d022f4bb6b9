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

from ...files import LitertFile
from ...plugins import FRONT_ENDS, load_plugin, plugins
from ...shown import with_article
from ..graph import Array, Module
from ..graph.symbolic import SymbolicInput, SymbolicTypes
from ..graph.tail import Tail
from .errors import ModelError, NeedsValueError
from .litert import open_model as open_litert
from .onnx.source import OnnxSource
from .refusals import refuse_empty_file, refuse_other_files
from .stablehlo import open_model as open_stablehlo
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


@runtime_checkable
class Resizable(Source, Protocol):
    """A source that can be read for another batch than its file says, where all that follows from it is inferred."""

    def with_batch(self, batch: int) -> Source:
        """The model for ``batch`` samples at once: the first size of every input. ModelError if it is fixed to more
        than one."""


@runtime_checkable
class Divisible(Source, Protocol):
    """A source that can be cut before results whose size, or course, the values of a run decide."""

    def cut(self, shapes: Shapes, error: NeedsValueError) -> tuple[Source, Tail]:
        """What can be compiled, and the rest. Raises ``error`` where the model cannot be cut."""


@runtime_checkable
class Decidable(Source, Protocol):
    """A source of which inputs can be built in, where their values decide on its course."""

    def with_values(self, values: Mapping[str, Array]) -> Source:
        """The model with these values of inputs, which it then has no more."""


def module_and_tail(source: Source, shapes: Shapes, *, require_quantised: bool) -> tuple[Module, Tail | None]:
    """The graph of what can be compiled of a model, and the rest, if that is computed in each run. ModelError."""
    try:
        return source.module(shapes, require_quantised=require_quantised), None
    except NeedsValueError as error:
        if not isinstance(source, Divisible):
            raise
        head, tail = source.cut(shapes, error)
        return head.module(shapes, require_quantised=require_quantised), tail


def for_batch(source: Source, batch: int) -> tuple[Source, dict[str, tuple[int, ...]]]:
    """``source`` for ``batch`` samples at once, with the shapes of its inputs. Raises ModelError where another batch is
    fixed in the model, or another size is open."""
    if isinstance(source, Resizable):
        source = source.with_batch(batch)
    shapes = {}
    for each in source.inputs({}):
        first, *others = each.shape or (batch,)
        if not isinstance(first, str) and first != batch:
            raise ModelError(f"{each.name!r} has a batch of {first}, so a batch of {batch} cannot be told",
                             hint="export the network with an open batch")  # fmt: skip
        if any(isinstance(size, str) for size in others):
            raise ModelError(f"{each.name!r} leaves sizes open beside its batch", hint="fix them where it is exported")
        if isinstance(first, str):
            shapes[each.name] = (batch, *map(int, others))
    return source, shapes


Opener = Callable[[Any], Source | None]
"""From a model as a user gave it to its source, or None for what this front end does not read. Raises ModelError."""


def read(model: Any) -> Source:
    """Open a model: a `Source`, an exported program of PyTorch or its file, a LiteRT file or its bytes, a module of
    StableHLO or what JAX exported, an ONNX file, its bytes or its protobuf, or what an installed front end reads.
    Raises ModelError for what no front end reads."""
    if isinstance(model, Source):
        return model
    if isinstance(model, (str, Path, LitertFile)):
        refuse_empty_file(Path(str(model)))
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
        f"{with_article(kind.__name__)} is no model that can be read",
        hint="give the path or the bytes of an ONNX, LiteRT or StableHLO file, a ModelProto, a PyTorch program "
             "(weft.from_torch), a function of JAX (weft.from_jax), or a Module of the graph IR",
    )  # fmt: skip


def _openers() -> Iterator[Opener]:
    """Who reads models, the installed ones before ONNX's, which takes every file."""
    yield open_torch
    yield open_litert
    yield open_stablehlo
    for point in plugins(FRONT_ENDS).values():
        yield load_plugin(point, "front end", ModelError)
    yield _open_onnx


def _open_onnx(model: Any) -> Source | None:
    if isinstance(model, (str, Path)):
        refuse_other_files(Path(model))
    return OnnxSource(model) if isinstance(model, (str, Path, bytes, onnx.ModelProto)) else None
