"""The digits example: its data, the gradients that train it, and the model that is stored."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from weft.compiler.frontends import from_onnx

from examples.digits.data import TEST_IMAGES, split_digits
from examples.digits.network import initial_parameters, loss_and_gradients
from examples.precise import precise_session

MODEL_PATH = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_the_split_is_stable_and_its_parts_do_not_overlap() -> None:
    train, test = split_digits()
    again, _ = split_digits()
    assert len(test.images) == TEST_IMAGES
    assert train.images.shape == (1437, 1, 8, 8)
    assert np.array_equal(train.images, again.images)
    assert np.abs(np.bincount(test.labels) - 36).max() <= 2
    train_images = {image.tobytes() for image in train.images}
    assert not any(image.tobytes() in train_images for image in test.images)


def test_the_gradients_are_those_of_the_loss() -> None:
    """Against finite differences in double precision, along one random direction a parameter."""
    generator = np.random.default_rng(3)
    parameters = {name: value.astype(np.float64) for name, value in initial_parameters(generator).items()}
    images = generator.random((4, 1, 8, 8))
    labels = np.array([3, 1, 4, 1])
    _, gradients = loss_and_gradients(parameters, images, labels)
    for name, value in parameters.items():
        direction = generator.standard_normal(value.shape)
        sides = []
        for step in (1e-6, -1e-6):
            moved = {**parameters, name: value + step * direction}
            sides.append(loss_and_gradients(moved, images, labels)[0])
        slope = (sides[0] - sides[1]) / 2e-6
        assert float((gradients[name] * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_the_stored_model_is_small_static_and_quantised() -> None:
    assert MODEL_PATH.stat().st_size < 200_000
    model = onnx.load(MODEL_PATH)
    onnx.checker.check_model(model, full_check=True)
    (image,) = model.graph.input
    assert [dimension.dim_value for dimension in image.type.tensor_type.shape.dim] == [1, 1, 8, 8]
    assert model.graph.node[-1].op_type == "DequantizeLinear"
    kinds = {node.op_type for node in model.graph.node}
    assert {"Conv", "Add", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"} <= kinds
    weights = [value for value in model.graph.initializer if value.name.endswith(".weight_quantized")]
    assert [value.data_type for value in weights] == [onnx.TensorProto.INT8] * 4


def test_the_stored_model_reads_the_held_out_digits() -> None:
    session = precise_session(MODEL_PATH)
    _, test = split_digits()
    answers = [session.run(None, {"image": image[np.newaxis]})[0].argmax() for image in test.images]
    assert np.mean(np.asarray(answers) == test.labels) >= 0.98


def test_compiled_steps_have_the_gradients_of_the_network_and_train_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with rate 1 and nothing else moves a parameter by its gradient, which `network` computes by hand."""
    train_digits, _ = split_digits()
    start = initial_parameters(np.random.default_rng(1))
    chosen = {"image": train_digits.images[:16], "labels": train_digits.labels[:16]}
    monkeypatch.syspath_prepend(str(MODEL_PATH.parent))  # the example's files import each other as scripts do
    onnx_model = import_module("export").float_model(start, 16)
    module, _ = weft.lift_constants(from_onnx(onnx_model, require_quantised=False), list(start))
    step = weft.train.sgd(weft.train.cross_entropy(module), list(start))
    model = weft.load(weft.compile(step.module, target="cpu", strict=True))
    training = weft.train.Training(step, start, model)
    loss, gradients = loss_and_gradients(start, chosen["image"], chosen["labels"])
    assert float(training.step(chosen, 1.0)["loss"]) == pytest.approx(loss, rel=1e-5)
    for name, after in training.parameters.items():
        gradient = gradients[name]
        assert np.abs(start[name] - after - gradient).max() < 1e-4 * max(1.0, float(np.abs(gradient).max())), name
    again = weft.train.Training(step, start, model)
    losses = [float(again.step(chosen, 0.1)["loss"]) for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


def test_the_road_from_floats_to_the_core_has_equal_integers_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script itself, with little training; it ends with an error where the core's scores differ."""
    monkeypatch.syspath_prepend(str(MODEL_PATH.parent))
    monkeypatch.setattr("sys.argv", ["train_quantised.py", "--epochs", "6", "--more", "1", "--images", "40"])
    import_module("train_quantised").main()
    shown = capsys.readouterr().out
    assert "the core's scores are those of the CPU, to the bit" in shown
    shares = [float(line.split("%")[0].split()[-1]) for line in shown.splitlines() if "%" in line]
    assert len(shares) == 4
    assert min(shares) > 80
