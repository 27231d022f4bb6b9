"""What a target gives to the linker of loop kernels: limits of fusion, kinds of kernels, schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ... import tensor as te
from .fusion import FusionLimits
from .placement import KernelKind


@dataclass(frozen=True)
class LoopTarget:
    """A target whose kernels are loop nests.

    ``processor``: what the schedules are made for, in words. ``kinds``: of kernels, in the order in which they are
    asked. ``arrange_plain``, ``arrange_blocked``: schedules of kernels that only move elements, with a plain or a
    blocked result; the second takes the names of stages that reduce.
    ``shared_work``: multiply-accumulates and elements below which a model runs on one thread.
    """

    processor: str
    fusion: FusionLimits
    kinds: tuple[KernelKind, ...]
    arrange_plain: Callable[[te.Schedule], None]
    arrange_blocked: Callable[[te.Schedule, Sequence[str]], None]
    shared_work: int
