"""Operators of onnxruntime's own domain that language models have: read as onnxruntime computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from onnx import numpy_helper, parser
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate

from ...onnx_models import run_onnxruntime
from .one_node import check, model

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def test_activations() -> None:
    x, bias = floats(2, 3, 8) * 3, floats(8)
    check("FastGelu", [x])
    check("FastGelu", [x, bias])
    check("BiasGelu", [x, bias])
    check("QuickGelu", [x])
    check("QuickGelu", [x], alpha=1.0)
    check("Gelu", [x])


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_products_of_matrices_whose_axes_are_swapped(trans_a: int, trans_b: int) -> None:
    a, b = floats(*((4, 3) if trans_a else (3, 4))), floats(*((5, 4) if trans_b else (4, 5)))
    check("FusedMatMul", [a, b], transA=trans_a, transB=trans_b, alpha=0.5)
    check("FusedMatMul", [a, b], transA=trans_a, transB=trans_b, known=(1,))
    stacks = np.stack([np.stack([a, -a, 2 * a])] * 2), np.stack([np.stack([b, b, -b])] * 2)
    check("FusedMatMul", list(stacks), transA=trans_a, transB=trans_b)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_of_stacks_whose_rows_come_first(trans_a: int, trans_b: int) -> None:
    a = floats(*((4, 2, 3) if trans_a else (3, 2, 4)))
    b = floats(*((5, 2, 4) if trans_b else (4, 2, 5)))
    check("FusedMatMul", [a, b], transA=trans_a, transB=trans_b, transBatchA=1, transBatchB=1)
    check(
        "FusedMatMul", [a, floats(2, *((5, 4) if trans_b else (4, 5)))], transA=trans_a, transB=trans_b, transBatchA=1
    )


def test_normalisations() -> None:
    x, skip, gamma, beta, bias = floats(2, 3, 16) * 4, floats(2, 3, 16), floats(16), floats(16), floats(16)
    check("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-3)
    check("SimplifiedLayerNormalization", [x, floats(3, 16)], domain="", axis=1)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], (0, 3), epsilon=1e-3)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], (0, 3))
    check("SkipLayerNormalization", [x, skip, gamma, beta, bias], (0, 3), epsilon=1e-3)
    check("SkipLayerNormalization", [x, skip, gamma])
    check("SkipLayerNormalization", [x, floats(1, 3, 16), gamma, beta])


# Rotary positions


def tables(positions: int, pairs: int) -> tuple[Array, Array]:
    angles = np.arange(positions)[:, None] * 10.0 ** -np.arange(pairs)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3]), np.array([[0, 4, 2], [7, 1, 1]])], ids=["first", "each"])
def test_rotary_positions(interleaved: int, places: Array) -> None:
    cosine, sine = tables(10, 4)
    check("RotaryEmbedding", [floats(2, 3, 24), places, cosine, sine], interleaved=interleaved)
    check("RotaryEmbedding", [floats(2, 5, 3, 8), places, cosine, sine], interleaved=interleaved)
    part = {"rotary_embedding_dim": 8, "num_heads": 2}
    check("RotaryEmbedding", [floats(2, 3, 24), places, cosine, sine], interleaved=interleaved, **part)


# Heads that share keys, with a cache

HEADS = {"num_heads": 4, "kv_num_heads": 2}
DEPTH = 16


def rows(length: int, batch: int = 1) -> list[Array | None]:
    """Of queries, keys and values."""
    return [floats(batch, length, heads * DEPTH) for heads in (4, 2, 2)]


def cache(room: int, batch: int = 1) -> list[Array | None]:
    return [floats(batch, 2, room, DEPTH), floats(batch, 2, room, DEPTH)]


def lengths(total: int, *others: int) -> list[Array | None]:
    return [np.array([total - 1, *(other - 1 for other in others)], np.int32), np.array([total], np.int32)]


@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"softcap": 2.0}, {"local_window_size": 2}], ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_a_prompt_without_a_cache(options: dict[str, float], packed: bool) -> None:
    given = rows(4)
    if packed:
        given = [np.concatenate(given, 2), None, None]  # type: ignore[arg-type]
    check("GroupQueryAttention", [*given, None, None, *lengths(4)], 3, known=(6,), **HEADS, **options)


@pytest.mark.parametrize("total", [1, 3, 6, 8])
@pytest.mark.parametrize("rotary", [None, 0, 1])
@pytest.mark.parametrize("window", [-1, 3])
def test_a_step_into_a_cache_that_is_a_buffer(total: int, rotary: int | None, window: int) -> None:
    """The cache has room for 8; ``total`` with this one are written."""
    operands = [*rows(1), *cache(8), *lengths(total)]
    options: dict[str, int] = {"local_window_size": window}
    if rotary is not None:
        operands += tables(12, DEPTH // 2)
        options |= {"do_rotary": 1, "rotary_interleaved": rotary}
    check("GroupQueryAttention", operands, 3, total, known=(6,), **HEADS, **options)


def test_steps_of_several_sequences_of_different_lengths() -> None:
    operands = [*rows(1, 3), *cache(6, 3), *lengths(5, 2, 3), *tables(12, DEPTH // 2)]
    check("GroupQueryAttention", operands, 3, 2, known=(6,), do_rotary=1, **HEADS)


@pytest.mark.parametrize("room", [3, 5, 9])
def test_several_tokens_behind_others(room: int) -> None:
    """Three are written, two come; the cache grows where it has no room."""
    operands = [*rows(2), *cache(room), *lengths(5), *tables(12, DEPTH // 2)]
    check("GroupQueryAttention", operands, 3, 5, known=(6,), do_rotary=1, **HEADS)


def test_what_is_added_to_scores_and_places_that_are_given() -> None:
    operands = [*rows(1), *cache(8), *lengths(5), *tables(12, DEPTH // 2), np.array([[7]])]
    check("GroupQueryAttention", operands, 3, 5, known=(6,), do_rotary=1, **HEADS)
    operands = [*rows(1), *cache(4), *lengths(5), None, None, None, floats(1, 4, 1, 5)]
    check("GroupQueryAttention", operands, 3, 5, known=(6,), **HEADS)


def test_a_position_more_that_has_no_value() -> None:
    """A score of its own for each head, or 0 for all."""
    for given, total in (([*rows(4), None, None, *lengths(4)], 4), ([*rows(1), *cache(8), *lengths(6)], 6)):
        check("GroupQueryAttention", given, 3, total, known=(6,), smooth_softmax=1, **HEADS)
        check("GroupQueryAttention", [*given, None, None, None, None, floats(4)], 3, total, known=(6,), **HEADS)


def test_heads_over_the_root_of_their_mean_square() -> None:
    """onnxruntime has this on GPUs alone, so heads that are divided before are given to it."""

    def divided(x: Array, weights: Array, epsilon: float) -> Array:
        heads = x.reshape(-1, DEPTH)
        made = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weights
        return np.asarray(made.reshape(x.shape), np.float32)

    query, key, value, weights = floats(1, 1, 64), floats(1, 1, 32), floats(1, 1, 32), (floats(DEPTH), floats(DEPTH))
    more = [*cache(8), *lengths(5), *tables(12, DEPTH // 2)]
    made, inputs = model("GroupQueryAttention", [query, key, value, *more, *[None] * 5, *weights], 3, known=(6,),
                         do_rotary=1, qk_norm_epsilon=1e-2, k_norm_epsilon=0.1, **HEADS)  # fmt: skip
    found = evaluate(from_onnx(made, require_quantised=False), inputs)
    before = [divided(query, weights[0], 1e-2), divided(key, weights[1], 0.1), value, *more]
    wanted = run_onnxruntime(*model("GroupQueryAttention", before, 3, known=(6,), do_rotary=1, **HEADS))
    np.testing.assert_allclose(found["y0"], wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["y1"][:, :, :5], wanted[1][:, :, :5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_positions_in_time_rows_and_columns(layout: int, interleaved: int) -> None:
    cosine, sine = tables(10, 8)
    places = np.random.default_rng(1).integers(0, 10, (3, 2, 4))
    options = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    check("MRotaryEmbedding", [floats(2, 4, 48), places, cosine, sine], num_heads=3, **options)
    check("MRotaryEmbedding", [floats(2, 3, 4, 16), places, cosine, sine], **options)
    part = {"rotary_embedding_dim": 16, "num_heads": 2}
    check("MRotaryEmbedding", [floats(2, 4, 48), places, cosine, sine], **options, **part)


@pytest.mark.parametrize(
    ("operands", "options", "message"),
    [
        ({}, {"num_heads": 3}, "3 heads do not share 2 heads of keys evenly"),
        ({}, {"qk_output": 1}, "attribute 'qk_output' is 1, but is read as 0 alone"),
        ({16: np.ones(1, np.int32)}, {}, r"lengths of queries \(operand 16\) are not read"),
        ({0: floats(1, 1, 62)}, {}, "no .batch, length, heads x depth. of 4 heads"),
    ],
)
def test_what_of_it_is_not_read_is_said(operands: dict[int, Array], options: dict[str, int], message: str) -> None:
    given = [*rows(1), *cache(8), *lengths(5)]
    given += [None] * (max(operands, default=0) + 1 - len(given))
    for place, value in operands.items():
        given[place] = value
    made, _ = model("GroupQueryAttention", given, 3, known=(6,), **{**HEADS, **options})
    with pytest.raises(ModelError, match=message):
        from_onnx(made, require_quantised=False)


DECODER = """
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
decoder (int64[1, length] input_ids, int64[1, all] attention_mask, float[1, 2, past, 16] past_key_0,
         float[1, 2, past, 16] past_value_0)
  => (float[1, length, 64] logits, float[1, 2, room, 16] present_key_0, float[1, 2, room, 16] present_value_0)
