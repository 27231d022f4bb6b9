"""What networks cost on a system: a round, in which its cores work at once, by the exact model of all of them.

``pictures``: a round is an image of one network on each core. ``networks``: it is an image of every network, each on
one core; a core with several does them in turn, and all cores begin each turn together, as they do each program.
``stages``: each core has its stage of a network, of one image after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ..compiler.model import CompiledModel
from ..hw.bus import PAGE_BYTES
from ..runtime.module import StepRun
from ..runtime.profile import Profile, profile
from ..runtime.profile_system import timed_rounds
from ..sim.result import RunResult
from ..sim.system_run import NOTHING
from ..sim.system_timing import predict_system
from ..sim.timing import predict
from ..sim.timing_ports import TimedProgram
from .errors import ExploreError
from .host import host_work
from .measure import Measure, Network, compiled, in_stages, layer_row, measure, packed
from .processors import HostWork
from .space import Design
from .system_space import SystemDesign

MOST_PLACEMENTS = 1 << 16
"""Placements of networks on cores that are tried."""

Models = Sequence[CompiledModel | None]
"""For each core what it runs, if anything."""


def measure_point(design: Design, network: Network, networks: Sequence[Network] = ()) -> Measure:
    """A network on the design's core, or its system; ``networks``: all that share that. Raises as
    :func:`~.measure.measure`, and ExploreError for more placements than are tried."""
    if design.system is None:
        return measure(design, network)
    if design.system.split == "pictures":
        models, hosts = _programs(design, network)
        return _measure(design, _run(design.system, models), hosts)
    if design.system.split == "stages":
        return _round_of_stages(design, design.system, network)
    return _round_of_networks(design, design.system, tuple(networks))[network.name]


def placement(cycles: Sequence[Sequence[int]], host: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """For each network its core, of the round that ends first if no core slowed another down. ``cycles``: of each
    network on each core alone; ``host``: those of what it then leaves to the host, which does one after the other. Of
    equal rounds the first, in the order of the cores."""
    cores = len(cycles[0])
    count = cores ** len(cycles)
    if count > MOST_PLACEMENTS:
        raise ExploreError(f"{len(cycles)} networks on {cores} cores have {count:,} placements, more than "
                           f"{MOST_PLACEMENTS:,}", hint='fewer networks, or split = "pictures"')  # fmt: skip

    def end(places: tuple[int, ...]) -> float:
        turns = _turns(places, cores)
        left = sum(each[core] for each, core in zip(host, places, strict=True))
        return left + sum(max(cycles[number][core] for core, number in enumerate(turn) if number is not None)
                   for turn in turns)  # fmt: skip

    return min(itertools.product(range(cores), repeat=len(cycles)), key=end)


def _turns(places: Sequence[int], cores: int) -> list[list[int | None]]:
    """Of each turn the network of each core."""
    own = [[number for number, place in enumerate(places) if place == core] for core in range(cores)]
    return [[each[turn] if turn < len(each) else None for each in own] for turn in range(max(map(len, own)))]


def _programs(design: Design, network: Network) -> tuple[list[CompiledModel], list[HostWork]]:
    """The network for each core, compiled once for alike ones, and what each leaves to the host."""
    plain = [replace(core, name=design.config.name) for core in design.cores]  # a name is nothing that differs
    found = [_program(replace(design, config=core, system=None), network) for core in plain]
    return [model for model, _ in found], [host for _, host in found]


@lru_cache(maxsize=8)
def _program(design: Design, network: Network) -> tuple[CompiledModel, HostWork]:
    """Kept, since many systems have the same cores."""
    module = packed(design, network)
    return compiled(design, network, module), host_work(module)


@lru_cache(maxsize=2)
def _round_of_networks(
    design: Design, system: SystemDesign, networks: tuple[Network, ...]
) -> dict[str, Measure]:  # fmt: skip
    each_core = [_programs(design, network) for network in networks]
    alone = [[sum(predict(model.config, each.program, system.memory, offset=each.program_offset).cycles or 0
                  for each in model.programs) for model in models] for models, _ in each_core]  # fmt: skip
    assert system.host is not None  # where networks are put follows from it
    processor, mhz = system.host
    left = [[processor.seconds(work) * mhz * 1e6 for work in hosts] for _, hosts in each_core]
    measures, begun = {}, 0
    for turn in _turns(placement(alone, left), len(design.cores)):
        done = _run(system, [None if number is None else each_core[number][0][core]
                             for core, number in enumerate(turn)])  # fmt: skip
        for core, number in enumerate(turn):
            if number is not None:
                found = _measure(design, [each if at == core else None for at, each in enumerate(done)],
                                 [each_core[number][1][core]])  # fmt: skip
                measures[networks[number].name] = replace(found, started=begun)
        begun += max(each.profile.cycles for each in done if each is not None)
    return measures


def _round_of_stages(design: Design, system: SystemDesign, network: Network) -> Measure:
    """A round in which all cores are busy; an image takes one for each stage."""
    module, model = in_stages(design, network)
    whole = model.on_core
    stages = [
        replace(model, steps=tuple(step for step in model.programs if step.stage == stage),
                core=replace(whole, config=core, cores=()))
        for stage, core in enumerate(design.cores)
    ]  # fmt: skip
    done = _run(system, stages)
    found = _measure(design, done, [host_work(module)])
    layers = tuple(layer_row(layer) for each in done if each is not None for layer in each.profile.layers)
    return replace(found, batch=design.config.batch, layers=layers, rounds=len(stages))


class _Done(NamedTuple):
    """A core's account of a network, and its programs."""

    profile: Profile
    results: Sequence[RunResult]


