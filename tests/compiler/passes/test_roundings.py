"""Factors of sums that are rounded in float32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.graph.rounding import rounded_shift, wide_multiplier
from weft.compiler.graph.visit import topological_order
from weft.compiler.passes.emit_roundings import _factor_away_from_0
from weft.compiler.passes.float32_by_integers import by_integers
from weft.compiler.passes.manager import PassManager
from weft.compiler.passes.pipeline import integer_passes

from tests.compiler.targets.gpu.graphs import RUN_ON

F = np.float32


def scale_of(sx: np.float32, sw: np.float32, sy: np.float32) -> np.float32:
    """The scale of the one requantise that a dense layer with these scales becomes."""
    x = Var("x", TensorType((1, 4), "int8"))
    zero = Constant(np.array(0, np.int8))
    real = call("dequantise", x, Constant(np.array(sx)), zero)
    weights = call("dequantise", Constant(np.ones((3, 4), np.int8)), Constant(np.array(sw)), zero)
    result = call("quantise", call("nn.dense", real, weights), Constant(np.array(sy)), zero, rounding="float32")
    module = PassManager(integer_passes()).run(Module(Function((x,), result, Attrs({"outputs": ("y",)}))))
    calls = [node for node in topological_order(module.main.body) if isinstance(node, Call)]
    (found,) = (node for node in calls if node.op == "requantise_float32")
    scale = found.args[2]
    assert isinstance(scale, Constant)
    assert len(set(scale.value.tolist())) == 1
    return F(scale.value[0])


def test_the_factor_is_rounded_where_scales_are_multiplied_and_where_they_are_divided() -> None:
    """As XNNPACK has it; in a quarter of all cases the exact factor's float32 is another number."""
    rng = np.random.default_rng(0)
    other = 0
    for sx, sw, sy in rng.uniform(0.01, 0.1, (20, 3)).astype(F):
        wanted = F(sx * sw) / sy
        assert scale_of(sx, sw, sy) == wanted
        other += wanted != F(float(sx) * float(sw) / float(sy))
    assert other > 2


