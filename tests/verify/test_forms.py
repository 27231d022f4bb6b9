"""Models of every form have a certificate, and the campaign with faults in the compiler tells what becomes of one."""

from __future__ import annotations

import json
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from weft.benchmarks.campaigns import certificate_mutants as campaign
from weft.benchmarks.campaigns.certificate_forms import FORMS, SELDOM, Case, all_cases, case_of
from weft.benchmarks.campaigns.certificate_mutants import Found, Lines, changed_lines, digest_of, judged
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.passes.pack_layout import pack_function
from weft.tests.mutation.mutants import Mutant
from weft.verify import verify

QUICK = [form for form in FORMS if form not in SELDOM]
FORMER_ALARMS = [("rows", 3)]
"""Models that are right, and were not proved: a function of a byte with equal tables for all channels, moved."""


@pytest.mark.parametrize(("form", "seed"), [*((form, 0) for form in QUICK), *FORMER_ALARMS])
def test_a_model_of_every_form_is_proved(form: str, seed: int) -> None:
    case = made(form, seed)
    found = verify(case.model, case.integer, seed=seed)
    assert found.proved, found.alarms
    assert found.outputs
    assert found.elements


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", FORMS)
def test_many_models_of_every_form_are_proved(form: str, seed: int) -> None:
    case = case_of(form, seed)
    if case is not None:
        found = verify(case.model, case.integer, seed=seed)
        assert found.proved, found.alarms


def made(form: str, seed: int) -> Case:
    case = case_of(form, seed)
    assert case is not None
    return case


def test_a_model_depends_on_its_form_and_seed_alone() -> None:
    first, again, other = made("layer", 0), made("layer", 0), made("layer", 2)
    assert digest_of(first) == digest_of(again) != digest_of(other)


def test_forms_take_turns() -> None:
    assert list(all_cases(range(2), ("layer", "litert"))) == [("layer", 0), ("litert", 0), ("layer", 1)]


# Faults in the compiler

CASES = [("chain", 0), ("depthwise", 0)]


@pytest.fixture
def cases() -> list[tuple[str, int, str]]:
    return [(form, seed, digest_of(made(form, seed))) for form, seed in CASES]


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are packed again, though this process has packed them before."""
    monkeypatch.setitem(pack_function.__globals__, "_PACKED", WeakKeyDictionary())


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch, anew: None) -> None:
    """Windows whose packed weights are upside down."""
    right = packed_layout.pack_depthwise_weights
    monkeypatch.setattr(packed_layout, "pack_depthwise_weights", lambda w, blocks: right(w[:, :, ::-1], blocks))


def test_without_a_fault_all_stays_the_same(cases: list[tuple[str, int, str]]) -> None:
    assert judged(cases).found is Found.SAME


@pytest.mark.usefixtures("turned")
def test_a_fault_in_a_layout_is_found_by_the_proof() -> None:
    outcome = judged([("depthwise", 0, "")])
    assert outcome.found is Found.PROOF
    assert outcome.case == "depthwise 0"


@pytest.mark.usefixtures("turned")
def test_a_fault_that_only_fsim_shows_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = made("depthwise", 0)
    proved = verify(case.model)
    assert proved.proved  # the program is what its packed graph says; that is another one than the model's
    monkeypatch.setattr(campaign, "verify", lambda *_, **__: proved)
    outcome = judged([("depthwise", 0, "")])
    assert outcome.found is Found.MISSED
    assert "differs in" in outcome.text


def test_another_program_that_computes_the_same_is_told_apart() -> None:
    outcome = judged([("layer", 0, "the digest of another program")])
    assert outcome.found is Found.OTHER


@pytest.mark.usefixtures("anew")
def test_a_compiler_that_stops_has_found_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> np.ndarray:
        raise IndexError("no such block")

    monkeypatch.setattr(packed_layout, "pack_depthwise_weights", fails)
    assert judged([("depthwise", 0, "")]).found is Found.COMPILER


def test_lines_are_those_of_the_statement_around_a_change() -> None:
    source = "A = 1\n\n\ndef f(x):\n    if x:\n        y = [\n            x + 1,\n        ]\n"
    source += "        return y\n    return 0\n"
    assert changed_lines(source, "A = 1") is None
    assert changed_lines(source, "x + 1") == {6, 7, 8}
    assert changed_lines(source, "return 0") == {10}


def test_lines_that_run_are_noted() -> None:
    with Lines() as lines:
        made("layer", 0)
    assert lines.found["compiler/targets/accel/link/window.py"]
    assert not any(path.startswith("compiler/graph") for path in lines.found)


def test_a_fault_that_no_model_runs_is_named(tmp_path: Path) -> None:
    package = tmp_path / "weft"
    package.mkdir()
    (package / "x.py").write_text("def f():\n    return 1\n")
    mutant = Mutant("name", "x.py", "kind", "return 1", "return 2")
    tried = campaign.Tried("layer", 0, "", 0.1, {"x.py": [1]})
    assert campaign.outcome_of(package, mutant, [tried]).found is Found.NOT_RUN


def test_a_process_answers_with_what_became_of_its_cases(tmp_path: Path, cases: list[tuple[str, int, str]]) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(cases[:1]))
    campaign.main(["--cases", str(tmp_path / "cases.json"), "--result", str(tmp_path / "result.json")])
    assert json.loads((tmp_path / "result.json").read_text())["found"] == Found.SAME
