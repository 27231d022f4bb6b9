"""What no front end reads, with the line that makes something of it that one does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...files import ONNX_START
from ..graph import Family, Module, calls
from ..graph.registry import operator_of
from .errors import ModelError

WEIGHTS = {
    ".pt": "weights or a module of PyTorch", ".pth": "weights or a module of PyTorch",
    ".bin": "weights of PyTorch", ".ckpt": "a checkpoint of a training", ".safetensors": "weights without a graph",
    ".pb": "a graph of TensorFlow", ".ort": "a model in onnxruntime's own format", ".gguf": "weights of llama.cpp",
    ".engine": "an engine of TensorRT", ".plan": "an engine of TensorRT", ".xml": "a graph of OpenVINO",
    ".mlmodel": "a model of Core ML", ".xmodel": "a program of Vitis AI", ".pte": "a program of ExecuTorch",
}  # fmt: skip
"""Files of others that people try, by their ending: what they are."""

_SOURCE = "give the ONNX, LiteRT or PyTorch model that it was made of"

EXPORTS = {
    "PyTorch": "give the module itself: weft.from_torch(module, (example,)), "
    "or torch.export.save(torch.export.export(module, (example,)), 'model.pt2')",
    "TensorFlow": "export it: python -m tf2onnx.convert --graphdef model.pb --output model.onnx",
    "onnxruntime": "give the ONNX file that it was made of; a session saves one with optimized_model_filepath='x.onnx'",
    "TensorRT": _SOURCE,
    "OpenVINO": _SOURCE,
    "Core ML": _SOURCE,
    "Vitis AI": _SOURCE,
    "ExecuTorch": _SOURCE,
    "": "load them into the model that they belong to, then torch.onnx.export(model, (example,), 'model.onnx')",
}
"""How something that can be read is made of each."""


KERAS = (".keras", ".h5")
SAVED_MODEL = "saved_model.pb"
"""The file in a folder that TensorFlow writes."""


def refuse_other_files(path: Path) -> None:
    """ModelError for a file of another kind, by its ending: what it is, and the line that exports it."""
    if path.suffix in KERAS or (path / SAVED_MODEL).is_file():
        raise ModelError(
            f"{str(path)!r} is a model of TensorFlow or Keras, which only their own tools read",
            hint="export it: tf.lite.TFLiteConverter.from_keras_model(model).convert() makes a .tflite file, "
                 "model.export('model.onnx', format='onnx') an ONNX file",
        )  # fmt: skip
    what = WEIGHTS.get(path.suffix.lower())
    if what is None or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            if file.read(1) == ONNX_START:  # whatever its name
                return
    except OSError:  # told by the reader of ONNX
        return
    line = next(line for name, line in EXPORTS.items() if name in what)
    raise ModelError(f"{str(path)!r} is {what}, not a graph that can be compiled", hint=line)


def refuse_empty_file(path: Path) -> None:
    """ModelError for a file of no bytes, which its ending may call a model of any kind."""
    if path.is_file() and not path.stat().st_size:
        raise ModelError(f"{str(path)!r} is an empty file", hint="export or copy the model again")


def refuse_unknown_shapes(shapes: Iterable[str], inputs: Iterable[str]) -> None:
    """ModelError for the first name of ``shapes`` that is no input."""
    known = list(inputs)
    for name in sorted(set(shapes) - set(known)):
        raise ModelError(
            f"a shape is given for {name!r}, but the inputs are {', '.join(map(repr, known)) or 'none'}",
            hint="name an input, with all of its sizes: 'weft shapes' prints them",
        )


def refuse_floats(module: Module) -> None:
    """Refuse a model without any quantised tensor, in which a convolution or a matrix product has weights. What
    quantised models leave in floating point is computed on the host."""
    order = [(node, operator_of(node)) for node in calls(module.main.body)]
    if any(entry is not None and entry.family is Family.QUANTISE for _, entry in order):
        return
    for node, entry in order:
        if entry is not None and entry.weights is not None:
            raise ModelError(
                "is not quantised: its weights are floating point",
                at=node.span,
                hint="make 8 bits of it with weft quantise MODEL --calibrate EXAMPLES, "
                "or with onnxruntime's quantize_static",
            )
