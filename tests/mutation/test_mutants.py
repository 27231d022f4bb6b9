"""Every mutant still fits the source that it changes, so that refactoring cannot make the campaign rot."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from .mutants import MUTANTS, PARTS, Mutant
from .runner import BUILDING, PACKAGE, ROOT, SUITES, State, SuiteError, mutated_source, run_suite, suite_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_changes_its_file_and_still_parses(mutant: Mutant) -> None:
    assert mutant.old != mutant.new
    changed = mutated_source(mutant)
    if mutant.path.endswith(".py"):
        assert ast.dump(ast.parse(changed)) != dump_of(mutant.path)


@cache
def dump_of(path: str) -> str:
    """The tree of a file as it stands: many mutants share one."""
    return ast.dump(ast.parse((PACKAGE / path).read_text()))


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def with_gates() -> set[str]:
    return {f"hw/{path.name}" for path in (PACKAGE / "hw").glob("*.py") if "def elaborate(" in path.read_text()}


def test_every_module_with_gates_has_a_mutant() -> None:
    paths = {mutant.path for mutant in PARTS["hardware"]}
    assert with_gates() <= paths
    assert all(path.startswith("hw/") for path in paths)


def test_every_part_of_the_package_has_mutants() -> None:
    beginnings = {
        "simulators": ("sim/",), "timing": ("sim/timing", "sim/dram_banks.h"),
        "harness": ("sim/harness.cpp", "sim/harness_memory.h"),
        "compiler": ("compiler/", "runtime/", "kept_models.py"), "systems": ("cli/", "compiler/", "runtime/", "sim/"),
        "tensors": ("compiler/tensor/",),
        "gradients": ("compiler/", "train/"),
    }  # fmt: skip
    for part, allowed in beginnings.items():
        assert all(mutant.path.startswith(allowed) for mutant in PARTS[part]), part
    assert all(mutant.path.endswith(".py") for mutant in PARTS["simulators"])
    folders = {mutant.path.rpartition("/")[0] for mutant in MUTANTS}
    assert folders >= {
        *("compiler/tensor", "compiler/targets/accel", "compiler/targets/loops", "compiler/targets/cpu/llvm"),
        *("compiler/targets/llvm", "compiler/targets/gpu", "sim/ptx", "sim/ptx/instructions"),
        *("compiler/passes", "compiler/operators", "compiler/frontends/onnx", "runtime"),
    }


def test_every_file_of_a_suite_exists() -> None:
    suites = (*SUITES.values(), *map(suite_of, MUTANTS))
    named = {test for suite in suites for test in suite}
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [mutant.name for mutant in MUTANTS if not suite_of(mutant)] == []


def test_a_stale_mutant_is_an_error() -> None:
    stale = replace(MUTANTS[0], old="no such line")
    with pytest.raises(SuiteError, match=r"mutant 'acc-bank-of-low-bits': 'no such line' stands 0 times in hw/acc_mem"):
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


def test_a_fault_is_caught_in_a_copy_and_the_core_itself_passes(tmp_path: Path) -> None:
    suite = ["tests/hw/test_tokens.py"]
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "token-depth")
    caught_by, _ = run_suite(mutant, suite, tmp_path)
    assert "test_tokens.py::test_tokens_are_counted_for_every_pair" in caught_by
    assert run_suite(None, suite, tmp_path)[0] == ""


def test_only_tests_that_import_the_file_are_run_and_its_own_come_first() -> None:
    by_path = {mutant.path: suite_of(replace(mutant, tests=())) for mutant in MUTANTS}
    assert by_path["hw/store.py"][0] == "tests/hw/test_store.py"
    assert by_path["hw/load_writer.py"][0] == "tests/hw/test_load.py"
    assert "tests/hw/test_registers.py" not in by_path["hw/gemm.py"]
    # no part of any core
    between_cores = {
        f"hw/{name}.py" for name in ("interconnect", "register_windows", "relay", "shared_reads", "system")
    }
    for path in with_gates():
        of_cores = set() if path in between_cores else {"tests/hw/test_core_bus.py"}
        assert {*BUILDING, *of_cores} <= set(by_path[path]), path
    assert by_path["sim/harness.cpp"][0] == "tests/sim/test_harness.py"
    assert by_path["sim/timing_memory.h"][-1] == "tests/sim/test_timing.py"
    assert by_path["compiler/tensor/simplify.py"][0] == "tests/compiler/tensor/test_simplify.py"
