"""Models of a single operator, over types, shapes and options: what the graph means, beside LiteRT's interpreter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import weft
from weft.benchmarks.litert_suite import TOLERANCE, compared, computed, tried
from weft.benchmarks.zoo.litert_cases import FAMILIES, Case
from weft.benchmarks.zoo.litert_models import interpreted

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
