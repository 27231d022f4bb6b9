"""Mixtures of experts of onnxruntime's own domain, beside onnxruntime and beside a loop over the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate

from ...onnx_models import run_onnxruntime
from .one_node import check, model

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)
GATE = {"activation_type": "swiglu", "swiglu_fusion": 1}
OPTIONS = [
    {}, {"activation_type": "silu", "k": 1}, {"activation_type": "gelu", "normalize_routing_weights": 1},
    {"activation_type": "identity", "k": 4}, GATE,
    {**GATE, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5, "normalize_routing_weights": 1},
]  # fmt: skip


def floats(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def layers(experts: int, hidden: int, inner: int, width: int = 1) -> list[Array | None]:
    return [floats(experts, width * inner, hidden), floats(experts, width * inner), floats(experts, hidden, inner),
            floats(experts, hidden)]  # fmt: skip


@pytest.mark.parametrize("rows", [5, 1])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_networks_of_the_largest_scores(options: dict[str, Any], rows: int) -> None:
    """With few rows their experts are gathered, else all compute; of five and eight experts loops are made."""
    experts = 8 if rows > 1 else 16
    weights = layers(experts, 12, 6, 2 if "swiglu_fusion" in options else 1)
    check("MoE", [floats(rows, 12), 2 * floats(rows, experts), *weights], **{"k": 2, **options})


def test_a_batch_without_biases() -> None:
    first, _, second, _ = layers(3, 12, 6)
    check("MoE", [floats(2, 4, 12), floats(8, 3), first, None, second], k=2)


def packed(codes: Array, bits: int) -> Array:
    """Numbers along the last axis, from a byte's lowest bits on."""
    each = 8 // bits
    whole = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // each) * each), np.uint8)
    whole[..., : codes.shape[-1]] = codes
    parts = whole.reshape(*whole.shape[:-1], -1, each)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=-1)


def integers(experts: int, outputs: int, depth: int, bits: int, block: int, zeros: bool) -> list[Array]:
    """Packed weights, scales, packed zero points or none, and the weights as floats."""
    blocks = depth // block if block else 1
    codes = RANDOM.integers(0, 1 << bits, (experts, outputs, depth)).astype(np.uint8)
    scales = RANDOM.uniform(0.02, 0.1, (experts, outputs, blocks)).astype(np.float32)
    offsets = np.full((experts, outputs, blocks), 1 << bits - 1, np.uint8)
    if zeros:
        offsets = RANDOM.integers(0, 1 << bits, offsets.shape).astype(np.uint8)
    wide = [np.repeat(each, depth // blocks, 2) for each in (offsets, scales)]
    weights = (codes.astype(np.float32) - wide[0]) * wide[1]
    one = () if block else (0,)
    return [packed(codes, bits), scales[(..., *one)], packed(offsets[(..., *one)], bits), weights.astype(np.float32)]


@pytest.mark.parametrize("rows", [7, 1])
@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(4, 0, False), (4, 16, False), (4, 16, True), (8, 0, False), (2, 16, True)]
)
def test_weights_of_a_few_bits(bits: int, block: int, zeros: bool, rows: int) -> None:
    """As the mixture of the weights that the integers stand for; and where onnxruntime keeps floats, as it."""
    experts, hidden, inner = 8 if rows > 1 else 16, 32, 48
    first, second = (integers(experts, *size, bits, block, zeros) for size in ((2 * inner, hidden), (hidden, inner)))
    x, scores = floats(rows, hidden), 2 * floats(rows, experts)
    biases = floats(experts, 2 * inner), floats(experts, hidden)
    operands = [x, scores, first[0], first[1], biases[0], second[0], second[1], biases[1], None, None, None]
    operands += [first[2], second[2]] if zeros else []
    options = {"k": 2, "normalize_routing_weights": 1, **GATE, "swiglu_limit": 7.0}
    known = tuple(place for place in range(2, len(operands)) if operands[place] is not None)
    more = {"expert_weight_bits": bits, **({"block_size": block} if block else {})}
    made, inputs = model("QMoE", operands, known=known, **options, **more)
    (found,) = evaluate(from_onnx(made, require_quantised=False), inputs).values()
    plain = [x, scores, first[3], biases[0], second[3], biases[1]]
    (wanted,) = run_onnxruntime(*model("MoE", plain, **options))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())
    if bits == 4:
        (theirs,) = run_onnxruntime(made, inputs)
        np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-3 * abs(theirs).max())


def test_scores_that_choose_and_others_that_weigh() -> None:
    """Those of the chosen weigh as they are; a layer beside the first multiplies it. Beside each row's sum."""
    experts, rows = 5, 6
    layer = [integers(experts, *size, 8, 0, False) for size in ((8, 12), (12, 8), (8, 12))]
    x, scores, shares = floats(rows, 12), floats(rows, experts), RANDOM.random((rows, experts)).astype(np.float32)
    operands: list[Array | None] = [x, scores]
    for each in layer:
        operands += [each[0], each[1], None]
    operands += [None, None, None, shares]
    known = (2, 3, 5, 6, 8, 9)
    made, inputs = model("QMoE", operands, known=known, k=2, activation_type="silu", expert_weight_bits=8)
    (found,) = evaluate(from_onnx(made, require_quantised=False), inputs).values()
    wanted = np.zeros_like(x)
    for row in range(rows):
        for expert in np.argsort(-scores[row])[:2]:
            gate = layer[0][3][expert] @ x[row]
            hidden = gate / (1 + np.exp(-gate)) * (layer[2][3][expert] @ x[row])
            wanted[row] += shares[row, expert] * (layer[1][3][expert] @ hidden)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({1: floats(5, 4)}, {}, r"scores are float32\[5, 4\], but must be \(4, experts\)"),
        ({}, {"k": 9}, "of which 9 are chosen"),
        ({}, {"activation_type": "relu2"}, "activation 'relu2' is not read"),
        ({}, {"activation_type": "swiglu"}, "a gate needs a layer beside the first"),
        ({1: floats(4, 5)}, {}, "scores are those of 5 experts"),
    ],
)
def test_what_is_not_read_is_said(changed: dict[int, Array], options: dict[str, Any], message: str) -> None:
    operands = [floats(4, 12), floats(4, 3), *layers(3, 12, 6)]
    for place, value in changed.items():
        operands[place] = value
    made, _ = model("MoE", operands, **{"k": 2, **options})
    with pytest.raises(ModelError, match=message):
        from_onnx(made, require_quantised=False)