def _run(system: SystemDesign, models: Models) -> list[_Done | None]:
    """What each core did. Cores begin each of their programs together."""
    rounds, shared = _timed(system, models)
    runs: list[list[StepRun]] = [[] for _ in models]
    starts: list[int] = []
    now = 0
    for turn, programs in enumerate(rounds):
        done = predict_system(system.config, programs, system.memory, shared=shared, trace=True)
        starts.append(now)
        now += done.cycles or 0
        for core, (model, result) in enumerate(zip(models, done.cores, strict=True)):
            if model is not None and result is not None:
                runs[core].append(StepRun(model.programs[turn], result))
    return [
        None if model is None else _Done(
            profile(model, own, "model", system.memory, starts=starts[: len(own)]), [each.result for each in own]
        )
        for model, own in zip(models, runs, strict=True)
    ]  # fmt: skip


def _timed(system: SystemDesign, models: Models) -> tuple[list[list[TimedProgram | None]], range]:
    """Program after program, what each core runs, each in a part of the memory of its own; which bytes are shared."""
    first = models[0]
    if first is not None and all(model is first for model in models):
        rounds, shared = timed_rounds(first, system.config)
        return [list(programs) for programs in rounds], shared
    sizes = [0 if model is None else -(-model.on_core.window_bytes // PAGE_BYTES) * PAGE_BYTES for model in models]
    parts = [0, *itertools.accumulate(sizes)]
    lists = [
        [] if model is None else
        [TimedProgram(code=each.program, offset=each.program_offset, window_start=part) for each in model.programs]
        for model, part in zip(models, parts, strict=False)
    ]  # fmt: skip
    return [list(programs) for programs in itertools.zip_longest(*lists)], NOTHING


def _measure(design: Design, done: Sequence[_Done | None], hosts: Sequence[HostWork]) -> Measure:
    """What a network cost: an image on each core that has done one, until the last is done."""
    ran = [(core, each) for core, each in enumerate(done) if each is not None]
    ran.sort(key=lambda each: -each[1].profile.cycles)
    last = ran[0][1].profile
    parts = tuple(
        (core, sum(layer.bounds.array for layer in each.profile.layers),
         sum(layer.bounds.vector for layer in each.profile.layers),
         sum(result.bytes_read for result in each.results), sum(result.bytes_written for result in each.results))
        for core, each in ran
    )  # fmt: skip
    array, vector, read, written = (sum(part[field] for part in parts) for field in range(1, 5))
    return Measure(
        cycles=last.cycles,
        batch=design.config.batch * len(ran),
        macs=sum(each.profile.macs for _, each in ran),
        array=array,
        vector=vector,
        bytes_read=read,
        bytes_written=written,
        layers=tuple(layer_row(each) for each in last.layers),
        host_macs=sum(each.macs for each in hosts),
        host_operations=sum(each.operations for each in hosts),
        host_bytes=sum(each.nbytes for each in hosts),
        parts=parts,
    )
