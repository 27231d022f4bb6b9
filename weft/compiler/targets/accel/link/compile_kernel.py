"""From a kernel to instructions: the cheapest tiling that finds room, its schedule, its stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice

import numpy as np

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....tensor.errors import BoundsError, TensorError
from ....tensor.ir import PrimFunc
from ....tensor.schedule import Schedule, Trace
from ...errors import CompileError, ScratchpadFullError
from ..cost.chain_tiling import chain_tilings
from ..cost.first_layer import first_tilings
from ..cost.tile_costs import fills, narrower_tilings, tilings
from ..operators.lower import Kernel, Section
from ..operators.share import Share
from ..schedule.schedule import schedule_kernel
from ..schedule.shared import shared
from ..schedule.tiling import Problem, Tiling
from ..walk.emit import Emitter, movable
from ..walk.emit_move import MoveEmitter
from ..walk.emit_nest import DramBuffer
from ..walk.unplaced import Unplaced
from .kept_kernels import kept_result
from .slices import KernelSlice
from .tuned import Tuned

ATTEMPTS = ((1.0, 6), (0.75, 6), (0.5, 6))
"""Largest share of a scratchpad that a tiling may use, and how many such tilings are tried: the less it uses, the
surer it finds its space in one piece."""

Dump = Callable[[str, str], None]
"""Takes the name of a stage of compilation and its text."""


@dataclass(frozen=True)
class Generated:
    """How a kernel was compiled. ``origin``: where its tiling comes from, if not from the estimate."""

    tiling: Tiling
    schedule: Schedule
    origin: str = ""

    @property
    def function(self) -> PrimFunc:
        return self.schedule.func


def generate(
    emitter: Emitter, kernel: Kernel, dram: Mapping[str, DramBuffer], rate: DramRate, *, threads: int, layer: int = 0,
    dump: Dump | None = None, tuned: Tuned | None = None, chosen: Tiling | None = None, first: bool | None = None,
) -> Generated:  # fmt: skip
    """Append the kernel's instructions to the emitter's stream, scheduled for DRAM of this rate.

    ``tuned``: a setting that was measured, whose tiling comes first. ``chosen``: the tiling that a pass chose, which
    comes next. ``first``: whether to schedule it as the first
    layer of a program; by default, where the stream is empty. Raises CompileError, naming the function, if no tiling
    fits the scratchpads.
    """
    if tuned is not None and tuned.setting.tiling is not None:
        try:
            generated = append(emitter, [(kernel, dram, tuned.setting.tiling)], layer, dump)[0]
        except CompileError:
            pass  # what it finds in one piece depends on the layers before it
        else:
            return replace(generated, origin=tuned.origin)
    problem = Problem(emitter.config, kernel, 1 if kernel.producers else threads, rate=rate)
    refusal: ScratchpadFullError | None = None
    first = (emitter.shares and emitter.has_none) if first is None else first  # its cost counts on rings
    for afresh in (False, True):  # some find room in one piece only where each scratchpad begins
        if afresh and refusal is not None:
            emitter.restart_rings()
        elif afresh:
            break
        tried = _tilings(problem, chosen, first=first)
        if afresh and problem.threads == 1 and not kernel.producers:
            tried = chain(tried, narrower_tilings(problem))
        for tiling in tried:
            try:
                return append(emitter, [(kernel, dram, tiling)], layer, dump)[0]
            except ScratchpadFullError as error:
                refusal = error
    if problem.threads > 1:  # a single thread has the scratchpads for itself
        return generate(emitter, kernel, dram, rate, threads=1, layer=layer, dump=dump, first=first)
    if refusal is not None:
        raise refusal
    raise CompileError(
        f"not even the smallest tile of output {kernel.output.shape} fits the scratchpads of {emitter.config.name!r}",
        at=f"function {kernel.name!r}",
        hint="use a configuration with deeper scratchpads",
    )


def generate_in_turn(
    emitter: Emitter, parts: Sequence[tuple[Kernel, Mapping[str, DramBuffer]]], rate: DramRate, *, layer: int = 0,
    dump: Dump | None = None,
) -> list[Generated] | None:  # fmt: skip
    """Append kernels that take turns in the stream, one tile each; None if no tilings of theirs fit side by side.

    Each has its share of ``acc`` and ``out`` and one virtual thread: the others are what it overlaps with.
    """
    problems = [Problem(emitter.config, kernel, 1, beside=True, rate=rate) for kernel, _ in parts]
    tried = [_attempts(problem, first=False) for problem in problems]
    for tilings_of_parts in zip(*tried, strict=False):
        together = [(kernel, dram, tiling) for (kernel, dram), tiling in zip(parts, tilings_of_parts, strict=True)]
        try:
            return append(emitter, together, layer, dump)
        except ScratchpadFullError:
            continue
    return None


def append(
    emitter: Emitter, parts: Sequence[tuple[Kernel, Mapping[str, DramBuffer], Tiling]], layer: int, dump: Dump | None
) -> list[Generated]:
    """Append kernels with these tilings, in turn. Raises ScratchpadFullError if they do not fit."""
    name = " and ".join(kernel.name for kernel, _, _ in parts)
    try:
        schedules = [_scheduled(kernel, emitter.config, tiling) for kernel, _, tiling in parts]

        def walk() -> Unplaced:
            return emitter.walked([
                (shared(schedule.func, Problem(emitter.config, kernel, tiling.threads)), dram)
                for schedule, (kernel, dram, tiling) in zip(schedules, parts, strict=True)
            ])  # fmt: skip

        walked = _walk_once(_Walk(tuple(_part(emitter.config, *part) for part in parts), emitter.shares), walk)
        emitter.append(walked, [dram for _, dram, _ in parts], layer)
    except BoundsError as error:
        raise CompileError(f"what it computes is not known to stay inside of its tensors: {error}",
                           at=f"function {name!r}") from error  # fmt: skip
    except TensorError as error:
        raise CompileError(f"its default schedule fails: {error}", at=f"function {name!r}") from error
    except ScratchpadFullError as error:
        raise ScratchpadFullError(error.message, at=error.at or f"function {name!r}", hint=error.hint) from error
    for schedule, (kernel, _, _) in zip(schedules, parts, strict=True):
        if dump is not None:
            dump(f"{kernel.name}.loops", str(schedule))
    return [Generated(tiling, schedule) for schedule, (_, _, tiling) in zip(schedules, parts, strict=True)]


@dataclass(frozen=True)
class _Alike:
    """Kernels that have the same schedules, but for their names, are equal: their functions print the same."""

    text: str
    sections: tuple[Section, ...]
    parts: tuple[int, int]
    config: CoreConfig
    tiling: Tiling
    kernel: Kernel = field(compare=False)


def _alike(kernel: Kernel, config: CoreConfig, tiling: Tiling) -> _Alike:
    nameless = replace(kernel, name="", constants=())
    sections = tuple(replace(section, kept=None) for section in kernel.sections)  # no schedule depends on it
    return _Alike(kernel.text, sections, kernel.share.parts, config, tiling, nameless)


def _scheduled(kernel: Kernel, config: CoreConfig, tiling: Tiling) -> Schedule:
    """As :func:`schedule_kernel`. Networks repeat their kernels, and the proofs of tensorize take long."""
    known = config, tiling, kernel.share.parts
    if known not in kernel.schedules:
        try:
            kernel.schedules[known] = _schedule_once(_alike(kernel, config, tiling))
        except (CompileError, TensorError):
            return schedule_kernel(kernel, config, tiling)  # its error has the name
    func, trace = kernel.schedules[known]
    schedule = kernel.unscheduled.copy()
    schedule.func, schedule.trace = replace(func, name=kernel.name), trace
    return schedule


@lru_cache(maxsize=256)
def _schedule_once(alike: _Alike) -> tuple[PrimFunc, Trace]:
    def schedule() -> tuple[PrimFunc, Trace]:
        made = schedule_kernel(alike.kernel, alike.config, alike.tiling)
        return PrimFunc(made.func.name, made.func.params, made.func.body), made.trace

    return kept_result(schedule, alike.config, "schedule", alike.text, alike.sections, alike.parts, alike.tiling)


@dataclass(frozen=True)
class _Part:
    """A kernel as its instructions follow from it. ``dram``: its tensors; ``kept``: of each the matrices that count."""

    alike: _Alike
    share: Share
    dram: tuple[tuple[str, DramBuffer], ...]
    kept: tuple[bytes | None, ...]


def _part(config: CoreConfig, kernel: Kernel, dram: Mapping[str, DramBuffer], tiling: Tiling) -> _Part:
    tensors = tuple((name, movable(config, buffer)) for name, buffer in dram.items())
    kept = tuple(None if buffer.kept is None else buffer.kept.tobytes() for buffer in dram.values())
    return _Part(_alike(kernel, config, tiling), kernel.share, tensors, kept)


@dataclass(frozen=True)
class _Walk:
    """Kernels whose instructions are the same before they have places are equal. ``shares``: of the emitter."""

    parts: tuple[_Part, ...]
    shares: bool


_WALKS: dict[_Walk, Unplaced] = {}
"""The last ones."""

WALKS = 256


def _walk_once(walk: _Walk, make: Callable[[], Unplaced]) -> Unplaced:
    found = _WALKS.get(walk)
    if found is None:
        alike = [(each.alike.text, each.alike.sections, each.alike.parts, each.alike.tiling) for each in walk.parts]
        places = [(each.share, each.dram) for each in walk.parts]
        config = walk.parts[0].alike.config
        found = kept_result(make, config, "instructions", alike, places, walk.shares)
        for oldest in list(_WALKS)[: len(_WALKS) + 1 - WALKS]:  # other threads take some out, too
            _WALKS.pop(oldest, None)
        _WALKS[walk] = found
    return found


def generate_slice(
    emitter: Emitter, part: KernelSlice, places: Callable[[KernelSlice], Mapping[str, DramBuffer]], *, threads: int,
    rate: DramRate, layer: int, dump: Dump | None, first: bool | None = None,
) -> list[Generated]:  # fmt: skip
    """Append a part of a function, as slices in turn where it has such and they find room. ``places``: of its tensors
    in DRAM. Raises as :func:`generate`."""
    if Problem(emitter.config, part.kernel, 1).is_empty:
        return []
    if part.move is not None:
        at = places(part)
        MoveEmitter(emitter, layer).move(
            part.move, [at[name].offset for name in part.inputs], at[part.kernel.output.name].offset
        )
        return []
    turns = [(each.kernel, places(each)) for each in part.turns]
    in_turn = generate_in_turn(emitter, turns, rate, layer=layer, dump=dump) if turns else None
    if in_turn is not None:
        return [replace(each, origin=part.tuned.origin) for each in in_turn] if part.tuned is not None else in_turn
    return [
        generate(
            emitter, part.kernel, places(part), rate, threads=threads, layer=layer, dump=dump, tuned=part.tuned,
            chosen=part.chosen, first=first,
        )
    ]  # fmt: skip


def _tilings(problem: Problem, chosen: Tiling | None, *, first: bool) -> Iterator[Tiling]:
    """What is tried for a kernel, which may be the first of its program: what was ``chosen`` before, then others."""
    if chosen is not None:
        yield chosen
    yield from chain_tilings(problem) if problem.kernel.producers else _attempts(problem, first=first)


def _attempts(problem: Problem, *, first: bool) -> list[Tiling]:
    """What is tried for a kernel that is no chain."""

    def attempt() -> list[Tiling]:
        return list(attempts(problem, first_tilings(problem) if first else tilings(problem)))

    sizes = problem.kernel.signature, problem.threads, problem.beside, problem.rate
    return kept_result(attempt, problem.config, "tilings", first, *sizes)


def attempts(problem: Problem, candidates: Sequence[Tiling]) -> Iterator[Tiling]:
    """Some of the ``candidates``, in their order; later ones leave more room."""
    shares = fills(problem, candidates)
    tried: set[int] = set()
    for share, count in ATTEMPTS:
        roomy = (place for place in np.flatnonzero(shares <= share).tolist() if place not in tried)
        for place in islice(roomy, count):
            tried.add(place)
            yield candidates[place]
