"""The LiteRT (TensorFlow Lite) front end: ``.tflite`` files, read by their schema, without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....imports import IMPORTS
from ..errors import ModelError

if TYPE_CHECKING:
    from .source import LitertSource

IDENTIFIER = b"TFL3"
"""Of a file, from its fifth byte on."""

SUFFIX = ".tflite"


def open_model(model: Any) -> LitertSource | None:
    """The source of a LiteRT file, given as a path or as its bytes; None for what is none.

    Raises ModelError for a damaged file.
    """
    if isinstance(model, bytes):
        return _source(model, "the model", "model") if is_litert(model) else None
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
    return _source(data, repr(str(model)), path.stem)


def _source(data: bytes, file: str, name: str) -> LitertSource:
    with IMPORTS:  # most models are none of LiteRT
        from .source import LitertSource

    return LitertSource(data, file, name)


def is_litert(data: bytes) -> bool:
    """Whether a file that begins so is one of LiteRT."""
    return data[4:8] == IDENTIFIER
