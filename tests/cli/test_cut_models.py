"""Commands on a model that is cut, since a run decides how many results it has: each does its work on all of it, or on
what is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from onnx import parser
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err

from benchmarks.zoo.litert_models import ModelWriter, options
from examples.precise import precise_session

FLOATS = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 1, 4, 4] x) => (float[k] y)
<float[8, 1, 1, 1] w = {0.53, -1.07, 1.91, 0.97, 0.13, 0.23, 0.31, 0.41}, float one = {0.25}>
{
    c = Conv(x, w)
    above = Greater(c, one)
    places = NonZero(above)
    pairs = Transpose<perm = [1, 0]>(places)
    y = GatherND(c, pairs)
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(parser.parse_model(FLOATS), "net.onnx")
    np.savez("examples.npz", x=np.random.default_rng(0).normal(size=(4, 1, 4, 4)).astype(np.float32))
    return tmp_path


def test_all_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def done(*words: str) -> str:
        assert run(app, list(words), err) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    done("quantise", "net.onnx", "--calibrate", "examples.npz", "-o", "q.onnx")
    x = np.load("examples.npz")["x"][1:2]
    np.savez("one.npz", x=x)
    options = onnxruntime.SessionOptions()  # its rewrites move results by a step
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = precise_session(Path("q.onnx").read_bytes(), options).run(None, {"x": x})
    assert 0 < wanted.size < 128
    done("compile", "q.onnx", "-c", "tiny", "-o", "q.weft", "--certify")
    done("run", "q.weft", "-i", "one.npz", "-o", "made.npz")
    np.testing.assert_allclose(np.load("made.npz")["y"], wanted, rtol=1e-6)
    assert "by NumPy, and not run here: NonZero, Transpose, GatherND" in done("compare", "cpu", "fsim", "q.onnx")
    assert "without a type, which are no tensors or have any size: y" in done("shapes", "q.onnx").replace("\n", " ")
    done("tune", "q.onnx", "-c", "tiny", "--trials", "1", "-o", "t.sqlite")
    Path("space.toml").write_text('name = "s"\nbase = "tiny"\n[core]\nblock_in = [4]\n')
    assert "1 measured" in done("explore", "space.toml", "-n", "q.onnx", "--workers", "0")
    done("view", "q.onnx", "-c", "tiny", "-o", "v.html")
    done("profile", "q.weft", "-o", "folder")
    assert "no tiling, order or chain brings this network below" in done(
        "profile", "q.onnx", "-c", "tiny", "-o", "again"
    )


def test_what_cannot_be_done_says_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["compile", "net.onnx", "--calibrate", "examples.npz"], err) == 1
    assert "hint: weft quantise writes it in 8 bits, whole; give the file" in capsys.readouterr().err
    assert not list(folder.glob("*.weft"))
    assert isinstance(weft.compile("net.onnx", target="cpu"), weft.CompiledModel)


def test_a_litert_model_in_8_bits_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    net = ModelWriter()
    x = net.tensor((1, 6, 6, 3), "float32", name="x")
    made = net.tensor((1, 6, 6, 4), "float32")
    weights, bias = rng.normal(size=(4, 1, 1, 3)).astype(np.float32), np.zeros(4, np.float32)
    net.op("CONV_2D", [x, net.constant(weights, "float32"), net.constant(bias, "float32")], [made],
           options("Conv2DOptions", strideH=1, strideW=1))  # fmt: skip
    above, places = net.tensor((1, 6, 6, 4), "bool"), net.tensor((1, 4), "int64", name="y", open_shape=(-1, 4))
    net.op("GREATER", [made, net.constant(0.5, "float32")], [above])
    net.op("WHERE", [above], [places])
    Path("net.tflite").write_bytes(net.finish([x], [places]))
    np.savez("examples.npz", x=rng.normal(size=(4, 6, 6, 3)).astype(np.float32))
    np.savez("one.npz", x=np.load("examples.npz")["x"][:1])
    for words in (
        ("quantise", "net.tflite", "--calibrate", "examples.npz", "-o", "q.onnx"),
        ("compile", "q.onnx", "-c", "tiny", "-o", "q.weft"),
        ("run", "q.weft", "-i", "one.npz", "-o", "8bit.npz"),
        ("run", "net.tflite", "--target", "cpu", "-i", "one.npz", "-o", "floats.npz"),
    ):
        assert run(app, list(words), err) == 0, capsys.readouterr().err
    (floats,), (found,) = np.load("floats.npz").values(), np.load("8bit.npz").values()
    one, other = ({tuple(place) for place in places} for places in (floats.tolist(), found.tolist()))
    assert 20 < len(one) < 144
    assert len(one ^ other) < 5
