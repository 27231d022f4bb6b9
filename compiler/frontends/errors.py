"""What a front end says when a model cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Expr, GraphError, Span, Var, topological_order


class ModelError(GraphError):
    """The model cannot be read or compiled; the text names the node, the tensor or the input, and what to change."""


class NeedsValueError(ModelError):
    """A value that decides on shapes or on the course of the model is not known at compile time.

    ``value`` is the expression; whoever can, gives the values of the inputs that it depends on (``values=``). ``span``:
    the node that needs it.
    """

    def __init__(self, message: str, *, at: Span, value: Expr) -> None:
        inputs = [node for node in topological_order(value) if isinstance(node, Var)]
        names = f"{', '.join(repr(each.name) for each in inputs[:3])}{' and others' if len(inputs) > 3 else ''}"
        hint = f"it depends on {names}; {_way_out(inputs)}" if inputs else ""
        super().__init__(message, at=at, hint=hint)
        self.value, self.span = value, at


def _way_out(inputs: Sequence[Var]) -> str:
    """What to do where what depends on these inputs must be known: integers may be given, what is computed of floats
    cannot."""
    if any(each.dtype.startswith("float") for each in inputs):
        return "a model whose course depends on the data of a run is not compiled: make the value a constant"
    return f"if its value is known, give it {in_python([each.name for each in inputs])}"


def in_python(names: Sequence[str]) -> str:
    """How values of inputs are given; no command takes any."""
    values = ", ".join(f"{name!r}: VALUE" for name in names)
    return f"in Python: weft.compile(weft.from_onnx(MODEL, values={{{values}}}), ...)"
