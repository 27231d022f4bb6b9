"""The space: axes over the fields of a core, memories and compiler knobs; constraints, objectives and the search.

A space is one TOML file (``docs/explore.md``). An assignment gives every axis one value; :meth:`Space.design` makes of
it what is compiled for, or says why there is no such core.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from ..hw.config import CoreConfig, load_config
from ..hw.dram_rate import DramRate
from ..hw.errors import ConfigError
from ..hw.memories import SCRATCHPADS
from ..sim.dram import DramModel
from ..sim.dram_kinds import parse_dram_kind
from ..sim.errors import SimulationError
from .errors import ExploreError
from .processors import PROCESSORS
from .system_space import CORE, SystemAxes, SystemDesign, core_names, idle_axis, listed, system_design

Assignment = Mapping[str, Any]
"""A value for each axis, by its name such as ``core.block_in``."""

CORE_FIELDS = tuple(field.name for field in fields(CoreConfig) if field.name not in ("name", "rounding"))
"""Axes are numbers. Which sums a core rounds how is what models ask for: it is that of the base."""

KIB = {f"{memory}_kib": memory for memory in SCRATCHPADS}
"""Axes of a core that are no fields: the size of a scratchpad in KiB, whatever its entries are."""

BUS = "bus"
"""A memory as fast as the core's bus."""

FLAT = "flat"
"""A memory without banks."""


def _distinct(values: list[Any]) -> list[Any]:
    if len({json.dumps(value) for value in values}) < len(values):
        raise ValueError("has a value twice")
    return values


_Strict = ConfigDict(extra="forbid", strict=True, frozen=True)
Integers = Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(listed), Field(min_length=1)]
Positive = Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(listed), Field(min_length=1)]
Rates = Annotated[
    list[Annotated[int, Field(ge=1)] | Literal["bus"]], BeforeValidator(listed), Field(min_length=1)
]  # fmt: skip
Flags = Annotated[list[bool], BeforeValidator(listed), Field(min_length=1)]

Objective = Literal[
    "cycles", "core_cycles", "host_cycles", "on_core", "throughput", "latency", "energy", "area", "throughput_per_area",
    "LUT", "DSP", "BRAM36",
]  # fmt: skip
Algorithm = Literal["grid", "random", "tpe", "nsga2"]


class MemoryAxes(BaseModel):
    """DRAM rates: bytes a cycle of a port, or "bus", and latencies in cycles; a DRAM with banks by its name."""

    model_config = _Strict
    bytes_per_cycle: Rates = ["bus"]
    latency: Positive = [100]
    banks: Annotated[list[str], BeforeValidator(listed), Field(min_length=1)] = [FLAT]

    @field_validator("banks")
    @classmethod
    def _known_kinds(cls, names: list[str]) -> list[str]:
        for name in names:
            try:
                _ = None if name == FLAT else parse_dram_kind(name)
            except SimulationError as error:
                raise ValueError(f"{error.message}; {error.hint}, or {FLAT}") from error
        return names


class CompilerAxes(BaseModel):
    """Knobs of the compiler: virtual threads, and whether it may make chains of layers (slower to compile)."""

    model_config = _Strict
    vthreads: Positive = [2]
    chains: Flags = [True]


class Constraints(BaseModel):
    """What a point may take. ``part``: a board, or the first letters of its part; ``cycles``: of an image, at most;
    ``milliseconds``: of an image, at a clock of ``mhz``, which is a wish: no tool has confirmed it for these cores.
    Both are with the host's part. ``on_core``: the least share of the multiply-accumulates that the core does."""

    model_config = _Strict
    part: str | None = None
    mhz: Annotated[float, Field(gt=0)] | None = None
    milliseconds: Annotated[float, Field(gt=0)] | None = None
    LUT: Annotated[float, Field(gt=0)] | None = None
    DSP: Annotated[float, Field(gt=0)] | None = None
    BRAM36: Annotated[float, Field(gt=0)] | None = None
    cycles: Annotated[float, Field(gt=0)] | None = None
    on_core: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _a_time_has_a_clock(self) -> Constraints:
        if self.milliseconds is not None and self.mhz is None and self.part is None:
            raise ValueError("milliseconds need a clock: give mhz, or a part whose board has one")
        return self


class HostTable(BaseModel):
    """The processor that does what the core lacks: by default that of the part's board. Each rate may be given
    instead of what is assumed of it (`host.PROCESSORS`)."""

    model_config = _Strict
    processor: str | None = None
    mhz: Annotated[float, Field(gt=0)] | None = None
    operations_per_cycle: Annotated[float, Field(gt=0)] | None = None
    bytes_per_cycle: Annotated[float, Field(gt=0)] | None = None

    @field_validator("processor")
    @classmethod
    def _a_known_one(cls, name: str | None) -> str | None:
        if name is not None and name not in PROCESSORS:
            raise ValueError(f"there is no processor {name!r}; known: {', '.join(PROCESSORS)}")
        return name


