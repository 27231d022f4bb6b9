"""Resize of integers, which quantisers leave as they are: between two of them it computes in floating point."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from weft.compiler.frontends import ModelError, from_onnx
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


ROUNDINGS = {
    "round_prefer_floor": lambda place: math.ceil(place - Fraction(1, 2)),
    "round_prefer_ceil": lambda place: math.floor(place + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


def nearest(size: int, to: int | float, transformation: str, rounding: str) -> tuple[onnx.ModelProto, Array]:
    """A row of pixels 0, 1, ... resized to a whole number of pixels, or by a factor: the model, and what it gives."""
    opset = 12 if transformation == "tf_half_pixel_for_nn" else 19
    wanted = np.array([1, to], np.float32 if isinstance(to, float) else np.int64)
    empty = numpy_helper.from_array(np.zeros(0, np.float32), "none")
    inputs = ["x", "none", "to"] if isinstance(to, float) else ["x", "none", "none", "to"]
    node = helper.make_node("Resize", inputs, ["y"], mode="nearest", nearest_mode=rounding,
                            coordinate_transformation_mode=transformation)  # fmt: skip
    given, result = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", (1, size)), ("y", None)))
    graph = helper.make_graph([node], "g", [given], [result], [empty, numpy_helper.from_array(wanted, "to")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    (found,) = evaluate(from_onnx(model), {"x": np.arange(size, dtype=np.float32).reshape(1, -1)}).values()
    return model, np.asarray(found).reshape(-1)


def exact_places(size: int, target: int, scale: Fraction, transformation: str) -> list[Fraction]:
    """What the standard's formulas give, in fractions."""
    half = Fraction(1, 2)
    of: dict[str, Callable[[int], Fraction]] = {
        "half_pixel": lambda i: (i + half) / scale - half,
        "pytorch_half_pixel": lambda i: (i + half) / scale - half if target > 1 else Fraction(0),
        "half_pixel_symmetric": lambda i: Fraction(size, 2) * (1 - target / (size * scale)) + (i + half) / scale - half,
        "asymmetric": lambda i: i / scale,
        "align_corners": lambda i: i * (size - 1) / (scale * size - 1) if scale * size != 1 else Fraction(0),
        "tf_half_pixel_for_nn": lambda i: (i + half) / scale,
    }
    return [of[transformation](i) for i in range(target)]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("transformation", [*TRANSFORMATIONS, "half_pixel_symmetric", "tf_half_pixel_for_nn"])
def test_nearest_pixels_are_those_of_exact_arithmetic(transformation: str, rounding: str) -> None:
    """Ties are everywhere among small sizes, and floats miss some of them."""
    sizes = [(size, target, Fraction(target, size)) for size in range(1, 14, 2) for target in (1, 2, 5, 7, 10, 17)]
    scales = [(size, float(np.float32(scale))) for size in (3, 10) for scale in (0.7, 0.6, 1 / 3, 1.5, 2.0, 3.3)]
    factors = [(size, scale, Fraction(scale)) for size, scale in scales]
    for size, to, scale in [*sizes, *factors]:
        _, found = nearest(size, to, transformation, rounding)
        target = to if isinstance(to, int) else math.floor(size * scale)
        places = exact_places(size, target, scale, transformation)
        if scale == 1:  # what is not resized stays, whatever tf_half_pixel_for_nn makes of it
            places = [Fraction(i) for i in range(size)]
        wanted = [min(max(ROUNDINGS[rounding](place), 0), size - 1) for place in places]
        assert found.tolist() == wanted, (size, to)


def test_ties_of_nearest_pixels_are_onnxruntimes() -> None:
    for transformation, size, target in (("tf_half_pixel_for_nn", 7, 17), ("half_pixel", 9, 6), ("asymmetric", 5, 14)):
        model, found = nearest(size, target, transformation, "round_prefer_floor")
        (wanted,) = run_onnxruntime(model, {"x": np.arange(size, dtype=np.float32).reshape(1, -1)})
        assert found.tolist() == wanted.reshape(-1).tolist()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_must_be_a_number_above_0(scale: float) -> None:
    with pytest.raises(ModelError, match="every scale must be a finite number above 0"):
        nearest(4, scale, "half_pixel", "floor")
