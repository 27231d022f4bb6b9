"""Schedules from a tuning database: under which key a kernel's results stand, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ....cache import cache_key
from ...graph.ir import Expr
from ...tune.database import Database, Key, Result
from ..loops.fusion import FusedGroup
from ..loops.layouts import Layout
from ..loops.placement import KernelKind
from ..loops.signature import group_signature
from ..loops.target import Revise, Revised
from ..sources import sources_digest
from .knobs import answers_of, kind_with, point_answer
from .processor import Processor


def confirmed_key(signature: str, target: Processor, threads: int) -> Key:
    """Where it stands what share of the default schedule's time others take that were confirmed in a fresh round."""
    return Key(signature, _machine(target), f"{threads} threads, confirmed", sources_digest())


def searched_key(signature: str, target: Processor, threads: int) -> Key:
    """As `confirmed_key`, for what a search has measured: the best of many measurements is better than it will be
    again."""
    return Key(signature, _machine(target), f"{threads} threads, searched", sources_digest())


def _machine(target: Processor) -> str:
    """A name for people, and all that schedules go by."""
    return f"cpu {target.name} {cache_key(target)}"


def tuned_schedules(path: str | Path, target: Processor, threads: int) -> Revise:
    """The confirmed schedules of the database at ``path`` that are faster than the default ones, for a model that is
    compiled for so many threads, and for small ones that run on one. TuningError if it cannot be read."""
    best: dict[int, dict[str, Result]] = {}
    with Database(path, read_only=True) as database:
        for count in {1, threads}:
            key = confirmed_key("", target, count)
            best[count] = database.best(key.machine, key.memory, key.compiler)

    def revise(
        kind: KernelKind, group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout, threads: int
    ) -> Revised | None:
        result = best[threads].get(group_signature(group, layouts, layout))
        if result is None or result.cost is None or result.cost >= 1:
            return None
        answer = point_answer(result.point)
        if all(each.answer != answer for each in answers_of(kind, group, layouts, layout, target)):
            return None  # only what the space holds is known to compute all of the result
        origin = f"record {result.number} of the tuning database: {result.cost:.2f} of the default schedule's time"
        return Revised(kind_with(kind, answer, target), origin)

    return revise
