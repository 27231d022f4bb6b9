"""ONNX's own suite, quantised by onnxruntime: every model compiles, and its integers are the integer graph's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.hw.config import named_config

from benchmarks.campaigns import isolated
from benchmarks.campaigns import quantised_graphs as graphs
from benchmarks.campaigns import quantised_suite as suite

EVERY = 397
"""Of the suite's cases, one in so many; the long test takes all."""


@pytest.fixture(scope="module")
def trial() -> Any:
    return graphs.Trial(named_config("pynq"), suite.suite_tests())


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.long)])
def test_every_model_is_equal_or_on_the_list(trial: Any, every: int) -> None:
    cases = graphs.suite_cases(trial.tests, 0)[::every]
    found = [
        (case.name, result.state, result.message)
        for case, result in isolated.Isolated(trial.run, graphs.SECONDS_AT_MOST).run(cases)
    ]
    unexpected = suite.surprises(found, every=every == 1)
    assert not unexpected, "\n".join(unexpected)
    assert sum(state == "equal" for _, state, _ in found) > len(found) / 2


@pytest.mark.parametrize(
    "name",
    [
        "test_reduce_sum_square_empty_set_expanded",
        "test_reduce_l2_keep_dims_example_expanded",
        "test_layer_normalization_2d_axis1_expanded",
    ],
)
def test_models_that_failed_are_equal(trial: Any, name: str) -> None:
    """Products of tensors without an element; squares, whose operands are equal values; a mean that the host reads, and
    two equal values."""
    (case, *_) = [case for case in graphs.suite_cases(trial.tests, 0) if case.name == name]
    outcome = trial.run(case)
    assert outcome.state == "equal", outcome.message


def test_the_forms_are_int8_and_uint8_by_tensor_and_by_channel(trial: Any) -> None:
    cases = [case for case in graphs.suite_cases(trial.tests, 0) if case.name == "test_basic_conv_with_padding"]
    plain = {(case.form.activation, case.form.per_channel) for case in cases if case.operand_weights}
    assert plain >= {(kind, by_channel) for kind in ("QInt8", "QUInt8") for by_channel in (False, True)}
    assert any(not case.operand_weights for case in cases), "weights that are computed"
    assert {"test_relu", "test_operator_conv", "test_Conv2d", "test_single_relu_model"} <= trial.tests.keys()


def test_the_list_names_tests_that_exist_and_nothing_that_is_wrong(trial: Any) -> None:
    entries = [line.split(": ") for line in suite.listed()]
    assert {name for name, *_ in entries} <= trial.tests.keys()
    assert {state for _, state, *_ in entries} <= set(suite.LISTED)


def test_what_is_not_as_listed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LIST", tmp_path / "list.txt")
    refused = ("test_a", "refused", "CompileError: 'x3' has 1,024 rows in /tmp/a1/b.onnx")
    suite.write_list([refused, ("test_b", "wrong", "unequal: y (3)"), ("test_c", "equal", "")])
    assert suite.listed() == {"test_a: refused: CompileError: _ has _ rows in _"}
    assert not suite.surprises([refused, ("test_c", "equal", "")], every=True)
    assert not suite.surprises([("test_a", "refused", "CompileError: 'y' has 2 rows in /x")], every=True)
    assert suite.surprises([("test_b", "wrong", "y")], every=False) == ["not on the list: test_b: wrong: y"]
    assert suite.surprises([("test_a", "refused", "other")], every=False) == ["not on the list: test_a: refused: other"]
    (gone,) = suite.surprises([("test_a", "equal", "")], every=True)
    assert gone.startswith("only on the list: test_a: refused")
    assert not suite.surprises([("test_a", "equal", "")], every=False)
