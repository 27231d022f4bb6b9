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
        ({"x": wide((3, 1, 4, 4))}, "the 3 examples of 'x' are no multiple of the batch, 2"),
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


def said(capsys: pytest.CaptureFixture[str]) -> str:
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--target", "cpu"],
        ["profile", "--no-what-if"],
        ["profile", "--target", "cpu"],
        ["tune", "--trials", "1", "-o", "t.sqlite"],
        ["compare", "reference", "fsim"],
        ["view"],
    ],
    ids=lambda words: "-".join(words[:3]),
)
def test_every_command_takes_a_float_model_with_examples(
    model: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    np.savez("examples.npz", x=examples())
    command = [*words, model.name]
    if words[0] in ("run", "profile", "view"):
        command = [words[0], model.name, *words[1:]]
    status = run(app, [*command, "--calibrate", "examples.npz"], err)
    text = said(capsys)
    if words[0] == "tune":  # the net is too small to have tilings, which is found out of its integers
        assert status == 0 or "nothing of this model on the core can be tuned" in text
    else:
        assert status == 0, text
    if words[0] == "compare":
        assert "tensors agree" in text
    if words[0] == "profile" and "cpu" not in words:
        assert "conv2d" in text


def test_a_file_of_examples_is_run_as_it_is(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    np.savez("examples.npz", x=examples())
    for target in ("cpu", "accel"):
        command = ["run", model.name, "--target", target, "--calibrate", "examples.npz", "-i", "examples.npz"]
        assert run(app, [*command, "-o", "out.npz"], err) == 0
        found = np.load("out.npz")["y"]
        assert found.shape == (8, 3, 4, 4)
        for place in range(0, 8, 2):
            np.savez("one.npz", x=examples()[place : place + 2])
            assert run(app, ["run", model.name, "--target", target, "--calibrate", "examples.npz", "-i", "one.npz",
                             "-o", "one-out.npz"], err) == 0  # fmt: skip
            np.testing.assert_array_equal(np.load("one-out.npz")["y"], found[place : place + 2])


def test_what_is_no_whole_number_of_batches_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    np.savez("three.npz", x=examples(3))
    assert run(app, ["run", model.name, "--target", "cpu", "-i", "three.npz"], err) == 1
    assert "'x'" in said(capsys)


def test_an_explored_network_is_written_in_eight_bits(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    np.savez("examples.npz", x=examples())
    Path("space.toml").write_text('base = "tiny"\n[core]\nqueue_depth = [8, 16]\n')
    command = ["explore", "space.toml", "--networks", model.name, "--workers", "0", "--calibrate", "examples.npz"]
    assert run(app, [*command, "--calibrate", "examples.npz"], err) == 1
    assert "1 networks, but 2 files of examples" in said(capsys)
    status = run(app, command, err)
    assert status == 0 or "batch" in said(capsys)  # a batch of 2 is no core's of 1
    assert from_onnx(model.with_name("net-8bit.onnx")).main.params[0].name == "x"


def test_a_float_model_without_examples_is_compared_with_nothing(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["compare", "cpu", "fsim", str(model)], err) != 0
    assert "nothing of the model runs on the core" in said(capsys)


def test_an_artifact_is_not_calibrated(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(model.with_name("examples.npz"), x=examples())
    artifact = model.with_suffix(".weft")
    given = ["--calibrate", str(model.with_name("examples.npz"))]
    assert run(app, ["compile", str(model), *given], err) == 0
    for name in ("run", "profile", "view"):
        assert run(app, [name, str(artifact), *given], err) != 0
        assert "--calibrate" in said(capsys)
