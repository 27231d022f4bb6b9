"""Models of a single operator, over types, shapes and options: what the graph means, beside LiteRT's interpreter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import weft

from benchmarks.frontends.litert_suite import TOLERANCE, compared, computed, tried
from benchmarks.zoo.litert_cases import FAMILIES, Case
from benchmarks.zoo.litert_models import ModelWriter, interpreted

COMPILED = 12
"""Every so manieth case is compiled, too."""


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_graph_of_each_case_is_the_interpreters(family: str) -> None:
    found = [tried(family, case, "graph") for case in FAMILIES[family]()]
    assert [each for each in found if each.result in ("different", "refused")] == []
    counts = Counter(each.result for each in found)
    share = 0.1 if family == "hybrid" else 0.5
    assert counts["equal"] + counts["close"] > share * (len(found) - counts["unjudged"])


def _every(step: int, start: int = 0) -> list[Case]:
    cases = [case for family in sorted(FAMILIES) for case in FAMILIES[family]()]
    return cases[start::step]


@pytest.mark.parametrize("case", _every(COMPILED, 5), ids=lambda case: case.name)
def test_a_compiled_case_is_its_graph(case: Case) -> None:
    for got, wanted in zip(computed(case, "cpu"), computed(case, "graph"), strict=True):
        result, steps, _ = compared(got, wanted)
        assert result in ("equal", "close") or (wanted.dtype.kind in "iu" and steps <= 1)


@pytest.mark.parametrize("start", range(3))
def test_a_convolution_on_the_core_is_the_interpreters(start: int) -> None:
    cases = [case for case in FAMILIES["convolutions"]() if "int8 by channel" in case.name]
    for case in cases[start::9]:
        assert "conv" in str(weft.compile(case.model, target="accel").layers).lower()
        assert np.array_equal(computed(case, "accel")[0], interpreted(case.model, case.arrays)[0]), case.name


def test_the_tolerance_of_floats_is_small() -> None:
    """A sum that lacks one of its terms is seen."""
    wanted = np.ones((4,), np.float32)
    assert compared(wanted * np.float32(1 + 3 * TOLERANCE), wanted)[0] == "different"


def _compared_codes(op: str, dtype: str, scales: tuple[float, float], zeros: tuple[int, int]) -> None:
    """All pairs of two 8-bit values."""
    least = int(np.iinfo(dtype).min)
    net = ModelWriter()
    operands = [net.tensor([256, 256], dtype, scale, zero, name=f"x{number}")
                for number, (scale, zero) in enumerate(zip(scales, zeros, strict=True))]  # fmt: skip
    result = net.tensor([256, 256], "bool")
    net.op(op, operands, [result])
    stored = np.arange(least, least + 256).astype(dtype)
    arrays = tuple(np.ascontiguousarray(each) for each in np.meshgrid(stored, stored, indexing="ij"))
    case = Case(op, net.finish(operands, [result]), arrays)
    assert np.array_equal(computed(case, "graph")[0], interpreted(case.model, case.arrays)[0])


@pytest.mark.parametrize("op", ["EQUAL", "LESS", "GREATER_EQUAL"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_compared_in_256ths(op: str, dtype: str) -> None:
    """The interpreter sees no finer differences, even between equal scales."""
    random = np.random.default_rng(len(op))
    ends = np.iinfo(dtype)
    for scale in (0.0003, 0.004, 0.07, 0.9):
        other = scale * random.uniform(0.4, 1.1)
        low, high = ends.min + 20, ends.max - 20
        _compared_codes(op, dtype, (scale, other), (int(random.integers(low, high)), int(random.integers(low, high))))
    _compared_codes(op, dtype, (0.01, 0.01), (ends.min + 128, ends.min + 128))


@pytest.mark.parametrize("seed", range(6))
def test_a_square_root_of_bytes_is_rounded_down(seed: int) -> None:
    random = np.random.default_rng(seed)
    scale = 10 ** random.uniform(-4, 0)
    net = ModelWriter()
    x = net.tensor([256], "int8", scale, -128, name="x0")
    y = net.tensor([256], "int8", np.sqrt(255 * scale) / 255 * random.uniform(0.7, 1.5), int(random.integers(-128, 0)))
    net.op("SQRT", [x], [y])
    case = Case("SQRT", net.finish([x], [y]), (np.arange(-128, 128).astype(np.int8),))
    for target in ("graph", "cpu", "accel"):
        assert np.array_equal(computed(case, target)[0], interpreted(case.model, case.arrays)[0])
