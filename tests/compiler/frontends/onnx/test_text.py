"""Features of text whose words are numbers: as onnxruntime computes them, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from weft.compiler.frontends import from_onnx
from weft.compiler.frontends.errors import ModelError
from weft.compiler.graph import evaluate

from examples.precise import precise_session

POOL = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 1, 2, 3]  # 4, 3 and 1 n-grams of 1, 2 and 3 words
COUNTS = [0, 4, 10]


def model_of(shape: tuple[int, ...], **changes: object) -> onnx.ModelProto:
    attributes = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 1, "ngram_counts": COUNTS,
        "ngram_indexes": [0, 1, 2, 3, 6, 5, 4, 8], "pool_int64s": POOL, **changes,
    }  # fmt: skip
    given_ = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **given_)
    graph = helper.make_graph(
        [node], "text", [helper.make_tensor_value_info("x", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from([(1,), (7,), (2, 5), (3, 12)]), st.integers(0, 3),
    st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3), (3, 3)]), st.sampled_from(["TF", "IDF", "TFIDF"]), st.booleans(),
)  # fmt: skip
def test_it_agrees_with_onnxruntime(
    seed: int, shape: tuple[int, ...], skipped: int, lengths: tuple[int, int], mode: str, weighted: bool
) -> None:
    weights = [0.5, 2.0, 3.0, 1.5, 4.0, 0.25, 5.0, 7.0] if weighted else None
    model = model_of(shape, mode=mode, max_skip_count=skipped, min_gram_length=lengths[0],
                     max_gram_length=lengths[1], weights=weights)  # fmt: skip
    x = np.random.default_rng(seed).integers(1, 9, shape)
    (wanted,) = precise_session(model.SerializeToString()).run(None, {"x": x})
    (found,) = evaluate(from_onnx(model, require_quantised=False), {"x": x}).values()
    np.testing.assert_array_equal(found, wanted)


def test_it_is_compiled() -> None:
    model = weft.compile(model_of((2, 9)), target="cpu", strict=True)
    assert weft.load(model).run({"x": np.arange(18).reshape(2, 9) % 9})["y"].shape == (2, 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pool_int64s": None, "pool_strings": ["a"], "ngram_counts": [0], "ngram_indexes": [0]},
            "1 places for 0 n-grams",
        ),
        ({"ngram_counts": [0, 4, 9]}, "do not divide a pool of 13"),
        ({"ngram_indexes": [0, 1]}, "2 places for 8 n-grams"),
        ({"mode": "BM25"}, "mode 'BM25'"),
        ({"weights": [1.0]}, "1 weights for 8"),
        ({"min_gram_length": 4, "max_gram_length": 5}, "no n-gram of a length"),
    ],
)
def test_what_is_not_supported_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(model_of((4,), **changes), require_quantised=False)
