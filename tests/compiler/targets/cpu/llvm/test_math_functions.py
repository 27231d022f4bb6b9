"""Functions of floats in single precision: how many units in the last place they are off, and what is no number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from weft.compiler import tensor as t
from weft.compiler.targets.cpu.processor import named_target

from ..jit import run_compiled

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

UNITS = {"exp": 1.1, "tanh": 1.4, "erf": 1.9, "log": 0.9, "pow": 0.501}
"""Of the last place, at most; ``docs/cpu.md`` states them."""

TWICE_ROUNDED = {"exp": 1.3}
"""Those of processors without a fused multiply-add, where they are more."""

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -3.0, 1e-40, -1e-40, 1e-45, 3e38, 2.0**24 + 2]
EXACT: dict[str, Callable[[Doubles], Doubles]] = {
    "exp": np.exp, "tanh": np.tanh, "log": np.log,
    "erf": lambda x: np.array([math.erf(each) for each in x]),
}  # fmt: skip


@pytest.fixture
def units(level: str) -> dict[str, float]:
    """What functions are off by at most on a processor, as which this machine is taken."""
    fused = "+fma" in named_target(level).features.split(",") or not level.startswith("x86")
    return UNITS if fused else {**UNITS, **TWICE_ROUNDED}


def computed(function: str, *operands: Floats, lanes: bool = True) -> Floats:
    size = operands[0].size
    names = ["x", "y"][: len(operands)]
    parameters = [t.placeholder((size,), "float32", name) for name in names]
    out = t.compute((size,), lambda i: t.ir.Call(function, tuple(each[i] for each in parameters)), "out")
    schedule = t.create_schedule(out, parameters)
    if lanes:
        schedule.vectorize("i")
    return run_compiled(schedule.func, dict(zip(names, operands, strict=True)))["out"]


def units_off(found: Floats, exact: Doubles) -> float:
    """The largest error, in the distance of the floats there; infinities, nans and signs of 0 must be right."""
    with np.errstate(over="ignore"):
        wanted = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    whole = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~whole], wanted[~whole])
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(wanted[zero]))
    errors = np.abs(found[whole].astype(np.float64) - exact[whole]) / np.spacing(np.abs(wanted[whole]))
    return float(errors.max())


def arguments(function: str) -> Floats:
    """Numbers of every size, more of them where the function bends."""
    random = np.random.default_rng(0)
    dense = [random.normal(0, scale, 30_000) for scale in (0.1, 0.6, 3.0)]
    sizes = np.geomspace(1e-45, 3e38, 20_000)
    parts = [SPECIAL, *dense, random.uniform(-104, 90, 30_000), sizes, -sizes]
    if function == "log":
        parts.append(1 + random.normal(0, 0.2, 30_000))
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("function", EXACT)
def test_functions_of_one_number_are_off_by_few_units(function: str, units: dict[str, float]) -> None:
    x = arguments(function)
    with np.errstate(all="ignore"):
        exact = EXACT[function](x.astype(np.float64))
    assert units_off(computed(function, x), exact) <= units[function]


def test_exp_of_every_power_of_two(units: dict[str, float]) -> None:
    """Results of every exponent, denormal ones too, and arguments on both sides of where the power changes."""
    powers = np.arange(-151, 130)
    between = np.log(2) * (powers[:, None] + np.linspace(-0.5, 0.5, 201)[None]).astype(np.float64)
    ends = [np.log(np.finfo(np.float32).max), -86.0, 88.75, -104.0, -150 * np.log(2), -126 * np.log(2)]
    edges = np.concatenate([np.log(2) * (powers + 0.5), np.log(2) * powers, ends]).astype(np.float32)
    near = np.concatenate([(edges.view(np.int32) + step).view(np.float32) for step in range(-3, 4)])
    x = np.concatenate([between.astype(np.float32).ravel(), near])
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64))
    found = computed("exp", x)
    assert units_off(found, exact) <= units["exp"]
    few = exact < 2.0**-140  # digits, so that only the last rounding is left
    assert units_off(found[few], exact[few]) < 0.51
    np.testing.assert_array_equal(computed("exp", np.float32([-104, -105, -3e38, -np.inf])), np.zeros(4, np.float32))


def test_powers_are_rounded_once(units: dict[str, float]) -> None:
    random = np.random.default_rng(1)
    whole = [*SPECIAL, 2, -2, 3, 4, -5, 7, 1e10, -1e10, 1.5, -0.75, -1e-3, 2.0**24 - 1]
    grid = np.array(np.meshgrid(whole, whole)).reshape(2, -1)
    size = 60_000
    drawn = np.array([np.exp(random.uniform(-20, 20, size)), random.uniform(-6, 6, size)])
    signed = np.array([random.normal(0, 2, size), random.integers(-30, 30, size)])
    near_one = np.array([1 + random.normal(0, 1e-3, size), random.normal(0, 1e4, size)])
    x, y = np.concatenate([grid, drawn, signed, near_one], axis=1).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert units_off(computed("pow", x, y), exact) <= units["pow"]


@pytest.mark.parametrize("function", UNITS)
def test_lanes_and_single_numbers_have_the_same_bits(function: str, level: str) -> None:
    x = np.resize(np.array([*SPECIAL, 0.3, 0.95, -1.7, 5.0], np.float32), 37)
    operands = (x, np.resize(np.array([0.5, 2, -3, 0], np.float32), 37))[: 2 if function == "pow" else 1]
    np.testing.assert_array_equal(computed(function, *operands), computed(function, *operands, lanes=False))