def test_a_scale_is_a_multiplier_and_a_shift() -> None:
    """On sums of every size, halves among them, and for every scale; also where a processor computes it."""
    rng = np.random.default_rng(0)
    channels = 400
    exponents = rng.uniform(-60, 30, channels)
    scale = (rng.choice((-1, 1), channels) * 2.0**exponents).astype(F)
    scale[: channels // 2] = 2.0 ** np.rint(exponents[: channels // 2])
    scale[:3] = 0, np.inf, F(2.0**-149)
    sums = (rng.choice((-1, 1), (60, channels)) * 2.0 ** rng.uniform(0, 31, (60, channels))).astype(np.int64)
    wanted_size = np.rint((2 * rng.integers(0, 99, (30, channels)) + 1) / 2 / np.maximum(np.abs(scale), 1e-30))
    sums[:30] = np.clip(wanted_size + rng.integers(-1, 2, (30, channels)), -(2**31), 2**31 - 1)
    data, x = {"x": sums.astype(np.int32)}, Var("x", TensorType((60, channels), "int32"))
    bias = Constant(rng.integers(-9, 9, channels).astype(np.int32))
    node = call("requantise_float32", x, bias, Constant(scale), zero_point=-5, low=-100, high=90)
    by = by_integers(node)
    assert isinstance(by, Call)
    assert by.op == "requantise"
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = evaluate(module_of(x, node), data)["y"]
    assert len(np.unique(wanted)) > 150
    np.testing.assert_array_equal(evaluate(module_of(x, by), data)["y"], wanted)
    np.testing.assert_array_equal(weft.load(weft.compile(module_of(x, by), target="cpu")).run(data)["y"], wanted)


def module_of(x: Var, result: Call) -> Module:
    return Module(Function((x,), result, Attrs({"outputs": ("y",)})), stage="integer")


def twice(sums: np.ndarray, factor: float) -> list[int]:
    """In whole numbers of Python: to 31 bits behind the factor halves up, then the rest halves away from 0."""
    (multiplier,), (shift,) = (each.tolist() for each in wide_multiplier(np.array([factor])))
    found = []
    for each in sums.tolist():
        first = min(shift, 31)
        high = ((each * multiplier >> first - 1) + 1) >> 1
        rest = shift - first
        away = (abs(high) + (1 << rest - 1)) >> rest if rest else abs(high)
        found.append(-away if high < 0 else away)
    return found


def test_two_roundings_are_one_of_a_product_that_is_half_a_first_step_further_away() -> None:
    rng = np.random.default_rng(0)
    factors = rng.choice((-1, 1), 120) * 2.0 ** rng.uniform(-34, 12, 120)
    factors[:40] = 2.0 ** rng.integers(-33, 3, 40)
    factors[40:50] = 3 * 2.0 ** rng.integers(-33, 3, 10)
    sums = rng.integers(-(2**31), 2**31, (60, 120))
    steps = (rng.integers(-300, 300, (40, 120)) / 2) / factors + rng.integers(-1, 2, (40, 120))
    sums[:40] = np.clip(np.rint(steps), -(2**31), 2**31 - 1)
    multiplier, shift = wide_multiplier(factors)
    wanted = np.stack([twice(sums[:, n], factors[n]) for n in range(120)], axis=1)
    once = rounded_shift(sums, multiplier, shift, "half_up")
    np.testing.assert_array_equal(rounded_shift(sums, multiplier, shift, "two_roundings"), wanted)
    assert (once != wanted).sum() > 300
    data, x = {"x": sums.astype(np.int32)}, Var("x", TensorType((60, 120), "int32"))
    parameters = (Constant(each) for each in (np.zeros(120, np.int32), multiplier, shift))
    module = module_of(x, call("requantise", x, *parameters, zero_point=3, low=-90, rounding="two_roundings"))
    limited = np.clip(wanted + 3, -90, 127)
    np.testing.assert_array_equal(evaluate(module, data)["y"], limited)
    np.testing.assert_array_equal(weft.load(weft.compile(module, target="cpu")).run(data)["y"], limited)


def halves_of(rounding: str, product: int, shift: int) -> int:
    if rounding == "half_even":
        return round(Fraction(product, 2**shift))
    size = (abs(product) + (1 << shift - 1)) >> shift
    return -size if product < 0 else size


@pytest.mark.parametrize("rounding", ["half_away", "half_even"])
def test_halves_go_where_they_are_asked_to(rounding: str) -> None:
    """At every shift; a third of the results are halves, and others are next to them."""
    rng = np.random.default_rng(0)
    shift = np.arange(62) + 1
    multiplier = np.minimum(2 ** np.maximum(shift - 30, 0), 2**30) * rng.choice((-1, 1), 62)
    steps = (2 * rng.integers(-99, 99, (60, 62)) + 1) * np.exp2(shift - 1.0) / multiplier
    sums = np.clip(np.rint(steps) + rng.integers(-1, 2, (60, 62)), -(2**31), 2**31 - 1).astype(np.int64)
    wanted = np.array([[halves_of(rounding, int(x) * int(multiplier[n]), n + 1) for n, x in enumerate(row)]
                       for row in sums])  # fmt: skip
    np.testing.assert_array_equal(rounded_shift(sums, multiplier, shift, rounding), wanted)
    assert np.mean(rounded_shift(sums, multiplier, shift, "half_up") != wanted) > 0.05
    parameters = (Constant(each.astype(np.int32)) for each in (np.zeros(62), multiplier, shift))
    data, x = {"x": sums.astype(np.int32)}, Var("x", TensorType((60, 62), "int32"))
    module = module_of(x, call("requantise", x, *parameters, zero_point=3, low=-90, rounding=rounding))
    limited = np.clip(wanted + 3, -90, 127)
    np.testing.assert_array_equal(evaluate(module, data)["y"], limited)
    for target, device in {"cpu": None, **RUN_ON}.items():
        found = weft.load(weft.compile(module, target=target), device).run(data)["y"]
        np.testing.assert_array_equal(found, limited, target)


def test_a_multiplier_near_the_factors_rounds_halves_away_from_0() -> None:
    rng = np.random.default_rng(0)
    factors = np.concatenate([2.0 ** rng.integers(-12, 1, 20), rng.uniform(2e-5, 0.3, 40), [0.0, 1.5]])
    multiplier, shift = _factor_away_from_0(factors, (-250, 250))
    for n, factor in enumerate(factors):
        most = min(int(250 / max(factor, 1e-9)), 400_000)
        sums = np.arange(-most, most)
        exact = sums * factor
        wanted = np.trunc(exact + np.copysign(0.5, exact))
        got = rounded_shift(sums, multiplier[n : n + 1], shift[n : n + 1], "half_up")
        np.testing.assert_array_equal(got, wanted, str(factor))
