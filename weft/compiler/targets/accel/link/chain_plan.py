"""What the chain pass decides for the linker, as an attribute of a chain's function."""

from __future__ import annotations

from dataclasses import dataclass

from ....graph.ir import Function, GraphError
from ....graph.records import Record
from ..schedule.tiling import ChainTiling
from .forms import FORMS, SHARED

PLAN = "plan"
"""The attribute of a chain's function that holds it."""

CHAIN_FORMS = ("", *(form for form in FORMS if form != SHARED))
"""Of a chain's depthwise layers; empty: it has none."""


@dataclass(frozen=True)
class ChainPlan(Record):
    """How a chain is compiled. ``tiling``: comes first; ``form``: how its depthwise layers are computed (`forms`).

    ``cycles``: of the chain alone, ``apart``: of its layers one after another. ``saved_bytes``: of DRAM traffic.
    ``record``: the number of the tuning database's record that says so; 0: the compiler chose it.
    """

    tiling: ChainTiling
    form: str
    cycles: int
    apart: int
    saved_bytes: int
    record: int = 0

    def __post_init__(self) -> None:
        fault = self.tiling.fault
        if fault:
            raise GraphError(f"a chain's tiling has {fault}")
        if self.form not in CHAIN_FORMS:
            raise GraphError(f"form is {self.form!r}, but must be one of {', '.join(map(repr, CHAIN_FORMS))}")


def plan_of(function: Function) -> ChainPlan | None:
    """What was decided of a function that is a chain; None for every other, and for a chain whose tiling is open."""
    plan = function.attrs.get(PLAN)
    return plan if isinstance(plan, ChainPlan) else None
