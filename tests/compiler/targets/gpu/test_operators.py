"""Every operator means on a real driver of OpenCL, and as PTX in the interpreter, what it means in the graph.

All samples of an element type are one model, so that the driver compiles one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Attrs,
    Call,
    Function,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    dtypes,
    evaluate,
    topological_order,
)
from weft.compiler.graph.visit import respan, substitute
from weft.compiler.operators.samples import all_samples
from weft.compiler.targets.loops.fusion import why_not_compiled

from .graphs import RUN_ON

EXAMPLES = all_samples()

SPECIAL = (0, -0.0, 1, -1, 2, 3, 100, 0.5, -0.25, 1e30, np.inf, -np.inf, np.nan)
STEPS = 20
"""By how many steps of their type floats may differ; sums are rounded in another order."""

OVERFLOWS = {"nn.conv3d.bfloat16", "nn.dense.bfloat16", "nn.dense.float32"}
"""Operators of which the sums overflow or not, by their order and by whether products are rounded before they are
added, where values are near the largest."""


def samples(dtype: str) -> list[Call]:
    """A call of each operator that the loops know, about this type."""
    found = []
    for calls in EXAMPLES.values():
        node = calls.get(dtype)
        if node is not None and not why_not_compiled(node):
            found.append(respan(node, Span((f"{node.op}",), f"{node.op}.{dtype}")))
    return found


def as_one_module(nodes: Sequence[Call]) -> Module:
    params = {item: None for node in nodes for item in topological_order(node) if isinstance(item, Var)}
    named = {param: replace(param, name=f"x{number}") for number, param in enumerate(params)}
    body = Tuple(tuple(substitute(node, dict(named)) for node in nodes))
    attrs = Attrs({"name": "main", "outputs": tuple(node.span.tensor for node in nodes)})
    return Module(Function(tuple(named.values()), body, attrs), "operators")


def usual(param: Var, generator: np.random.Generator) -> np.ndarray:
    dtype, shape = param.type.dtype, param.type.shape
    values = generator.normal(size=shape) if dtypes.is_float(dtype) else generator.integers(0, 3, shape)
    return np.asarray(values).astype(dtypes.numpy_dtype(dtype))


def awkward(param: Var, generator: np.random.Generator) -> np.ndarray:
    """Values that C, left to itself, gets wrong."""
    dtype, shape = param.type.dtype, param.type.shape
    if dtypes.is_float(dtype):
        with np.errstate(over="ignore"):
            return generator.choice(SPECIAL, shape).astype(dtypes.numpy_dtype(dtype))
    ends = np.array([*dtypes.limits(dtype), 0, 1] if dtype != "bool" else [0, 1], object)
    return np.asarray(generator.choice(ends, shape)).astype(dtypes.numpy_dtype(dtype))


def check(target: str, dtype: str, makers: Sequence[Callable[[Var, np.random.Generator], np.ndarray]]) -> None:
    nodes = samples(dtype)
    module = as_one_module(nodes)
    model = weft.compile(module, target=target, strict=True)
    assert isinstance(model, weft.CompiledModel)
    assert {layer.device for layer in model.layers} == {"gpu"}
    assert {name for layer in model.layers for name in layer.operators} >= {str(node.op) for node in nodes}
    generator, loaded = np.random.default_rng(0), weft.load(model, RUN_ON[target])
    for make in makers:
        values = {param.name: make(param, generator) for param in module.main.params}
        with np.errstate(all="ignore"):
            wanted = evaluate(module, values)
        for name, result in loaded.run(values).items():
            if make is awkward and name in OVERFLOWS:
                continue
            if dtypes.is_float(result.dtype.name):
                tolerance = STEPS * dtypes.step(result.dtype.name)
                np.testing.assert_allclose(
                    result.astype(np.float64), wanted[name].astype(np.float64), rtol=tolerance, atol=tolerance,
                    err_msg=name,
                )  # fmt: skip
            else:
                np.testing.assert_array_equal(result, wanted[name], err_msg=name)


@pytest.mark.parametrize("target", RUN_ON)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_operators_are_to_the_bit_or_step_what_they_mean(dtype: str, target: str) -> None:
    assert len(samples(dtype)) > 50
    check(target, dtype, [usual, awkward, awkward])


@pytest.mark.long
@pytest.mark.parametrize("target", RUN_ON)
@pytest.mark.parametrize("dtype", [each for each in dtypes.DTYPES if each not in ("float32", "int8") and samples(each)])
def test_operators_of_all_other_types(dtype: str, target: str) -> None:
    check(target, dtype, [usual, awkward, awkward])


EDGES = (
    -129,
    -128,
    -1,
    -0.5,
    0,
    0.5,
    127,
    127.5,
    128,
    255,
    256,
    32767,
    32768,
    65536,
    2**31,
    2**32,
    2**63,
    2**64,
    -(2**31),
)
"""Numbers at which some integer type ends, all exact in single precision."""


@pytest.mark.parametrize("target", RUN_ON)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats_at_the_ends_of_integers_become_the_nearest_that_fits(dtype: str, target: str) -> None:
    x = Var("x", TensorType((len(EDGES),), dtype))
    integers = dtypes.INTEGERS
    nodes = tuple(respan(call("nn.cast", x, to=name), Span(tensor=name)) for name in integers)
    module = Module(Function((x,), Tuple(nodes), Attrs({"name": "main", "outputs": integers})), "operators")
    with np.errstate(all="ignore"):
        values = {"x": np.array(EDGES).astype(dtype)}
        wanted = evaluate(module, values)
    loaded = weft.load(weft.compile(module, target=target, strict=True), RUN_ON[target])
    for name, result in loaded.run(values).items():
        np.testing.assert_array_equal(result, wanted[name], err_msg=name)
