"""The default schedule: what is not legal at one of its stages is refused, with the layer's name."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from weft.compiler.targets.accel.schedule import schedule as rules
from weft.compiler.targets.errors import CompileError
from weft.compiler.tensor import Schedule, ScheduleError, TensorIntrinsic, Var
from weft.compiler.tensor.ir import PrimFunc
from weft.hw.config import TINY

from ..kernels import compile_function
from ..test_kernels import KINDS, Case


def refusal() -> str:
    """What the compiler says of a convolution."""
    with pytest.raises(CompileError) as error:
        compile_function(Case("conv", TINY).function(), TINY)
    return str(error.value)


def test_what_compute_gives_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    create = rules.create_schedule

    def parallel(*arguments: object) -> Schedule:
        schedule = create(*arguments)  # type: ignore[arg-type]
        schedule.parallel(schedule.get_loops("output")[2])
        return schedule

    monkeypatch.setattr(rules, "create_schedule", parallel)
    assert refusal() == (
        "function 'kernel': its default schedule fails: loop 'output_y': loop kind 'parallel' is not legal in a "
        "function that is computed; hint: legal are serial"
    )


def test_what_the_emitter_gets_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = rules._attach

    def parallel(schedule: Schedule, *arguments: object) -> None:
        attach(schedule, *arguments)  # type: ignore[arg-type]
        loop = schedule.get_loops("data")[1]
        marked.add(loop.name)
        schedule.parallel(loop)

    marked: set[str] = set()
    monkeypatch.setattr(rules, "_attach", parallel)
    refused = refusal()
    assert refused in {
        f"function 'kernel': its default schedule fails: loop {name!r}: loop kind 'parallel' is not legal in a "
        "function that is tensorized for tiny; hint: legal are serial, unroll, vthread"
        for name in marked
    }


def test_a_stage_that_is_no_instruction_does_not_reach_the_emitter(monkeypatch: pytest.MonkeyPatch) -> None:
    tensorize = rules._tensorize

    def all_but_data(schedule: Schedule, config: object, name: str, **options: bool) -> None:
        if name != "data":
            tensorize(schedule, config, name, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rules, "_tensorize", all_but_data)
    assert refusal() == (
        "function 'kernel': its default schedule fails: block 'data': statement 'Block' is not legal in a "
        "function that is tensorized for tiny; hint: legal are For, Allocate, Seq, IntrinsicCall"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_at_a_glance_is_refused_with_a_reason(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an explanation, tensorize looks first at what is computed at all. It may not refuse more for that."""
    module = sys.modules[Schedule.__module__]
    tensorize = module.tensorize
    outcomes: Counter[bool] = Counter()

    def both(func: PrimFunc, loop: Var, intrinsic: TensorIntrinsic, *, explain: bool) -> PrimFunc:
        try:
            quick = tensorize(func, loop, intrinsic, explain=False)
        except ScheduleError:
            quick = None
        try:
            slow = tensorize(func, loop, intrinsic, explain=True)
        except ScheduleError:
            slow = None
        assert quick == slow, intrinsic.name
        outcomes[quick is not None] += 1
        if quick is None:
            raise ScheduleError("refused")
        return quick

    monkeypatch.setattr(module, "tensorize", both)
    compile_function(Case(kind, TINY, channels=9, size=(5, 6), seed=1).function(), TINY)
    assert outcomes[True] >= 2
    assert outcomes[False] >= 2
