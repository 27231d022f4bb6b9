"""Calls of operators as calls of functions: ``nn.add(a, b)`` is ``call("nn.add", a, b)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..graph.ir import Call
from ..graph.registry import call, operator


class Namespace:
    """Operators whose names start with ``prefix``; an underscore is put behind Python's words: ``nn.and_(a, b)``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Call]:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(call, operator(self._prefix + name.removesuffix("_")).name)


nn = Namespace("nn.")
contract = Namespace("")
"""The operators without a prefix: moves, and the integer contract."""
