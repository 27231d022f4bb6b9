"""What onnxruntime's quantiser writes beside convolutions is read as onnxruntime computes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate

from ...onnx_models import FloatModel, quantise, run_onnxruntime

INPUT = (1, 3, 6, 6)


def leaky(m: FloatModel) -> str:
    return m.op("LeakyRelu", m.conv("x", 3, 4), alpha=0.2)


def where(m: FloatModel) -> str:
    condition = m.weight("condition", np.arange(144).reshape(1, 4, 6, 6) % 3 == 0)
    return m.op("Where", condition, m.conv("x", 3, 4), m.conv("x", 3, 4, 1))


def row(m: FloatModel) -> str:
    flat = m.op("Reshape", "x", m.weight("shape", np.array([1, 3, 36])))
    w = m.weight("w", m.generator.normal(0, 0.3, (4, 3, 5)).astype(np.float32))
    return m.op("Conv", flat, w, m.weight("b", np.ones(4, np.float32)), kernel_shape=[5], pads=[2, 2])


def transposed(m: FloatModel) -> str:
    w = m.weight("w", m.generator.normal(0, 0.3, (3, 4, 3, 3)).astype(np.float32))
    return m.op("ConvTranspose", m.op("Relu", m.conv("x", 3, 3)), w, strides=[2, 2], pads=[1, 1, 1, 1])


def beyond(m: FloatModel) -> str:
    """In its quantised form onnxruntime counts what ceil_mode adds, too."""
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 0]}
    return m.op("AveragePool", m.conv("x", 3, 4), ceil_mode=1, count_include_pad=1, **window)


MODELS: dict[str, Callable[[FloatModel], str]] = {f.__name__: f for f in (leaky, where, row, transposed, beyond)}


LEFT_OUT = (("where", "QOperator"), ("beyond", "QDQ"))
"""For the first onnxruntime 1.31 writes no valid model; the second it optimises to QLinearAveragePool, which counts
more than AveragePool does."""

FORMS = [(name, form) for name in MODELS for form in ("QDQ", "QOperator") if (name, form) not in LEFT_OUT]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_as_read_it_gives_what_onnxruntime_gives(name: str, form: str, tmp_path: Path) -> None:
    m = FloatModel(INPUT)
    model = quantise(m.build(MODELS[name](m)), tmp_path, form, "QUInt8", "QInt8", per_channel=name != "transposed")
    x = np.random.default_rng(3).normal(size=INPUT).astype(np.float32)
    (found,), (wanted,) = evaluate(from_onnx(model), {"x": x}).values(), run_onnxruntime(model, {"x": x})
    step = float(np.ptp(wanted)) / 255
    assert np.abs(found - wanted).max() <= 2 * step
    assert np.mean(np.abs(found - wanted) < step / 2) > 0.95


def test_a_bias_of_a_row_has_its_scales_along_the_row(tmp_path: Path) -> None:
    """onnxruntime writes axis 0 for them, whatever the bias's shape is."""
    m = FloatModel(INPUT)
    flat = m.op("Reshape", "x", m.weight("shape", np.array([1, 108])))
    w = m.weight("w", m.generator.normal(0, 0.1, (108, 4)).astype(np.float32) * np.array([1, 2, 4, 9], np.float32))
    source = m.build(m.op("Gemm", flat, w, m.weight("b", np.array([[0.5, -1, 2, 0]], np.float32))))
    model = quantise(source, tmp_path, QDQDisableWeightAdjustForInt32Bias=True)
    x = np.random.default_rng(3).normal(size=INPUT).astype(np.float32)
    (found,), (wanted,) = evaluate(from_onnx(model), {"x": x}).values(), run_onnxruntime(model, {"x": x})
    assert np.abs(found - wanted).max() <= 2 * float(np.ptp(wanted)) / 255


def test_qlinear_where(tmp_path: Path) -> None:
    m = FloatModel(INPUT)
    condition = m.weight("condition", np.arange(108).reshape(INPUT) % 3 == 0)
    scales = [m.weight(f"scale{number}", np.float32(0.02 * (number + 1))) for number in range(3)]
    zeros = [m.weight(f"zero{number}", np.uint8(100 + 9 * number)) for number in range(3)]
    q = [m.op("QuantizeLinear", "x", scales[number], zeros[number]) for number in range(2)]
    chosen = m.op("QLinearWhere", condition, q[0], scales[0], zeros[0], q[1], scales[1], zeros[1], scales[2], zeros[2])
    m.nodes[-1].domain = "com.microsoft"
    result = m.op("DequantizeLinear", chosen, scales[2], zeros[2])
    graph = helper.make_graph(
        m.nodes, "where", [helper.make_tensor_value_info("x", TensorProto.FLOAT, INPUT)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, INPUT)], m.initialisers,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = np.random.default_rng(3).normal(size=INPUT).astype(np.float32)
    (found,), (wanted,) = evaluate(from_onnx(model), {"x": x}).values(), run_onnxruntime(model, {"x": x})
    np.testing.assert_allclose(found, wanted, atol=0.061)
    assert np.mean(found == wanted) > 0.9


def test_a_float_layer_in_a_quantised_model_is_read_and_a_float_model_is_not(tmp_path: Path) -> None:
    m = FloatModel(INPUT)
    model = m.build(m.op("Tanh", m.conv(m.op("Sigmoid", m.conv("x", 3, 4)), 4, 4)))
    with pytest.raises(ModelError, match="is not quantised"):
        from_onnx(model)
    assert from_onnx(quantise(model, tmp_path, nodes_to_exclude=["conv2"]))
