"""States between runs, such as keys and values, as the 8 bits that the next run would round them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..compiler.graph import (
    Call,
    Constant,
    Expr,
    Function,
    Fusion,
    Module,
    TensorType,
    Tuple,
    Var,
    call,
    operator,
    require_module,
    topological_order,
    with_children,
)
from ..compiler.model import TensorSpec
from ..runtime.session_roles import found_pairs
from ..whole import require_mapping
from .errors import QuantiseError


def eight_bit_states(module: Module, states: Mapping[str, str] | None = None) -> Module:
    """A quantised model whose states are int8 inputs and outputs instead of floats, with the same scores to the bit.

    states
        By output, the input of the next run that it becomes; by default pairs as exporters name them, such as
        ``present.0.key`` and ``past_key_values.0.key``, those of them that can be 8 bits.

    A state can be 8 bits where nothing but moves, concatenations and one kind of quantise reads it: rows are rounded
    once, when they are made, instead of in every run. A state that an output replaces as a whole begins as 0 in a
    session, so its zero point has to be 0. Raises `QuantiseError` for a state of ``states`` that cannot, with the
    reason, and where none can.
    """
    main = require_module(module, QuantiseError).main
    results = dict(zip(main.output_names, main.results, strict=True))
    params = {param.name: param for param in main.params}
    require_mapping(states or {}, "states", QuantiseError)
    pairs = dict(states) if states is not None else _named(params, results)
    for output, source in pairs.items():
        if output not in results or source not in params:
            raise QuantiseError(f"the model has no output {output!r} or no input {source!r}")
    rounded: dict[str, _Rounded] = {}
    reasons: dict[str, str] = {}
    users = _users(main)
    for output, source in pairs.items():
        found = _rounding(params[source], results[output], users)
        if isinstance(found, _Rounded):
            rounded[output] = found
        else:
            reasons[source] = found
    if reasons and (states is not None or not rounded):
        name, reason = next(iter(reasons.items()))
        raise QuantiseError(f"state {name!r} stays in floats: {reason}", hint="quantise the model first")
    if not rounded:
        raise QuantiseError("the model has no states", hint="give them: states={OUTPUT: INPUT}")
    return _rewritten(module, {output: pairs[output] for output in rounded}, rounded)


class _Rounded:
    """The quantises that read a state, and the moves on the way to them."""

    def __init__(self, state: Var) -> None:
        self.state = state
        self.carriers: set[Expr] = {state}
        self.quantises: list[Call] = []

    @property
    def constants(self) -> tuple[Expr, Expr]:
        return self.quantises[0].args[1], self.quantises[0].args[2]


def _named(params: Mapping[str, Var], results: Mapping[str, Expr]) -> dict[str, str]:
    def specs(values: Mapping[str, Expr]) -> dict[str, TensorSpec]:
        return {name: TensorSpec(name, value.shape, value.dtype) for name, value in values.items()}

    found = found_pairs(specs(params), specs(results))
    return {output.name: source.name for output, source in found if source.dtype == "float32"}


def _users(main: Function) -> dict[Expr, list[Call | None]]:
    """The calls that read each value; None for the outputs."""
    users: dict[Expr, list[Call | None]] = {}
    for node in dict.fromkeys(topological_order(main.body)):
        if node is main.body and isinstance(node, Tuple):
            continue
        for child in node.children:
            users.setdefault(child, []).append(node if isinstance(node, Call) else None)
    for result in main.results:
        users.setdefault(result, []).append(None)
    return users


def _rounding(state: Var, output: Expr, users: Mapping[Expr, Sequence[Call | None]]) -> _Rounded | str:
    """How a state is rounded, or why it is not."""
    found = _Rounded(state)
    waiting: list[Expr] = [state]
    while waiting:
        value = waiting.pop()
        for user in users.get(value, ()):
            if user is None:
                if value is not output:
                    return "it is another output of the model as well"
            elif user.op == "quantise":
                found.quantises.append(user)
            elif _is_carrier(user):
                if user not in found.carriers:
                    found.carriers.add(user)
                    waiting.append(user)
            else:
                return f"{user.op} {user.span.node!r} reads it".replace(" ''", "")
    if not found.quantises:
        return "nothing rounds it"
    first = found.quantises[0]
    for other in found.quantises[1:]:
        if other.dtype != first.dtype or not all(map(_same, first.args[1:], other.args[1:])):
            return "it is rounded in several ways"
    scale, zero_point = found.constants
    if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.size != 1:
        return "its scale is no single constant"
    if output.shape == state.shape and zero_point.value.any():
        return "it begins as 0, which is not its zero point"
    return found


def _is_carrier(node: Call) -> bool:
    if not isinstance(node.op, str):
        return False
    return node.op == "concat" or (operator(node.op).fusion is Fusion.LAYOUT and not node.attrs.get("value", 0))


def _same(one: Expr, other: Expr) -> bool:
    return one is other or (
        isinstance(one, Constant) and isinstance(other, Constant) and one.type == other.type
        and np.array_equal(one.value, other.value)
    )  # fmt: skip


def _rewritten(module: Module, pairs: Mapping[str, str], rounded: Mapping[str, _Rounded]) -> Module:
    main = module.main
    results = dict(zip(main.output_names, main.results, strict=True))
    inputs: dict[str, Var] = {}
    eights: dict[Expr, Expr] = {}
    for output, found in rounded.items():
        eight = _Eight(found)
        inputs[pairs[output]] = eight.input
        results[output] = eight.of(results[output])
        eights |= {quantise: eight.of(quantise.args[0]) for quantise in found.quantises}
    made: dict[Expr, Expr] = {}

    def rebuilt(value: Expr) -> Expr:
        for node in topological_order(value):
            if node not in made:
                eight = eights.get(node)
                children = tuple(made[child] for child in node.children)
                made[node] = with_children(node, children) if eight is None else rebuilt(eight)
        return made[value]

    values = tuple(rebuilt(results[name]) for name in main.output_names)
    params = tuple(inputs.get(param.name, param) for param in main.params)
    body = Tuple(values) if isinstance(main.body, Tuple) else values[0]
    return Module(Function(params, body, main.attrs, main.span), module.stage)


class _Eight:
    """Values on the way from a state to what rounds it, in 8 bits. ``input``: the state."""

    def __init__(self, found: _Rounded) -> None:
        self.found = found
        dtype = found.quantises[0].dtype
        self.input = Var(found.state.name, TensorType(found.state.shape, dtype), found.state.span)
        self.made: dict[Expr, Expr] = {found.state: self.input}

    def of(self, value: Expr) -> Expr:
        if value not in self.made:
            if value in self.found.carriers and isinstance(value, Call):
                children = tuple(self.of(each) for each in value.children)
                self.made[value] = call(value.op, *children, span=value.span, **value.attrs)
            else:
                self.made[value] = call("quantise", value, *self.found.constants, span=value.span)
        return self.made[value]
