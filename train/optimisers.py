"""Optimisers: a module with a loss becomes one step of training, which one call of compiled code runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..compiler.graph import Attrs, Expr, Function, GraphError, Module, TensorType, Tuple, Var
from ..compiler.graph.gradient import CustomGradient
from ..compiler.operators import contract, nn
from ..compiler.passes.gradient import grad, tidied
from .losses import number

RATE = "rate"
"""The input of a step that holds the learning rate, a scalar of the parameters' type."""


@dataclass(frozen=True)
class Step:
    """Forward, backward and update as one module.

    ``module``: its inputs are those of the model, the state, and `RATE`. ``state``: the input of each tensor that lives
    from step to step, and the output that holds its next value; those of ``parameters`` come first.
    """

    module: Module
    parameters: tuple[str, ...]
    state: Mapping[str, str]


def sgd(
    module: Module, parameters: Sequence[str], *, loss: str = "loss", momentum: float = 0.0, weight_decay: float = 0.0,
    nesterov: bool = False, custom: Sequence[CustomGradient] = (),
) -> Step:  # fmt: skip
    """Stochastic gradient descent with momentum, as PyTorch's ``SGD`` with dampening 0::

        velocity = momentum * velocity + gradient + weight_decay * parameter
        parameter = parameter - rate * velocity          (nesterov: gradient + ... + momentum * velocity in its place)

    parameters
        Names of inputs of the module that are trained: those that ``weft.lift_constants`` made.
    loss
        The output that is made smaller; a scalar.
    custom
        Gradients of subgraphs, as for ``weft.grad``.

    The module gets an input ``velocity_<parameter>`` for each (not without momentum), which starts with zeros, and
    outputs ``next_<input>`` of what changes. Raises `GraphError` for numbers that make no sense, and what
    ``weft.grad`` raises.
    """
    if not 0 <= momentum < 1:
        raise GraphError(f"momentum is {momentum}, but must be at least 0 and below 1")
    if not 0 <= weight_decay < float("inf"):
        raise GraphError(f"weight_decay is {weight_decay}, but must be at least 0 and finite")
    if nesterov and not momentum:
        raise GraphError("nesterov needs momentum", hint="give a momentum such as 0.9")
    if not parameters:
        raise GraphError("there is no parameter to train", hint="weft.lift_constants makes inputs of a model's weights")
    taken = {param.name for param in module.main.params}
    new = [RATE, *(f"velocity_{name}" for name in parameters if momentum)]
    clash = [name for name in new if name in taken]
    if clash:
        raise GraphError(f"an input has the name {clash[0]!r} already", hint="rename it")
    differentiated = grad(module, wrt=list(parameters), of=loss, custom=custom)
    main = differentiated.main
    inputs = {param.name: param for param in main.params}
    gradients = dict(zip(parameters, main.results[len(module.main.results) :], strict=True))
    types = {inputs[name].dtype for name in parameters}
    if len(types) > 1:
        raise GraphError(f"the parameters are of several types: {', '.join(sorted(types))}")
    rate = Var(RATE, TensorType((), types.pop()))
    velocities: list[Var] = []
    results: dict[str, Expr] = {}
    for name, gradient in gradients.items():
        value = inputs[name]
        if weight_decay:
            gradient = nn.add(gradient, nn.multiply(value, number(value, weight_decay)))
        direction = gradient
        if momentum:
            velocity = Var(f"velocity_{name}", value.type)
            velocities.append(velocity)
            results[velocity.name] = direction = nn.add(nn.multiply(velocity, number(value, momentum)), gradient)
            if nesterov:
                direction = nn.add(gradient, nn.multiply(direction, number(value, momentum)))
        results[name] = nn.subtract(value, nn.multiply(direction, rate))
    state = {name: f"next_{name}" for name in (*parameters, *(each.name for each in velocities))}
    outputs = [*module.main.output_names, *state.values()]
    if len(set(outputs)) < len(outputs):
        raise GraphError("an output of the model has the name of a next value", hint="rename outputs named next_...")
    body = Tuple((*main.results[: len(module.main.results)], *(_own(results[name], inputs) for name in state)))
    attrs = Attrs(main.attrs).replace(outputs=tuple(outputs))
    whole = Module(Function((*main.params, *velocities, rate), body, attrs, main.span), module.stage)
    return Step(tidied(whole), tuple(parameters), state)


def _own(value: Expr, inputs: Mapping[str, Var]) -> Expr:
    """The value, or a copy of an input that would be handed back as it is."""
    return contract.reshape(value, shape=value.shape) if value in inputs.values() else value
