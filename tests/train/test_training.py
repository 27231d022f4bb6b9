"""Losses, optimisers and steps: against their definitions in NumPy, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Array,
    Attrs,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    TensorType,
    Tuple,
    Var,
    evaluate,
)
from weft.compiler.operators import nn
from weft.train import RATE, Step, Training, TrainingError, cross_entropy, sgd


class InNumpy:
    """Runs a module in NumPy as a loaded one would."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array] | None = None) -> Mapping[str, Array]:
        found = evaluate(self.module, inputs)
        for name, array in (outputs or {}).items():
            array[...] = found[name]
        return found


def module_of(*results: Expr, params: tuple[Var, ...], names: tuple[str, ...]) -> Module:
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function(params, body, Attrs({"name": "main", "outputs": names})))


def classifier(dtype: str = "float64") -> tuple[Module, dict[str, Array]]:
    """Scores of 6 rows of 3 numbers in 4 classes, with its weights as inputs, and values for them."""
    generator = np.random.default_rng(0)
    x = Var("x", TensorType((6, 3), dtype))
    w, b = (Constant(generator.normal(size=shape).astype(dtype), name) for shape, name in (((3, 4), "w"), ((4,), "b")))
    return weft.lift_constants(module_of(nn.add(nn.matmul(x, w), b), params=(x,), names=("scores",)))


def batch(dtype: str = "float64", seed: int = 1) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(size=(6, 3)).astype(dtype), "labels": generator.integers(0, 4, 6)}


def loss_and_gradients(state: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[float, dict[str, Array]]:
    """Of the classifier, by hand."""
    scores = given["x"] @ state["w"] + state["b"]
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    rows = np.arange(len(scores))
    loss = -np.log(chances[rows, given["labels"]]).mean()
    chances[rows, given["labels"]] -= 1
    chances /= len(scores)
    return float(loss), {"w": given["x"].T @ chances, "b": chances.sum(0)}


def test_the_cross_entropy_is_its_definition_also_of_large_scores() -> None:
    module, start = classifier()
    given = {**batch(), **start}
    with_loss = cross_entropy(module)
    assert with_loss.main.output_names == ("scores", "loss")
    assert evaluate(with_loss, given)["loss"] == pytest.approx(loss_and_gradients(start, given)[0])
    large = {**given, "w": start["w"] * 1e4}
    assert np.isfinite(evaluate(with_loss, large)["loss"])


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


def test_one_step_is_one_call_of_machine_code_and_the_same_bits_each_time() -> None:
    module, start = classifier("float32")
    step = sgd(cross_entropy(module), ["w", "b"], momentum=0.9)
    assert [param.name for param in step.module.main.params] == [
        "x", "w", "b", "labels", "velocity_w", "velocity_b", RATE,
    ]  # fmt: skip
    model = weft.compile(step.module, target="cpu", strict=True)  # nothing is left to NumPy
    runs = [Training(step, start, weft.load(model)) for _ in range(2)]
    losses = [[float(run.step(batch("float32"), 0.5)["loss"]) for _ in range(30)] for run in runs]
    assert losses[0] == losses[1]
    assert losses[0][-1] < 0.5 * losses[0][0]
    reference = Training(step, start, InNumpy(step.module))
    for _ in range(30):
        reference.step(batch("float32"), 0.5)
    for name, value in reference.parameters.items():
        np.testing.assert_allclose(runs[0].parameters[name], value, rtol=1e-4, atol=1e-5)
        assert runs[0].parameters[name].tobytes() == runs[1].parameters[name].tobytes()


def test_a_loss_that_is_not_finite_stops_with_the_last_good_state() -> None:
    module, start = classifier()
    step = sgd(cross_entropy(module), ["w", "b"], momentum=0.9)
    training = Training(step, start, InNumpy(step.module))
    training.step(batch(), 0.1)
    before = training.parameters
    with pytest.raises(TrainingError, match=r"loss is nan at step 1; hint: the parameters are those before it"):
        training.step({**batch(), "x": np.full((6, 3), np.nan)}, 0.1)
    assert all(np.array_equal(training.parameters[name], value) for name, value in before.items())
    training.step(batch(), 0.1)
    assert training.steps == 2


def test_what_does_not_fit_is_refused() -> None:
    module, start = classifier()
    step = sgd(cross_entropy(module), ["w", "b"])
    assert dict(step.state) == {"w": "next_w", "b": "next_b"}
    with pytest.raises(TrainingError, match=r"parameter 'b' \(float64\[4\]\) has no value"):
        Training(step, {"w": start["w"]}, InNumpy(step.module))
    with pytest.raises(TrainingError, match=r"parameter 'b' must be float64\[4\], not float32\[4\]"):
        Training(step, {**start, "b": np.zeros(4, np.float32)}, InNumpy(step.module))
    with pytest.raises(TrainingError, match=r"'q' is no parameter; hint: those are: w, b"):
        Training(step, {**start, "q": np.zeros(4)}, InNumpy(step.module))
    training = Training(step, start, InNumpy(step.module))
    with pytest.raises(TrainingError, match=r"'w' is kept from step to step and cannot be given"):
        training.step({**batch(), "w": start["w"]}, 0.1)


def scores_of(kind: TensorType, name: str = "scores") -> Module:
    x = Var("x", kind)
    return module_of(nn.add(x, x), params=(x,), names=(name,))


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (
            scores_of(TensorType((2, 3), "float32")),
            {"scores": "q"},
            r"there is no output 'q'; hint: the outputs are: scores",
        ),
        (scores_of(TensorType((2, 3, 4), "float32")), {}, r"'scores' is float32\[2, 3, 4\]"),
        (scores_of(TensorType((2, 3), "int32")), {}, r"a matrix of floats, rows times classes"),
        (scores_of(TensorType((2, 0), "float32")), {}, r"a matrix of floats, rows times classes"),
        (scores_of(TensorType((2, 3), "float32"), "loss"), {}, r"an output 'loss' or an input 'labels' already"),
        (scores_of(TensorType((2, 3), "float32")), {"labels": "x"}, r"an output 'loss' or an input 'x' already"),
        (cross_entropy(classifier()[0]), {"labels": "others"}, r"several outputs; hint: say which .* scores, loss"),
    ],
)
def test_losses_of_what_has_no_scores_are_refused(module: Module, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        cross_entropy(module, **arguments)


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
    y = Var("y", TensorType((), "float32"))
    mixed = module_of(nn.multiply(x, nn.cast(y, to="float64")), params=(x, y), names=("loss",))
    with pytest.raises(GraphError, match=r"the parameters are of several types: float32, float64"):
        sgd(mixed, ["x", "y"])


def test_a_parameter_that_does_not_change_keeps_its_value() -> None:
    """Its next value is then the input itself, or as good as that."""
    x, unused = Var("x", TensorType((2,), "float64")), Var("z", TensorType((2,), "float64"))
    step: Step = sgd(
        module_of(nn.reduce_sum(nn.multiply(x, x), axes=(0,)), params=(x, unused), names=("loss",)), ["x", "z"]
    )
    training = Training(step, {"x": np.ones(2), "z": np.ones(2)}, weft.load(weft.compile(step.module, target="cpu")))
    for _ in range(3):
        training.step({}, 0.25)
    np.testing.assert_allclose(training.parameters["x"], np.full(2, 0.125))
    np.testing.assert_array_equal(training.parameters["z"], np.ones(2))
