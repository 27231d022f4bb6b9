"""The trial of quantised models: a sample of it, and that it notices what it is there for."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from weft.hw.config import named_config

from benchmarks.campaigns import quantised_core
from benchmarks.campaigns import quantised_graphs as trial_module

Case, Trial = trial_module.Case, trial_module.Trial
SAMPLE = (3,)
ON_RTL = {"random": 20, "core": 30}
"""Of the long test's graphs on the RTL, how many of each part."""

FORM = trial_module.Form("QDQ", "QInt8", "QInt8", per_channel=True)


@pytest.fixture(scope="module")
def trial() -> Any:
    return Trial(named_config("pynq"))


@pytest.mark.parametrize("number", SAMPLE)
def test_random_graphs_are_equal(trial: Any, number: int) -> None:
    (case,) = trial_module.random_cases(number, 1, 0)
    outcome = trial.run(case)
    assert outcome.state == "equal", outcome.message


def test_a_network_is_equal_and_mostly_on_the_core(trial: Any) -> None:
    outcome = trial.run(Case("networks", "audio-net", FORM))
    assert outcome.state == "equal", outcome.message
    assert outcome.on_core >= 5
    assert not outcome.in_numpy


def test_a_network_is_equal_on_the_rtl_in_the_cycles_of_the_timing_model(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(named_config("tiny"), device="rtl")
    case = Case("networks", "anomaly-autoencoder", FORM)
    outcome = trial.run(case)
    assert outcome.state == "equal", outcome.message
    monkeypatch.setattr(trial_module, "predict_runs", lambda *_: [])
    outcome = trial.run(case)
    assert outcome.state == "wrong"
    assert re.match(r"unequal: cycles \(\d+\), cycles, chained \(\d+\)$", outcome.message)


SAMPLE_ON_RTL = (3, 9, 10)
"""Graphs of the part ``core`` that together have all of its features."""


def test_random_graphs_are_equal_on_the_rtl_in_the_cycles_of_the_timing_model() -> None:
    outcomes = on_rtl([case for number in SAMPLE_ON_RTL for case in trial_module.random_cases(number, 1, 0, "core")])
    assert {each for outcome in outcomes for each in outcome.features} == set(quantised_core.FEATURES)


@pytest.mark.long
def test_many_random_graphs_are_equal_on_the_rtl_in_the_cycles_of_the_timing_model() -> None:
    cases = [case for part, count in ON_RTL.items() for case in trial_module.random_cases(0, count, 1, part)]
    counts = Counter(each for outcome in on_rtl(cases) for each in outcome.features)
    assert min(counts[each] for each in quantised_core.FEATURES) >= 3, counts


def on_rtl(cases: list[Any]) -> list[Any]:
    """The outcomes on the RTL, all of them good."""
    trial = Trial(named_config("tiny"), device="rtl")
    outcomes = [trial.run(case) for case in cases]
    bad = [f"{case}: {outcome.message}" for case, outcome in zip(cases, outcomes, strict=True) if not outcome.good]
    assert not bad, "\n".join(bad)
    assert sum(outcome.state == "equal" for outcome in outcomes) > 0.8 * len(outcomes)
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize("part", ["random", "core", "networks"])
def test_every_case_is_equal(trial: Any, part: str) -> None:
    cases = trial_module.network_cases(0) if part == "networks" else trial_module.random_cases(0, 200, 1, part)
    bad = [f"{case}: {outcome.message}" for case in cases if not (outcome := trial.run(case)).good]
    assert not bad, "\n".join(bad)


def test_a_case_depends_on_its_number_and_the_seed_alone() -> None:
    before = trial_module.random_cases(5, 3, 9)
    assert before[2] == trial_module.random_cases(7, 1, 9)[0]
    assert before[2] != trial_module.random_cases(7, 1, 8)[0]
    models = [trial_module.random_model(7, 9) for _ in range(2)]
    assert models[0][0].SerializeToString() == models[1][0].SerializeToString()
    for one, other in zip(models[0][1], models[1][1], strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("fault", ["graph", "chained", "onnxruntime", "refusal", "internal"])
def test_faults_are_noticed(trial: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("networks", "prelu-net", FORM)
    wanted = "wrong"
    if fault == "graph":  # one integer of one layer
        layers = trial_module.graph_layers

        def changed(*arguments: Any) -> Any:
            found, outputs = layers(*arguments)
            found[1] = found[1].copy()
            found[1].reshape(-1)[0] ^= 1
            return found, outputs

        monkeypatch.setattr(trial_module, "graph_layers", changed)
    elif fault == "chained":  # what the program with chains gives
        run = Trial._run

        def differs(self: Any, model: Any, given: Any, *, keep: bool = False) -> Any:
            values, unequal = run(self, model, given, keep=keep)
            return values if keep else {name: value + 1 for name, value in values.items()}, unequal

        monkeypatch.setattr(Trial, "_run", differs)
    elif fault == "onnxruntime":
        results = trial_module.onnxruntime_results
        monkeypatch.setattr(
            trial_module, "onnxruntime_results",
            lambda *arguments: {name: value[:, ::-1] for name, value in results(*arguments).items()},
        )  # fmt: skip
    else:
        error = trial_module.WeftError("no") if fault == "refusal" else KeyError("no")
        wanted = "refused" if fault == "refusal" else "error"

        def fails(*arguments: Any) -> Any:
            raise error

        monkeypatch.setattr(trial_module, "prepared", fails)
    outcome = trial.run(case)
    assert outcome.state == wanted
    assert not outcome.good


def test_distances_are_in_steps_of_the_result() -> None:
    wanted = {"y": np.linspace(0, 255, 256, dtype=np.float32)}
    assert not trial_module.far({"y": wanted["y"] + 3}, wanted, 4.0, 0.0)
    assert "y: 5.0 steps" in trial_module.far({"y": wanted["y"] + 5}, wanted, 4.0, 0.0)
    assert not trial_module.far({"y": wanted["y"] + 5}, wanted, 4.0, 2.0), "the model's own step is coarser"
    indices = {"y": np.arange(8)}
    assert "88% of the indices" in trial_module.far({"y": indices["y"] * 2}, indices, 4.0, 0.0)
    assert "not int64[8]" in trial_module.far({"y": indices["y"][:4]}, indices, 4.0, 0.0)


def test_forms_are_as_onnxruntime_takes_them() -> None:
    forms = [trial_module.random_form(np.random.default_rng(seed)) for seed in range(200)]
    assert {(form.layout, form.activation, form.weight) for form in forms} >= {
        ("QDQ", "QInt8", "QInt8"), ("QOperator", "QUInt8", "QUInt8"),
    }  # fmt: skip
    assert not any(form.activation == "QInt8" and form.weight == "QUInt8" for form in forms)
    assert len({dataclasses.astuple(form) for form in forms}) > 150
