"""Random schedules of random computations; `benchmarks/campaigns/fuzz_schedules.py` runs many, and sees faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.compiler import tensor as t
from weft.compiler.tensor import loops
from weft.compiler.tensor.schedule import REPLAYED, Step

from benchmarks.campaigns import fuzz_schedules as fuzz

CASES = 30
CPU_EACH = 4


@pytest.mark.parametrize("block", range(4))
def test_random_schedules_keep_the_meaning_or_are_refused(block: int) -> None:
    counts: dict[str, int] = {}
    for number in range(block * CASES, block * CASES + CASES):
        outcome = fuzz.check(fuzz.drawn(number, 0, CPU_EACH))
        assert not outcome.wrong, f"case {number}: {outcome.wrong}"
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
    for name in ("steps taken", "steps refused", "interpreted", "cpu: run", "fsim: run"):
        assert counts[name] > 2, name


def test_every_primitive_is_tried() -> None:
    tried = {step.primitive for number in range(0, 200, 3) for step in fuzz.drawn(number, 0).steps}
    assert tried == REPLAYED


def test_a_case_depends_on_its_number_alone() -> None:
    for number in (3, 5):
        assert fuzz.drawn(number, 0) == fuzz.drawn(number, 0) != fuzz.drawn(number, 1)


def test_a_fault_is_found_shrunk_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that lose their last iteration where they are unrolled."""
    marked = loops.mark

    def wrong(func: t.PrimFunc, loop: t.Var, kind: str) -> t.PrimFunc:
        func = marked(func, loop, kind)
        node = loops.find_loop(func, loop)[-1]
        assert isinstance(node, t.For)
        shorter = isinstance(node.extent, t.Const) and int(node.extent.value) - 1
        return loops.rewrite(func, node, replace(node, extent=t.Const(shorter))) if kind == "unroll" else func

    monkeypatch.setattr(loops, "mark", wrong)
    cases = (fuzz.drawn(number, 0, 10**9) for number in range(0, 300, 3))
    failing = next(case for case in cases if "differs" in fuzz.check(case).wrong)
    small = fuzz.shrunk(failing, lambda case: bool(fuzz.check(case).wrong))
    assert [step.primitive for step in small.steps if step.primitive == "unroll"] == ["unroll"]
    assert len(small.steps) <= 2  # the loop may be one that a step made
    spoiled: dict[str, t.Schedule] = {}
    exec(fuzz.program(small), spoiled)
    assert spoiled["schedule"].trace


def test_a_refusal_that_leaves_traces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(schedule: t.Schedule, loop: str) -> None:
        schedule.func = t.PrimFunc("other", schedule.func.params, schedule.func.body)
        raise t.ScheduleError("no")

    monkeypatch.setattr(t.Schedule, "parallel", wrong)
    case = replace(fuzz.drawn(0, 0), steps=(Step("parallel", (("loop", "x"),)),))
    assert fuzz.check(case).wrong == "parallel(loop='x') was refused, but changed the schedule"


def test_a_process_that_hangs_or_crashes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = fuzz.Worker()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(fuzz, "SECONDS", 0.0)
            assert "it did not end within 0 s" in worker.run((0, 0, 100)).wrong
        assert worker.run((1, 0, 100)).wrong == ""
        worker._process.kill()
        assert "the process crashed, exit status -9" in worker.run((1, 0, 100)).wrong
    finally:
        worker.close()
