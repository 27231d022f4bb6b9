"""``weft compile --calibrate``: a float model in 8 bits by examples in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import parser
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
float_net (float[2, 1, 4, 4] x) => (float[2, 3, 4, 4] y)
<float[3, 1, 1, 1] w = {0.5, -1.0, 2.0}, float[3] b = {0.25, 0.0, -0.5}>
{ c = Conv(x, w, b)  y = Relu(c) }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return path


def examples(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 1, 4, 4)).astype(np.float32)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
@pytest.mark.parametrize("target", ["accel", "cpu"])
def test_a_float_model_runs_in_eight_bits(model: Path, method: str, target: str) -> None:
    np.savez(model.with_name("examples.npz"), x=examples())
    artifact = model.with_suffix(".weft")
    command = ["compile", str(model), "--calibrate", str(model.with_name("examples.npz")), "--ranges", method]
    assert run(app, [*command, "--target", target], err) == 0
    x = examples(2)
    found = weft.load(artifact).run({"x": x})["y"]
    w, b = np.array([0.5, -1.0, 2.0]), np.array([0.25, 0.0, -0.5])
    expected = np.maximum(x * w.reshape(1, 3, 1, 1) + b.reshape(1, 3, 1, 1), 0)
    assert 0 < np.abs(found - expected).max() < 0.15


def wide(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": wide((3, 1, 4, 4))}, "x is [3, 1, 4, 4], but examples for the input float32[2, 1, 4, 4] are [k x 2,"),
        ({"x": wide((2, 1, 4))}, "x is [2, 1, 4], but examples"), ({"x": wide((0, 1, 4, 4))}, "x is [0, 1, 4, 4]"),
        ({"y": wide((2, 1, 4, 4))}, "the model has no input 'y'; hint: its inputs: x"),
        ({"x": wide((2, 1, 4, 4), "complex64")}, "'x' is of complex64"),
    ],
)  # fmt: skip
def test_examples_that_do_not_fit_are_refused(
    model: Path, arrays: dict[str, np.ndarray], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(model.with_name("examples.npz"), **arrays)
    assert run(app, ["compile", str(model), "--calibrate", str(model.with_name("examples.npz"))], err) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not model.with_suffix(".weft").exists()


def test_the_refusal_of_a_float_model_says_how_to_quantise_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["compile", str(model), "--strict"], err) == 1
    assert "--calibrate" in capsys.readouterr().err
