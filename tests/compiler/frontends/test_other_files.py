"""What is no graph is named as what it is, with the line that exports it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import weft
from weft.compiler.frontends import read
from weft.compiler.frontends.errors import ModelError

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"


@pytest.mark.parametrize(
    ("name", "what", "line"),
    [
        ("m.pt", "weights or a module of PyTorch", "weft.from_torch"),
        ("m.PTH", "weights or a module of PyTorch", "weft.from_torch"),
        ("m.ort", "a model in onnxruntime's own format", "give the ONNX file that it was made of"),
        ("m.engine", "an engine of TensorRT", "give the ONNX, LiteRT or PyTorch model"),
        ("m.safetensors", "weights without a graph", "load them into the model"),
        ("m.h5", "a model of TensorFlow or Keras", "model.export"),
        ("m.pb", "a graph of TensorFlow", "tf2onnx.convert --graphdef"),
    ],
)
def test_files_of_others_are_named(name: str, what: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK\x03\x04 something")
    with pytest.raises(ModelError, match=what) as caught:
        read(path)
    assert line in str(caught.value)


@pytest.mark.parametrize("name", ["m.pb", "m.bin"])
def test_an_onnx_file_is_one_whatever_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copyfile(DIGITS, path)
    assert [each.name for each in read(path).module({}, require_quantised=False).main.params] == ["image"]


def test_a_file_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read(tmp_path / "gone.pt").module({}, require_quantised=False)


def test_what_is_no_model_is_told_with_its_article() -> None:
    class Module:
        __module__ = "torch.nn.modules.module"

    class Net(Module): ...

    with pytest.raises(ModelError, match=r"'Net' is a PyTorch module.*torch\.onnx\.export"):
        read(Net())
    with pytest.raises(ModelError, match="an int is no model that can be read"):
        read(7)
    with pytest.raises(ModelError, match="a list is no model"):
        read([])
