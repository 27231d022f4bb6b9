"""Loops over steps that multiply words."""

from __future__ import annotations

from ... import tensor as te
from ..loops.nests import extent_of, largest_divisor
from ..loops.product import Step
from .processor import Processor

STEPS_WRITTEN_OUT = 2
"""Steps of words in an iteration, at most."""

SMALL_FILE = 16
"""Registers of processors whose tiles are so small that two steps of elements have to be written out. Of larger tiles
LLVM loads the data of both at once, and has no registers left for sums."""


def write_out_steps(schedule: te.Schedule, stage: str, step: Step, target: Processor) -> None:
    """Write out some steps of a stage, so that a loop is not over after a few of them."""
    if step == "elements" and target.registers > SMALL_FILE:
        return
    steps = schedule.get_loops(stage)[-1]
    count = largest_divisor(extent_of(schedule, steps), STEPS_WRITTEN_OUT)
    schedule.unroll(schedule.split(steps, count)[1])
