"""Products as LiteRT's default kernels round them: in float32, halves to even."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here

from benchmarks.litert_suite import computed
from benchmarks.zoo.litert_cases import Case, roundings
from benchmarks.zoo.litert_models import interpreted

CASES = list(roundings())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_processors_have_the_interpreters_integers_and_a_core_is_at_most_a_step_away(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = interpreted(case.model, case.arrays)[0]
    assert len(np.unique(wanted)) > 8
    for processor in executable_here():
        monkeypatch.setenv(PRETENDED, processor)
        np.testing.assert_array_equal(computed(case, "cpu")[0], wanted, processor)
    steps = np.abs(computed(case, "accel")[0].astype(np.int64) - wanted.astype(np.int64))
    assert steps.max() == 1  # so that these cases tell one rounding from the other
