"""The networks that the benchmarks run: their shapes, their work, and what quantisation leaves of them.

By default with a quarter of the channels and small images; the published sizes are under the marker ``long``.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from examples.models import build as models
from examples.models.batch_norm import folded, measured, weights_of
from examples.models.build import ARCHITECTURES, Request, build
from examples.models.images import HIGHEST, LOWEST, images
from examples.models.measure import multiply_accumulates
from examples.models.network import Activation, ModelRequestError, NetworkBuilder
from examples.precise import precise_session

Array = NDArray[np.float32]

SCRIPT = Path(__file__).parents[2] / "examples" / "models" / "build.py"
SMALL = {"size": 64, "width": 0.25}
FULL = {"size": 224, "width": 1.0}
SIZES = pytest.mark.parametrize(
    "scale", [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.long)]
)
NAMES = pytest.mark.parametrize("name", ARCHITECTURES)
TEST_SEED = 77  # neither that of the statistics nor that of the calibration


@dataclass(frozen=True)
class Published:
    """Known of the full network: multiply-accumulates, trained parameters, convolutions."""

    macs: int
    parameters: int
    convolutions: int


PUBLISHED = {
    "resnet18": Published(1_814_073_344, 11_689_512, 20),
    "resnet50": Published(4_089_184_256, 25_557_032, 53),
    "mobilenet_v1": Published(568_740_352, 4_231_976, 27),
    "mobilenet_v2": Published(300_774_272, 3_504_872, 52),
}


def run(model: onnx.ModelProto | Path, batch: Array, outputs: list[str] | None = None) -> list[list[Array]]:
    """The outputs for each image of ``batch`` (N, C, H, W), by onnxruntime."""
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session = precise_session(source)
    return [session.run(outputs, {"image": image[np.newaxis]}) for image in batch]


def logits(model: onnx.ModelProto | Path, batch: Array) -> Array:
    return np.concatenate([result[0] for result in run(model, batch)])


def cosines(left: Array, right: Array) -> Array:
    return (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def build_scaled(name: str, scale: dict[str, float], form: str = "qdq", activations: str = "int8") -> Path:
    return build(name, form=form, activations=activations, size=int(scale["size"]), width=scale["width"])


# Architecture


@NAMES
def test_the_full_network_is_the_published_one(name: str) -> None:
    model = ARCHITECTURES[name](NetworkBuilder(name))
    published = PUBLISHED[name]
    work = multiply_accumulates(model)
    assert sum(work.values()) == published.macs
    assert len(work) == published.convolutions + 1
    trained = [value for key, value in weights_of(model).items() if not key.startswith(("relu6.",))]
    statistics = [value for key, value in weights_of(model).items() if "running_" in key]
    assert sum(value.size for value in trained) - sum(value.size for value in statistics) == published.parameters
    assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 1000


def test_the_stride_of_a_bottleneck_is_on_its_3x3_convolution() -> None:
    model = ARCHITECTURES["resnet50"](NetworkBuilder("resnet50"))
    strided = {
        node.name
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Conv" and attribute.name == "strides" and list(attribute.ints) == [2, 2]
    }
    stages = {f"layer{stage}.0.{layer}" for stage in (2, 3, 4) for layer in ("conv2", "downsample.0")}
    assert strided == {"conv1", *stages}


def test_linear_bottlenecks_have_no_activation() -> None:
    model = ARCHITECTURES["mobilenet_v2"](NetworkBuilder("mobilenet_v2"))
    clipped = {node.input[0] for node in model.graph.node if node.op_type == "Clip"}
    projections = {node.output[0] for node in model.graph.node if node.name.endswith(".project.bn")}
    assert len(projections) == 17
    assert not projections & clipped
    assert sum(node.op_type == "Add" for node in model.graph.node) == 10


def test_the_seed_decides_the_weights() -> None:
    def weights(seed: int) -> Array:
        return weights_of(ARCHITECTURES["resnet18"](NetworkBuilder("resnet18", 32, 0.25, seed)))[
            "layer4.1.conv2.weight"
        ]

    assert np.array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))


@pytest.mark.parametrize("kernel", [1, 3, 7])
def test_weights_have_the_variance_that_keeps_the_signal(kernel: int) -> None:
    network = NetworkBuilder("one", 32)
    source = network.convolution("stem", network.image, 64, 1, norm="stem.bn")
    value = network.convolution("layer", source, 128, kernel, norm="bn", activation=Activation.RELU)
    weight = weights_of(network.classifier("fc", value))["layer.weight"]
    assert weight.var() == pytest.approx(2 / (64 * kernel * kernel), rel=0.1)


# Images


def test_images_repeat_and_are_smooth() -> None:
    batch = images(4, 64, seed=5)
    assert batch.shape == (4, 3, 64, 64)
    assert batch.dtype == np.float32
    assert np.array_equal(batch[:2], images(2, 64, seed=5))
    assert not np.array_equal(batch, images(4, 64, seed=6))
    assert batch.min() >= LOWEST
    assert batch.max() <= HIGHEST
    neighbours = np.abs(np.diff(batch, axis=3)).mean(axis=(1, 2, 3))
    assert np.all(neighbours < 0.5 * batch.std(axis=(1, 2, 3)))


# Batch normalisation


@NAMES
def test_measured_statistics_normalise_every_layer(name: str) -> None:
    batch = images(4, 32, seed=1)
    model = measured(ARCHITECTURES[name](NetworkBuilder(name, 32, 0.25)), batch)
    weights = weights_of(model)
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    model.graph.output.extend(helper.make_empty_tensor_value_info(node.output[0]) for node in norms)
    values = run(model, batch, [node.output[0] for node in norms])
    for index, node in enumerate(norms):
        value = np.concatenate([result[index] for result in values])
        scale, shift = weights[node.input[1]], weights[node.input[2]]
        assert np.allclose(value.mean(axis=(0, 2, 3)), shift, atol=0.01), node.name
        assert np.allclose(value.std(axis=(0, 2, 3)), scale, atol=0.02), node.name
    assert np.allclose(logits(model, batch).mean(axis=0), 0, atol=0.01)


@NAMES
def test_folding_keeps_the_function(name: str) -> None:
    batch = images(3, 64, seed=TEST_SEED)
    model = onnx.load(build_scaled(name, SMALL, form="float"))
    fused = folded(model)
    assert not any(node.op_type == "BatchNormalization" for node in fused.graph.node)
    assert all(len(node.input) == 3 for node in fused.graph.node if node.op_type == "Conv")
    assert multiply_accumulates(fused) == multiply_accumulates(model)
    before = logits(model, batch)
    assert np.abs(before - logits(fused, batch)).max() < 2e-3 * np.abs(before).max()


# Quantisation


@SIZES
@NAMES
def test_quantisation_keeps_the_answers(name: str, scale: dict[str, float]) -> None:
    batch = images(12, int(scale["size"]), TEST_SEED)
    expected = logits(build_scaled(name, scale, form="float"), batch)
    answers = logits(build_scaled(name, scale), batch)
    assert len(set(expected.argmax(axis=1))) > len(batch) // 2  # the answers depend on the image
    assert cosines(expected, answers).mean() > 0.97
    assert cosines(expected, answers).min() > 0.93
    first_five = np.argsort(answers, axis=1)[:, -5:]
    assert np.mean([best in five for best, five in zip(expected.argmax(axis=1), first_five, strict=True)]) >= 0.9


@pytest.mark.parametrize(("form", "activations"), [("qdq", "uint8"), ("qoperator", "int8"), ("qoperator", "uint8")])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_every_form_is_the_same_network(name: str, form: str, activations: str) -> None:
    batch = images(4, 64, TEST_SEED)
    expected = logits(build_scaled(name, SMALL), batch)
    answers = logits(build_scaled(name, SMALL, form, activations), batch)
    assert cosines(expected, answers).min() > 0.97


@SIZES
@NAMES
def test_activations_are_neither_dead_nor_saturated(name: str, scale: dict[str, float]) -> None:
    """Of every quantised tensor, over a few images that the calibration has not seen."""
    model = onnx.load(build_scaled(name, scale))
    tensors = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    model.graph.output.extend(helper.make_empty_tensor_value_info(tensor) for tensor in tensors)
    values = run(model, images(4, int(scale["size"]), TEST_SEED), tensors)
    for index, tensor in enumerate(tensors):
        value = np.concatenate([result[index] for result in values])
        assert value.dtype == np.int8, tensor
        if not tensor.startswith("image"):  # images have highlights, as photographs do
            assert np.mean(value == 127) < 0.02, tensor
        assert value.std() > 5, tensor  # in units of the last place
        if value.ndim == 4 and value.shape[2] > 1:
            dead = value.std(axis=(0, 2, 3)) == 0
            assert dead.mean() < 0.02, tensor


@NAMES
def test_weights_are_int8_with_one_scale_per_output_channel(name: str) -> None:
    model = onnx.load(build_scaled(name, SMALL))
    weights = weights_of(model)
    producers = {node.output[0]: node for node in model.graph.node}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == PUBLISHED[name].convolutions
    for node in convolutions:
        dequantise = producers[node.input[1]]
        assert dequantise.op_type == "DequantizeLinear"
        weight, scale = weights[dequantise.input[0]], weights[dequantise.input[1]]
        assert weight.dtype == np.int8
        assert scale.shape == weight.shape[:1]
        assert np.unique(scale).size > 1
    kinds = {node.op_type for node in model.graph.node}
    assert not kinds & {"Relu", "Clip", "BatchNormalization"}  # in the range of the quantised tensor


# Requests and the cache


def test_a_model_is_built_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models, "CACHE", tmp_path)
    lines: list[str] = []
    arguments = {"form": "float", "size": 32, "width": 0.125, "report": lines.append}
    path = build("resnet18", **arguments)  # type: ignore[arg-type]
    assert lines[0] == "weights of resnet18"
    lines.clear()
    assert build("resnet18", **arguments) == path  # type: ignore[arg-type]
    assert lines == [f"found {path}"]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]  # nothing unfinished stays


def test_different_requests_have_different_files() -> None:
    requests = [
        Request(name="resnet18"),
        Request(name="resnet50"),
        Request(name="resnet18", form="float"),
        Request(name="resnet18", form="qoperator"),
        Request(name="resnet18", activations="uint8"),
        Request(name="resnet18", size=64),
        Request(name="resnet18", width=0.5),
        Request(name="resnet18", seed=1),
    ]
    assert len({request.path for request in requests}) == len(requests)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vgg16"}, r"there is no model 'vgg16'; choose from resnet18, resnet50, mobilenet_v1, mobilenet_v2"),
        ({"name": "resnet18", "form": "tflite"}, r"there is no form 'tflite'; choose from qdq, qoperator, float"),
        ({"name": "resnet18", "activations": "int4"}, r"there is no activation type 'int4'; choose from int8, uint8"),
        ({"name": "resnet18", "size": 100}, r"resnet18: the image size must be a positive multiple of 32, not 100"),
        ({"name": "resnet18", "width": 0.0}, r"resnet18: the width must be above 0 and at most 2, not 0"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ModelRequestError, match=message):
        build(**arguments)  # type: ignore[arg-type]


def test_the_command_writes_the_model(tmp_path: Path) -> None:
    output = tmp_path / "folder" / "small.onnx"
    options = ["--output", str(output), "--size", "64", "--width", "0.25"]
    result = subprocess.run(
        [sys.executable, SCRIPT, "mobilenet_v2", *options], capture_output=True, text=True, check=True
    )
    assert str(output) in result.stdout
    assert "M multiply-accumulates" in result.stdout
    onnx.checker.check_model(output, full_check=True)


def test_the_command_explains_what_it_refuses(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, SCRIPT, "vgg16"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "error: there is no model 'vgg16'; choose from resnet18, resnet50, mobilenet_v1, mobilenet_v2"
    )
