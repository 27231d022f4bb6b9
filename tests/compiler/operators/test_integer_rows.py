"""Softmax and normalisations in integers: as close to real numbers as docs/integers.md says, and the same compiled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Function, GraphError, Module, TensorType, Var, call, evaluate
from weft.compiler.integers.form import Integers
from weft.compiler.operators.integer_rows import (
    bits_of_exponentials,
    exponentials,
    inverse_roots,
    reciprocals,
)
from weft.compiler.passes.integer_rows import integer_rows

Array = np.ndarray[Any, Any]

KINDS = ("any", "narrow", "wide", "peak", "same", "masked")


def rows_of(kind: str, shape: tuple[int, int], generator: np.random.Generator) -> Array:
    """int8 rows of different character."""
    noise = generator.standard_normal(shape)
    match kind:
        case "any":
            x = generator.integers(-128, 128, shape).astype(float)
        case "narrow":
            x = noise * 2 + generator.integers(-120, 120, (shape[0], 1))
        case "wide":
            x = noise * 40
        case "peak":
            x = noise * 15 - 60
            x[np.arange(shape[0]), generator.integers(0, shape[1], shape[0])] = 120
        case "same":
            x = np.repeat(generator.integers(-128, 128, (shape[0], 1)), shape[1], 1).astype(float)
        case _:
            x = np.where(
                np.arange(shape[1]) < generator.integers(1, shape[1] + 1, (shape[0], 1)), noise * 20 + 60, -128
            )
    return np.clip(np.rint(x), -128, 127).astype(np.int8)


def quantised(y: Array, scale: float, zero_point: int) -> Array:
    return np.clip(np.rint(y / scale) + zero_point, -128, 127).astype(np.int8)


def scale_for(y: Array) -> tuple[float, int]:
    """The scale and zero point that `quantize_static` would give to a tensor."""
    low, high = min(float(y.min()), 0.0), max(float(y.max()), 1e-3)
    scale = float(np.float32((high - low) / 255))
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


def in_integers(body: Call, x: Var, form: Integers, scale: float, zero_point: int) -> Function:
    """The function of one integer operator that quantises ``body``."""
    found = integer_rows(body, lambda node: form, scale, zero_point, body.span)
    assert isinstance(found, Call)
    assert isinstance(found.op, Function)
    return found.op


def run(function: Function, q: Array) -> Array:
    module = Module(Function(function.params, function.body, Attrs({"name": "main", "outputs": ("y",)})))
    return np.asarray(evaluate(module, {function.params[0].name: q})["y"])


def quantised_variable(shape: tuple[int, ...], scale: float, zero_point: int) -> tuple[Var, Call, Integers]:
    x = Var("x", TensorType(shape, "int8"))
    real = call("dequantise", x, Constant(np.float32(scale)), Constant(np.int8(zero_point)))
    return x, real, Integers(x, float(np.float32(scale)), zero_point)


@pytest.mark.parametrize("count", [1, 2, 7, 197, 512, 1000, 5000])
def test_a_softmax_is_within_one_of_the_real_numbers(count: int) -> None:
    generator = np.random.default_rng(count)
    unequal = compared = 0
    for kind in KINDS:
        for _ in range(8):
            scale, fits = float(np.exp(generator.uniform(-7, 1))), generator.random() < 0.5
            q = rows_of(kind, (6, count), generator)
            x, real, form = quantised_variable(q.shape, scale, int(generator.integers(-128, 128)))
            powers = np.exp(form.scale * (q.astype(float) - q.max(1, keepdims=True)))
            y = powers / powers.sum(1, keepdims=True)
            target = scale_for(y) if fits else (float(np.float32(1 / 255)), -128)
            found = run(in_integers(call("nn.softmax", real, axis=1), x, form, *target), q)
            difference = np.abs(found.astype(int) - quantised(y, *target))
            assert difference.max() <= 1, (kind, scale, target)
            unequal, compared = unequal + np.count_nonzero(difference), compared + q.size
    assert unequal < 1e-3 * compared + 3


def normalised(real: Call, axes: tuple[int, ...], epsilon: float, gamma: Array, beta: Array, *, centred: bool) -> Call:
    """As frontends write it."""
    mean = call("nn.reduce_mean", real, axes=axes, keepdims=True)
    value = call("nn.subtract", real, mean) if centred else real
    moment = call("nn.reduce_mean", call("nn.multiply", value, value), axes=axes, keepdims=True)
    root = call("nn.sqrt", call("nn.add", moment, Constant(np.float32(epsilon))))
    unit = call("nn.multiply", value, call("nn.divide", Constant(np.float32(1)), root))
    return call("nn.add", call("nn.multiply", unit, Constant(gamma)), Constant(beta))


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("count", [1, 2, 16, 64, 300, 4096, 16384])
def test_a_normalisation_is_within_one_of_the_real_numbers(count: int, centred: bool) -> None:
    generator = np.random.default_rng(count)
    unequal = compared = 0
    for kind in KINDS:
        for spread in (0.0, 0.5, 2.0):
            scale, epsilon = float(np.exp(generator.uniform(-9, 0))), float(10 ** generator.uniform(-13, -2))
            q = rows_of(kind, (5, count), generator)
            x, real, form = quantised_variable(q.shape, scale, int(generator.integers(-128, 128)))
            gamma = np.exp(generator.standard_normal(count) * spread) * generator.choice([1, 1, 1, -1], count)
            gamma = np.where(generator.random(count) < 0.05 * spread, generator.choice([0, 1e-4], count), gamma)
            beta = generator.standard_normal(count) * spread
            gamma, beta = gamma.astype(np.float32), beta.astype(np.float32)
            value = (q.astype(float) - form.zero_point) * form.scale
            value = value - value.mean(1, keepdims=True) if centred else value
            y = value / np.sqrt((value**2).mean(1, keepdims=True) + np.float32(epsilon)) * gamma + beta
            target = scale_for(y)
            body = normalised(real, (1,), epsilon, gamma, beta, centred=centred)
            found = run(in_integers(body, x, form, *target), q)
            difference = np.abs(found.astype(int) - quantised(y, *target))
            assert difference.max() <= 1, (kind, scale, epsilon, spread)
            if spread:  # else many values are ties
                unequal, compared = unequal + np.count_nonzero(difference), compared + q.size
    assert unequal < 1e-2 * compared + 8


@pytest.mark.parametrize("factor", [0.0, 1e-6, 1e-3])
def test_a_channel_of_next_to_no_factor_keeps_its_offset(factor: float) -> None:
    """Its bias does not fit beside the accumulator at full precision."""
    generator = np.random.default_rng(0)
    q = rows_of("any", (20, 64), generator)
    x, real, form = quantised_variable(q.shape, 0.03, 4)
    gamma, beta = np.ones(64, np.float32), np.zeros(64, np.float32)
    gamma[3], beta[3], gamma[5], beta[5] = factor, 3.0, -factor, -2.9
    body = normalised(real, (1,), 1e-5, gamma, beta, centred=True)
    value = (q.astype(float) - 4) * form.scale
    value -= value.mean(1, keepdims=True)
    y = value / np.sqrt((value**2).mean(1, keepdims=True) + 1e-5) * gamma + beta
    found = run(in_integers(body, x, form, *scale_for(y)), q)
    assert np.abs(found.astype(int) - quantised(y, *scale_for(y))).max() <= 1


def compiled_cases() -> list[tuple[str, Call, Integers]]:
    generator, cases = np.random.default_rng(5), []
    for axis in range(3):
        _, real, form = quantised_variable((3, 5, 18), 0.07, -3)
        cases.append((f"softmax {axis}", call("nn.softmax", real, axis=axis), form))
    for axes in ((2,), (0, 2), (1,)):
        for centred in (True, False):
            for count in (18, 300):
                _, real, form = quantised_variable((3, 5, count), 0.02, 7)
                gamma = generator.normal(1, 0.3, (5, 1) if 1 not in axes else (count,)).astype(np.float32)
                body = normalised(real, axes, 1e-5, gamma, gamma / 3, centred=centred)
                cases.append((f"normalise {axes} {centred} {count}", body, form))
    return cases


@pytest.mark.parametrize("scale", [0.01, 1e-6], ids=["usual", "tiny"])
@pytest.mark.parametrize(("body", "form"), [pytest.param(*rest, id=name) for name, *rest in compiled_cases()])
def test_compiled_rows_equal_their_meaning(body: Call, form: Integers, scale: float, tmp_path: Path) -> None:
    """Also from a file, whose kernels are proved first. With a tiny scale the shifts are short."""
    assert isinstance(form.q, Var)
    function = in_integers(body, form.q, form, scale, -11)
    main = Function(function.params, function.body, Attrs({"name": "main", "outputs": ("y",)}))
    model = weft.compile(Module(main, stage="operators"), target="cpu", strict=True)
    assert isinstance(model, weft.CompiledModel)
    weft.save(model, tmp_path / "rows.weft")
    loaded = weft.load(tmp_path / "rows.weft")
    generator = np.random.default_rng(2)
    for low, high in ((-128, 127), (-128, -128), (127, 127), (-3, 3)):
        q = generator.integers(low, high, form.shape, endpoint=True).astype(np.int8)
        values = {function.params[0].name: q}
        np.testing.assert_array_equal(loaded.run(values)["y"], evaluate(Module(main), values)["y"])


def test_tables() -> None:
    """Known entries, and the ranges that the arithmetic behind them needs."""
    table = exponentials(0.5, 10)
    assert (table[0], table[255], table[254]) == (1024, round(1024 * math.exp(-0.5)), round(1024 * math.exp(-1)))
    assert reciprocals()[0] == round(2**31 / 256.5)
    assert 1 << 22 <= reciprocals().min() < reciprocals().max() <= 1 << 23
    assert inverse_roots()[64] == round(2**38 / math.sqrt(64.5 * 2**23))
    assert inverse_roots().max() < 1 << 24
    for count in (1, 511, 512, 513, 1 << 20):
        bits = bits_of_exponentials(count)
        assert count << bits < 1 << 31
        assert bits == 22 or count << bits + 1 >= 1 << 31


def test_operands_that_do_not_fit_are_refused() -> None:
    x = Var("x", TensorType((2, 700), "int8"))
    tables = Constant(exponentials(0.1, 21)), Constant(reciprocals())
    wanted: dict[str, Any] = {"axis": 1, "bits": 22, "multiplier": 1 << 23, "shift": 16}
    with pytest.raises(GraphError, match="softmax: a sum of 700 numbers of 22 bits does not fit 32 bits"):
        call("softmax", x, *tables, **wanted)
    with pytest.raises(GraphError, match=r"softmax: exponents must be int32\[256\], not int32\[255\]"):
        call("softmax", x, Constant(exponentials(0.1, 21)[1:]), tables[1], **wanted | {"bits": 21})
    parameter = Constant(np.ones((2, 1), np.int32))
    rest = {"fraction": 0, "epsilon": 0, "digits": 28}
    with pytest.raises(GraphError, match=r"normalise: axes must be different axes of int8\[2, 700\] in rising order"):
        call("normalise", x, Constant(inverse_roots()), parameter, parameter, parameter, axes=(1, 0), **rest)
    with pytest.raises(GraphError, match=r"normalise: bias int32\[3, 1\] does not broadcast to int8\[2, 700\]"):
        call("normalise", x, Constant(inverse_roots()), Constant(np.ones((3, 1), np.int32)), parameter, parameter,
             axes=(1,), **rest)  # fmt: skip
    long = Var("x", TensorType((2, 16385), "int8"))
    with pytest.raises(GraphError, match=r"normalise: a row has 16385 elements, but may have 1\.\.16384"):
        call("normalise", long, Constant(inverse_roots()), parameter, parameter, parameter, axes=(1,), **rest)
