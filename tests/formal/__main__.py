"""``python -m tests.formal``: runs every proof and the refutation of its mutant, and prints a table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from .prover import SOLVERS, Mutant, MutantFinder, Outcome, Proof, ProverError, Verdict, prove, refute_mutant

ROW = "{:26} {:22} {:>5} {:>8}  {:16} {}"
INSTRUCTION_ROW = "{:28} {:40} {:>10} {:>8}"


def main(arguments: list[str]) -> int:
    """Status 0 only if everything chosen is proved and every mutant refuted."""
    parser = argparse.ArgumentParser(prog="python -m tests.formal", description=__doc__)
    parser.add_argument("names", nargs="*", help="proofs to run (all of them if none is named)")
    parser.add_argument("--list", action="store_true", help="print what is proved, run nothing")
    parser.add_argument("--solver", choices=SOLVERS, help="ask this one only (default: the faster one of each proof)")
    parser.add_argument("--emit-mutant", metavar="MUTANT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.emit_mutant:
        # Before anything of the core is imported.
        sys.meta_path.insert(0, MutantFinder(Mutant(**json.loads(options.emit_mutant))))
    from .proofs import PROOFS

    if unknown := set(options.names) - PROOFS.keys():
        parser.error(f"unknown proof {min(unknown)!r}; there are: {', '.join(PROOFS)}")
    chosen = [PROOFS[name] for name in options.names] or list(PROOFS.values())
    if options.emit_mutant:
        print(chosen[0].build().rtlil())
        return 0
    if options.list:
        for proof in chosen:
            print(f"{proof.name:26} {proof.claim}")
        return 0
    if options.solver:
        chosen = [replace(proof, solver=options.solver) for proof in chosen]
    print(ROW.format("property", "method", "depth", "seconds", "mutant", "claim"))
    outcomes = [_report(proof) for proof in chosen]
    _print_instructions(chosen, outcomes)
    return 0 if None not in outcomes else 1


def _print_instructions(chosen: Sequence[Proof], outcomes: Sequence[Outcome | None]) -> None:
    """Of the instruction set what was proved: instruction, what of it, depth, seconds."""
    rows = [(proof, outcome) for proof, outcome in zip(chosen, outcomes, strict=True) if proof.instruction]
    if rows:
        print("\n" + INSTRUCTION_ROW.format("instruction", "of it", "depth", "seconds"))
    for proof, outcome in rows:
        depth, seconds = _method(proof, outcome)[1:] if outcome is not None else ("NOT PROVED", "")
        print(INSTRUCTION_ROW.format(proof.instruction, proof.flags, depth, seconds))


def _report(proof: Proof) -> Outcome | None:
    """The outcome, if the property holds and its mutant is refuted."""
    try:
        proved = prove(proof)
        print(ROW.format(proof.name, *_method(proof, proved), "", "", "").rstrip(), end="  ", flush=True)
        mutant = refute_mutant(proof)
    except ProverError as error:
        print(f"\n{proof.name}: ERROR: {error}", file=sys.stderr)
        return None
    refuted = mutant.verdict is Verdict.REFUTED
    print(f"{f'refuted {mutant.seconds:.1f} s' if refuted else 'NOT REFUTED':16} {proof.claim}", flush=True)
    if proved.verdict is not Verdict.PROVED:
        print(proved.report, file=sys.stderr)
    return proved if proved.verdict is Verdict.PROVED and refuted else None


def _method(proof: Proof, outcome: Outcome) -> tuple[str, str, str]:
    """Columns method, depth, seconds."""
    seconds = f"{outcome.seconds:.1f}"
    if outcome.verdict is not Verdict.PROVED:
        return outcome.verdict.value.upper(), str(proof.depth), seconds
    if outcome.induction is not None:
        return f"induction ({outcome.induction} steps)", "any", seconds
    if proof.whole_window:
        return f"any state, {proof.depth} cycles", "any", seconds
    return "bounded, any state" if proof.any_state else "bounded", str(proof.depth), seconds


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
