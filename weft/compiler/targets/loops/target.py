"""What a target gives to the linker of loop kernels: limits of fusion, kinds of kernels, schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ... import tensor as te
from ...graph.ir import Expr
from ...model import LayerDevice
from .fusion import FusedGroup, Refuses, accepts_all, group_calls
from .fusion_limits import FusionLimits
from .layouts import Layout
from .nests import tidy
from .order import kept_briefly
from .placement import KernelKind


def plain_blocks(schedule: te.Schedule, reductions: Sequence[str]) -> None:
    """Blocks in the order in which they are written down."""
    tidy(schedule)


@dataclass(frozen=True)
class Revised:
    """The kind that builds a group after all, and why."""

    kind: KernelKind
    origin: str


Revise = Callable[[KernelKind, FusedGroup, Mapping[Expr, Layout], Layout, int], Revised | None]
"""From a kind, its group, the layouts of the group's inputs and of its result, and the number of threads."""


@dataclass(frozen=True)
class LoopTarget:
    """A target whose kernels are loop nests.

    ``processor``: what the schedules are made for, in words. ``kinds``: of kernels, in the order in which they are
    asked; the last fits any group. ``refuses``: why it has no kernel for an operator, which NumPy then runs.
    ``arrange_plain``, ``arrange_blocked``: schedules of kernels that only move elements, with a plain or a blocked
    result; the second takes the names of stages that reduce.
    ``dot_products``: whether it multiplies bytes faster than floats, and products of bytes should come as such.
    ``shared_work``: multiply-accumulates and elements below which a model runs on one thread. ``device``: what its
    kernels run on. ``revise``: is asked for each group whether another kind should build it.
    """

    processor: str
    kinds: tuple[KernelKind, ...]
    refuses: Refuses = accepts_all
    fusion: FusionLimits = field(default_factory=FusionLimits)
    arrange_plain: Callable[[te.Schedule], None] = tidy
    arrange_blocked: Callable[[te.Schedule, Sequence[str]], None] = plain_blocks
    shared_work: int = 0
    device: LayerDevice = "cpu"
    dot_products: bool = False
    revise: Revise | None = None

    def groups(self, body: Expr) -> list[FusedGroup]:
        """The kernels of a graph of operators, producers first, and the operators that NumPy runs."""
        return kept_briefly(group_calls(body, self.fusion, self.refuses), body)
