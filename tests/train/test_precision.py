"""Mixed precision follows float32, and the scale of the loss follows the gradients."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Array,
    Call,
    Constant,
    Expr,
    GraphError,
    Module,
    Span,
    TensorType,
    Var,
    call,
    topological_order,
)
from weft.compiler.graph.dtypes import step as step_of_dtype
from weft.compiler.operators import nn
from weft.train import LossScaling, Training, TrainingError, cross_entropy, mixed, sgd
from weft.train.precision import GOOD_STEPS, SCALE

from .classifier import InNumpy, batch, classifier, module_of


def network(size: int = 6) -> tuple[Module, dict[str, Array]]:
    """Of images of so many rows and columns: a convolution, a normalisation by the batch, a relu, and scores."""
    draw = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Constant:
        return Constant(draw.normal(0, 0.4, shape).astype(np.float32), name)

    image = Var("x", TensorType((4, 2, size, size), "float32"))
    x: Expr = nn.conv2d(image, weights("kernel", 8, 2, 3, 3), pads=(1, 1, 1, 1))
    mean = nn.reduce_mean(x, axes=(0, 2, 3))
    centred = nn.subtract(x, call("reshape", mean, shape=(1, 8, 1, 1)))
    variance = nn.reduce_mean(nn.multiply(centred, centred), axes=(0, 2, 3))
    x = nn.clip(nn.batch_norm(x, weights("scale", 8), weights("shift", 8), mean, variance), low=0.0, high=np.inf)
    x = nn.reduce_mean(nn.max_pool(x, kernel=(2, 2), strides=(2, 2)), axes=(2, 3))
    return weft.lift_constants(module_of(nn.matmul(x, weights("w", 8, 4)), params=(image,), names=("scores",)))


def images() -> dict[str, Array]:
    draw = np.random.default_rng(3)
    return {"x": draw.normal(size=(4, 2, 6, 6)).astype(np.float32), "labels": draw.integers(0, 4, 4)}


def types(module: Module) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in topological_order(module.main.body):
        if isinstance(node, Call) and isinstance(node.type, TensorType):
            found.setdefault(str(node.op), set()).add(node.dtype)
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_steps_follow_those_in_float32(dtype: str) -> None:
    module, start = network()
    given = images()
    losses: dict[str, list[float]] = {}
    states: dict[str, dict[str, Array]] = {}
    for what, each in (("float32", module), (dtype, mixed(module, dtype))):
        scaling = LossScaling(2.0**8) if what == "float16" else None
        step = sgd(cross_entropy(each), list(start), momentum=0.9, loss_scaling=scaling)
        training = Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
        losses[what] = [float(training.step(given, 0.2)["loss"]) for _ in range(6)]
        states[what] = training.parameters
        assert all(value.dtype == np.float32 for value in states[what].values())
    assert losses["float32"][-1] < 0.9 * losses["float32"][0]
    allowed = 16 * step_of_dtype(dtype)
    np.testing.assert_allclose(losses[dtype], losses["float32"], rtol=allowed)
    assert losses[dtype] != losses["float32"]
    for name, value in states["float32"].items():
        np.testing.assert_allclose(states[dtype][name], value, atol=allowed * np.abs(value).max())


def test_what_is_kept_has_16_bits_and_what_is_summed_has_32() -> None:
    found = types(mixed(network()[0]).with_main(mixed(network()[0]).main.body))
    assert found["nn.conv2d"] == found["nn.matmul"] == {"bfloat16"}
    assert found["nn.reduce_mean"] == {"float32"}
    stored = [node for node in topological_order(mixed(network()[0]).main.body)
              if isinstance(node, Call) and node.op == "nn.cast" and node.dtype == "bfloat16"]  # fmt: skip
    assert stored
    assert all(node.shape != (8,) for node in stored)  # the statistics of eight channels
    assert mixed(network()[0]).main.results[0].dtype == "float32"
    module, start = network(12)  # what is kept is more than what a kernel holds for itself
    arenas = []
    for each in (module, mixed(module)):
        model = weft.compile(sgd(cross_entropy(each), list(start)).module, target="cpu")
        arenas.append(model.statistics["arena_bytes"])
    assert arenas[1] < arenas[0]


def small_gradients(**options: object) -> dict[str, Array]:
    """A step from weights whose gradients are far below the least number of float16."""
    x = Var("x", TensorType((4, 8), "float32"))
    w = Var("w", TensorType((8, 2), "float32"))
    scores = module_of(nn.matmul(x, w), params=(x, w), names=("scores",))
    narrow = mixed(scores, "float16")
    total = nn.reduce_sum(nn.multiply(narrow.main.results[0], Constant(np.float32(1e-9))), axes=(0, 1))
    step = sgd(module_of(total, params=narrow.main.params, names=("loss",)), ["w"], **options)  # type: ignore[arg-type]
    training = Training(step, {"w": np.ones((8, 2), np.float32)}, InNumpy(step.module))
    training.step({"x": np.ones((4, 8), np.float32)}, 1e6)
    return training.parameters


def test_gradients_that_float16_has_not_come_through_with_a_scale() -> None:
    np.testing.assert_array_equal(small_gradients()["w"], 1.0)
    np.testing.assert_allclose(small_gradients(loss_scaling=LossScaling(2.0**16))["w"], 1 - 4e-3, rtol=1e-3)


def test_a_step_that_overflows_changes_nothing_and_halves_the_scale_and_good_ones_double_it() -> None:
    module, start = classifier("float32")
    scaling = LossScaling(initial=2.0**20, interval=2, largest=2.0**20)
    step = sgd(cross_entropy(mixed(module, "float16")), ["w", "b"], momentum=0.9, loss_scaling=scaling)
    training = Training(step, start, InNumpy(step.module))
    scales: list[float] = []
    given = batch("float32")
    with np.errstate(all="ignore"):
        while len(scales) < 12:
            before, kept = training.parameters, training._state["velocity_w"].copy()
            training.step(given, 0.1)
            scales.append(float(training._state[SCALE]))
            stayed = all((training.parameters[name] == value).all() for name, value in before.items())
            last = scales[-2] if len(scales) > 1 else scaling.initial
            assert stayed == (scales[-1] < last)
            assert not stayed or (training._state["velocity_w"] == kept).all()
    lowest = min(scales)
    assert lowest < scaling.initial
    assert scales[: scales.index(lowest) + 1] == [scaling.initial / 2**n for n in range(1, scales.index(lowest) + 2)]
    after = scales[scales.index(lowest) + 1 :]
    assert after[:2] == [lowest, 2 * lowest]
    assert training._state[GOOD_STEPS] in (0, 1)


def test_float16_that_overflows_without_a_scale_stops_at_the_node_that_did() -> None:
    """The loss is 0; its gradient in float16 passes 65,504."""
    x, w, factor = (
        Var(name, TensorType(shape, "float32")) for name, shape in (("x", (4, 8)), ("w", (8, 2)), ("f", ()))
    )
    scores = call("nn.matmul", x, w, span=Span(("dense",), "d"))
    narrow = mixed(module_of(scores, params=(x, w, factor), names=("y",)), "float16")
    loss = nn.reduce_sum(nn.multiply(narrow.main.results[0], factor), axes=(0, 1))
    step = sgd(module_of(loss, params=narrow.main.params, names=("loss",)), ["w"])
    given = {"x": np.ones((4, 8), np.float32), "f": np.array(1e5, np.float32)}
    for runs in (InNumpy(step.module), weft.load(weft.compile(step.module, target="cpu"))):
        training = Training(step, {"w": np.zeros((8, 2), np.float32)}, runs)
        with (
            np.errstate(all="ignore"),
            pytest.raises(TrainingError, match=r"'w' is not finite at step 0: the result of nn.cast.* "
                          r"is the first that is infinite; hint: .* or loss_scaling"),
        ):  # fmt: skip
            training.step(given, 1e-3)
        np.testing.assert_array_equal(training.parameters["w"], 0)


def test_the_scale_leaves_float32_as_it_is_and_never_passes_its_largest() -> None:
    module, start = classifier("float32")
    runs = []
    for scaling in (None, LossScaling(2.0**10, interval=1, largest=2.0**11)):
        step = sgd(cross_entropy(module), ["w", "b"], loss_scaling=scaling)
        runs.append(Training(step, start, InNumpy(step.module)))
        for _ in range(3):
            assert set(runs[-1].step(batch("float32"), 0.1)) == {"scores", "loss"}
    for name, value in runs[0].parameters.items():
        np.testing.assert_allclose(runs[1].parameters[name], value, rtol=1e-6)
    assert runs[1]._state[SCALE] == 2.0**11


def test_what_is_refused() -> None:
    module, start = classifier("float32")
    with pytest.raises(GraphError, match="no mixed precision with 'float64'"):
        mixed(module, "float64")
    with pytest.raises(GraphError, match="nothing in the module is computed in float32"):
        mixed(classifier("float64")[0])
    for wrong in ({"initial": 0.0}, {"initial": 4.0, "largest": 2.0}, {"largest": float("inf")}):
        with pytest.raises(GraphError, match="cannot be scaled"):
            LossScaling(**wrong)
    with pytest.raises(GraphError, match="interval is 0"):
        LossScaling(interval=0)
    x = Var(SCALE, TensorType((2,), "float32"))
    taken = module_of(nn.reduce_sum(nn.multiply(x, x), axes=(0,)), params=(x,), names=("loss",))
    with pytest.raises(GraphError, match=f"an input has the name '{SCALE}' already"):
        sgd(taken, [SCALE], loss_scaling=LossScaling())
    with pytest.raises(GraphError, match="no output 'cost'"):
        sgd(cross_entropy(module), list(start), loss="cost", loss_scaling=LossScaling())
