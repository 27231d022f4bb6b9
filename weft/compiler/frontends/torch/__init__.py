"""The PyTorch front end: programs that ``torch.export`` captured. Nothing here imports PyTorch before it is needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....files import is_exported_program
from ....imports import IMPORTS
from ..errors import ModelError

if TYPE_CHECKING:
    from ..source import Source

HINT = "pip install 'weft[torch]'"


def open_model(model: Any) -> Source | None:
    """The source of an exported program or of the file of one; None for what is nothing of PyTorch's.

    Raises ModelError for a module, which has no sizes before it is captured.
    """
    if isinstance(model, (str, Path)):
        if not is_exported_program(model):
            return None
        _require_torch(f"{str(model)!r} is an exported program of PyTorch")
        with IMPORTS:
            from .source import open_program

        return open_program(model)
    if "torch" not in sys.modules:
        return None
    import torch

    if isinstance(model, torch.nn.Module):
        raise ModelError(f"{type(model).__name__} is a module of PyTorch, which has no types and sizes of its own",
                         hint="give weft.from_torch(module, example_inputs)")  # fmt: skip
    if isinstance(model, torch.export.ExportedProgram):
        with IMPORTS:
            from .source import source_of

        return source_of(model)
    return None


def from_torch(*args: Any, **kwargs: Any) -> Source:
    """A module of PyTorch, captured with example inputs, as `weft.compile` takes it: see `source.from_torch`.

    from_torch(model, args=(), kwargs=None, *, dynamic_shapes=None, name="")

    Raises ModelError for what cannot be captured or read, and where PyTorch is not installed.
    """
    _require_torch("from_torch captures modules of PyTorch")
    with IMPORTS:
        from .source import from_torch as capture

    return capture(*args, **kwargs)


def _require_torch(why: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise ModelError(f"{why}, which is not installed", hint=HINT)
