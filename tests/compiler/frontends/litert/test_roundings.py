"""Products as LiteRT's default kernels round them: in float32, halves to even."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from weft.cli import app
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here

from benchmarks.frontends.litert_suite import computed, tried
from benchmarks.zoo.litert_cases import Case
from benchmarks.zoo.litert_models import interpreted
from benchmarks.zoo.litert_roundings import roundings

CASES = list(roundings())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_that_round_in_float32_have_the_interpreters_integers_and_another_core_is_a_step_away(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = interpreted(case.model, case.arrays)[0]
    assert len(np.unique(wanted)) > 8
    for processor in executable_here():
        monkeypatch.setenv(PRETENDED, processor)
        np.testing.assert_array_equal(computed(case, "cpu")[0], wanted, processor)
    np.testing.assert_array_equal(computed(case, "accel", "pynq-float32")[0], wanted)
    steps = np.abs(computed(case, "accel")[0].astype(np.int64) - wanted.astype(np.int64))
    assert steps.max() == 1  # so that these cases tell one rounding from the other


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_graph_of_each_case_is_at_most_the_known_step_away(case: Case) -> None:
    assert tried("roundings", case, "graph").result in ("equal", "apart")


@pytest.mark.parametrize(("places", "said"), [(("cpu", "fsim"), True), (("accel", "reference"), True),
                                              (("reference", "cpu"), False), (("accel", "fsim"), False)])  # fmt: skip
def test_comparisons_with_a_core_say_that_it_rounds_otherwise(
    places: tuple[str, str], said: bool, tmp_path: Path
) -> None:
    file = tmp_path / "m.tflite"
    file.write_bytes(CASES[0].model)
    result = CliRunner().invoke(app, ["compare", *places, str(file), "--config", "tiny"])
    assert ("1 values ask for sums rounded otherwise" in result.output) == said
    assert said or result.exit_code == 0
    rounds = CliRunner().invoke(app, ["compare", *places, str(file), "--config", "pynq-float32"])
    assert "rounded otherwise" not in rounds.output
    assert rounds.exit_code == 0
