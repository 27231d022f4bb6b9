"""``python -m tests.mutation``: plants faults in the package, one at a time, and says which the tests catch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .mutants import MUTANTS, PARTS, Mutant
from .runner import ROOT, Outcome, State, SuiteError, keys_of, keys_without_fault, needs_package, run_suite, suite_of

LEAST_SCORE = 0.95
ROW = "{:>3} {:36} {:28} {:>7}  {}"
UNCHANGED = "(no fault)"


def main(arguments: list[str]) -> int:
    """Status 0 if the tests pass without a fault and catch at least :data:`LEAST_SCORE` of those chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="run this mutant; may be repeated")
    parser.add_argument("--part", choices=PARTS, action="append", help="run the mutants of this part; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "mutation", help="for outcomes and built cores (%(default)s)"
    )
    options = parser.parse_args(arguments)
    names = {mutant.name for mutant in MUTANTS}
    if unknown := set(options.only or ()) - names:
        parser.error(f"unknown mutant {min(unknown)!r}; --list prints all")
    wanted = {*(options.only or ()), *(mutant.name for part in options.part or () for mutant in PARTS[part])}
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.name in wanted]
    if options.list:
        for number, mutant in enumerate(chosen, 1):
            print(ROW.format(number, mutant.name, mutant.kind, "", f"{mutant.path}: {mutant.new.strip()}"))
        return 0
    state_file = options.folder / "state.json"
    if options.fresh:
        state_file.unlink(missing_ok=True)
    try:
        return 0 if campaign(chosen, State(state_file), options.folder / "cache") >= LEAST_SCORE else 1
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def campaign(chosen: list[Mutant], state: State, cache: Path) -> float:
    """Run what is not known yet, print the table as it grows, and return the share that was caught."""
    print(ROW.format("", "mutant", "kind", "seconds", "caught by"))
    _check_unchanged(list(dict.fromkeys(test for mutant in chosen for test in suite_of(mutant))), state, cache)
    survivors = set()
    for number, mutant in enumerate(chosen, 1):
        outcome = _outcome(mutant, state, cache)
        caught_by = outcome.caught_by or "SURVIVED"
        print(ROW.format(number, mutant.name, mutant.kind, f"{outcome.seconds:.1f}", caught_by), flush=True)
        if not outcome.caught_by:
            survivors.add(mutant.name)
    for part, mutants in PARTS.items():
        of_part = [mutant.name for mutant in mutants if mutant in chosen]
        if of_part:
            print(f"{part}: caught {len(of_part) - len(survivors.intersection(of_part))} of {len(of_part)}")
    score = 1 - len(survivors) / len(chosen)
    print(f"caught {len(chosen) - len(survivors)} of {len(chosen)}: {score:.1%}")
    if survivors:
        print(f"survived: {', '.join(sorted(survivors))}")
    return score


def _check_unchanged(tests: list[str], state: State, cache: Path) -> None:
    """Without a fault all test files pass, or have passed before; :class:`SuiteError` if not."""
    for whole in (False, True):
        unknown = [test for test in tests if needs_package([test]) is whole and not _passes(test, state)]
        if not unknown:
            continue
        caught_by, seconds = run_suite(None, unknown, cache)
        if caught_by:
            raise SuiteError(f"the suite fails without a fault: {caught_by}")
        for test in unknown:
            state.add(f"{UNCHANGED} {test}", "", seconds, keys_without_fault(test))
        what = f"{len(unknown)} test files"
        print(ROW.format("", UNCHANGED, what, f"{seconds:.1f}", "nothing, as it must be"), flush=True)


def _passes(test: str, state: State) -> bool:
    return state.find(f"{UNCHANGED} {test}", keys_without_fault(test)) is not None


def _outcome(mutant: Mutant, state: State, cache: Path) -> Outcome:
    keys = keys_of(mutant)
    return state.find(mutant.name, keys) or state.add(mutant.name, *run_suite(mutant, suite_of(mutant), cache), keys)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
