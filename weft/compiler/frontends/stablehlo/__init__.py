"""The StableHLO front end: what JAX exports. Nothing here imports JAX or its MLIR before it is needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....imports import IMPORTS
from ..errors import ModelError

if TYPE_CHECKING:
    from .source import StablehloSource

HINT = "pip install 'weft[jax]'"

BYTECODE = b"ML\xefR"
"""The first bytes of MLIR's bytecode; a portable artifact of StableHLO says so right behind them."""

MARK = b"StableHLO_v"
TEXT = (".mlir", ".stablehlo")
"""Endings of files that hold a module as text or as bytecode."""


def open_model(model: Any) -> StablehloSource | None:
    """The source of a StableHLO module (text or portable artifact, a file or its bytes), of what ``jax.export.export``
    gave, or of a file of that; None for what is nothing of these. Raises ModelError."""
    if isinstance(model, (str, Path)):
        path = Path(model)
        kind = _kind(path)
        if not kind:
            return None
        return _source(kind, path.read_bytes(), repr(str(path)), path.stem)
    if isinstance(model, bytes):
        return _source("module", model, "the model", "model") if _is_artifact(model) else None
    if "jax" in sys.modules and type(model).__module__.startswith("jax.") and hasattr(model, "mlir_module_serialized"):
        with IMPORTS:
            from .source import StablehloSource

        return StablehloSource(model.mlir_module_serialized, "the model", model.fun_name)
    return None


def from_jax(*args: Any, **kwargs: Any) -> StablehloSource:
    """A function of JAX, exported with example arguments, as `weft.compile` takes it: see `source.from_jax`.

    from_jax(function, *args, name="")

    Raises ModelError for what cannot be exported or read, and where JAX is not installed.
    """
    _require("jax", "from_jax exports functions of JAX")
    with IMPORTS:
        from .source import from_jax as capture

    return capture(*args, **kwargs)


def _source(kind: str, data: bytes, file: str, name: str) -> StablehloSource:
    if kind == "exported":
        _require("jax", f"{file} was written by jax.export")
        with IMPORTS:
            from .source import module_of

        data = module_of(data, file)
    _require("jaxlib", f"{file} is a module of StableHLO")
    with IMPORTS:
        from .checked import checked
        from .source import StablehloSource

    return StablehloSource(checked(data, file), file, name)


def _kind(path: Path) -> str:
    """``module``, ``exported`` (the file of a ``jax.export.Exported``), or nothing."""
    try:
        if path.is_dir():
            return ""
        with path.open("rb") as file:
            start = file.read(64)
            if _is_artifact(start) or path.suffix in TEXT:
                return "module"
            return "exported" if path.suffix in (".jax", ".jax_export") and MARK in file.read() else ""
    except OSError:
        return ""


def _is_artifact(data: bytes) -> bool:
    return data.startswith(BYTECODE) and MARK in data[:64]


def _require(package: str, why: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ModelError(f"{why}, but {package} is not installed", hint=HINT)
