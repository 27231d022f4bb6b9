"""ONNX's own backend suite on our backends: what passes and what does not is as the lists say."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from weft.runtime.gpu.opencl import OPTIONS_VARIABLE

from benchmarks.campaigns import onnx_suite

EVERY = {"reference": 10, "cpu": 240, "cuda": 240}  # of the suite's tests, one in so many; all by `make test-long`
EVERY_ON_OPENCL = 300


@pytest.fixture(scope="module", params=sorted(EVERY))
def suite(request: pytest.FixtureRequest) -> Any:
    return onnx_suite.Suite(request.param)


def check(suite: Any, cases: list[Any]) -> None:
    outcomes = list(suite.run(cases, 60.0))
    assert [outcome.name for outcome in outcomes] == [case.name for case in cases]
    unexpected = onnx_suite.surprises(outcomes, onnx_suite.expected_failures(suite.backend))
    assert not unexpected, "\n".join(unexpected)


def small_cases(suite: Any) -> list[Any]:
    """All but whole networks."""
    return [case for case in suite.cases() if case.group != "Real"]


def test_a_sample_of_the_suite(suite: Any) -> None:
    check(suite, small_cases(suite)[:: EVERY[suite.backend]])


def on_opencl(*arguments: str, options: str = "") -> None:
    """The suite runs its tests in a forked process, which no driver of OpenCL outlives: so it has one to itself."""
    command = [sys.executable, onnx_suite.__file__, "--backend", "opencl", *arguments]
    environment = {**os.environ, OPTIONS_VARIABLE: options}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sample_of_the_suite_on_opencl() -> None:
    on_opencl("--every", str(EVERY_ON_OPENCL), options="-cl-opt-disable")


@pytest.mark.long
def test_the_whole_suite_on_opencl() -> None:
    on_opencl()


@pytest.mark.long
def test_the_whole_suite(suite: Any) -> None:
    # The interpreter takes minutes for a network of 224x224.
    check(suite, small_cases(suite) if suite.backend == "cuda" else suite.cases())


def test_the_list_names_tests_that_exist(suite: Any) -> None:
    unknown = onnx_suite.expected_failures(suite.backend) - {case.name for case in suite.cases()}
    assert not unknown, f"no such tests: {sorted(unknown)}; take them off with --update"


def test_a_crash_or_a_hang_costs_one_test(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def misbehave(case: Any) -> Any:
        if case.name == "crash":
            os._exit(7)
        while case.name == "hang":
            pass
        return onnx_suite.Outcome(case.name, case.group, "pass", "", 0.0)

    monkeypatch.setattr(suite, "run_here", misbehave)
    cases = [onnx_suite.Case(name, "group") for name in ("a", "crash", "b", "hang", "c")]
    outcomes = list(suite.run(cases, 1.0))
    assert [outcome.state for outcome in outcomes] == ["pass", "crash", "pass", "timeout", "pass"]
    found = onnx_suite.surprises(outcomes, {"a", "crash"})
    assert [line.split(":")[0].split(" ")[0] for line in found] == ["a", "hang"]
