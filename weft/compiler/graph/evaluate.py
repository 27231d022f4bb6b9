"""Run a graph in NumPy: the reference that every later representation is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .dtypes import dtype_name
from .ir import Array, Call, Constant, Expr, Function, GraphError, Module, Tuple, TupleGet, TupleType, Var
from .registry import apply, apply_all
from .strings import StringsError, canonical
from .visit import topological_order

Value = Array | tuple[Array, ...]
Observer = Callable[[Expr, Value], None]


def evaluate(module: Module, inputs: Mapping[str, Array], observe: Observer | None = None) -> dict[str, Array]:
    """The outputs of ``main`` by name.

    ``observe(node, value)`` is called with every intermediate value, also inside called functions.
    Raises `GraphError` when an input is missing, unknown or of another type.
    """
    main = module.main
    names = {param.name for param in main.params}
    unknown = sorted(set(inputs) - names)
    if unknown:
        raise GraphError(f"there is no input {unknown[0]!r}", hint=f"the inputs are: {', '.join(sorted(names))}")
    arguments: list[Array] = []
    for param in main.params:
        if param.name not in inputs:
            raise GraphError(f"input {param.name!r} ({param.type}) is missing")
        try:
            value = canonical(inputs[param.name])
        except StringsError as error:
            raise GraphError(f"input {param.name!r}: {error.message}") from error
        if value.shape != param.type.shape or dtype_name(value.dtype) != param.type.dtype:
            actual = f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
            raise GraphError(f"input {param.name!r} must be {param.type}, not {actual}")
        arguments.append(value)
    result = evaluate_function(main, arguments, observe)
    results = result if isinstance(result, tuple) else (result,)
    return dict(zip(main.output_names, results, strict=True))


def static_value(node: Expr) -> Array:
    """The value of an expression of constants."""
    values: dict[int, Array] = {}
    for item in topological_order(node):
        if isinstance(item, Constant):
            values[id(item)] = item.value
        elif isinstance(item, Call):
            values[id(item)] = apply(item, [values[id(arg)] for arg in item.args])
    return values[id(node)]


def evaluate_function(function: Function, arguments: Sequence[Array], observe: Observer | None = None) -> Value:
    """The result of ``function``; values are released after their last use."""
    order = topological_order(function.body)
    remaining: dict[int, int] = {id(function.body): 1}
    for node in order:
        for child in node.children:
            remaining[id(child)] = remaining.get(id(child), 0) + 1
    bindings = dict(zip(function.params, arguments, strict=True))
    values: dict[int, Value] = {}
    for node in order:
        values[id(node)] = value = _value(node, values, bindings, observe)
        if observe is not None:
            observe(node, value)
        for child in node.children:
            remaining[id(child)] -= 1
            if not remaining[id(child)]:
                values.pop(id(child), None)
    return values[id(function.body)]


def _value(node: Expr, values: Mapping[int, Value], bindings: Mapping[Var, Array], observe: Observer | None) -> Value:
    match node:
        case Var():
            if node not in bindings:
                raise GraphError(f"%{node.name} is not a parameter of this function", at=node.span)
            return bindings[node]
        case Constant():
            return node.value
        case Tuple():
            return tuple(_tensor(values[id(item)]) for item in node.fields)
        case TupleGet():
            return values[id(node.value)][node.index]
        case Call():
            operands = [_tensor(values[id(arg)]) for arg in node.args]
            if isinstance(node.op, Function):
                return evaluate_function(node.op, operands, observe)
            if isinstance(node.type, TupleType):
                return apply_all(node, operands)
            value = apply(node, operands)
            shape, dtype = value.shape, dtype_name(value.dtype)
            if (shape, dtype) != (node.shape, node.dtype):  # the operator's rules do not agree with each other
                raise GraphError(f"{node.op} is {node.type}, but its value is {dtype}{list(shape)}", at=node.span)
            return value
    raise GraphError(f"cannot evaluate {type(node).__name__}", at=node.span)


def _tensor(value: Value) -> Array:
    if isinstance(value, tuple):
        raise GraphError("expected one tensor, but found a tuple")
    return value