<int64[1] axis = {1}, int64 last = {1}, int64[1] one = {1}>
{
  packed = Gather (table, input_ids)
  sums = ReduceSum <keepdims = 0> (attention_mask, axis)
  before = Sub (sums, one)
  counts = Cast <to = 6> (before)
  shape = Shape (attention_mask)
  size = Gather (shape, last)
  total = Cast <to = 6> (size)
  logits, present_key_0, present_value_0 = com.microsoft.GroupQueryAttention
      <num_heads = 4, kv_num_heads = 2, do_rotary = 1>
      (packed, , , past_key_0, past_value_0, counts, total, cosine, sine)
}
"""


def test_a_decoder_of_an_exporter_continues_in_a_session() -> None:
    """Its cache is a buffer, and a mask says how much of it is written: as onnxruntime computes the whole text."""
    made = parser.parse_model(DECODER)
    cosine, sine = tables(12, DEPTH // 2)
    for name, value in (("table", floats(8, 128)), ("cosine", cosine), ("sine", sine)):
        made.graph.initializer.append(numpy_helper.from_array(value, name))
    tokens = [3, 1, 4, 1, 5, 2]
    nothing = np.zeros((1, 2, 0, DEPTH), np.float32)
    whole = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, 6), np.int64)}
    wanted = run_onnxruntime(made, whole | {"past_key_0": nothing, "past_value_0": nothing})[0][0]
    sizes = {"input_ids": (1, 1), "attention_mask": (1, 8), "past_key_0": (1, 2, 8, 16), "past_value_0": (1, 2, 8, 16)}
    session = weft.load(weft.compile(made, target="cpu", shapes=sizes)).session()
    assert session.positions == 8
    for place, token in enumerate(tokens):
        np.testing.assert_allclose(session.step(token), wanted[place], rtol=1e-4, atol=1e-5)


# Attention with a mask


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_many_heads(causal: int) -> None:
    query, key, value, bias = floats(2, 3, 16), floats(2, 3, 16), floats(2, 3, 24), floats(56)
    options = {"num_heads": 4, "unidirectional": causal}
    check("MultiHeadAttention", [query, key, value], **options)
    check("MultiHeadAttention", [query, key, value, bias], scale=0.7, **options)
    added = floats(2, 4, 3, 3)
    check("MultiHeadAttention", [query, key, value, None, None, added], **options)
    past = floats(2, 4, 5, 4), floats(2, 4, 5, 4)
    check("MultiHeadAttention", [query, key, floats(2, 3, 16), None, None, None, *past], 3, **options)


def test_attention_to_another_sequence() -> None:
    query = floats(2, 3, 16)
    check("MultiHeadAttention", [query, floats(2, 5, 16), floats(2, 5, 16)], num_heads=4)
    check("MultiHeadAttention", [query, floats(2, 4, 5, 4), floats(2, 4, 5, 4)], num_heads=4)
    mask = np.array([[1, 1, 0, 1, 1], [1, 0, 0, 0, 0]], np.int32)
    check("MultiHeadAttention", [query, floats(2, 5, 16), floats(2, 5, 16), None, mask], num_heads=4)
    check(
        "MultiHeadAttention", [query, floats(2, 5, 16), floats(2, 5, 16), None, np.array([4, 2], np.int32)], num_heads=4
    )


def test_rows_that_hold_several_of_queries_keys_and_values() -> None:
    """onnxruntime has these on GPUs alone, so they are compared with those that come apart."""

    def computed(*operands: Array) -> Array:
        made, inputs = model("MultiHeadAttention", list(operands), num_heads=4)
        result: Array = evaluate(from_onnx(made, require_quantised=False), inputs)["y0"]
        return result

    whole = floats(2, 3, 4, 3, 8)
    query, key, value = (np.ascontiguousarray(whole[:, :, :, place]).reshape(2, 3, 32) for place in range(3))
    wanted = computed(query, key, value)
    np.testing.assert_array_equal(computed(whole), wanted)
    np.testing.assert_array_equal(computed(query, np.ascontiguousarray(whole[:, :, :, 1:])), wanted)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_its_weights(causal: int) -> None:
    x, weights, bias = floats(2, 3, 12), floats(12, 48), floats(48)
    options = {"num_heads": 4, "unidirectional": causal}
    check("Attention", [x, weights, bias], known=(1, 2), **options)
    check("Attention", [x, weights, None], **options)
    for mask in (np.array([[1, 1, 0], [1, 1, 1]], np.int32), np.array([2, 3], np.int32)):
        check("Attention", [x, weights, bias, mask], **options)
    check("Attention", [x, weights, bias, None, floats(2, 2, 4, 5, 4)], 2, **options)
    check("Attention", [x, floats(12, 40), floats(40)], qkv_hidden_sizes=[16, 16, 8], **options)
