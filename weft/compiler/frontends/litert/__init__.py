"""The LiteRT (TensorFlow Lite) front end: ``.tflite`` files, read by their schema, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....files import LitertFile
from ....imports import IMPORTS
from ..errors import ModelError
from .kernels import DEFAULT

if TYPE_CHECKING:
    from .source import LitertSource

IDENTIFIER = b"TFL3"
"""Of a file, from its fifth byte on."""

SUFFIX = ".tflite"


def open_model(model: Any, kernels: str = DEFAULT, signature: str | None = None) -> LitertSource | None:
    """The source of a LiteRT file, given as a path, as its bytes or with what is chosen of it; None for what is none.

    Raises ModelError for a damaged file, and for choices of another file.
    """
    if isinstance(model, LitertFile):
        return from_litert(model.path, kernels=model.kernels or kernels, signature=model.signature or signature)
    if isinstance(model, bytes):
        return _source(model, "the model", "model", kernels, signature) if is_litert(model) else None
    if not isinstance(model, (str, Path)):
        return None
    path = Path(model)
    try:
        with path.open("rb") as file:
            if not is_litert(file.read(8)) and path.suffix != SUFFIX:
                return None
        data = path.read_bytes()
    except OSError as error:
        if path.suffix != SUFFIX:
            return None
        raise ModelError(f"{str(model)!r} cannot be read: {error.strerror or error}") from None
    return _source(data, _place(model), path.stem, kernels, signature)


def from_litert(
    model: str | Path | bytes, *, kernels: str = DEFAULT, signature: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> LitertSource:  # fmt: skip
    """A LiteRT file, by its path or its bytes, as `weft.compile` takes it.

    ``kernels``: the set of LiteRT's kernels whose integers the model is to give, "default" or "reference".
    ``signature``: the one whose graph is read, by default the file's first graph. ``values``: of inputs that are built
    in, such as those that decide on shapes or on the model's course. Raises ModelError for what is no such file, for a
    damaged one, for a signature that it has not, and for a value that an input cannot have.
    """
    source = open_model(model, kernels, signature)
    if source is None:
        chosen = [what for what, is_chosen in (("kernels", kernels != DEFAULT), ("signatures", signature is not None))
                  if is_chosen]  # fmt: skip
        hint = f"only LiteRT files have {' and '.join(chosen)} to choose" if chosen else ""
        raise ModelError("no LiteRT file: such a file has TFL3 from its fifth byte on", at=_place(model), hint=hint)
    return source.with_values(values) if values else source


def _place(model: object) -> str:
    return "the model" if isinstance(model, bytes) else repr(str(model))


def _source(data: bytes, file: str, name: str, kernels: str, signature: str | None) -> LitertSource:
    with IMPORTS:  # most models are none of LiteRT
        from .source import LitertSource

    return LitertSource(data, file, name, kernels, signature)


def is_litert(data: bytes) -> bool:
    """Whether a file that begins so is one of LiteRT."""
    return data[4:8] == IDENTIFIER
