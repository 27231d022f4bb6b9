"""Layers that onnxruntime's optimiser fuses or lays out anew: read as onnxruntime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate

from .one_node import check, model

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)
INT8, UINT8, INT32 = TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32

ACTIVATIONS: list[dict[str, Any]] = [
    {}, {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_params": [0.3]}, {"activation": "Clip", "activation_params": [-0.5, 0.7]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
]  # fmt: skip


def floats(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def codes(*shape: int, dtype: str = "uint8", low: int = 0, high: int = 256) -> Array:
    return RANDOM.integers(low, high, shape).astype(dtype)


def one(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


@pytest.mark.parametrize("chosen", ACTIVATIONS, ids=lambda chosen: str(chosen.get("activation")))
def test_convolutions_with_an_activation(chosen: dict[str, Any]) -> None:
    x, w, bias = floats(2, 4, 7, 6), floats(6, 2, 3, 3) / 3, floats(6)
    windows = {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    check("FusedConv", [x, w, bias], **windows, **chosen)
    if chosen:
        check("FusedConv", [x, w, bias, floats(2, 6, 4, 6)], **windows, **chosen)


@pytest.mark.parametrize("chosen", ACTIVATIONS[1:5], ids=lambda chosen: str(chosen.get("activation")))
def test_products_with_an_activation(chosen: dict[str, Any]) -> None:
    attrs = {"activation": chosen["activation"]}
    if "activation_params" in chosen:
        attrs["activation_alpha"] = chosen["activation_params"][0]
    check("FusedGemm", [floats(4, 3), floats(5, 4), floats(5)], transA=1, transB=1, alpha=0.5, beta=2.0, **attrs)


def test_an_activation_must_be_known_and_have_its_parameters() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"activation": "Mish"}, "activation 'Mish' is not known"),
        ({"activation": "Clip", "activation_params": [0.0]}, "has 1 parameters, but needs 2"),
    ]
    for attrs, message in cases:
        made, _ = model("FusedConv", [floats(1, 1, 3, 3), floats(1, 1, 1, 1)], **attrs)
        with pytest.raises(ModelError, match=message):
            from_onnx(made, require_quantised=False)


def equal_codes(op: str, operands: list[Array | None], kind: int, **attrs: Any) -> None:
    """To the bit: all values are small integers and powers of two."""
    check(op, operands, kinds=(kind,), known=tuple(range(1, len(operands))), **attrs)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_maxima_of_channels_that_come_last(dtype: str) -> None:
    x = codes(2, 6, 5, 3) if dtype == "uint8" else codes(2, 6, 5, 3, dtype="int8", low=-128, high=128)
    kind = UINT8 if dtype == "uint8" else INT8
    equal_codes("NhwcMaxPool", [x], kind, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1])


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_layers_in_either_layout(last: int) -> None:
    shape = (2, 6, 5, 4) if last else (2, 4, 6, 5)
    x = codes(*shape, high=16)
    scale, zero = one(0.5), one(8, "uint8")
    weights = codes(6, 4, 3, 3, dtype="int8", low=-4, high=4)
    quantised: list[Array | None] = [x, scale, zero, weights, one(0.25), one(0, "int8"), one(4), one(100, "uint8")]
    bias = codes(6, dtype="int32", low=-50, high=50)
    equal_codes("QLinearConv", [*quantised, bias], UINT8, channels_last=last, pads=[1, 1, 0, 1], strides=[2, 1])
    pooled: list[Array | None] = [x, scale, zero, one(0.5), one(8, "uint8")]
    equal_codes("QLinearAveragePool", pooled, UINT8, channels_last=last, kernel_shape=[2, 2], strides=[1, 2])
    equal_codes("QLinearGlobalAveragePool", pooled, UINT8, channels_last=last)


def test_inverses_distances_and_axes() -> None:
    check("Inverse", [floats(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)])
    for metric in ("euclidean", "sqeuclidean"):
        check("CDist", [floats(4, 3), floats(5, 3)], metric=metric)
    check("ExpandDims", [floats(2, 3), one(-2, "int32")], known=(1,))
    check("TransposeMatMul", [floats(4, 3), floats(4, 5)], transA=1, alpha=2.0)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_embeddings(segments: bool, mask: bool) -> None:
    ids, words, places = codes(2, 5, dtype="int32", high=9), floats(9, 8), floats(7, 8)
    kinds = codes(2, 5, dtype="int32", high=2) if segments else None
    counted = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32) if mask else None
    operands = [ids, kinds, words, places, floats(2, 8) if segments else None, floats(8), floats(8), counted]
    check("EmbedLayerNormalization", operands[: 8 if mask else 7], (0, 1, 2), kinds=(1, INT32, 1), epsilon=1e-5)
    at = [*operands, codes(2, 5, dtype="int32", high=7)]
    check("EmbedLayerNormalization", at, (0, 1), kinds=(1, INT32), epsilon=1e-5)


@pytest.mark.parametrize("columns", [1, 24])
@pytest.mark.parametrize("later", [0, 1])
def test_attention_of_integers(columns: int, later: int) -> None:
    x, w = codes(2, 5, 8), codes(8, 24, dtype="int8", low=-100, high=100)
    scales = (np.arange(columns) % 3 + 1).astype(np.float32) / 512
    scales = scales if columns > 1 else one(1 / 512)
    zeros = np.zeros(24, np.int8) if columns > 1 else one(0, "int8")
    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    operands: list[Array | None] = [x, w, floats(24), one(1 / 64), scales, mask, one(120, "uint8"), zeros]
    check("QAttention", operands, known=(1, 4, 7), num_heads=2, unidirectional=later)
    past = floats(2, 2, 2, 3, 4)
    check("QAttention", [*operands[:5], None, *operands[6:], past], 2, known=(1, 4, 7), num_heads=2, unidirectional=1)


def by_formula(op: str, operands: list[Array | None], expected: Array, outputs: int = 1, **attrs: Any) -> None:
    """Against NumPy: the processor's part of onnxruntime has no such operator."""
    made, inputs = model(op, operands, outputs, **attrs)
    found = list(evaluate(from_onnx(made, require_quantised=False), inputs).values())
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("form", ["plain", "images", "rows"])
def test_normalisation_by_groups(last: int, activation: int, form: str) -> None:
    x, gamma, beta, bias = floats(2, 3, 4, 6), floats(6), floats(6), floats(6)
    skip = floats(2, 3, 4, 6) if form == "images" else floats(2, 6)
    total = x if form == "plain" else x + bias + (skip if form == "images" else skip[:, None, None])
    groups = total.reshape(2, 12, 3, 2)
    mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
    expected = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    expected = expected / (1 + np.exp(-expected)) if activation else expected

    def laid(value: Array) -> Array:
        return value if last or value.ndim < 4 else np.ascontiguousarray(np.moveaxis(value, 3, 1))

    operands: list[Array | None] = [laid(x), gamma, beta]
    if form != "plain":
        operands += [laid(skip), bias]
    op = "GroupNorm" if form == "plain" else "SkipGroupNorm"
    by_formula(op, operands, laid(expected), groups=3, channels_last=last, activation=activation)


def test_sums_and_gates_of_diffusion_models() -> None:
    x, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    by_formula("BiasAdd", [x, bias, skip], x + bias + skip)
    both = x + bias
    made, inputs = model("Gelu", [np.ascontiguousarray(both[..., 4:])])
    (gate,) = evaluate(from_onnx(made, require_quantised=False), inputs).values()
    by_formula("BiasSplitGelu", [x, bias], both[..., :4] * gate)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_normalisation(activation: str) -> None:
    check("GatedRMSNorm", [floats(2, 3, 12), floats(4), floats(2, 3, 12)], activation=activation, epsilon=1e-4)
