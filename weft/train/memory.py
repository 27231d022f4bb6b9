"""Memory of a step of training: within a bound, for which forward values are computed again, and state that is replaced
where it lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..compiler.compile import compile_model, replaceable
from ..compiler.graph import GraphError, Module
from ..compiler.model import CompiledModel, OpenModel
from ..compiler.passes.recompute import Passes, recomputed
from .step import Step, require_step

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of segments that are tried. Fewer mean less arithmetic: the last one is never computed again."""


def bytes_of(memory: int | str) -> int:
    """A number of bytes, also as a text such as "512MiB". GraphError for anything else."""
    if isinstance(memory, int) and memory > 0:
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(memory))
    if match is None or (match[2].upper() or "B") not in UNITS or not float(match[1]):
        raise GraphError(f"{memory!r} is no size of memory", hint='give bytes, or a text such as "512MiB"')
    return int(float(match[1]) * UNITS[match[2].upper() or "B"])


def replaced_in_place(step: Step, model: CompiledModel | OpenModel) -> frozenset[str]:
    """The state that a compiled step may replace where it lies, for ``Training(..., in_place=...)``: what nothing reads
    once its next value is begun. It then takes its memory once instead of twice."""
    require_step(step)
    if not isinstance(model, (CompiledModel, OpenModel)):
        raise GraphError(
            f"model is {model!r:.80}, but must be the compiled step", hint="weft.compile(step.module, ...)"
        )
    return frozenset() if isinstance(model, OpenModel) else replaceable(model, step.state)


def within(
    step: Step, memory: int | str, *, target: str = "cpu", progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Step:  # fmt: skip
    """The step with so much computed again that a target plans at most ``memory`` for what lives between its kernels.

    The promise is about ``statistics["arena_bytes"]`` of the step, as ``weft.compile(step.module, target=target,
    **options)`` makes it: what is allocated beside parameters, state, inputs and outputs. The cheapest way that fits is
    taken: the step as it is, or all but what crosses a few places.
    Raises GraphError for a bound that cannot be met, with the least that was found, and for texts that are no size.
    """
    require_step(step)
    bound = bytes_of(memory)
    least = None
    for way in ways(step, target=target, **options):
        progress(f"{way.what}: {way.planned:,} bytes")
        if way.planned <= bound:
            return way.step
        least = way.planned if least is None else min(least, way.planned)
    raise GraphError(f"{bound:,} bytes are too few: the least that was found is {least:,}",
                     hint="allow as much, or take a smaller batch")  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A form of a step. ``planned``: bytes that a target plans for what lives between its kernels."""

    what: str
    step: Step
    planned: int


def ways(step: Step, *, target: str = "cpu", **options: Any) -> Iterator[Way]:
    """Forms of the same meaning that compute ever more again, the cheapest first, each compiled when it is asked for.

    Raises GraphError for a step with open sizes.
    """
    for what, module in _ways(step):
        compiled = compile_model(module, target, options)
        if not isinstance(compiled, CompiledModel):
            raise GraphError("a step with open sizes has no bound", hint="compile it for one size of batch")
        yield Way(what, replace(step, module=module), compiled.statistics["arena_bytes"])


def _ways(step: Step) -> Iterator[tuple[str, Module]]:
    """Modules of the same meaning, the cheapest first."""
    yield "the step as it is", step.module
    passes = Passes(step.module, len(step.outputs))
    tried = set()
    for segments in SEGMENTS:
        cuts = tuple(passes.cuts(segments))
        if cuts and cuts not in tried:
            tried.add(cuts)
            yield f"all operators of {len(cuts)} segments again", recomputed(passes, segments)
