"""Whole networks on OpenCL and as PTX, against the CPU target: integers to the bit, floats to 1e-5 of the largest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from weft.runtime.gpu.opencl import OPTIONS_VARIABLE

from benchmarks.zoo import quantised_networks
from examples.models.build import build

from ...onnx_models import quantise
from .graphs import RUN_ON

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
SMALL = {"size": 64, "width": 0.25}
FULL = {"size": 64, "width": 1.0}


def results(
    model: Path | bytes, target: str = "opencl"
) -> tuple[weft.CompiledModel, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The compiled model, its results, and those of the CPU target."""
    ours, theirs = (weft.compile(model, target=each, strict=True) for each in (target, "cpu"))
    assert isinstance(ours, weft.CompiledModel)
    generator = np.random.default_rng(0)
    inputs = {each.name: generator.normal(size=each.shape).astype(each.dtype) for each in ours.inputs}
    return ours, weft.load(ours, RUN_ON[target]).run(inputs), weft.load(theirs).run(inputs)


def check(model: Path | bytes, *, exact: bool, target: str = "opencl") -> weft.CompiledModel:
    compiled, found, wanted = results(model, target)
    for name, value in wanted.items():
        if exact:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)
    assert {layer.device for layer in compiled.layers} == {"gpu"}
    return compiled


def test_the_digits_network_with_optimised_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPTIONS_VARIABLE)
    model = check(DIGITS, exact=True)
    assert {layer.kind for layer in model.layers} == {"plain", "tiled"}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("resnet18", "float"), ("mobilenet_v2", "qdq"), pytest.param("resnet18", "qdq", marks=pytest.mark.long),
        pytest.param("mobilenet_v2", "float", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_image_networks(name: str, form: str) -> None:
    check(build(name, form=form, **SMALL), exact=form == "qdq")


def test_the_digits_network_as_ptx() -> None:
    model = check(DIGITS, exact=True, target="cuda")
    assert {layer.kind for layer in model.layers} == {"channels last", "tensor cores"}


@pytest.mark.parametrize("form", [pytest.param("float", marks=pytest.mark.long), "qdq"])
def test_an_image_network_as_ptx(form: str) -> None:
    check(build("mobilenet_v2", form=form, size=32, width=0.25), exact=form == "qdq", target="cuda")


@pytest.mark.long
@pytest.mark.parametrize("form", ["float", "qdq"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_image_networks_as_ptx(name: str, form: str) -> None:
    check(build(name, form=form, **SMALL), exact=form == "qdq", target="cuda")


@pytest.mark.long
@pytest.mark.parametrize("form", ["float", "qdq"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_image_networks_with_all_channels(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPTIONS_VARIABLE)
    check(build(name, form=form, **FULL), exact=form == "qdq")


@pytest.fixture(scope="module")
def transformer() -> onnx.ModelProto:
    model, _ = quantised_networks.network("vit-block")
    return model


@pytest.mark.parametrize("target", RUN_ON)
def test_a_transformer(transformer: onnx.ModelProto, target: str) -> None:
    model = check(transformer.SerializeToString(), exact=False, target=target)
    assert "nn.softmax" in {name for layer in model.layers for name in layer.operators}


def test_a_quantised_transformer(transformer: onnx.ModelProto, tmp_path: Path) -> None:
    """Between its integers it has floats (softmax, norms), which may be rounded to another integer now and then."""
    _, found, wanted = results(quantise(transformer, tmp_path).SerializeToString())
    for name, value in wanted.items():
        assert np.abs(found[name] - value).max() <= 0.02 * np.abs(value).max()
