"""What is known of a point of the space, and the figures by which points are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ..boards.area import Area
from ..boards.errors import BoardError
from ..boards.fit import number
from ..hw.errors import ConfigError
from ..hw.synthesis_report import SHARE_LIMIT
from .energy import point_pj
from .errors import ExploreError
from .front import pareto_front
from .measure import Measure
from .parts import find_part
from .processors import PROCESSORS, Processor, processor_of
from .space import Assignment, Constraints, Design, Space

Status = Literal["measured", "refused", "failed"]

HIGHER_IS_BETTER = ("throughput", "throughput_per_area", "on_core")

USUAL_MHZ = 100.0
"""The core's clock where no board and no constraint has one; it only turns the host's time into cycles."""


@dataclass(frozen=True)
class Outcome:
    """A point: its design and area where there is such a core, what each network costs, and its figures.

    ``refused``: the space's constraints, the configuration or the compiler say no; ``failed``: something broke. The
    reason is in ``reason``. ``figures`` has every objective of a point that was measured.
    """

    assignment: Assignment
    design: Design | None = None
    area: Area | None = None
    status: Status = "measured"
    reason: str = ""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)

    def cost(self, objectives: Sequence[str]) -> tuple[float, ...]:
        """The objectives, each to be minimised."""
        return tuple(-self.figures[name] if name in HIGHER_IS_BETTER else self.figures[name] for name in objectives)


def design_of(space: Space, assignment: Assignment) -> Outcome:
    """The point before anything is compiled: refused where there is no such core, or it breaks a constraint on area."""
    try:
        design = space.design(assignment)
    except ConfigError as error:
        return Outcome(assignment, status="refused", reason=str(error))
    if design.system is not None and design.system.split == "networks":  # the host's time counts where each is put
        system = replace(design.system, host=(host_of(space), core_mhz(space.constraints)))
        design = replace(design, system=system)
    part = find_part(space.constraints.part)
    area = part.area(design.config) if design.system is None else part.system_area(design.system.config)
    shortage = "; ".join(_shortages(space.constraints, area))
    return Outcome(assignment, design, area, status="refused" if shortage else "measured", reason=shortage)


def _shortages(constraints: Constraints, area: Area) -> list[str]:
    limits: dict[str, tuple[float, str]] = {}
    if constraints.part:
        part = find_part(constraints.part)
        for name in ("LUT", "DSP", "BRAM36"):
            limits[name] = SHARE_LIMIT * getattr(part.resources, name), f"{SHARE_LIMIT:.0%} of {part.name}"
    for name in ("LUT", "DSP", "BRAM36"):
        own = getattr(constraints, name)
        if own is not None and own < limits.get(name, (math.inf, ""))[0]:
            limits[name] = own, "the constraint"
    return [
        f"takes {number(getattr(area, name))} {name}, more than {number(limit)} ({what})"
        for name, (limit, what) in limits.items() if getattr(area, name) > limit
    ]  # fmt: skip


def with_measures(space: Space, point: Outcome, measures: Mapping[str, Measure]) -> Outcome:
    """The point with what its networks cost; refused where one takes more cycles than the constraint allows."""
    assert point.design is not None  # only designs are measured
    assert point.area is not None
    processor = host_of(space)
    whole = {name: cycles_of(space, each) for name, each in measures.items()}
    cycles, core = _mean(whole.values()), _mean(each.cycles_per_image for each in measures.values())
    energy = _mean(
        sum(point_pj(point.design.cores, each, processor).values()) / each.batch for each in measures.values()
    )
    round_cycles = cycles_of_round(space, point.design, measures.values())
    resources = find_part(space.constraints.part).resources
    figures = {
        "cycles": cycles,
        "core_cycles": core,
        "host_cycles": cycles - core,
        "on_core": min(each.on_core for each in measures.values()),
        "throughput": 1e9 * sum(each.batch for each in measures.values()) / round_cycles,
        "latency": round_cycles + sum((each.rounds - 1) * each.cycles for each in measures.values()),
        "energy": energy * 1e-6,
        "area": max(getattr(point.area, name) / getattr(resources, name) for name in ("LUT", "DSP", "BRAM36")),
        "throughput_per_area": 1e9 / cycles / (point.area.LUT / 1e3),
        "LUT": point.area.LUT,
        "DSP": point.area.DSP,
        "BRAM36": point.area.BRAM36,
    }
    limit, what = cycles_allowed(space.constraints)
    broken = [f"{name}: {cycles:,.0f} cycles an image, more than {limit:,.0f}{what}"
              for name, cycles in whole.items() if cycles > limit]  # fmt: skip
    least = space.constraints.on_core or 0.0
    broken += [f"{name}: {each.on_core:.1%} of the arithmetic on the core, less than {least:.1%}"
               for name, each in measures.items() if each.on_core < least]  # fmt: skip
    status: Status = "refused" if broken else "measured"
    return Outcome(point.assignment, point.design, point.area, status, "; ".join(broken), measures, figures)


def _mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def host_of(space: Space) -> Processor:
    """The processor that does the host's part: the table ``host`` says, or the part's board."""
    table = space.host
    known = processor_of(find_part(space.constraints.part)) if table.processor is None else PROCESSORS[table.processor]
    given = {name: value for name, value in table.model_dump(exclude={"processor"}).items() if value is not None}
    return replace(known, **given)


def host_cycles(space: Space, measure: Measure) -> float:
    """The host's time for an image, in cycles of the core's clock: core and host work in turn."""
    return host_of(space).seconds(measure.host) * core_mhz(space.constraints) * 1e6 / measure.batch


def cycles_of(space: Space, measure: Measure) -> float:
    """Cycles of an image, the host's time among them."""
    return measure.cycles_per_image + host_cycles(space, measure)


