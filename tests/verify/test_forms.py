"""Models of every form have a certificate, and the campaign with faults in the compiler tells what becomes of one."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.passes.pack_layout import pack_function
from weft.verify import verify

from benchmarks.campaigns import certificate_mutants as campaign
from benchmarks.campaigns.certificate_forms import FORMS, SELDOM, Case, all_cases, case_of
from benchmarks.campaigns.certificate_mutants import Found, Lines, Outcome, changed_lines, digest_of, judged
from benchmarks.campaigns.in_memory import planted
from tests.mutation.mutants import Mutant

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
    assert list(all_cases(range(2), ("rows", "litert"))) == [("rows", 0), ("litert", 0), ("rows", 1)]
    assert list(all_cases(range(1, 2), ("grouped",))) == [("grouped", 2), ("grouped", 3)]


# Faults in the compiler


def test_forms_are_tried_in_turn_the_quickest_models_first() -> None:
    models = [campaign.Tried(form, seed, "", seconds, {}) for form, seed, seconds in
              (("a", 0, 0.3), ("a", 1, 0.1), ("b", 0, 0.2), ("a", 2, 0.2))]  # fmt: skip
    assert [(each.form, each.seed) for each in campaign.forms_in_turn(models)] == [
        ("a", 1), ("b", 0), ("a", 2), ("a", 0),
    ]  # fmt: skip


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


TOKENS = "compiler/targets/accel/stream/tokens.py"


def test_lines_of_scans_run_too() -> None:
    """They are Python in the processes of a campaign, and machine code in all others."""

    def lines(in_python: bool) -> set[int]:
        if in_python:
            campaign.run_scans_in_python()
        with Lines() as found:
            made("layer", 0)
        return {*found.found[TOKENS]}

    inside = changed_lines((campaign.ROOT / TOKENS).read_text(), "sends[position] |= 1 << target")
    assert inside
    by_machine, by_python = (campaign._forked(partial(lines, each), None) for each in (False, True))
    assert by_machine
    assert by_python
    assert not inside & by_machine
    assert inside & by_python


def mutant(path: str, old: str, new: str) -> Mutant:
    return Mutant("name", path, "kind", old, new)


LAYOUT = "compiler/targets/accel/operators/packed_layout.py"
TURNED = mutant(LAYOUT, "split.transpose(0, 2, 4, 3, 5, 1)", "split.transpose(0, 2, 4, 5, 3, 1)")


def test_a_fault_that_no_model_runs_is_named() -> None:
    tried = campaign.Tried("layer", 0, "", 0.1, {LAYOUT: [1]})
    assert campaign.outcome_of(TURNED, [tried]).found is Found.NOT_RUN


def test_a_fault_is_planted_in_a_process_of_its_own() -> None:
    """A copy of this one has it, and this one has not."""
    digest = campaign._forked(lambda: digest_of(made("depthwise", 102)), None)
    lines = changed_lines((campaign.ROOT / LAYOUT).read_text(), TURNED.old)
    assert digest
    assert lines
    tried = campaign.Tried("depthwise", 102, digest, 0.1, {LAYOUT: [*lines]})
    assert campaign.outcome_of(TURNED, [tried]).found is Found.PROOF
    assert judged([("depthwise", 102, digest)]).found is Found.SAME


def test_what_is_done_at_an_import_cannot_be_planted() -> None:
    tried = campaign.Tried("layer", 0, "", 0.1, {})
    other = mutant("compiler/targets/accel/operators/moves.py", "_LARGEST = 127", "_LARGEST = 126")
    assert campaign.outcome_of(other, [tried]).found is Found.NOT_PLANTED


def test_a_process_that_dies_or_does_not_end_gives_nothing() -> None:
    assert campaign._forked(lambda: 1, None) == 1
    assert campaign._forked(lambda: os._exit(3), None) is None
    assert campaign._forked(lambda: time.sleep(60), 0.05) is None


def test_no_further_model_is_tried_when_time_is_up(cases: list[tuple[str, int, str]]) -> None:
    assert [judged(cases, seconds).tried for seconds in (0.0, 60.0)] == [1, 2]


def test_a_sample_of_the_faults_is_the_same_again() -> None:
    able = {each.name for each in campaign.able()}
    sample = [each.name for each in campaign.drawn([], 9)]
    assert sample == [each.name for each in campaign.drawn([], 9)]
    assert len({*sample} & able) == 9
    assert {each.name for each in campaign.drawn([], 10**6)} == able
    assert [each.name for each in campaign.drawn(sample[:1], None)] == sample[:1]


def test_what_became_of_a_fault_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def outcome(mutant: Mutant, *_: object) -> Outcome:
        asked.append(mutant.name)
        return Outcome(Found.PROOF, "layer 0", "why", 3)

    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(campaign, "outcome_of", outcome)
    first = campaign.kept_outcome(TURNED, [], 1, 9.0)
    assert campaign.kept_outcome(TURNED, [], 1, 9.0) == first == Outcome(Found.PROOF, "layer 0", "why", 3)
    assert asked == ["name"]
    for seeds, seconds, new in ((2, 9.0, "1"), (1, 8.0, "1"), (1, 9.0, "2")):
        campaign.kept_outcome(mutant(LAYOUT, "0", new), [], seeds, seconds)
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("founds", "shares", "failed"),
    [
        ([Found.PROOF, Found.COMPILER, Found.STOPPED, Found.SAME, Found.NOT_RUN], [1.0, 1.0], False),
        ([Found.PROOF, Found.OTHER], [1.0, 0.5], False),
        ([*[Found.PROOF] * 199, Found.MISSED], [0.995, 0.995], True),
        ([*[Found.PROOF] * 2, Found.MISSED, Found.OTHER], [0.6667, 0.5], True),
        ([Found.SAME], [1.0, 0.0], False),
    ],
)
def test_the_shares_that_are_found_are_of_what_shows_and_of_what_changes(
    founds: list[Found], shares: list[float], failed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    records, missed = campaign.records_of({f"fault {number:03}": Outcome(each) for number, each in enumerate(founds)})
    assert ([each.value for each in records[-2:]], missed) == (shares, failed)
    assert {each.figure: each.value for each in records[1:-2]} == {kind.value: founds.count(kind) for kind in Found}
    named = capsys.readouterr().out
    for number, found in enumerate(founds):
        assert (f"fault {number:03}" in named) is (found in campaign.SURVIVORS)


def test_functions_of_any_kind_get_other_code(tmp_path: Path) -> None:
    source = """
from functools import cached_property, lru_cache
class A:
    @cached_property
    def x(self):
        return [n + 1 for n in range(3)]
    @staticmethod
    def y():
        return 1
@lru_cache
def z():
    return 1
def rule(f):
    return lambda: f() + 1
w = rule(lambda: 1)
"""
    (tmp_path / "changed_module.py").write_text(source)
    space: dict[str, Any] = {}
    path = str(tmp_path / "changed_module.py")
    exec(compile(source, path, "exec", dont_inherit=True), space)
    assert not planted(path, source, source)
    assert not planted(path, source, source.replace("w = rule", "v = rule"))
    for old, new in (("n + 1", "n + 2"), ("y():\n        return 1", "y():\n        return 2"), ("f() + 1", "f() + 9")):
        assert planted(path, source, source.replace(old, new))
    assert planted(path, source, source.replace("z():\n    return 1", "z():\n    return 2"))
    assert (space["A"]().x, space["A"].y(), space["z"](), space["w"]()) == ([2, 3, 4], 2, 2, 10)
