"""``python -m tests.mutation``: plants faults in the core, one at a time, and says which the short suite catches."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .mutants import MUTANTS, Mutant
from .runner import ROOT, Outcome, State, SuiteError, keys_of, keys_of_all, run_suite

LEAST_SCORE = 0.95
ROW = "{:>3} {:36} {:28} {:>7}  {}"
UNCHANGED = "(no fault)"


def main(arguments: list[str]) -> int:
    """Status 0 if the suite passes without a fault and catches at least :data:`LEAST_SCORE` of those chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", help="run this mutant; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "mutation", help="for outcomes and built cores (%(default)s)"
    )
    options = parser.parse_args(arguments)
    names = {mutant.name for mutant in MUTANTS}
    if unknown := set(options.only or ()) - names:
        parser.error(f"unknown mutant {min(unknown)!r}; --list prints all")
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    if options.list:
        for number, mutant in enumerate(chosen, 1):
            print(ROW.format(number, mutant.name, mutant.kind, "", f"{mutant.module}: {mutant.new.strip()}"))
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
    keys = keys_of_all()
    unchanged = state.find(UNCHANGED, keys) or state.add(UNCHANGED, *run_suite(None, cache), keys)
    if unchanged.caught_by:
        raise SuiteError(f"the suite fails without a fault: {unchanged.caught_by}")
    print(ROW.format("", UNCHANGED, "", f"{unchanged.seconds:.1f}", "nothing, as it must be"), flush=True)
    survivors = []
    for number, mutant in enumerate(chosen, 1):
        outcome = _outcome(mutant, state, cache)
        caught_by = outcome.caught_by or "SURVIVED"
        print(ROW.format(number, mutant.name, mutant.kind, f"{outcome.seconds:.1f}", caught_by), flush=True)
        if not outcome.caught_by:
            survivors.append(mutant.name)
    caught = len(chosen) - len(survivors)
    score = caught / len(chosen)
    print(f"caught {caught} of {len(chosen)}: {score:.1%}")
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    return score


def _outcome(mutant: Mutant, state: State, cache: Path) -> Outcome:
    keys = keys_of(mutant)
    return state.find(mutant.name, keys) or state.add(mutant.name, *run_suite(mutant, cache), keys)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