class SearchPlan(BaseModel):
    """How points are chosen. ``batch`` points are chosen at a time: the seed decides them, not who is done first.
    ``judge``: by which cycles; with "layers" only the front's are in the end those of linked programs."""

    model_config = _Strict
    algorithm: Algorithm = "grid"
    judge: Literal["program", "layers"] = "program"
    trials: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    batch: Annotated[int, Field(ge=1, le=256)] = 8
    objectives: Annotated[list[Objective], Field(min_length=1)] = ["cycles", "area"]


@dataclass(frozen=True)
class Design:
    """A core with its memory and the compiler's knobs: what networks are compiled for.

    ``system``: the cores, of which ``config`` is the first, where there are several, or the memory has banks.
    """

    config: CoreConfig
    rate: DramRate
    vthreads: int
    chains: bool
    system: SystemDesign | None = None

    @property
    def cores(self) -> tuple[CoreConfig, ...]:
        return (self.config,) if self.system is None else self.system.config.cores

    @property
    def knobs(self) -> Mapping[str, Any]:
        """The compiler's knobs by name."""
        return {"chains": self.chains, "vthreads": self.vthreads}


class Space(BaseModel):
    """A space file. ``core``: the axes by field of CoreConfig (or ``inp_kib`` and the like); ``cores``: the same for
    further cores, by their names; ``base``: the core whose other fields are kept."""

    model_config = _Strict
    name: Annotated[str, StringConstraints(min_length=1, max_length=80)] = "exploration"
    base: str = "pynq"
    core: dict[str, Integers] = Field(default_factory=dict)
    cores: dict[str, dict[str, Integers]] = Field(default_factory=dict)
    system: SystemAxes | None = None
    memory: MemoryAxes = MemoryAxes()
    compiler: CompilerAxes = CompilerAxes()
    constraints: Constraints = Constraints()
    host: HostTable = HostTable()
    search: SearchPlan = SearchPlan()

    @field_validator("core")
    @classmethod
    def _known_fields(cls, axes: dict[str, list[int]]) -> dict[str, list[int]]:
        return _core_axes(axes)

    @field_validator("cores")
    @classmethod
    def _known_fields_of_all(cls, cores: dict[str, dict[str, list[int]]]) -> dict[str, dict[str, list[int]]]:
        for name, axes in cores.items():
            if name == CORE or not re.fullmatch(r"[A-Za-z_]\w*", name):
                raise ValueError(f"{name!r} is no name of a further core: letters and digits, and not {CORE!r}")
            _core_axes(axes)
        return cores

    @model_validator(mode="after")
    def _cores_are_used(self) -> Space:
        used = {name for value in self.system.cores for name in core_names(value)} if self.system else set()
        if unused := sorted(self.cores.keys() - used):
            raise ValueError(f"no system has the core {unused[0]!r}: name it in system.cores")
        if self.search.judge == "layers" and (self.system is not None or self.memory.banks != [FLAT]):
            raise ValueError('judge = "layers" knows one core on a flat memory: systems and banks need "program"')
        return self

    @cached_property
    def axes(self) -> dict[str, list[Any]]:
        """The values of every axis by its name, axes with a single value included."""
        tables: dict[str, Mapping[str, Sequence[Any]]] = {
            "core": self.core, **{f"cores.{name}": axes for name, axes in self.cores.items()},
            "memory": self.memory.model_dump(), "compiler": self.compiler.model_dump(),
            "system": self.system.model_dump() if self.system is not None else {},
        }  # fmt: skip
        return {f"{table}.{name}": list(values) for table, axes in tables.items() for name, values in axes.items()}

    @property
    def size(self) -> int:
        """Assignments that there are."""
        return math.prod(len(values) for values in self.axes.values())

    def assignments(self) -> Iterator[dict[str, Any]]:
        """All, the last axis fastest."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    @cached_property
    def base_config(self) -> CoreConfig:
        return load_config(self.base)

    @cached_property
    def named_cores(self) -> dict[str, CoreConfig]:
        """Cores of systems that no table describes: configurations by name, or JSON files."""
        names = {name for value in self.system.cores for name in core_names(value)} if self.system else set()
        return {name: load_config(name) for name in sorted(names - {CORE, *self.cores})}

    def design(self, assignment: Assignment) -> Design:
        """What an assignment means. ConfigError says why there is no such core, or no such system."""
        names = core_names(assignment.get("system.cores", 1))
        if axis := idle_axis(self.axes, assignment, names):
            raise ConfigError(f"{axis} = {assignment[axis]!r} changes nothing here: another point is the same")
        cores = [self._core(name, assignment) for name in names]
        given, latency = assignment["memory.bytes_per_cycle"], assignment["memory.latency"]
        rate = DramRate(latency=latency, bytes_per_cycle=cores[0].bus_bytes if given == BUS else given)
        banks, system = assignment["memory.banks"], None
        if self.system is not None or banks != FLAT:
            try:
                memory = DramModel(
                    latency=latency, bytes_per_cycle=rate.bytes_per_cycle,
                    banks=None if banks == FLAT else parse_dram_kind(banks),
                )  # fmt: skip
            except SimulationError as error:
                raise ConfigError(error.message, hint=error.hint) from error
            system = system_design(assignment, cores, memory)
        return Design(cores[0], rate, assignment["compiler.vthreads"], assignment["compiler.chains"], system)

    def _core(self, name: str, assignment: Assignment) -> CoreConfig:
        """The core with a name at a point; its own name is of its array and all else that it is."""
        if name in self.named_cores:
            return self.named_cores[name]
        table = f"{CORE}." if name == CORE else f"cores.{name}."
        core = {axis.removeprefix(table): value for axis, value in assignment.items() if axis.startswith(table)}
        kib = {memory: core.pop(axis) for axis, memory in KIB.items() if axis in core}
        values = {field: getattr(self.base_config, field) for field in CORE_FIELDS} | core
        for memory in kib:  # any depth will do to ask for the bytes of an entry
            values[f"{memory}_depth"] = 1024
        config = CoreConfig(**values) if not kib else _sized(values, kib)
        return replace(config, name=f"{config.batch}x{config.block_in}x{config.block_out}-{config.hash64:016x}"[:24])


def _core_axes(axes: dict[str, list[int]]) -> dict[str, list[int]]:
    """Axes of a core; ValueError for one that is none."""
    for name in axes:
        if name not in CORE_FIELDS and name not in KIB:
            raise ValueError(f"there is no field {name!r}; known: {', '.join((*CORE_FIELDS, *KIB))}")
        _distinct(axes[name])
        if name in KIB and f"{KIB[name]}_depth" in axes:
            raise ValueError(f"{name} and {KIB[name]}_depth say the same: give one of them")
    return axes


def _sized(values: Mapping[str, Any], kib: Mapping[Any, int]) -> CoreConfig:
    """The configuration whose scratchpads have these sizes in KiB."""
    any_depths = CoreConfig(**values)
    depths: dict[str, Any] = {}
    for memory, size in kib.items():
        entry = any_depths.entry_bytes(memory)
        if size * 1024 % entry or size * 1024 < entry:
            raise ConfigError(f"{memory}_kib = {size} holds no whole number of entries of {entry} bytes")
        depths[f"{memory}_depth"] = size * 1024 // entry
    return replace(any_depths, **depths)


def assignment_text(assignment: Assignment) -> str:
    """The same text for the same values."""
    return json.dumps(dict(assignment), sort_keys=True, separators=(",", ":"))


def load_space(path: str | Path) -> Space:
    """Read a space file. ExploreError names the table and the field at fault, and what would be right."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExploreError(f"cannot be read: {error.strerror or error}", at=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExploreError(f"not TOML: {error}", at=path) from error
    if not values:
        raise ExploreError("nothing is in it", at=path, hint='base = "pynq" and a table of axes, as [core]')
    try:
        space = Space.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "constrained")))
        known = _known_at(first["loc"]) if first["type"] == "extra_forbidden" else ""
        message = first["msg"].removeprefix("Value error, ")
        raise ExploreError(f"{message} (it is {first['input']!r:.80})", at=f"{path}: {place}", hint=known) from None
    try:
        _ = space.base_config
    except (ConfigError, OSError) as error:
        raise ExploreError(str(error), at=f"{path}: base") from error
    try:
        _ = space.named_cores
    except (ConfigError, OSError) as error:
        known = ", ".join((CORE, *space.cores))
        raise ExploreError(f"{error}; cores of this file: {known}", at=f"{path}: system.cores") from error
    return space


def _known_at(place: Sequence[Any]) -> str:
    """The names that a table knows."""
    model: type[BaseModel] = Space
    for part in place[:-1]:
        inner = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        model = inner
    return f"known: {', '.join(model.model_fields)}"
