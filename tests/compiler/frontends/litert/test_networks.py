"""Whole quantised networks: the interpreter's integers, all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.frontends.litert_suite import computed, tried
from benchmarks.zoo.litert_cases import FAMILIES, Case
from benchmarks.zoo.litert_layers import layers
from benchmarks.zoo.litert_models import ModelWriter, interpreted, options
from benchmarks.zoo.litert_networks import NETWORKS, digits, hard_swishes, inception


@pytest.mark.parametrize("network", [digits, hard_swishes, inception])
def test_a_compiled_network_is_the_interpreters(network: Callable[[], Case]) -> None:
    case = network()
    np.testing.assert_array_equal(computed(case, "cpu")[0], interpreted(case.model, case.arrays)[0])


@pytest.mark.parametrize("kernels", [((7, 1), (1, 7)), ((1, 7), (7, 1)), ((5, 1), (1, 5), (5, 1))])
def test_a_result_may_lie_over_a_padded_operand_of_its_size(kernels: tuple[tuple[int, int], ...]) -> None:
    """Factorised windows, as InceptionV3 has them: what is filled around the result must not reach the operand before
    it is read."""
    random, net = np.random.default_rng(1), ModelWriter()
    x = y = net.tensor((1, 4, 4, 16), "int8", 0.00303083, -128, name="x")
    scale = 0.00303083
    for window in kernels:
        weights = net.constant(
            random.integers(-127, 128, (16, *window, 16)), "int8", scale=np.full(16, 0.00052873), zero=0
        )
        bias = net.constant(random.integers(-9999, 9999, 16), "int32", scale=np.full(16, scale * 0.00052873), zero=0)
        operand, y, scale = y, net.tensor((1, 4, 4, 16), "int8", 0.00274891, -128), 0.00274891
        made = options("Conv2DOptions", strideW=1, strideH=1, fusedActivationFunction=1)
        net.op("CONV_2D", [operand, weights, bias], [y], made, version=3)
    case = Case("factorised", net.finish([x], [y]), (random.integers(-128, 128, (1, 4, 4, 16)).astype(np.int8),))
    np.testing.assert_array_equal(computed(case, "cpu")[0], interpreted(case.model, case.arrays)[0])


def test_each_operator_of_a_network_is_the_interpreters() -> None:
    """With the operands that it has in the interpreter's run: the last one's result is the network's."""
    case = digits()
    alone = list(layers(case))
    assert [each.name.split()[0] for each in alone][::3] == ["CONV_2D", "AVERAGE_POOL_2D", "FULLY_CONNECTED"]
    assert [tried("layers", each, "cpu").result for each in alone] == ["equal"] * 9
    last = interpreted(alone[-1].model, alone[-1].arrays)[0]
    np.testing.assert_array_equal(last, interpreted(case.model, case.arrays)[0])


def test_means_on_the_core_are_rounded_away_from_zero() -> None:
    cases = [case for case in FAMILIES["pools"]() if case.name.startswith("AVERAGE_POOL_2D int8")]
    for case in cases[::3]:
        np.testing.assert_array_equal(computed(case, "accel")[0], interpreted(case.model, case.arrays)[0])


@pytest.mark.long
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("target", ["cpu", "accel"])
def test_every_network_is_the_interpreters(network: Callable[[], Case], target: str) -> None:
    case = network()
    np.testing.assert_array_equal(computed(case, target)[0], interpreted(case.model, case.arrays)[0])
