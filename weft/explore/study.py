"""The run: proposed points are measured by workers, everything that comes of one is kept at once.

What the database has is not measured again, so that the same command goes on after an interruption, and takes the same
way: the seed and what was measured decide the next points, not the time that each takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..compiler.tune.database import Database, Key, point_text
from .errors import ExploreError
from .measure import Measure, Network, measure_key, measure_layers
from .outcome import Outcome, core_mhz, cycles_allowed, cycles_of, design_of, front_of, with_measures
from .proposals import Proposer, proposer_for
from .ray_workers import RayWorkers
from .rounds import measure_point
from .space import Design, Space, assignment_text
from .workers import Done, Failure, Pool, Workers

FAILED = "failed"
"""In the features of a database's record: the point broke something, it was not refused."""


@dataclass
class Study:
    """What came of an exploration so far: points in the order in which they were proposed."""

    space: Space
    networks: Sequence[Network]
    budget: int = 0  # points to measure at most
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    measured: int = 0  # networks compiled and timed in this run
    reused: int = 0  # those that the database had
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def points(self) -> list[Outcome]:
        return list(self.outcomes.values())

    @property
    def objectives(self) -> list[str]:
        return list(self.space.search.objectives)

    def front(self) -> list[int]:
        return front_of(self.points, self.objectives)

    def count(self, status: str) -> int:
        return sum(each.status == status for each in self.outcomes.values())

    def best_of(self, network: str) -> int | None:
        """The point on which one network takes the fewest cycles an image, the host's among them; of equal ones that
        with the least area."""
        found = [(cycles_of(self.space, each.measures[network]), each.figures["area"], place)
                 for place, each in enumerate(self.points) if each.status == "measured"]  # fmt: skip
        return min(found)[2] if found else None

    def inexact(self) -> list[Outcome]:
        """Points of the front, and those that are best for a network, with figures that are not of linked programs."""
        bests = [self.best_of(network.name) for network in self.networks]
        places = dict.fromkeys([*self.front(), *(place for place in bests if place is not None)])
        points = [self.points[place] for place in places]
        return [point for point in points if not all(each.exact for each in point.measures.values())]


Report = Callable[[Study], None]
Measurer = Callable[..., Measure]


def explore(
    space: Space, networks: Sequence[Network], database: Database, *, workers: int = 1, cluster: str | None = None,
    trials: int | None = None, minutes: float | None = None, point_seconds: float | None = None, retry: bool = False,
    report: Report = lambda _: None, measurer: Measurer = measure_point, judge: Measurer | None = None,
) -> Study:  # fmt: skip
    """Measure points of a space until the search ends, ``trials`` points were measured, or ``minutes`` are over.

    ``workers``: processes of this machine; ``cluster``: the address of a Ray cluster, whose processors work instead.
    ``point_seconds``: a network that takes longer at a point fails there. ``retry``: measure again what has failed;
    what was refused stays refused. Where the space asks for the judge of layers, ``judge`` measures for the search, by
    default with what ``database`` knows of layers; then ``measurer`` measures what is on the front or best for a
    network, until all of that is exact. A KeyboardInterrupt ends the run as if the budget were used up. Raises
    ExploreError for a space or networks that make no sense, TuningError for a database that cannot be used.
    """
    names = [network.name for network in networks]
    if not networks or len(set(names)) < len(names):
        raise ExploreError(f"networks must have names of their own, not {', '.join(names) or 'none'}",
                           hint="one file for each network, of different names")  # fmt: skip
    cycles_allowed(space.constraints), core_mhz(space.constraints)  # an unknown part or clock is told now
    study = Study(space, networks, trials or space.search.trials or space.size)
    proposer = proposer_for(space)
    started = time.monotonic()

    def pool(function: Measurer) -> AbstractContextManager[Pool]:
        if cluster is None:
            return Workers(function, workers, point_seconds)
        return RayWorkers(function, cluster, networks, point_seconds)

    exact = space.search.judge == "program"
    if judge is None:  # on other machines there is no such file
        judge = partial(measure_layers, database=str(database.path) if cluster is None else None)
    try:
        with pool(measurer if exact else judge) as running:
            run = _Run(study, database, running, retry, report, exact)
            while (left := study.budget - run.counted) > 0:
                if minutes is not None and time.monotonic() - started > 60 * minutes:
                    break
                if not _step(run, proposer, min(left, space.search.batch)):
                    break
        if not exact:
            with pool(measurer) as running:
                run = _Run(study, database, running, retry, report)
                while inexact := study.inexact():
                    run.measure(inexact)
    except KeyboardInterrupt:
        study.interrupted = True
    study.seconds = time.monotonic() - started
    return study


