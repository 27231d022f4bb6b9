"""Fourier transforms of any length, beside NumPy's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import weft
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from weft.compiler.frontends import from_onnx
from weft.compiler.frontends.onnx import signal
from weft.compiler.graph import Constant, evaluate, topological_order


def transform(
    length: int, parts: int = 1, *, inverse: bool = False, onesided: bool = False, rows: int = 3
) -> onnx.ModelProto:  # fmt: skip
    node = helper.make_node("DFT", ["x"], ["y"], axis=1, inverse=int(inverse), onesided=int(onesided))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, length, parts])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "transform", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def as_complex(parts: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return parts[..., 0] + 1j * parts[..., 1]


@settings(max_examples=40, deadline=None)
@given(length=st.integers(2, 700), kind=st.sampled_from(["real", "onesided", "complex", "inverse"]))
@example(length=127, kind="complex")
@example(length=128, kind="onesided")
@example(length=400, kind="onesided")
@example(length=521, kind="real")  # a prime, which nothing cuts
@example(length=625, kind="inverse")
@example(length=16384, kind="onesided")  # cut twice
@example(length=16384, kind="inverse")
def test_a_transform_of_any_length_is_numpys(length: int, kind: str) -> None:
    generator = np.random.default_rng(length)
    parts = 2 if kind in ("complex", "inverse") else 1
    x = generator.standard_normal((3, length, parts)).astype(np.float32)
    model = transform(length, parts, inverse=kind == "inverse", onesided=kind == "onesided")
    found = as_complex(evaluate(from_onnx(model, require_quantised=False), {"x": x})["y"])
    if parts == 1:
        wanted = (np.fft.rfft if kind == "onesided" else np.fft.fft)(x[..., 0].astype(np.float64), axis=1)
    else:
        wanted = (np.fft.ifft if kind == "inverse" else np.fft.fft)(as_complex(x.astype(np.float64)), axis=1)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max() * np.log2(length) + 1e-7)


@pytest.mark.parametrize("length", [2, 6, 16, 31])
def test_the_first_and_the_middle_frequency_of_real_numbers_are_real(length: int) -> None:
    """Their phase is that of a zero else: half a turn or minus it."""
    x = np.random.default_rng(0).standard_normal((3, length, 1)).astype(np.float32)
    found = evaluate(from_onnx(transform(length), require_quantised=False), {"x": x})["y"]
    alone = found[:, [0, length // 2], 1] if length % 2 == 0 else found[:, [0], 1]
    np.testing.assert_array_equal(alone, 0)
    assert not np.signbit(alone[:, 0]).any()


@pytest.mark.parametrize("length", [128, 480, 2048])
def test_a_transform_whose_length_has_factors_holds_no_matrix_of_its_size(length: int) -> None:
    module = from_onnx(transform(length, onesided=True), require_quantised=False)
    sizes = [node.value.size for node in topological_order(module.main.body) if isinstance(node, Constant)]
    assert max(sizes) <= 2 * length


def test_frames_are_cut_too_and_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform in short time, as front ends of speech models have it; the same as with one product."""
    window = helper.make_node("HannWindow", ["length"], ["window"])
    frames = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], onesided=1)
    constants = [onnx.numpy_helper.from_array(np.array(value, np.int64), name)
                 for name, value in (("step", 160), ("length", 400))]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1600])
    graph = helper.make_graph(
        [window, frames], "frames", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values = np.random.default_rng(0).standard_normal((2, 1600)).astype(np.float32)
    cut = weft.load(weft.compile(model, target="cpu", cache=False)).run({"x": values})["y"]
    monkeypatch.setattr(signal, "SHORTEST_CUT", 1 << 30)
    whole = weft.load(weft.compile(model, target="cpu", cache=False)).run({"x": values})["y"]
    assert cut.shape == (2, 8, 201, 2)
    np.testing.assert_allclose(cut, whole, atol=2e-4)
