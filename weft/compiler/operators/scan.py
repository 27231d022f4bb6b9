"""A loop whose number of steps is known, as one operator: a body that is run once for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.chooser import Chooser
from ..graph.dtypes import is_float
from ..graph.evaluate import evaluate_function
from ..graph.ir import Array, Attrs, Call, Expr, Function, GraphError, TensorType, Tuple, TupleGet, TupleType
from ..graph.registry import REQUIRED, Accuracy, Family, Fusion, Operator, operator_of, register, unsupported
from ..graph.scan import MOST_STEPS, SCAN, body_of, place_of, scan
from ..graph.visit import calls
from .build import nn
from .samples import variable
from .type_rules import integer, require


def _types(operands: Sequence[TensorType], attrs: Attrs) -> TupleType:
    body, backwards = attrs["body"], attrs["backwards"]
    if not isinstance(body, Function) or not isinstance(body.type, TupleType):
        raise GraphError(f"body must be a function with a tuple of results, not {body!r}")
    steps = integer(attrs, "steps", 1, MOST_STEPS)
    states = integer(attrs, "states", 0, len(operands))
    sequences = integer(attrs, "sequences", 0, len(operands) - states)
    results = body.type.fields
    require(bool(results), "the body must have results")
    require(len(results) >= states, f"the body has {len(results)} results, but there are {states} states")
    flags = backwards if isinstance(backwards, tuple) else ()
    fits = len(flags) == sequences + len(results) - states and all(isinstance(each, bool) for each in flags)
    require(fits, f"backwards must be a flag for each of {sequences} sequences and "
                  f"{len(results) - states} stacked results, not {backwards!r}")  # fmt: skip
    require(len(body.params) == len(operands), f"the body takes {len(body.params)} operands, not {len(operands)}")
    for number, (operand, param) in enumerate(zip(operands, body.params, strict=True)):
        wanted = param.type
        if states <= number < states + sequences:
            wanted = TensorType((steps, *wanted.shape), wanted.dtype)
        require(
            operand == wanted, f"operand {number} must be {wanted}, as %{param.name} of the body wants, not {operand}"
        )
    for number, (before, after) in enumerate(zip(operands[:states], results, strict=False)):
        require(before == after, f"state {number} is {before} before a step, and {after} behind it")
    stacked = (TensorType((steps, *kind.shape), kind.dtype) for kind in results[states:])
    return TupleType((*results[:states], *stacked))


def _run(*operands: Array, body: Function, states: int, sequences: int, steps: int, backwards: tuple[bool, ...]) -> Any:
    state = list(operands[:states])
    listed, fixed = operands[states : states + sequences], operands[states + sequences :]
    stacked: list[list[Array]] = [[] for _ in body.results[states:]]
    for step in range(steps):
        taken = [x[place_of(step, steps, back)] for x, back in zip(listed, backwards, strict=False)]
        results = evaluate_function(body, [np.asarray(each) for each in (*state, *taken, *fixed)])
        state = list(results[:states])
        for values, value in zip(stacked, results[states:], strict=True):
            values.append(value)
    whole = (np.stack(values[::-1] if back else values)
             for values, back in zip(stacked, backwards[sequences:], strict=True))  # fmt: skip
    return (*state, *whole)


def _macs(node: Call) -> int:
    entry = operator_of(node)
    return entry.macs(node) if entry is not None else 0


def _one(states: Sequence[Expr], sequences: Sequence[Expr], body: Function, backwards: Sequence[bool] = ()) -> Call:
    first, *_ = scan(body, states, sequences, steps=sequences[0].shape[0], backwards=backwards or None)
    assert isinstance(first, TupleGet)
    assert isinstance(first.value, Call)
    return first.value


def _sample(dtype: str) -> Call:
    total, x = variable(dtype, 2, 3, name="total"), variable(dtype, 3, name="x")
    more = nn.add(total, x)
    body = Function((total, x), Tuple((more, more)), Attrs({"name": "step"}))
    return _one([variable(dtype, 2, 3, name="start")], [variable(dtype, 5, 3, name="items")], body)


def _draw(choose: Chooser) -> Expr:
    """A loop over the first axis of a value, with two states and up to two stacked results."""
    items = choose.operand(lambda node: len(node.shape) > 1 and node.shape[0] > 1 and node.tensor_type.size > 0)
    states = [choose.leaf(items.shape[1:], items.dtype) for _ in range(2)]
    params = tuple(variable(items.dtype, *items.shape[1:], name=name) for name in ("a", "b", "x"))
    ops = [nn.add, nn.maximum, nn.minimum, nn.subtract]
    values: list[Expr] = list(params)
    for _ in range(choose.whole(1, 4)):
        values.append(choose.pick(ops)(choose.pick(values), choose.pick(values)))
        if is_float(items.dtype) and choose.chance(0.3):
            values.append(nn.tanh(values[-1]))
    results = [choose.pick(values) for _ in range(2 + choose.whole(0, 2))]
    back = [choose.chance(0.5) for _ in range(1 + len(results) - 2)]
    return _one(states, [items], Function(params, Tuple(tuple(results)), Attrs({"name": "step"})), back)


register(Operator(
    SCAN, "operands*", family=Family.INDEX, fusion=Fusion.OPAQUE, accuracy=Accuracy.ROUNDED,
    types=_types, numpy=_run, sample=_sample, draw=_draw, folds=False,
    macs=lambda node: node.attr("steps") * sum(map(_macs, calls(body_of(node).body))),
    gradient=unsupported("it is unrolled before a gradient is taken"),
    lower=unsupported("it is linked as a loop of its body's kernels, or unrolled"),
    defaults={"body": REQUIRED, "states": REQUIRED, "sequences": REQUIRED, "steps": REQUIRED, "backwards": ()},
    doc="steps runs of the function body, from states, an element of each sequence and what stays the same to the next "
        "states and further results. Gives the last states, and the further results stacked along a new first axis; "
        "backwards says of each sequence and each of these whether step 0 is at its end.",
))  # fmt: skip