def _step(run: _Run, proposer: Proposer, count: int) -> bool:
    """One batch of proposals; False where there are no more."""
    points = [design_of(run.study.space, each) for each in proposer.propose(count)]
    run.measure([point for point in points if point.status == "measured"])
    outcomes = run.study.outcomes
    for point in points:  # in the order of the proposals, whoever was done first
        text = assignment_text(point.assignment)
        outcomes[text] = outcomes.pop(text, point)
    proposer.tell([outcomes[assignment_text(point.assignment)] for point in points])
    run.report(run.study)
    return bool(points)


def _arguments(design: Design, network: Network, networks: tuple[Network, ...]) -> tuple[Any, ...]:
    """What is measured: a network on a core, or on a system, which it may share with the others."""
    return (design, network) if design.system is None else (design, network, networks)


@dataclass
class _Run:
    study: Study
    database: Database
    pool: Pool
    retry: bool
    report: Report
    exact: bool = True
    counted: int = 0  # points that were measured, or failed: those that the budget is for

    def measure(self, points: Sequence[Outcome]) -> None:
        """Measure points that satisfy the constraints so far."""
        results: dict[str, dict[str, Measure | Failure]] = {assignment_text(each.assignment): {} for each in points}
        designs = dict(zip(results, points, strict=True))
        networks = tuple(self.study.networks)
        jobs: list[tuple[str, Design, Network, Key]] = []
        for text, point in designs.items():
            assert point.design is not None  # what satisfies the constraints is a design
            for network in networks:
                key = measure_key(point.design, network, exact=self.exact, networks=networks)
                known = self._known(key, point.design.knobs)
                if known is None:
                    jobs.append((text, point.design, network, key))
                else:
                    results[text][network.name] = known
                    self.study.reused += 1
        for text in results:
            self._finish(designs[text], results[text])
        for done in self.pool.run([_arguments(design, network, networks) for _, design, network, _ in jobs]):
            text, design, network, key = jobs[done.number]
            results[text][network.name] = self._keep(done, key, design)
            self.study.measured += 1
            self._finish(designs[text], results[text])
            self.report(self.study)

    def _finish(self, point: Outcome, results: Mapping[str, Measure | Failure]) -> None:
        """The point's outcome, if all its networks have one."""
        if len(results) < len(self.study.networks):
            return
        self.counted += 1
        measures = {name: each for name, each in results.items() if isinstance(each, Measure)}
        failures = {name: each for name, each in results.items() if isinstance(each, Failure)}
        if failures:
            reason = "; ".join(f"{name}: {each.reason}" for name, each in failures.items())
            refused = all(each.refused for each in failures.values())
            outcome = Outcome(point.assignment, point.design, point.area, "refused" if refused else "failed", reason,
                              measures)  # fmt: skip
        else:
            outcome = with_measures(self.study.space, point, measures)
        self.study.outcomes[assignment_text(point.assignment)] = outcome

    def _known(self, key: Key, knobs: Mapping[str, object]) -> Measure | Failure | None:
        for result in self.database.results(key):
            if point_text(result.point) == point_text(knobs):
                if result.cost is not None:
                    return Measure.from_values(result.features)
                if not (self.retry and result.features.get(FAILED)):
                    return Failure(result.refusal, refused=not result.features.get(FAILED))
        return None

    def _keep(self, done: Done, key: Key, design: Design) -> Measure | Failure:
        result: Measure | Failure = done.result
        if isinstance(result, Failure):
            self.database.add(key, design.knobs, None, refusal=result.reason, features={FAILED: not result.refused})
        else:
            self.database.add(key, design.knobs, float(result.cycles), features=result.to_values())
        return result
