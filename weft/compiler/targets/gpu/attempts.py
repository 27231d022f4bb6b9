"""Schedules that may not be possible: what fails leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ... import tensor as te
from ...tensor.errors import ScheduleError
from ..errors import CompileError
from .devices import GpuDescription
from .phases import grids_of

Way: TypeAlias = Callable[[te.Schedule], bool]
"""Schedules a kernel; False, or an error of a schedule or a launch, where that is not for it."""


def scheduled_by_one_of(ways: Iterable[Way], schedule: te.Schedule, device: GpuDescription) -> bool:
    """Schedule by the first way that makes launches which the device takes; else False, and the schedule is as it
    was."""
    for way in ways:
        attempt = schedule.copy()
        try:
            if way(attempt):
                grids_of(attempt.func, device)
                schedule.func, schedule.trace = attempt.func, attempt.trace
                return True
        except (ScheduleError, CompileError):  # such as a stage that cannot be moved to who reads it
            continue
    return False
