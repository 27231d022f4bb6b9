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
from weft.compiler.frontends import from_onnx

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


FLAGS = ("--equalise", "--correct-bias", "--adaround")

PAIR = """
<ir_version: 8, opset_import: ["" : 17]>
float_net (float[2, 1, 4, 4] x) => (float[2, 2, 4, 4] y)
<float[4, 1, 1, 1] w = {0.01, -1.0, 8.0, 0.1}, float[4] b = {0.25, 0.0, -0.5, 0.1},
 float[2, 4, 1, 1] v = {0.3, -2.0, 0.07, 0.5, 1.7, 0.4, 0.013, -0.2}, float[2] c = {0.1, -0.7}>
{ h = Conv(x, w, b)  r = Relu(h)  y = Conv(r, v, c) }
"""


@pytest.mark.parametrize("flags", [(flag,) for flag in FLAGS] + [FLAGS])
def test_improvements_are_those_of_the_functions(tmp_path: Path, flags: tuple[str, ...]) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(PAIR), model)
    np.savez(model.with_name("examples.npz"), x=examples(16))
    artifact = model.with_suffix(".weft")
    command = ["compile", str(model), "--calibrate", str(model.with_name("examples.npz")), *flags, "--target", "cpu"]
    assert run(app, command, err) == 0
    batches = [{"x": examples(16)[start : start + 2]} for start in range(0, 16, 2)]
    plain = places = weft.quantise.plan(from_onnx(onnx.load(model), require_quantised=False))
    if "--equalise" in flags:
        places = weft.quantise.equalised(places, batches)
    ranges = weft.quantise.calibrate(places, batches)
    if len(flags) > 1 or "--equalise" not in flags:
        bias, rounding = "--correct-bias" in flags, "--adaround" in flags
        places = weft.quantise.refined(places, ranges, batches, bias=bias, rounding=rounding)
    eight = weft.quantise.quantised(places, ranges)
    x = examples(2)
    found = weft.load(artifact).run({"x": x})["y"]
    np.testing.assert_array_equal(found, weft.load(weft.compile(eight, target="cpu")).run({"x": x})["y"])
    simple = weft.quantise.quantised(plain, weft.quantise.calibrate(plain, batches))
    assert not np.array_equal(found, weft.load(weft.compile(simple, target="cpu")).run({"x": x})["y"])


@pytest.mark.parametrize("flag", FLAGS)
def test_improvements_need_examples(model: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["compile", str(model), flag, "--target", "cpu"], err) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert "--equalise, --correct-bias and --adaround need examples; hint: give them with --calibrate" in shown


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
