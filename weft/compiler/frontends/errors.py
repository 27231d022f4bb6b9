"""What a front end says when a model cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..graph import Expr, GraphError, Span, Var, topological_order

MOST_VALUES = 64
"""Elements of an input that a model may be compiled for: a rate, lengths, a shape, and no picture."""


class ModelError(GraphError):
    """The model cannot be read or compiled; the text names the node, the tensor or the input, and what to change."""


class NeedsValueError(ModelError):
    """A value that decides on shapes or on the course of the model is not known at compile time.

    ``value`` is the expression; whoever can, gives the values of the inputs that it depends on (``values=``). ``span``:
    the node that needs it, or around it in a function; ``operator``: its own; ``what`` it needs, in words.
    ``reader``: the function of weft that reads such models.
    """

    def __init__(self, operator: str, what: str, *, at: Span, value: Expr, reader: str = "from_onnx") -> None:
        message = f"{operator}: {what} must be a constant, but is computed while the model runs"
        inputs = [node for node in topological_order(value) if isinstance(node, Var)]
        names = f"{', '.join(repr(each.name) for each in inputs[:3])}{' and others' if len(inputs) > 3 else ''}"
        hint = f"it depends on {names}; {_way_out(inputs, reader)}" if inputs else ""
        super().__init__(message, at=at, hint=hint)
        self.value, self.span, self.operator, self.what, self.reader = value, at, operator, what, reader
        self.inputs = tuple(inputs)
        """The inputs that it depends on."""
        self.is_of_floats = any(each.dtype.startswith("float") for each in inputs)
        """Whether no user can know it."""

    @property
    def is_of_few_integers(self) -> bool:
        """Whether it follows from few integers that a run is given."""
        return bool(self.inputs) and not any(
            each.dtype.startswith("float") or prod(each.shape) > MOST_VALUES for each in self.inputs
        )


def _way_out(inputs: Sequence[Var], reader: str) -> str:
    """What to do where what depends on these inputs must be known: integers may be given, what is computed of floats
    cannot, but a model can be cut there."""
    if any(each.dtype.startswith("float") for each in inputs):
        return "what follows is computed in each run, by NumPy, where compilation is not strict; or make it a constant"
    return f"if its value is known, give it {in_python([each.name for each in inputs], reader)}"


def in_python(names: Sequence[str], reader: str = "from_onnx") -> str:
    """How values of inputs are given; no command takes any."""
    values = ", ".join(f"{name!r}: VALUE" for name in names)
    return f"in Python: weft.compile(weft.{reader}(MODEL, values={{{values}}}), ...)"
