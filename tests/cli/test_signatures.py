"""LiteRT files with several signatures, by the command: --signature, in every command that reads a model."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from weft.cli import app
from weft.cli.commands import PARTS, loaded
from weft.cli.errors import run
from weft.cli.mcp_tools import compare, compile_model, profile
from weft.cli.mcp_tools import run as run_tool
from weft.cli.output import err
from weft.explore.measure import open_network
from weft.files import LitertFile

from benchmarks.zoo.litert_models import ModelWriter, options

from .litert_commands import results, said

SHAPE = (1, 6, 6, 8)
SECOND = ("--signature", "other")


def _convolution(net: ModelWriter, seed: int) -> tuple[int, int]:
    """Of images in int8: its operand and its result."""
    random = np.random.default_rng(seed)
    x = net.tensor(SHAPE, "int8", 0.05, 3, name=f"x{seed}")
    weights = net.constant(random.integers(-90, 90, (8, 1, 1, 8)), "int8", scale=np.full(8, 0.0093), zero=[0] * 8)
    y = net.tensor(SHAPE, "int8", 0.047, -2, name=f"y{seed}")
    bias = net.constant(random.integers(-99, 99, 8), "int32", scale=np.full(8, 0.0093 * 0.05), zero=[0] * 8)
    net.op("CONV_2D", [x, weights, bias], [y], options("Conv2DOptions", strideW=1, strideH=1), version=3)
    return x, y


def two() -> bytes:
    """``usual`` and ``other``, each a convolution with weights of its own."""
    net = ModelWriter()
    body = net.body()
    first, last = _convolution(body, 1)
    number = body.number([first], [last])
    more = {"other": (number, ({"image": first}, {"result": last}))}
    x, y = _convolution(net, 0)
    model = net.finish([x], [y], [{"image": x}, {"result": y}], more)
    return model.replace(b"serving_default", b"usual_by_itself")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signatures")
    (folder / "two.tflite").write_bytes(two())
    os.utime(folder / "two.tflite", (1e9, 1e9))
    np.save(folder / "x.npy", np.random.default_rng(5).integers(-128, 128, SHAPE).astype(np.int8))
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)


def test_models_of_each_signature_are_kept_apart() -> None:
    cpu = ("--target", "cpu")
    for words, again in (((), False), (SECOND, False), ((), True), (SECOND, True)):
        found, made = results("two.tflite", "-i", "x.npy", *cpu, *words)
        assert made is not again
        np.testing.assert_array_equal(found, results("two.tflite", "-i", "x.npy", *cpu, "--no-cache", *words)[0])
    assert np.any(
        results("two.tflite", "-i", "x.npy", *cpu)[0] != results("two.tflite", "-i", "x.npy", *cpu, *SECOND)[0]
    )


def test_commands_read_the_graph_of_the_signature() -> None:
    said("compile", "two.tflite", "-c", "tiny", "-o", "other.weft", "--certify", *SECOND)
    assert said("verify", "other.weft", "--model", "two.tflite", *SECOND)["proved"]
    wrong = CliRunner().invoke(app, ["verify", "other.weft", "--model", "two.tflite", "--json"])
    assert not json.loads(wrong.stdout)["proved"]
    assert said("compare", "cpu", "fsim", "two.tflite", "-c", "tiny", *SECOND)["first_difference"] is None
    assert set(said("shapes", "two.tflite", *SECOND)["tensors"]) == {"image", "y1"}
    said("profile", "two.tflite", "-c", "tiny", "-o", "profile", "--no-what-if", *SECOND)
    said("evaluate", "two.tflite", "x.npy", "-c", "tiny", "--result", "result", *SECOND)
    said("tune", "two.tflite", "-c", "tiny", "--trials", "1", "-o", "t.sqlite", *SECOND)
    with CliRunner().isolation():
        assert run(app, ["view", "two.tflite", "-c", "tiny", "-o", "page.html", *SECOND], err) == 0
    assert "--signature other" in Path("page.html").read_text()


def test_a_name_that_the_file_lacks_is_refused_with_those_that_it_has() -> None:
    for words in (("compile", "two.tflite"), ("run", "two.tflite"), ("shapes", "two.tflite"), ("profile", "two.tflite"),
                  ("compare", "cpu", "fsim", "two.tflite"), ("tune", "two.tflite"), ("view", "two.tflite"),
                  ("quantise", "two.tflite", "--calibrate", "x.npy"), ("evaluate", "two.tflite", "x.npy")):  # fmt: skip
        found = CliRunner().invoke(app, [*words, "--signature", "train"])
        assert "no signature 'train'" in str(found.exception), (words, found.exception)
        assert "it has 'usual_by_itself', 'other'" in str(found.exception)


def test_what_has_no_signatures_is_refused() -> None:
    np.save("floats.npy", np.zeros(3))
    Path("net.onnx").write_bytes(b"\x08\x08")
    found = CliRunner().invoke(app, ["run", "net.onnx", *SECOND])
    assert "no LiteRT file" in str(found.exception)
    assert "only LiteRT files have signatures to choose" in str(found.exception)
    said("compile", "two.tflite", "-c", "tiny", "-o", "a.weft")
    found = CliRunner().invoke(app, ["run", "a.weft", *SECOND])
    assert "--signature is for models: a.weft is compiled already" in str(found.exception)


def test_every_command_that_reads_a_model_has_the_option() -> None:
    """But those for which a model is compiled already, or made."""
    named = {name for name in PARTS if "signature" in {each.name for each in loaded(name).params}}
    assert named == {"compile", "run", "compare", "profile", "quantise", "verify", "view", "evaluate", "shapes", "tune",
                     "power", "generate", "explore"}  # fmt: skip
    for tool in (compile_model, run_tool, profile, compare):
        assert "signature" in inspect.signature(tool).parameters


def test_explorations_keep_signatures_apart() -> None:
    networks = [open_network(LitertFile(Path("two.tflite"), None, name)) for name in (None, "other")]
    assert networks[0] != networks[1]
    assert networks[0].digest == networks[1].digest
    assert networks[1].file == LitertFile(Path("two.tflite"), None, "other")
