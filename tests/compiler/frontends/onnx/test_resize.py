"""Resize of integers, which quantisers leave as they are: between two of them it computes in floating point."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Array, evaluate

from ...onnx_models import run_onnxruntime

TRANSFORMATIONS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def resized(x: Array, target: tuple[int, int], mode: str, transformation: str) -> tuple[onnx.ModelProto, Array]:
    """The model, and what it gives as it was read."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node(
        "Resize", ["x", "", "", "to"], ["y"], mode=mode, coordinate_transformation_mode=transformation
    )
    given, result = (helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", x.shape), ("y", None)))
    graph = helper.make_graph(
        [node], "g", [given], [result], [numpy_helper.from_array(np.array([*x.shape[:2], *target]), "to")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (found,) = evaluate(from_onnx(model), {"x": x}).values()
    return model, np.asarray(found)


@given(
    st.sampled_from(["uint8", "int8", "int32"]), st.sampled_from(TRANSFORMATIONS), st.integers(2, 6), st.integers(2, 6),
    st.integers(2, 13), st.integers(2, 13), st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=40)
def test_linear_between_integers_is_onnxruntimes(
    dtype: str, transformation: str, height: int, width: int, rows: int, columns: int, seed: int
) -> None:
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(2**20)), min(limits.max, 2**20)
    x = np.random.default_rng(seed).integers(low, high, (1, 2, height, width), dtype, endpoint=True)
    model, found = resized(x, (rows, columns), "linear", transformation)
    (wanted,) = run_onnxruntime(model, {"x": x})
    assert found.dtype == wanted.dtype
    assert np.abs(found.astype(np.int64) - wanted).max() <= 1  # it truncates what it rounded before


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_a_plain_stays_a_plain(dtype: str, mode: str) -> None:
    limits = np.iinfo(dtype)
    for value in (limits.min, limits.min + 2, 0, 3, limits.max // 3, limits.max):
        x = np.full((1, 1, 5, 3), value, dtype)
        for target in ((7, 7), (3, 11), (15, 2)):
            _, found = resized(x, target, mode, "half_pixel")
            assert (found == value).all(), (value, target)


def test_cubic_that_swings_beyond_the_range_saturates() -> None:
    x = np.zeros((1, 1, 4, 4), np.uint8)
    x[..., 2:] = 255
    _, found = resized(x, (4, 12), "cubic", "half_pixel")
    assert found[0, 0, 0].tolist() == sorted(found[0, 0, 0].tolist())
    assert (found.min(), found.max()) == (0, 255)