def cycles_of_round(space: Space, design: Design, measures: Iterable[Measure]) -> float:
    """Cycles until every network has its images, the host's time for all of them among these: one network after the
    other, or those of a system that share a round at once."""
    found = list(measures)
    if design.system is not None and design.system.split == "networks":
        cores = max(each.started + each.cycles for each in found)
    else:
        cores = sum(each.cycles for each in found)
    return cores + sum(host_cycles(space, each) * each.batch for each in found)


def core_mhz(constraints: Constraints) -> float:
    """The core's clock: that of the constraint, or of the part's board; :data:`USUAL_MHZ` where there is neither."""
    if constraints.mhz is None and find_part(constraints.part).board is None:
        return USUAL_MHZ
    return clock_of(constraints)


def cycles_allowed(constraints: Constraints) -> tuple[float, str]:
    """Cycles that an image may take, infinite without a constraint on it, and if these follow from a time, how."""
    limit = math.inf if constraints.cycles is None else constraints.cycles
    if constraints.milliseconds is None:
        return limit, ""
    mhz = clock_of(constraints)
    timed = constraints.milliseconds * mhz * 1e3
    return (limit, "") if limit <= timed else (timed, f" ({constraints.milliseconds:g} ms at {mhz:g} MHz)")


def clock_of(constraints: Constraints) -> float:
    """The clock of a time, in MHz: what is asked for, or that of the part's board. ExploreError for one that the board
    cannot make."""
    if constraints.part is None and constraints.mhz is not None:
        return constraints.mhz
    part = find_part(constraints.part)
    if part.board is None:
        if constraints.mhz is None:
            raise ExploreError(f"no board with {part.name} is known, so milliseconds need a clock", at="constraints",
                               hint="give mhz")  # fmt: skip
        return constraints.mhz
    try:
        return part.board.clock.clock(constraints.mhz).mhz
    except BoardError as error:
        raise ExploreError(error.message, at="constraints.mhz", hint=error.hint) from error


def front_of(outcomes: Sequence[Outcome], objectives: Sequence[str]) -> list[int]:
    """Indices of the measured points that no other one beats in all objectives."""
    places = [place for place, each in enumerate(outcomes) if each.status == "measured"]
    return [places[each] for each in pareto_front([outcomes[place].cost(objectives) for place in places])]


def record_of(space: Space, outcome: Outcome, *, layers: bool = True) -> dict[str, Any]:
    """The point as JSON values."""
    design = outcome.design
    return {
        "assignment": dict(outcome.assignment),
        "status": outcome.status,
        "reason": outcome.reason,
        "config": {} if design is None else asdict(design.config),
        "system": None if design is None else system_record(design),
        "dram": None if design is None else f"{design.rate.bytes_per_cycle},{design.rate.latency}",
        "knobs": {} if design is None else dict(design.knobs),
        "area": None if outcome.area is None else vars(outcome.area),
        "figures": dict(outcome.figures),
        "networks": {
            name: {key: value for key, value in each.to_values().items() if layers or key != "layers"}
            | ({"energy_pj": point_pj(design.cores, each, host_of(space)), "on_core": each.on_core,
                "host_cycles": host_cycles(space, each)} if design else {})
            for name, each in outcome.measures.items()
        },
    }  # fmt: skip


def system_record(design: Design) -> dict[str, Any] | None:
    """The system of a point as JSON values, if it is one."""
    system = design.system
    if system is None:
        return None
    return {**json.loads(system.config.to_json()), "memory": str(system.memory), "split": system.split}
