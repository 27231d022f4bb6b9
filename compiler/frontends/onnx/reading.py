"""What all parts of a model's reading know."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from ...graph import Expr, Var, topological_order


@dataclass
class Reading:
    """What all scopes of one model share.

    ``quantised``: only what the accelerator can use is accepted. ``whole``: casts to integers whose operand is whole
    already, with that operand. ``static``: whether an expression depends on constants only, by digest.
    ``open_functions``: those whose bodies are being read. ``nodes``: how many were read, those of functions and loops
    each time.
    """

    quantised: bool
    functions: dict[tuple[str, str], onnx.FunctionProto] = field(default_factory=dict)
    whole: dict[Expr, Expr] = field(default_factory=dict)
    open_functions: list[str] = field(default_factory=list)
    nodes: int = 0
    static: dict[bytes, bool] = field(default_factory=dict)

    def is_static(self, value: Expr) -> bool:
        if value.digest not in self.static:
            for node in topological_order(value):
                if node.digest not in self.static:
                    below = all(self.static[child.digest] for child in node.children)
                    self.static[node.digest] = not isinstance(node, Var) and below
        return self.static[value.digest]
