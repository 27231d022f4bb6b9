"""Tails of models, whichever front end cut them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..graph import Array
from ..graph.tail import Tail
from .litert import cut as litert
from .onnx import cut as onnx


def finish_of(tail: Tail) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """What a tail does in a run: results from the values of its inputs. ModelError for a tail that cannot be read."""
    return litert.Finish(tail) if litert.is_tail(tail.model) else onnx.Finish(tail)
