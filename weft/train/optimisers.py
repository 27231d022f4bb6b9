"""Optimisers: a module with a loss becomes one step of training, which one call of compiled code runs.

Arguments that all of them have:

parameters
    Names of inputs of the module that are trained: those that ``weft.lift_constants`` made.
weight_decay
    A number for all parameters, or a number for each that has one: ``{name: number}``.
loss, clip_norm, custom, loss_scaling, check_finite, keep_all
    As in `StepOptions`.

The step's module gets inputs for what an optimiser keeps, which start with zeros, and outputs ``next_<input>`` of what
changes. All raise `GraphError` for numbers that make no sense, and what `step_of` raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from ..compiler.graph import Expr, GraphError, Module, Var
from ..compiler.operators import nn
from ..whole import require_names, require_number
from .step import Learning, Rule, Step, StepOptions, number, square_sum, step_of

Decay = float | Mapping[str, float]


def sgd(
    module: Module, parameters: Sequence[str], *, momentum: float = 0.0, weight_decay: Decay = 0.0,
    nesterov: bool = False, **options: Unpack[StepOptions],
) -> Step:  # fmt: skip
    """Stochastic gradient descent with momentum, as PyTorch's ``SGD`` with dampening 0::

    velocity = momentum * velocity + gradient + weight_decay * parameter
    parameter = parameter - rate * velocity          (nesterov: gradient + ... + momentum * velocity in its place)
    """
    _check_share("momentum", momentum)
    if nesterov and not momentum:
        raise GraphError("nesterov needs momentum", hint="give a momentum such as 0.9")

    def direction(at: Learning) -> Expr:
        if not momentum:
            return at.gradient
        velocity = at.keep("velocity", lambda before: nn.add(_scaled(before, momentum), at.gradient))
        return nn.add(at.gradient, _scaled(velocity, momentum)) if nesterov else velocity

    return _descent(module, parameters, _decay_in_gradient(weight_decay, parameters, direction), options)


def adam(
    module: Module, parameters: Sequence[str], *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
    weight_decay: Decay = 0.0, **options: Unpack[StepOptions],
) -> Step:  # fmt: skip
    """Adam (Kingma and Ba, 2015), weight decay as a part of the gradient, as PyTorch's ``Adam``."""
    direction = _decay_in_gradient(weight_decay, parameters, _adam_rule(betas, epsilon))
    return _descent(module, parameters, direction, options)


def adamw(
    module: Module, parameters: Sequence[str], *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
    weight_decay: Decay = 0.01, **options: Unpack[StepOptions],
) -> Step:  # fmt: skip
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch's ``AdamW``."""
    direction = _decay_in_direction(weight_decay, parameters, _adam_rule(betas, epsilon))
    return _descent(module, parameters, direction, options)


def lamb(
    module: Module, parameters: Sequence[str], *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-6,
    weight_decay: Decay = 0.01, **options: Unpack[StepOptions],
) -> Step:  # fmt: skip
    """LAMB (You et al., 2020): AdamW's direction, made as long as the parameter; where one of them is 0, as it is."""
    towards = _decay_in_direction(weight_decay, parameters, _adam_rule(betas, epsilon))

    def direction(at: Learning) -> Expr:
        found = towards(at)
        lengths = nn.sqrt(square_sum(at.value)), nn.sqrt(square_sum(found))
        zero, one = number(at.value, 0.0), number(at.value, 1.0)
        own, other = (nn.where(nn.less(zero, length), length, one) for length in lengths)
        trust = nn.where(nn.equal(nn.minimum(*lengths), zero), one, nn.divide(own, other))
        return nn.multiply(found, trust)

    return _descent(module, parameters, direction, options)


def _descent(module: Module, parameters: Sequence[str], direction: Rule, options: StepOptions) -> Step:
    """parameter - rate * direction"""

    def rule(at: Learning) -> Expr:
        return nn.subtract(at.value, nn.multiply(direction(at), at.rate))

    return step_of(module, parameters, rule, **options)


def _decay_in_gradient(weight_decay: Decay, parameters: Sequence[str], direction: Rule) -> Rule:
    """The direction of gradient + weight_decay * parameter."""
    decay = _decays(weight_decay, parameters)

    def decayed(at: Learning) -> Expr:
        at.gradient = _decayed(at.gradient, at.value, decay)
        return direction(at)

    return decayed


def _decay_in_direction(weight_decay: Decay, parameters: Sequence[str], direction: Rule) -> Rule:
    """The direction + weight_decay * parameter."""
    decay = _decays(weight_decay, parameters)
    return lambda at: _decayed(direction(at), at.value, decay)


def _adam_rule(betas: tuple[float, float], epsilon: float) -> Rule:
    """Both moments, each without the weight of the zeros that it starts with: mean / (sqrt(square) + epsilon)."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise GraphError(f"betas is {betas!r:.80}, but must be two numbers", hint="such as (0.9, 0.999)")
    require_number(epsilon, "epsilon", GraphError)
    for place, beta in enumerate(betas):
        _check_share(f"betas[{place}]", beta)
    if not 0 < epsilon < float("inf"):
        raise GraphError(f"epsilon is {epsilon}, but must be above 0 and finite")
    first, second = betas

    def direction(at: Learning) -> Expr:
        gradient, one = at.gradient, number(at.value, 1.0)
        mean = at.keep("mean", lambda before: _towards(before, gradient, first))
        square = at.keep("square", lambda before: _towards(before, nn.multiply(gradient, gradient), second))
        # 1 - beta ** steps, without the digits that this form loses while it is small.
        mean_seen = at.keep("mean_seen", lambda before: _towards(before, one, first), shared=True)
        square_seen = at.keep("square_seen", lambda before: _towards(before, one, second), shared=True)
        root = nn.add(nn.sqrt(nn.divide(square, square_seen)), number(at.value, epsilon))
        return nn.divide(nn.divide(mean, mean_seen), root)

    return direction


def _towards(before: Expr, new: Expr, share: float) -> Expr:
    return nn.add(_scaled(before, share), _scaled(new, 1 - share))


def _scaled(x: Expr, factor: float) -> Expr:
    return nn.multiply(x, number(x, factor))


def _decayed(gradient: Expr, value: Var, decay: Mapping[str, float]) -> Expr:
    share = decay[value.name]
    return nn.add(gradient, _scaled(value, share)) if share else gradient


def _decays(weight_decay: Decay, parameters: Sequence[str]) -> dict[str, float]:
    """The decay of each parameter."""
    require_names(parameters, "parameters", GraphError)
    given = weight_decay if isinstance(weight_decay, Mapping) else dict.fromkeys(parameters, weight_decay)
    if unknown := sorted(set(given) - set(parameters)):
        raise GraphError(f"weight_decay names {unknown[0]!r}, which is no parameter")
    for value in given.values():
        require_number(value, "weight_decay", GraphError)
        if not 0 <= value < float("inf"):
            raise GraphError(f"weight_decay is {value}, but must be at least 0 and finite")
    return dict.fromkeys(parameters, 0.0) | dict(given)


def _check_share(name: str, value: float) -> None:
    require_number(value, name, GraphError)
    if not 0 <= value < 1:
        raise GraphError(f"{name} is {value}, but must be at least 0 and below 1")
