"""Make a graph that shows a fault small enough to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .evaluate import Value, evaluate
from .ir import Array, Attrs, Call, Expr, Function, Module, TupleGet, Var
from .text import constant_table, to_text
from .visit import calls, substitute, topological_order

Fails = Callable[[Module, Mapping[str, Array]], bool]


def shrink(module: Module, inputs: Mapping[str, Array], fails: Fails) -> tuple[Module, dict[str, Array]]:
    """The smallest module found that still fails, with its inputs.

    Tried are: a single inner value as the only result, and an inner value that becomes an input (with the value that it
    had). ``fails`` runs a candidate and tells whether it still shows the fault.
    """
    current, current_inputs = module, dict(inputs)
    while True:
        for candidate, values in _smaller(current, current_inputs):
            if fails(candidate, values):
                current, current_inputs = candidate, values
                break
        else:
            return current, current_inputs


def _smaller(module: Module, inputs: Mapping[str, Array]) -> Iterator[tuple[Module, dict[str, Array]]]:
    """Candidates, the smallest first."""
    values: dict[Expr, Array] = {}

    def observe(node: Expr, value: Value) -> None:
        if not isinstance(value, tuple):
            values[node] = value

    evaluate(module, inputs, observe)
    body = module.main.body
    inner = [node for node in topological_order(body) if isinstance(node, Call | TupleGet) and node in values]
    for node in inner:
        if node is not body:
            yield _module(module.stage, node, inputs)
    for node in reversed(inner):
        if node is not body:
            name = f"v{sum(isinstance(item, Var) for item in topological_order(body))}_{len(inner)}"
            cut = substitute(body, {node: Var(name, node.tensor_type)})
            if len(calls(cut)) < len(calls(body)):
                yield _module(module.stage, cut, {**inputs, name: values[node]}, module.main.attrs)


def _module(
    stage: str, body: Expr, inputs: Mapping[str, Array], attrs: Attrs | None = None
) -> tuple[Module, dict[str, Array]]:
    """A module of what ``body`` needs, and of the inputs those that it uses."""
    params = tuple({node.name: node for node in topological_order(body) if isinstance(node, Var)}.values())
    function = Function(params, body, attrs or Attrs({"name": "main"}))
    return Module(function, stage), {param.name: inputs[param.name] for param in params}


def describe(module: Module, inputs: Mapping[str, Array]) -> str:
    """The text of a module and the values of its inputs and named constants, to be read and to be run again."""
    lines = [to_text(module)]
    for name, value in {**constant_table(module), **inputs}.items():
        lines.append(f"# {name} = {value.tolist()}")
    return "\n".join(lines) + "\n"
