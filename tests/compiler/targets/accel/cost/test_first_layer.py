"""The first layer of a program: when it is cut into portions of its input channels, and that it stays what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.targets.accel.cost.first_layer import first_tilings
from weft.compiler.targets.accel.cost.tile_costs import estimate, tilings
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem, Tiling
from weft.hw.config import PYNQ
from weft.hw.isa import Gemm, Load, Scratchpad
from weft.hw.programs import disassemble
from weft.sim.timing import predict

from ..kernels import check, program_of
from ..test_kernels import Case, cases

SHORT = Case("conv", PYNQ, channels=256, filters=512, size=(14, 14), kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0))
"""A strided 1x1 layer of ResNet-18: 25,088 cycles of products."""


def problem_of(case: Case, threads: int = 2) -> Problem:
    return Problem(case.config, lower_function(case.function()), threads)


def whole(problem: Problem) -> list[Tiling]:
    """Tilings that take all input channels at once, the cheapest first."""
    return [tiling for tiling in tilings(problem) if tiling.reduction == problem.reduction]


@given(cases(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_cut_layer_of_any_shape_equals_numpy(case: Case, data: st.DataObject) -> None:
    dilations = (1, 1) if case.kind == "sum_pool" else case.dilations  # its size is made for a window without
    kind = data.draw(st.sampled_from(("conv", "residual")))
    case = replace(case, kind=kind, channels=case.channels + 8, dilations=dilations)
    found = whole(problem_of(case, case.threads))[:6]
    if not found:  # not all input channels fit
        return
    drawn = data.draw(st.integers(1, max(1, found[0].reduction - 1)))
    portion = problem_of(case, case.threads).whole_units(drawn)
    # As where tilings are chosen, one that is cut may find no room and one that is not stands behind it.
    choices = [*(replace(tiling, portion=portion) for tiling in found), *tilings(problem_of(case, case.threads))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_kernel, "first_tilings", lambda _: choices)
        check(case.function(), case.config, case.threads, case.seed)


def test_a_short_layer_is_cut_and_starts_after_its_first_portion() -> None:
    best = first_tilings(problem_of(SHORT))[0]
    assert 0 < best.portion < best.reduction == 16
    step = program_of(model := check(SHORT.function(), PYNQ))
    run = predict(PYNQ, step.program, offset=step.program_offset, trace=True)
    instructions = disassemble(PYNQ, step.program)
    assert run.trace is not None
    began = min(event["start"] for event in run.trace.events if isinstance(instructions[event["number"]], Gemm))
    ended = max(
        event["retire"] for event in run.trace.events
        if isinstance(load := instructions[event["number"]], Load) and load.scratchpad is Scratchpad.INP
    )  # fmt: skip
    assert began < ended / 4
    assert run.cycles is not None
    assert run.cycles <= 25_088 / 0.85, f"{model.name} takes {run.cycles} cycles"


def test_a_layer_behind_another_is_not_cut() -> None:
    """Its first loads overlap with the layer before."""
    problem = problem_of(SHORT)
    assert all(tiling.portion == 0 for tiling in tilings(problem))


@pytest.mark.parametrize(
    "case",
    [
        replace(SHORT, kernel=(3, 3), pads=(1, 1, 1, 1), strides=(1, 1)),  # long: the ramp hardly counts
        replace(SHORT, channels=16),  # one input channel group: there is nothing to cut
        replace(SHORT, kind="depthwise", filters=256),
    ],
)
def test_other_layers_keep_their_order(case: Case) -> None:
    problem = problem_of(case)
    assert first_tilings(problem) == tilings(problem)


def test_every_candidate_fits() -> None:
    problem = problem_of(SHORT)
    assert all(estimate(problem, tiling) is not None for tiling in first_tilings(problem))
