"""Every operator that has machine code, on every element type, computes what it means in NumPy: awkward values too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Attrs,
    Call,
    Constant,
    Function,
    Module,
    TensorType,
    Var,
    call,
    dtypes,
    evaluate,
    topological_order,
)
from weft.compiler.operators.samples import all_samples
from weft.compiler.targets.loops.fusion import why_not_compiled

EXAMPLES = {
    name: {dtype: node for dtype, node in found.items() if not why_not_compiled(node)}
    for name, found in all_samples().items()
}
COMPILED = sorted(name for name, found in EXAMPLES.items() if found)
SPECIAL = (0, -0.0, 1, -1, 2, 3, 100, 0.5, -0.25, 1e30, np.inf, -np.inf, np.nan)

# Fewer than this have machine code: a rule was lost.
FEWEST = 91


def values_of(param: Var, generator: np.random.Generator, special: bool) -> np.ndarray[Any, Any]:
    """Values of a parameter: of ordinary size, or the awkward ones of its type."""
    dtype, shape = param.type.dtype, param.type.shape
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtypes.is_float(dtype):
        wanted = generator.choice(SPECIAL, shape) if special else generator.normal(size=shape)
        with np.errstate(over="ignore"):
            return np.asarray(wanted, dtype)
    low, high = dtypes.limits(dtype)
    if special:
        return np.asarray(generator.choice(np.array([low, high, 0, 1], object), shape)).astype(dtype)
    return generator.integers(max(low, -3), min(high, 3), shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("name", COMPILED)
def test_machine_code_computes_what_the_operator_means(name: str) -> None:
    generator = np.random.default_rng(0)
    for dtype, node in EXAMPLES[name].items():
        module = module_of(node)
        loaded = weft.load(weft.compile(replace(module, stage="operators"), target="cpu"))
        assert not any(layer.reason for layer in loaded.model.layers)
        for special in (False, True):
            values = {param.name: values_of(param, generator, special) for param in module.main.params}
            with np.errstate(all="ignore"):
                expected = evaluate(module, values)["out"]
            found = loaded.run(values)["out"]
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            message = f"{name} of {dtype}: {values}"
            if dtypes.is_float(expected.dtype.name):
                step = max(2 * float(ml_dtypes.finfo(expected.dtype).eps), 2e-6)
                wide = found.astype(np.float64), expected.astype(np.float64)
                np.testing.assert_allclose(*wide, rtol=step, atol=1e-6, err_msg=message)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=message)


def module_of(node: Call) -> Module:
    params = tuple(item for item in topological_order(node) if isinstance(item, Var))
    return Module(Function(params, node, Attrs({"name": "main", "outputs": ("out",)})))


@pytest.mark.parametrize("op", ["sum", "product", "mean", "max", "min"])
def test_a_reduction_of_images_reads_channels_in_the_blocks_of_a_convolution(op: str) -> None:
    generator = np.random.default_rng(0)
    x, w = Var("x", TensorType((2, 16, 6, 6), "float32")), generator.normal(size=(32, 16, 3, 3)).astype(np.float32) / 5
    image = call("nn.conv2d", x, Constant(w), pads=(1, 1, 1, 1))
    module = module_of(call(f"nn.reduce_{op}", image, axes=(2, 3), keepdims=True))
    model = weft.compile(module, target="cpu", strict=True)
    assert [layer.kind for layer in model.layers][-2:] == ["convolution", "blocked"]
    values = {"x": generator.normal(size=x.type.shape).astype(np.float32)}
    expected = evaluate(module, values)["out"]
    error = np.abs(weft.load(model).run(values)["out"] - expected).max() / np.abs(expected).max()
    assert error < 1e-5


def test_a_concatenation_of_hundreds() -> None:
    params = tuple(Var(f"x{number}", TensorType((1 + number % 3,), "int32")) for number in range(500))
    module = Module(Function(params, call("concat", *params, axis=0), Attrs({"name": "main", "outputs": ("out",)})))
    model = weft.compile(module, target="cpu", strict=True)
    values = {each.name: np.full(each.type.shape, number, np.int32) for number, each in enumerate(params)}
    expected = np.concatenate(list(values.values()))
    np.testing.assert_array_equal(weft.load(model).run(values)["out"], expected)


def test_no_rule_was_lost() -> None:
    assert len(COMPILED) >= FEWEST, COMPILED
