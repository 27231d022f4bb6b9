"""The files that engines are given of one network: float, and 8 bits in each form that some engine may be best at.

A network is one of `NETWORKS`, the path of an ONNX file, or ``timm:NAME``, a model of timm's with random weights as
PyTorch exports it (both must be installed).

``qdq-u8``, ``qdq-s8`` and ``qoperator-u8`` are onnxruntime's forms, with activations of that type and int8 weights per
channel; ``nncf`` is what OpenVINO's own tool makes of the float model. Files are kept in ``build/models``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.zoo import peer_networks, quantised_build
from benchmarks.zoo.quantised_forms import Form, Inputs, quantised
from examples.models.build import CACHE, build
from examples.models.images import images

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "digits"))

BUILT = ("resnet18", "resnet50", "mobilenet_v2")
TIMM = "timm:"
NETWORKS = (*BUILT, "digits", *peer_networks.NETWORKS)
EIGHT_BIT_FORMS: Mapping[str, tuple[str, ...]] = {
    "weft": ("qdq-u8",),
    "onnxruntime": ("qdq-u8", "qdq-s8", "qoperator-u8"),
    "openvino": ("nncf", "qdq-u8", "qdq-s8"),
}
"""For each engine the forms of which its fastest counts."""

_OF_ONNXRUNTIME = {
    "qdq-u8": Form(per_channel=True),
    "qdq-s8": Form(activation="QInt8", per_channel=True),
    "qoperator-u8": Form(layout="QOperator", per_channel=True),
}


@dataclass(frozen=True)
class Subject:
    """A network: its ``files`` by form, those that could be made, and data for its inputs."""

    name: str
    files: Mapping[str, Path]
    inputs: Inputs


def subject(name: str, bits: int) -> Subject:
    """The files of a network in floats (``bits`` 32) or in 8 bits."""
    if name in BUILT:
        inputs = {"image": images(1, 224, 7)}
        if bits == 32:
            return Subject(name, {"float": build(name, form="float")}, inputs)
        forms = {"qdq-u8": ("qdq", "uint8"), "qdq-s8": ("qdq", "int8"), "qoperator-u8": ("qoperator", "uint8")}
        files = {form: build(name, form=kind, activations=dtype) for form, (kind, dtype) in forms.items()}
        data = [{"image": image[np.newaxis]} for image in images(3, 224, 2)]
        return Subject(name, _with_nncf(files, name, build(name, form="float"), data), inputs)
    if name == "digits":
        inputs = {"image": np.random.default_rng(7).random((1, 1, 8, 8)).astype(np.float32)}
        if bits == 8:
            return Subject(name, {"qdq-u8": ROOT / "examples" / "digits" / "digits.onnx"}, inputs)
        return Subject(name, {"float": _kept("digits", "float", lambda path: onnx.save(_digits(), path))}, inputs)
    if name.startswith(TIMM):
        model = onnx.load(_kept(name, "exported", partial(_exported, name.removeprefix(TIMM))))
        batches = _random_batches(model)
    elif name.endswith(".onnx"):
        model, digest = onnx.load(name), hashlib.sha256(Path(name).read_bytes())
        name, batches = f"{Path(name).stem}-{digest.hexdigest()[:8]}", _random_batches(model)
    else:
        model, batches = peer_networks.network(name)
    plain = _kept(name, "float", partial(_folded, model))
    if bits == 32:
        return Subject(name, {"float": plain}, batches[0])
    files = {
        form: _kept(name, form, lambda path, how=how: onnx.save(quantised(onnx.load(plain), batches, how), path))
        for form, how in _OF_ONNXRUNTIME.items()
    }  # fmt: skip
    return Subject(name, _with_nncf(files, name, plain, batches), batches[0])


def _folded(model: onnx.ModelProto, path: Path) -> None:
    """The float model as exporters leave it for inference: shapes known, batch normalisations in the convolutions."""
    source = path.with_name("source.onnx")  # given a model, not a file, onnxruntime cannot read what it wrote
    onnx.save(model, source)
    quant_pre_process(source, path, skip_symbolic_shape=True)
    source.unlink()


def _exported(name: str, path: Path) -> None:
    """The ONNX file of a model of timm's, with random weights."""
    import timm
    import torch

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    image = torch.zeros(1, *model.default_cfg["input_size"])
    torch.onnx.export(model, (image,), path, dynamo=False, opset_version=17)


def _random_batches(model: onnx.ModelProto) -> list[Inputs]:
    """Data for the inputs of a model, which must be floats of known sizes. Raises ValueError."""
    random = np.random.default_rng(0)
    shapes = {}
    constants = {item.name for item in model.graph.initializer}
    for item in model.graph.input:
        sizes = [each.dim_value for each in item.type.tensor_type.shape.dim]
        if item.name in constants:
            continue
        if 0 in sizes or item.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            raise ValueError(f"input {item.name!r} is not of floats with known sizes")
        shapes[item.name] = sizes
    return [{key: random.standard_normal(sizes, np.float32) for key, sizes in shapes.items()} for _ in range(3)]


def _digits() -> onnx.ModelProto:
    """The digits network with random weights, which no time depends on."""
    from export import float_model
    from network import initial_parameters

    return float_model(initial_parameters(np.random.default_rng(0)))


def _with_nncf(files: Mapping[str, Path], name: str, plain: Path, batches: list[Inputs]) -> dict[str, Path]:
    """The files and that of OpenVINO's tool, where it is installed."""
    try:
        import nncf
        import openvino
    except ImportError:
        print("nncf is not installed: OpenVINO is given onnxruntime's forms only", file=sys.stderr)
        return dict(files)
    nncf.set_log_level(logging.ERROR)

    def make(path: Path) -> None:
        model = openvino.Core().read_model(plain)
        kind = nncf.ModelType.TRANSFORMER if name in ("vit", "mixer", "bert") else None
        data = nncf.Dataset(batches, lambda item: item)
        openvino.save_model(nncf.quantize(model, data, model_type=kind), path, compress_to_fp16=False)

    return {**files, "nncf": _kept(name, "nncf", make, "xml")}


def _kept(name: str, form: str, make: Callable[[Path], Any], ending: str = "onnx") -> Path:
    """The file of a network in a form, made now or taken from the cache; its name stands for all it is made from."""
    digest = hashlib.sha256(f"{name} {form} onnx {onnx.__version__} onnxruntime {onnxruntime.__version__}".encode())
    for source in (__file__, peer_networks.__file__, quantised_build.__file__):
        digest.update(Path(source).read_bytes())
    path = CACHE / f"peer-{name.replace(':', '-')}-{form}-{digest.hexdigest()[:12]}.{ending}"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        unfinished = Path(folder) / path.name
        make(unfinished)
        for part in sorted(Path(folder).iterdir()):  # weights beside an .xml come first, so that nothing is half there
            os.replace(part, CACHE / part.name)
    return path
