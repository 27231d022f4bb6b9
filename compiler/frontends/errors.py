"""What a front end says when a model cannot be read."""

from __future__ import annotations

from ..graph import Expr, GraphError, Span, Var, topological_order


class ModelError(GraphError):
    """The model cannot be read or compiled; the text names the node, the tensor or the input, and what to change."""


class NeedsValueError(ModelError):
    """A value that decides on shapes or on the course of the model is not known at compile time.

    ``value`` is the expression; whoever can, gives the values of the inputs that it depends on (``values=``).
    """

    def __init__(self, message: str, *, at: Span, value: Expr) -> None:
        names = [repr(node.name) for node in topological_order(value) if isinstance(node, Var)]
        inputs = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
        hint = f"it depends on {inputs}; {_way_out(value)}" if names else ""
        super().__init__(message, at=at, hint=hint)
        self.value = value


def _way_out(value: Expr) -> str:
    """What to do where an expression must be known: integers may be given, what is computed of floats cannot."""
    floats = [node for node in topological_order(value) if isinstance(node, Var) and node.dtype.startswith("float")]
    if floats:
        return "a model whose course depends on the data of a run is not compiled: make the value a constant"
    return "if its value is known, give it: from_onnx(model, values={name: value})"
