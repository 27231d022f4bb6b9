"""The files of this folder as a package that a user has installed, and the command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.targets import registry
from weft.runtime import device

FOLDER = Path(__file__).parent


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files can be imported; what they register is gone behind the test."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(registry, "_targets", dict(registry._targets))
    monkeypatch.setattr(device, "_devices", dict(device._devices))


@pytest.fixture
def installed(extensions: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with what an installer leaves there of a package with these entry points."""
    folder = tmp_path / "site"
    information = folder / "extensions-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: extensions\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[weft.targets]\nc = c_target:CTarget\n"
        "[weft.devices]\nslow = slow_device:SlowDevice\nfar = far_device:FarDevice\n"
    )
    monkeypatch.syspath_prepend(folder)
    return folder


@dataclass(frozen=True)
class Outcome:
    """What a command printed, with single spaces, and its status."""

    status: int
    raw: str
    err: str

    @property
    def out(self) -> str:
        return " ".join(self.raw.split())

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


Command = Callable[..., Outcome]


@pytest.fixture
def weft_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """``weft`` in this process."""

    def command(*words: str | Path) -> Outcome:
        capsys.readouterr()
        status = run(app, list(map(str, words)), err)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, " ".join(captured.err.split()))

    return command


def saved(path: Path, nodes: list[onnx.NodeProto], *outputs: str) -> Path:
    """A model of ``float32[4, 6]`` x, in a file."""
    x, *results = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 6)) for name in ("x", *outputs))
    graph = helper.make_graph(nodes, path.stem, [x], results)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def elementwise(tmp_path: Path) -> Path:
    """A network of elementwise operators."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], "square"),
        helper.make_node("Sigmoid", ["square"], ["gate"], "gate"),
        helper.make_node("Max", ["gate", "x"], ["y"], "largest"),
    ]
    return saved(tmp_path / "elementwise.onnx", nodes, "y")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A network with operators that read elements more than once."""
    nodes = [
        helper.make_node("Exp", ["x"], ["grown"], "grow"),
        helper.make_node("Softmax", ["grown"], ["chances"], "softmax"),
        helper.make_node("Mul", ["chances", "x"], ["y"], "weigh"),
    ]
    return saved(tmp_path / "mixed.onnx", nodes, "y")
