"""Attention with states and the convolution before it, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from weft.compiler.frontends import ModelError, from_onnx

from .one_node import check, model

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)
DEPTH, WIDTH, HEADS = 8, 6, 2


def floats(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def operands(rule: str, length: int, asking: int, fades: int, betas: int, past: bool) -> list[Array | None]:
    given: list[Array | None] = [floats(2, length, asking * DEPTH), 0.3 * floats(2, length, HEADS * DEPTH),
                                 floats(2, length, HEADS * WIDTH)]  # fmt: skip
    given.append(floats(2, HEADS, DEPTH, WIDTH) if past else None)
    given.append(-np.abs(floats(2, length, HEADS * fades)) if "gated" in rule else None)
    given.append(RANDOM.random((2, length, betas)).astype(np.float32) if "delta" in rule else None)
    return given


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(
    ("length", "asking", "fades", "betas", "past"), [(6, 2, DEPTH, 2, True), (3, 4, 1, 1, False), (1, 1, 1, 2, True)]
)
def test_states_that_each_position_changes(
    rule: str, length: int, asking: int, fades: int, betas: int, past: bool
) -> None:
    """Heads of queries that are as many as states, more, and fewer; a text, and one position more."""
    given = operands(rule, length, asking, fades, betas, past)
    check("LinearAttention", given, 2, q_num_heads=asking, kv_num_heads=HEADS, update_rule=rule)
    check("LinearAttention", given, 2, q_num_heads=asking, kv_num_heads=HEADS, update_rule=rule, scale=0.7)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("dilation", "length"), [(1, 5), (2, 5), (2, 1)])
def test_convolutions_over_the_positions_before(dilation: int, length: int, last: int) -> None:
    x, weights, bias, state = floats(2, 6, length), floats(6, 1, 4), floats(6), floats(2, 6, 3 * dilation)
    if last:
        x, state = (np.ascontiguousarray(each.transpose(0, 2, 1)) for each in (x, state))
    options = {"dilation": dilation, "channels_last": last}
    check("CausalConvWithState", [x, weights, bias, state], 2, activation="silu", **options)
    check("CausalConvWithState", [x, weights], 2, **options)


@pytest.mark.parametrize(
    ("op", "given", "options", "message"),
    [
        ("LinearAttention", operands("linear", 2, 3, 1, 1, False), {"q_num_heads": 3},
         "3 heads of queries do not share 2 of keys evenly"),
        ("LinearAttention", operands("linear", 2, 2, 1, 1, False), {"q_num_heads": 2, "update_rule": "other"},
         "update rule 'other' is not known"),
        ("CausalConvWithState", [floats(2, 6, 5), floats(5, 1, 4)], {}, "one kernel a channel"),
        ("CausalConvWithState", [floats(2, 6, 5), floats(6, 1, 4), None, floats(2, 6, 2)], {},
         "3 positions of 6 channels are before"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_said(op: str, given: list[Array | None], options: dict[str, Any], message: str) -> None:
    more = {"kv_num_heads": HEADS, "update_rule": "linear"} if op == "LinearAttention" else {}
    made, _ = model(op, given, 2, **{**more, **options})
    with pytest.raises(ModelError, match=message):
        from_onnx(made, require_quantised=False)
