"""What every real value of a model is in integers: each operator's entry says it, see `form` for the descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..graph import Call, Constant, Expr, Family, Function, TensorType, Var
from ..graph.registry import operator
from .form import IntegerForm, Real, Refusal, moved, with_span

NO_INTEGER_FORM = "has no integer form and is computed in float32"

CONSTANT = Refusal("it is a constant")

Rule = Callable[["Describer", Call, str], IntegerForm]
"""What `Operator.integer` is; the text names the call in messages."""


@dataclass(frozen=True)
class Describer:
    """``described``: the values below the one that is described, by id. ``integers``: for each int8 or uint8 value the
    int8 one that stands for it. ``uses``: of every value. ``block``: of the array that multiplies computed matrices; 0
    where the host does. ``volumes``: whether there are convolutions and poolings over volumes of bytes.
    ``whole_factors``: whether constants of 8 bits are multiplied as integers, before the factor is rounded. ``core``:
    whether products run beside the host, so that two of them may cost less than one in floats."""

    described: Mapping[int, IntegerForm]
    integers: Mapping[int, Expr]
    uses: Mapping[Expr, int]
    block: int = 0
    volumes: bool = False
    whole_factors: bool = False
    core: bool = False

    def describe(self, node: Expr) -> IntegerForm:
        """A real value in integers, or why it has to be computed in floating point."""
        if node.static:
            return CONSTANT
        if isinstance(node, Var):
            return Refusal(f"input {node.name!r} is float32")
        if not isinstance(node, Call) or isinstance(node.op, Function):
            return Refusal("it is not an operator")
        name = f"{node.op.removeprefix('nn.')} {node.span.node!r}"
        if isinstance(node.type, TensorType) and 0 in node.shape:
            return Refusal(f"{name} has no elements")
        rule: Rule = operator(node.op).integer or moved_or_refused
        form = rule(self, node, name)
        if form == CONSTANT:  # its first operand, such as the condition of a choice: no reason for what follows
            return Refusal(f"{name} {NO_INTEGER_FORM}")
        return form if isinstance(form, Refusal) else with_span(form, node.span)

    def operand(self, node: Call, name: str) -> IntegerForm:
        """The first operand in integers."""
        return self.described.get(id(node.args[0]), Refusal(f"{name} works on 8-bit integers as they are"))


def of_operand(rule: Callable[[Real, Call, str], IntegerForm]) -> Rule:
    """A rule that asks for nothing but what the first operand is in integers, which is no refusal."""

    def described(describer: Describer, node: Call, name: str) -> IntegerForm:
        x = describer.operand(node, name)
        return x if isinstance(x, Refusal) else rule(x, node, name)

    return described


@of_operand
def moved_or_refused(x: Real, node: Call, name: str) -> IntegerForm:
    """Moves commute with quantisation, if their other operands are constants; other operators have no integer form."""
    is_move = operator(str(node.op)).family in (Family.MOVE, Family.INDEX)
    if is_move and node.dtype == "float32" and all(isinstance(arg, Constant) for arg in node.args[1:]):
        return moved(x, node)
    return Refusal(f"{name} {NO_INTEGER_FORM}")


@of_operand
def zeros_between(x: Real, node: Call, name: str) -> IntegerForm:
    return Refusal(f"{name} puts zeros between elements")
