"""Losses and steps: what they compute, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Constant, GraphError, Module, Span, TensorType, Var, call, evaluate
from weft.compiler.operators import nn
from weft.errors import WeftError
from weft.runtime.errors import InputError
from weft.train import RATE, Step, Training, TrainingError, cross_entropy, sgd

from .classifier import InNumpy, batch, classifier, loss_and_gradients, module_of


@pytest.mark.parametrize("label", [-100, -1, 4])
def test_labels_that_are_no_class_are_refused(label: int) -> None:
    module, start = classifier()
    step = sgd(cross_entropy(module), ["w", "b"])
    training = Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
    given = batch()
    given["labels"][0] = label
    with pytest.raises(InputError, match=r"^node 'labels': index .* is outside of an axis of 4 elements"):
        training.step(given, rate=0.1)


def test_the_cross_entropy_is_its_definition_also_of_large_scores() -> None:
    module, start = classifier()
    given = {**batch(), **start}
    with_loss = cross_entropy(module)
    assert with_loss.main.output_names == ("scores", "loss")
    assert evaluate(with_loss, given)["loss"] == pytest.approx(loss_and_gradients(start, given)[0])
    large = {**given, "w": start["w"] * 1e4}
    assert np.isfinite(evaluate(with_loss, large)["loss"])


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
    with pytest.raises(
        TrainingError, match=r"loss is nan at step 1: input 'x' is the first that is not a number; hint: the p"
    ):
        training.step({**batch(), "x": np.full((6, 3), np.nan)}, 0.1)
    assert all(np.array_equal(training.parameters[name], value) for name, value in before.items())
    training.step(batch(), 0.1)
    assert training.steps == 2


def test_the_node_that_made_a_bad_loss_is_named() -> None:
    """Behind a mask of infinities, which are meant; with and without a name of the user's."""
    x = Var("x", TensorType((3,), "float64"))
    mask = Constant(np.array([0.0, -np.inf, 0.0]))
    for named in (True, False):
        root = call("nn.sqrt", x, span=Span(("root",), "r") if named else Span())
        chances = nn.exp(nn.add(root, mask))
        module = module_of(nn.reduce_sum(chances, axes=(0,)), params=(x,), names=("loss",))
        step = sgd(module, ["x"])
        training = Training(step, {"x": np.array([1.0, 1.0, -1.0])}, InNumpy(step.module))
        where = r"nn.sqrt \(node 'root'\)" if named else "nn.sqrt"
        with (
            np.errstate(all="ignore"),
            pytest.raises(TrainingError, match=f"{where} is the first that is not a"),
        ):
            training.step({}, 0.1)
    step = sgd(module_of(nn.reduce_sum(nn.exp(x), axes=(0,)), params=(x,), names=("loss",)), ["x"])
    large = Training(step, {"x": np.full(3, 1e3)}, InNumpy(step.module))
    with (
        np.errstate(all="ignore"),
        pytest.raises(TrainingError, match=r"result of nn.exp is the first that is inf"),
    ):
        large.step({}, 0.1)


def steep() -> Module:
    """A loss that is 0 at 1, where its slope is infinite: the root of 0."""
    w = Var("w", TensorType((2,), "float32"))
    u = Var("u", TensorType((3,), "float32"))
    roots = call("nn.sqrt", nn.subtract(w, Constant(np.ones(2, np.float32))), span=Span(("root",), "r"))
    total = nn.add(nn.reduce_sum(roots, axes=(0,)), nn.reduce_sum(nn.multiply(u, u), axes=(0,)))
    return module_of(total, params=(w, u), names=("loss",))


@pytest.mark.parametrize("machine_code", [False, True])
def test_a_gradient_that_is_not_finite_stops_though_the_loss_is(machine_code: bool) -> None:
    step = sgd(steep(), ["w", "u"], momentum=0.9)
    assert set(step.checks) == {"w", "u"}
    loaded = weft.load(weft.compile(step.module, target="cpu")) if machine_code else InNumpy(step.module)
    training = Training(step, {"w": np.array([2, 3], np.float32), "u": np.ones(3, np.float32)}, loaded)
    assert set(training.step({}, 0.0)) == {"loss"}
    training._state["w"][0] = 1
    before = {name: value.tobytes() for name, value in training._state.items()}
    with (
        np.errstate(all="ignore"),
        pytest.raises(TrainingError, match=r"the next value of 'w' is not finite at step 1: the result of nn.divide "
                      r"\(node 'root'\) is the first that is infinite; hint: the parameters are those before it"),
    ):  # fmt: skip
        training.step({}, 0.1)
    assert {name: value.tobytes() for name, value in training._state.items()} == before
    assert training.steps == 1
    training._state["w"][0] = 2
    training.step({}, 0.1)


def test_gradients_may_stay_unchecked_but_no_such_state_is_saved(tmp_path: Path) -> None:
    step = sgd(steep(), ["w", "u"], check_finite=False)
    assert not step.checks
    assert set(step.outputs) == {"loss"}
    training = Training(step, {"w": np.full(2, 2, np.float32), "u": np.ones(3, np.float32)}, InNumpy(step.module))
    training.save(tmp_path / "state.npz")
    good = (tmp_path / "state.npz").read_bytes()
    training._state["w"][0] = 1
    with np.errstate(all="ignore"):
        training.step({}, 0.1)
    with pytest.raises(TrainingError, match=r"the state 'w' is not finite after step 1; hint: restore the last"):
        training.save(tmp_path / "state.npz")
    assert (tmp_path / "state.npz").read_bytes() == good
    training.restore(tmp_path / "state.npz")
    assert training.steps == 0


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


def test_bad_batches_and_rates_leave_the_state_as_it_is() -> None:
    module, start = classifier("float32")
    step = sgd(cross_entropy(module), ["w", "b"], momentum=0.9)
    training = Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
    good = batch("float32")
    training.step(good, 0.1)
    before = {name: value.tobytes() for name, value in training._state.items()}
    for wrong, message in (
        ({**good, "x": good["x"][:5]}, r"'x'"), ({**good, "x": good["x"].astype(np.int32)}, r"'x'"),
        ({"x": good["x"]}, r"'labels'"), ({**good, "other": good["x"]}, r"'other'"),
        ({**good, "labels": good["labels"] + 4}, r"index \d+ is outside of an axis of 4 elements"),
    ):  # fmt: skip
        with pytest.raises(WeftError, match=message):
            training.step(wrong, 0.1)
    for rate in (float("nan"), float("inf"), np.zeros(2)):
        with pytest.raises(TrainingError, match=r"the rate is .* at step 1, but must be one finite number"):
            training.step(good, rate)  # type: ignore[arg-type]
    assert {name: value.tobytes() for name, value in training._state.items()} == before
    assert training.steps == 1
    training.step(good, 0.1)


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
