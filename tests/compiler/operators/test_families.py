"""Operators with many forms: all of their attributes, on several types and shapes, as machine code and in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, dtypes
from weft.compiler.graph import evaluate as graph_evaluate
from weft.compiler.targets.loops.fusion import why_not_compiled

Values = np.ndarray[Any, Any]


def check(nodes: Sequence[Call], values: dict[Var, Values]) -> None:
    """All as one model: none is left to NumPy, and all have the values that NumPy gives."""
    outputs = tuple(
        f"{number}: {node.op} of {node.args[0].dtype} {dict(node.attrs)}" for number, node in enumerate(nodes)
    )
    main = Function(tuple(values), Tuple(tuple(nodes)), Attrs({"name": "main", "outputs": outputs}))
    module = Module(main, "operators")
    loaded = weft.load(weft.compile(module, target="cpu"))
    assert not [layer.reason for layer in loaded.model.layers if layer.reason]
    given = {var.name: value for var, value in values.items()}
    found, expected = loaded.run(given), graph_evaluate(module, given)
    for name in outputs:
        assert (found[name].shape, found[name].dtype) == (expected[name].shape, expected[name].dtype)
        if dtypes.is_float(expected[name].dtype.name):
            step = max(2 * float(ml_dtypes.finfo(expected[name].dtype).eps), 2e-6)
            wide = found[name].astype(np.float64), expected[name].astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=step, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def drawn(generator: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Values:
    if dtypes.is_float(dtype):
        return generator.normal(size=shape).astype(dtypes.numpy_dtype(dtype))
    low, high = dtypes.limits(dtype)
    return generator.integers(max(low, -9), min(high, 9), shape, endpoint=True).astype(dtypes.numpy_dtype(dtype))


def variable(name: str, dtype: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "uint8"])
def test_cumulative(dtype: str) -> None:
    generator = np.random.default_rng(0)
    x, row, one = variable("x", dtype, 3, 5), variable("row", dtype, 33), variable("one", dtype, 1)
    nodes = [
        call(f"nn.cumulative_{op}", of, axis=axis, exclusive=exclusive, reverse=reverse)
        for op, (of, axis) in product(("sum", "product"), ((x, 0), (x, 1), (row, 0), (one, 0)))
        for exclusive, reverse in product((False, True), repeat=2)
    ]
    check(nodes, {each: drawn(generator, dtype, each.type.shape) for each in (x, row, one)})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8", "uint64"])
def test_top_k_with_equal_elements_and_nan(dtype: str) -> None:
    generator = np.random.default_rng(0)
    x = variable("x", dtype, 6, 9)
    values = generator.integers(0, 5, x.type.shape).astype(dtypes.numpy_dtype(dtype))
    if dtypes.is_float(dtype):
        values[generator.random(values.shape) < 0.2] = np.nan
        values[0, :3] = np.inf, -np.inf, -0.0
    nodes = [
        call("top_k", x, k=k, axis=axis, largest=largest)
        for axis, k, largest in product((0, 1), (1, 4, 6), (False, True))
    ]
    check(nodes, {x: values})


def test_long_rows_are_left_to_numpy() -> None:
    for op, attrs, most in (
        ("top_k", {"k": 1}, 256),
        ("nn.cumulative_sum", {}, 4096),
        ("nn.cumulative_product", {}, 4096),
    ):
        long = variable("x", "float32", 2, most + 1)
        assert f"more than {most} elements" in why_not_compiled(call(op, long, axis=1, **attrs))
        assert not why_not_compiled(call(op, long, axis=0, **attrs))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding: str) -> None:
    generator = np.random.default_rng(0)
    values: dict[Var, Values] = {}
    nodes = []
    for name, dtype, shape in (("image", "float32", (2, 3, 5, 4)), ("volume", "float64", (1, 2, 3, 4, 5)),
                               ("line", "float16", (2, 2, 6)), ("pixel", "float32", (1, 2, 1, 1))):  # fmt: skip
        x = variable(name, dtype, *shape)
        grid = variable(f"grid of {name}", dtype, shape[0], *range(4, 2 + len(shape)), len(shape) - 2)
        values[x] = drawn(generator, dtype, shape)
        values[grid] = generator.uniform(-2.6, 2.6, grid.type.shape).astype(dtype)
        values[grid].reshape(-1)[:6] = -1, 1, 0, -1.5, 1.5, 0.5
        nodes += [
            call("nn.grid_sample", x, grid, mode=mode, padding=padding, align_corners=corners)
            for mode, corners in product(("linear", "nearest", "cubic"), (False, True))
            if len(shape) == 4 or mode != "cubic"
        ]
    check(nodes, values)


def test_grid_sample_at_places_that_are_no_numbers() -> None:
    x, grid = variable("x", "float32", 1, 1, 3, 3), variable("grid", "float32", 1, 1, 4, 2)
    places = np.array([[[[np.nan, 0], [0, np.nan], [np.inf, 0], [0, -np.inf]]]], np.float32)
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    nodes = [
        call("nn.grid_sample", x, grid, mode=mode, padding=padding)
        for mode, padding in product(("linear", "nearest", "cubic"), ("zeros", "border"))
    ]
    check(nodes, {x: image, grid: places})


def test_roi_align() -> None:
    generator = np.random.default_rng(0)
    x, rois = variable("x", "float32", 2, 3, 7, 6), variable("rois", "float32", 4, 4)
    batch = variable("batch", "int64", 4)
    regions = np.concatenate([generator.uniform(-3, 4, (4, 2)), generator.uniform(3, 9, (4, 2))], 1)
    nodes: list[Call] = [
        call("nn.roi_align", x, rois, batch, size=size, sampling_ratio=ratio, mode=mode, half_pixel=half,
             spatial_scale=scale)
        for mode, half, (size, ratio, scale) in product(("avg", "max"), (False, True), (((2, 3), 2, 1.0),
                                                                                       ((1, 1), 3, 0.5)))
    ]  # fmt: skip
    values = {x: drawn(generator, "float32", x.type.shape), rois: regions.astype(np.float32)}
    check(nodes, values | {batch: np.array([0, 1, -1, 0])})
    assert "only a run knows" in why_not_compiled(call("nn.roi_align", x, rois, batch, size=(2, 2)))


def parameters(generator: np.random.Generator, dtype: str, shape: Sequence[int], scale_dtype: str) -> list[Constant]:
    """Scales and zero points of this shape."""
    scales = 2.0 ** generator.integers(-4, 2, shape)
    floats = dtypes.is_float(dtype)
    zeros = np.zeros(shape) if floats else generator.integers(0, 2, shape)
    return [Constant(np.asarray(scales).astype(dtypes.numpy_dtype(scale_dtype))),
            Constant(np.asarray(zeros).astype(dtypes.numpy_dtype(dtype)))]  # fmt: skip


FORMS: tuple[tuple[tuple[int, ...], dict[str, int]], ...] = (
    ((), {}),
    ((4,), {"axis": 1}),
    ((3, 2), {"axis": 1, "block": 3}),
)
QUANTISED = ("int8", "uint8", "int16", "uint16", "int32", "uint32", *dtypes.STORAGE)


@pytest.mark.parametrize("dtype", [each for each in QUANTISED if each != "float8_e8m0fnu"])
def test_quantise_and_dequantise(dtype: str) -> None:
    generator = np.random.default_rng(0)
    x, wide, half = variable("x", dtype, 3, 4), variable("wide", "float32", 3, 4), variable("half", "float16", 3, 4)
    nodes: list[Call] = []
    for shape, attrs in FORMS:
        each = parameters(generator, dtype, shape, "float32")
        nodes += [call("dequantise", x, *each, **attrs), call("quantise", wide, *each, **attrs)]
        each = parameters(generator, dtype, shape, "float16")
        nodes += [call("dequantise", x, *each, **attrs), call("quantise", half, *each, **attrs)]
        if dtype.startswith("float8"):
            nodes.append(
                call("quantise", wide, *parameters(generator, dtype, shape, "float32"), saturate=False, **attrs)
            )
    numbers = drawn(generator, "float32", (3, 4)) * 9
    numbers[0, :2] = 1e6, -1e6
    with np.errstate(over="ignore"):
        halves = numbers.astype(np.float16)
    check(nodes, {x: drawn(generator, dtype, (3, 4)), wide: numbers, half: halves})


@pytest.mark.parametrize("dtype", dtypes.INTEGERS)
def test_remainders_of_both_signs(dtype: str) -> None:
    low, high = dtypes.limits(dtype)
    numbers = np.unique(np.array([low, high, *range(max(low, -7), 8)], object)).astype(dtype)
    pairs = np.meshgrid(numbers, numbers)
    a, b = (variable(name, dtype, *pairs[0].shape) for name in "ab")
    nodes = [call("nn.modulo", a, b, truncated=truncated) for truncated in (False, True)]
    with np.errstate(divide="ignore"):
        check(nodes, dict(zip((a, b), pairs, strict=True)))


def test_powers_of_two_types() -> None:
    """Those of integers that wrap are NumPy's."""
    generator = np.random.default_rng(0)
    values: dict[Var, Values] = {}
    nodes: list[Call] = []
    for base, exponent in (("float32", "int32"), ("float16", "uint64"), ("float64", "float32"), ("int32", "float32"),
                           ("int64", "float64"), ("uint8", "float16")):  # fmt: skip
        operands: list[Expr] = []
        for name, dtype in (("base", base), ("exponent", exponent)):
            operand = variable(f"{name}, {base} to {exponent}", dtype, 40)
            numbers = generator.integers(0, 4 if base == "uint8" else 7, 40)
            values[operand] = numbers.astype(dtypes.numpy_dtype(dtype))
            operands.append(operand)
        nodes.append(call("nn.power", *operands))
    check(nodes, values)
    x = variable("x", "int32", 3)
    assert why_not_compiled(call("nn.power", x, x))
