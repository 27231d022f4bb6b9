"""What all parts of a model's reading know."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from ...graph import Expr


@dataclass
class Reading:
    """What all scopes of one model share.

    ``quantised``: only what the accelerator can use is accepted. ``whole``: casts to integers whose operand is whole
    already, with that operand. ``open_functions``: those whose bodies are being read. ``nodes``: how many were read,
    those of functions and loops each time. ``largest_results``: results whose size depends on
    the values of a run have the largest size that they can have.
    """

    quantised: bool
    largest_results: bool = True
    functions: dict[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    whole: dict[Expr, Expr] = field(default_factory=dict)
    open_functions: list[str] = field(default_factory=list)
    nodes: int = 0
