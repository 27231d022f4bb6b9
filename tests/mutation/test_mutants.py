"""Every mutant still fits the source that it changes, so that refactoring cannot make the campaign rot."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from . import runner
from .mutants import MUTANTS, Mutant
from .runner import ROOT, SUITE, State, SuiteError, mutated_source


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_changes_its_module_and_still_parses(mutant: Mutant) -> None:
    assert mutant.old != mutant.new
    source = (ROOT / "hw" / f"{mutant.module}.py").read_text()
    assert ast.dump(ast.parse(mutated_source(mutant))) != ast.dump(ast.parse(source))


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_module_with_gates_has_a_mutant() -> None:
    with_gates = {path.stem for path in (ROOT / "hw").glob("*.py") if "def elaborate(" in path.read_text()}
    assert {mutant.module for mutant in MUTANTS} == with_gates


def test_every_file_of_the_suite_exists() -> None:
    assert [path for path in SUITE if not (ROOT / path).exists()] == []


def test_a_stale_mutant_is_an_error() -> None:
    stale = replace(MUTANTS[0], old="no such line")
    with pytest.raises(SuiteError, match=r"mutant 'acc-bank-of-low-bits': 'no such line' stands 0 times in acc_mem"):
        mutated_source(stale)


def test_outcomes_are_kept_until_what_they_depend_on_changes(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = State(path)
    state.add("caught", "tests/hw/test_x.py::test_y", 1.5, ("module", "module and tests"))
    state.add("survivor", "", 2.5, ("module", "module and tests"))
    again = State(path)
    caught = again.find("caught", ("module", "module and other tests"))
    assert caught is not None
    assert (caught.caught_by, caught.seconds) == ("tests/hw/test_x.py::test_y", 1.5)
    assert again.find("caught", ("other module", "module and tests")) is None
    assert again.find("survivor", ("module", "module and tests")) is not None
    assert again.find("survivor", ("module", "module and other tests")) is None
    assert again.find("unknown", ("module", "module and tests")) is None


def test_a_fault_is_caught_in_a_copy_and_the_core_itself_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SUITE", ("tests/hw/test_tokens.py",))
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "token-depth")
    caught_by, _ = runner.run_suite(mutant, tmp_path)
    assert "test_tokens.py::test_tokens_are_counted_for_every_pair" in caught_by
    assert runner.run_suite(None, tmp_path)[0] == ""


def test_only_tests_that_import_the_module_are_run_and_its_own_come_first() -> None:
    by_module = {mutant.module: runner.ordered_suite(mutant) for mutant in MUTANTS}
    assert by_module["store"][0] == "tests/hw/test_store.py"
    assert by_module["load_writer"][0] == "tests/hw/test_load.py"
    assert "tests/hw/test_registers.py" not in by_module["gemm"]
    for module, suite in by_module.items():
        assert "tests/hw/test_core.py" in suite, module
        assert "tests/sim/test_fuzz.py" in suite, module
