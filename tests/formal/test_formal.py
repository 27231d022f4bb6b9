"""The quick proofs, and the machinery that must never take a wrong answer for a pass. ``make formal`` runs all."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from weft.hw.config import TINY
from weft.hw.tokens import TokenMatrix

from . import prover
from .__main__ import _print_instructions
from .bitwuzla_program import commands
from .harness import Harness
from .proofs import PROOFS
from .prover import ROOT, SOLVERS, Mutant, Outcome, Proof, ProverError, Verdict, prove, refute_mutant

QUICK = (
    *("queue-2", "queue-8", "engine-takes", "read-buffer", "fetch-window", "reset-tokens"),
    *("live-loops", "live-bursts", "live-writer", "live-packer", "live-gemm", "live-shared", "gemm-columns"),
    *("shared-write", "load-at-inp"),
    *("isa-factors", "isa-gemm", "isa-gemm-packed"),
)


@pytest.mark.parametrize("name", QUICK)
def test_property_holds(name: str) -> None:
    outcome = prove(PROOFS[name])
    assert outcome.verdict is Verdict.PROVED, outcome.report


@pytest.mark.parametrize("name", ["queue-2", "engine-takes", "reset-loops"])
def test_a_faulty_core_is_refuted(name: str) -> None:
    assert refute_mutant(PROOFS[name]).verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", sorted(PROOFS))
def test_each_mutant_stands_in_its_source_once(name: str) -> None:
    mutant = PROOFS[name].mutant
    assert (ROOT / "weft" / "hw" / f"{mutant.module}.py").read_text().count(mutant.old) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(PROOFS))
def test_every_property_holds_and_every_mutant_is_refuted(name: str) -> None:
    outcome = prove(PROOFS[name])
    assert outcome.verdict is Verdict.PROVED, outcome.report
    assert refute_mutant(PROOFS[name]).verdict is Verdict.REFUTED


def counter_stays_below(limit: int) -> Harness:
    """Without an assumption about ``take``, a counter wraps."""
    harness = Harness()
    matrix = TokenMatrix(TINY)
    inside = harness.add("matrix", matrix)
    harness.prove(inside["load_to_gemm"] < limit, "below")
    return harness


def proof_of(limit: int) -> Proof:
    return Proof("below", "", lambda: counter_stays_below(limit), Mutant("tokens", "", ""), depth=3)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_false_property_is_refuted_by_name(solver: str) -> None:
    outcome = prove(replace(proof_of(2), solver=solver))
    assert outcome.verdict is Verdict.REFUTED
    assert "broken: below" in outcome.report


def begin_alike() -> Harness:
    """Two registers load the same values and yet may begin with different ones."""
    harness = Harness()
    one, two = Signal(name="one"), Signal(name="two")
    value = harness.free("value")
    with harness.m.If(harness.free("load")):
        harness.m.d.sync += [one.eq(value), two.eq(value)]
    harness.prove(one == two, "alike")
    return harness


def test_any_state_means_any() -> None:
    alike = Proof("alike", "", begin_alike, Mutant("tokens", "", ""), depth=3, inductive=False)
    assert prove(alike).verdict is Verdict.PROVED
    assert prove(replace(alike, any_state=True)).verdict is Verdict.REFUTED


def test_a_property_that_is_gone_after_optimisation_is_an_error() -> None:
    def trivial() -> Harness:
        harness = Harness()
        harness.prove(1, "one")
        harness.prove(1, "two")
        return harness

    with pytest.raises(ProverError, match="of 2 properties, 1 are left"):
        prove(Proof("trivial", "", trivial, Mutant("tokens", "", ""), depth=1))


def test_bitwuzla_is_given_whole_commands() -> None:
    """Brackets in names, texts and comments are none."""
    lines = '(declare-fun |a (b| () Bool) ; (\n(assert\n |a (b|)\n(echo "(")\n'
    assert list(commands(io.StringIO(lines))) == [
        "(declare-fun |a (b| () Bool) ; (\n", "(assert\n |a (b|)\n", '(echo "(")\n',
    ]  # fmt: skip


def test_what_bitwuzla_does_not_read_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", prover.BITWUZLA], cwd=ROOT, input="(assert nothing)", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, "error" in done.stdout) == (1, True)


def test_a_solver_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processes that it began: yosys-smtbmc's solver is one."""
    monkeypatch.setattr(prover, "SECONDS_AT_MOST", 5)
    pid = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid}; wait"
    with pytest.raises(ProverError, match="sh did not answer within 5 s"):
        prover._run(["sh", "-c", script], tmp_path)
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the solver still runs")


def test_what_is_proved_of_instructions_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """And what is not proved says so."""
    whole, *_ = (proof for proof in PROOFS.values() if proof.whole_window)
    other = replace(whole, instruction="OTHER", flags="one")
    _print_instructions([whole, other, PROOFS["queue-2"]], [Outcome(Verdict.PROVED, 1.5), None, None])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[1][-2:] == ["any", "1.5"]
    assert lines[2] == ["OTHER", "one", "NOT", "PROVED"]
    assert len(lines) == 3


def test_a_mutant_that_no_longer_fits_the_source_is_an_error() -> None:
    stale = Proof("queue-2", "", PROOFS["queue-2"].build, Mutant("tokens", "no such line", ""), depth=1)
    with pytest.raises(ProverError, match=r"stands 0 times in tokens\.py"):
        refute_mutant(stale)
