"""The LiteRT (TensorFlow Lite) front end: ``.tflite`` files, read by their schema, without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ModelError
from .schema import IDENTIFIER
from .source import LitertSource

SUFFIX = ".tflite"


def open_model(model: Any) -> LitertSource | None:
    """The source of a LiteRT file, given as a path or as its bytes; None for what is none.

    Raises ModelError for a damaged file.
    """
    if isinstance(model, bytes):
        return LitertSource(model, "the model") if is_litert(model) else None
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
    return LitertSource(data, repr(str(model)), path.stem)


def is_litert(data: bytes) -> bool:
    """Whether a file that begins so is one of LiteRT."""
    return data[4:8] == IDENTIFIER
