"""Random parameters: their distribution, and the same bits on all targets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import weft
from weft.compiler.graph import GraphError, TensorType, Var, evaluate
from weft.train import Initial, glorot, he, initialised, normal, uniform
from weft.train.initialisers import initial_value
from weft.train.random import key_of

from .classifier import module_of
from .test_random import squares32


@pytest.mark.parametrize("target", ["cpu", "cpu, 2 threads", "opencl"])
def test_all_targets_draw_the_same_bits(target: str) -> None:
    draws = Var("draws", TensorType((), "uint64"))
    of = {"u": uniform((3, 5, 7), 0.3), "n": normal((4, 33), 0.1)}
    values = [initial_value(each, draws, seed=3, stream=place) for place, each in enumerate(of.values())]
    module = module_of(*values, params=(draws,), names=tuple(of))
    name, _, threads = target.partition(", ")
    loaded = weft.load(weft.compile(module, target=name, **({"threads": 2} if threads else {})))
    for step in (0, 7):
        given = {"draws": np.array(step, np.uint64)}
        found, expected = loaded.run(given), evaluate(module, given)
        for output in of:
            np.testing.assert_array_equal(found[output], expected[output])
    for place, output in enumerate(of):  # step 0 is where a training starts
        start = initialised({each: of[each] if each == output else np.zeros(1) for each in of}, seed=3)[output]
        np.testing.assert_array_equal(start, evaluate(module, {"draws": np.array(0, np.uint64)})[output], str(place))


def test_values_are_those_of_the_generator() -> None:
    found = initialised({"u": uniform((5,), 0.5), "n": normal((2, 3), 2.0)}, seed=4)
    words = [squares32(place, key_of(4)) for place in range(5)]
    np.testing.assert_array_equal(found["u"], np.float32([(2 * (word >> 8) - 0xFFFFFF) / 2**25 for word in words]))
    words = [squares32(1 << 32 | place, key_of(4)) for place in range(36)]
    sums = [sum((word >> 16) + (word & 0xFFFF) for word in words[place::6]) for place in range(6)]
    expected = np.float32([(total - 6 * 0xFFFF) / 2**15 for total in sums])
    np.testing.assert_array_equal(found["n"].reshape(-1), expected)


def test_the_distributions_are_those_that_the_names_say() -> None:
    count = 200_000
    found = initialised({"u": uniform((count,), 2.0), "n": normal((count,), 3.0)}, seed=1)
    assert np.abs(found["u"]).max() < 2
    assert np.abs(found["u"]).max() > 1.999
    for name, deviation, kurtosis in (("u", 2 / math.sqrt(3), 1.8), ("n", 3.0, 2.9)):
        value = found[name].astype(np.float64) / deviation
        assert abs(value.mean()) < 5 / math.sqrt(count)
        assert abs(value.std() - 1) < 0.01
        assert abs((value**4).mean() - kurtosis) < 0.05


@pytest.mark.parametrize("shape", [(300, 200), (40, 30, 3, 3), (400, 1, 5, 5)])
def test_variances_follow_from_the_shape(shape: tuple[int, ...]) -> None:
    found = initialised({"he": he(shape), "glorot": glorot(shape)}, seed=2)
    window = math.prod(shape[2:])
    assert found["he"].std() == pytest.approx(math.sqrt(2 / (shape[1] * window)), rel=0.03)
    assert found["glorot"].std() == pytest.approx(math.sqrt(2 / ((shape[0] + shape[1]) * window)), rel=0.03)


def test_seeds_and_names_draw_other_values_and_arrays_stay() -> None:
    given = np.arange(3.0)
    one = initialised({"a": normal((50,), 1.0), "b": normal((50,), 1.0), "c": given}, seed=0)
    other = initialised({"a": normal((50,), 1.0)}, seed=1)
    assert list(one) == ["a", "b", "c"]
    assert one["c"] is given
    assert abs(np.corrcoef([one["a"], one["b"], other["a"]])[np.triu_indices(3, 1)]).max() < 0.6
    np.testing.assert_array_equal(initialised({"a": normal((50,), 1.0)})["a"], one["a"])


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(GraphError, match=r"weights have outputs and inputs, but the shape is \[3\]; hint: give normal"):
        he((3,))
    with pytest.raises(GraphError, match=r"the size of random values is nan, but must be at least 0"):
        normal((3,), math.nan)
    with pytest.raises(GraphError, match=r"there are no 'gaussian' values; hint: uniform or normal"):
        Initial((3,), "gaussian", 1.0)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"there is no tensor of shape \[-1\]"):
        uniform((-1,), 1.0)
