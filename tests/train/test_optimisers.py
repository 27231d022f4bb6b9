"""Optimisers, against their definitions in NumPy, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, GraphError, TensorType, Var
from weft.compiler.operators import nn
from weft.train import Training, adam, adamw, cross_entropy, lamb, sgd
from weft.train.step import Step

from .classifier import InNumpy, batch, classifier, loss_and_gradients, module_of


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_are_those_of_the_definition(momentum: float, weight_decay: float, nesterov: bool) -> None:
    if nesterov and not momentum:
        return
    module, start = classifier()
    step = sgd(cross_entropy(module), ["w", "b"], momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
    training = Training(step, start, InNumpy(step.module))
    state = {name: value.copy() for name, value in start.items()}
    velocity = {name: np.zeros_like(value) for name, value in start.items()}
    for number in range(4):
        given, rate = batch(seed=number), 0.5 / (number + 1)
        loss, gradients = loss_and_gradients(state, given)
        found = training.step(given, rate)
        assert set(found) == {"scores", "loss"}
        assert float(found["loss"]) == pytest.approx(loss)
        for name, gradient in gradients.items():
            gradient = gradient + weight_decay * state[name]
            velocity[name] = momentum * velocity[name] + gradient
            direction = gradient + momentum * velocity[name] if nesterov else velocity[name]
            state[name] = state[name] - rate * direction
            np.testing.assert_allclose(training.parameters[name], state[name], rtol=1e-12, atol=1e-14)
    assert training.steps == 4


def adam_by_hand(epsilon: float, betas: tuple[float, float], decay: float, form: str) -> Callable[..., Array]:
    """What one parameter becomes, with the moments in a dictionary."""

    def update(value: Array, gradient: Array, rate: float, kept: dict[str, Any]) -> Array:
        if form == "adam":
            gradient = gradient + decay * value
        kept["t"] = kept.get("t", 0) + 1
        kept["m"] = betas[0] * kept.get("m", 0) + (1 - betas[0]) * gradient
        kept["v"] = betas[1] * kept.get("v", 0) + (1 - betas[1]) * gradient**2
        mean, square = kept["m"] / (1 - betas[0] ** kept["t"]), kept["v"] / (1 - betas[1] ** kept["t"])
        direction = mean / (np.sqrt(square) + epsilon)
        if form != "adam":
            direction = direction + decay * value
        if form == "lamb":
            lengths = np.linalg.norm(value), np.linalg.norm(direction)
            direction = direction * (lengths[0] / lengths[1] if lengths[0] and lengths[1] else 1)
        return value - rate * direction

    return update


@pytest.mark.parametrize("form", ["adam", "adamw", "lamb"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("clip_norm", [None, 0.05, 1e3])
def test_steps_of_the_adam_family_are_those_of_the_definition(form: str, decay: float, clip_norm: float | None) -> None:
    """Also from parameters that are 0, and for one without decay."""
    module, start = classifier()
    start["b"][...] = 0
    betas, epsilon = (0.8, 0.95), 1e-3
    make: Callable[..., Step] = {"adam": adam, "adamw": adamw, "lamb": lamb}[form]
    step = make(cross_entropy(module), ["w", "b"], betas=betas, epsilon=epsilon, weight_decay={"w": decay},
                clip_norm=clip_norm)  # fmt: skip
    training = Training(step, start, InNumpy(step.module))
    state = {name: value.copy() for name, value in start.items()}
    kept: dict[str, dict[str, Any]] = {name: {} for name in start}
    for number in range(5):
        given, rate = batch(seed=number), 0.5 / (number + 1)
        loss, gradients = loss_and_gradients(state, given)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert float(training.step(given, rate)["loss"]) == pytest.approx(loss)
        for name, gradient in gradients.items():
            shorter = gradient * (1 if clip_norm is None else min(1, clip_norm / norm))
            update = adam_by_hand(epsilon, betas, decay if name == "w" else 0, form)
            state[name] = update(state[name], shorter, rate, kept[name])
            np.testing.assert_allclose(training.parameters[name], state[name], rtol=1e-9, atol=1e-12)


def test_gradients_that_are_all_zero_stay_so_when_they_are_shortened() -> None:
    x = Var("x", TensorType((3,), "float64"))
    loss = module_of(nn.reduce_sum(nn.multiply(x, x), axes=(0,)), params=(x,), names=("loss",))
    step = sgd(loss, ["x"], clip_norm=1.0)
    training = Training(step, {"x": np.zeros(3)}, InNumpy(step.module))
    training.step({}, 0.1)
    np.testing.assert_array_equal(training.parameters["x"], np.zeros(3))


@pytest.mark.parametrize("make", [adam, adamw, lamb])
def test_a_step_is_machine_code_and_learns(make: Callable[..., Step]) -> None:
    module, start = classifier("float32")
    step = make(cross_entropy(module), ["w", "b"], clip_norm=1.0)
    training = Training(step, start, weft.load(weft.compile(step.module, target="cpu", strict=True)))
    losses = [float(training.step(batch("float32"), 0.05)["loss"]) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"momentum": 1.0}, r"momentum is 1\.0, but must be at least 0 and below 1"),
        ({"momentum": -0.1}, r"momentum is -0\.1"), ({"weight_decay": -1.0}, r"weight_decay is -1\.0"),
        ({"nesterov": True}, r"nesterov needs momentum"), ({"loss": "scores"}, r"only one number has a gradient"),
        ({"parameters": []}, r"there is no parameter to train"), ({"parameters": ["labels"]}, r"only floats"),
        ({"parameters": ["q"]}, r"there is no input 'q'"),
    ],
)  # fmt: skip
def test_steps_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        sgd(cross_entropy(classifier()[0]), **{"parameters": ["w", "b"], **arguments})


def test_names_of_the_state_must_be_free() -> None:
    x, rate = Var("x", TensorType((), "float64")), Var("rate", TensorType((), "float64"))
    with pytest.raises(GraphError, match=r"an input has the name 'rate' already"):
        sgd(module_of(nn.multiply(x, rate), params=(x, rate), names=("loss",)), ["x"])
    twice = module_of(nn.exp(x), nn.sin(x), params=(x,), names=("loss", "next_x"))
    with pytest.raises(GraphError, match=r"an output of the model has the name of a next value"):
        sgd(twice, ["x"])
    checked = module_of(nn.exp(x), nn.sin(x), params=(x,), names=("loss", "check_x"))
    with pytest.raises(GraphError, match=r"of a check; hint: rename outputs named next_... and check_..."):
        sgd(checked, ["x"])
    y = Var("y", TensorType((), "float32"))
    mixed = module_of(nn.multiply(x, nn.cast(y, to="float64")), params=(x, y), names=("loss",))
    for make in (sgd, adam, adamw, lamb):
        with pytest.raises(
            GraphError, match=r"there is no option 'clipnorm'; hint: known: loss, clip_norm, custom, loss_s"
        ):
            make(mixed, ["x"], clipnorm=1.0)  # type: ignore[call-arg]
    with pytest.raises(GraphError, match=r"the parameters are of several types: float32, float64"):
        sgd(mixed, ["x", "y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1\.0, but must be at least 0 and below 1"),
        ({"betas": (0.9, -0.1)}, r"betas\[1\] is -0\.1"),
        ({"epsilon": 0.0}, r"epsilon is 0\.0, but must be above 0"),
        ({"weight_decay": {"q": 0.1}}, r"weight_decay names 'q', which is no parameter"),
        ({"weight_decay": {"w": float("nan")}}, r"weight_decay is nan"),
        ({"clip_norm": 0.0}, r"clip_norm is 0\.0, but must be above 0 and finite"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    for make in (adam, adamw, lamb):
        with pytest.raises(GraphError, match=message):
            make(cross_entropy(classifier()[0]), ["w", "b"], **arguments)
