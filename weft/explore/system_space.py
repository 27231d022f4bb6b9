"""Systems as points: the table ``system`` of a space, and what a point of it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ..hw.config import CoreConfig
from ..hw.errors import ConfigError
from ..hw.system_config import MOST_CORES, SystemConfig
from ..sim.dram import DramModel
from .processors import Processor

Split = Literal["pictures", "networks", "stages"]
"""Who does what in a round: ``pictures``: an image of a network on every core, network after network; ``networks``: an
image of each network, each on one core; ``stages``: a stage of a network on every core, each of another image."""

OWN, ONE = "own", "one"
"""Ports: one for each core, or one for all."""

CORE = "core"
"""What the core of the table ``core`` is called."""

_TERM = re.compile(r"(?:(\d+)\s+)?(\S+)")


def listed(value: object) -> object:
    """A single value is an axis with one."""
    return value if isinstance(value, list) else [value]


def core_names(value: int | str) -> list[str]:
    """The name of each core: ``4`` and ``"4 core"`` are four of the table ``core``, ``"core + 2 tiny"`` are three.
    ValueError for a text that says no cores, or too many."""
    names: list[str] = []
    for term in (f"{value} {CORE}" if isinstance(value, int) else value).split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ValueError(f'{value!r} names no cores: write 4, or "2 core + 1 tiny"')
        count = int(match[1] or 1)
        if not 1 <= count <= MOST_CORES - len(names):
            raise ValueError(f"{value!r} must be 1 to {MOST_CORES} cores")
        names += [match[2]] * count
    return names


def port_numbers(value: str, count: int) -> tuple[int, ...]:
    """The port of each of ``count`` cores: :data:`OWN`, :data:`ONE`, or numbers such as ``"0 0 1"``."""
    if value == OWN:
        return tuple(range(count))
    return (0,) * count if value == ONE else tuple(int(each) for each in value.split())


class SystemAxes(BaseModel):
    """Which cores, by their names; which ports; whether reads of weights are shared; who does what in a round."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    cores: Annotated[list[int | str], BeforeValidator(listed), Field(min_length=1)] = [1]
    ports: Annotated[list[str], BeforeValidator(listed), Field(min_length=1)] = [ONE]
    shared_reads: Annotated[list[bool], BeforeValidator(listed), Field(min_length=1)] = [False]
    split: Annotated[list[Split], BeforeValidator(listed), Field(min_length=1)] = ["pictures"]

    @field_validator("cores")
    @classmethod
    def _are_cores(cls, values: list[int | str]) -> list[int | str]:
        for value in values:
            core_names(value)
        return values

    @field_validator("ports")
    @classmethod
    def _are_ports(cls, values: list[str]) -> list[str]:
        for value in values:
            if value not in (OWN, ONE) and not re.fullmatch(r"\d(\s+\d)*", value):
                raise ValueError(f'{value!r} are no ports: write "{OWN}", "{ONE}", or the port of each core: "0 0 1"')
        return values


@dataclass(frozen=True)
class SystemDesign:
    """Several cores on one memory, or one on a DRAM with banks; ``split``: who does what in a round.

    ``host``: where networks are put on cores, the processor that does what these lack, and their clock in MHz.
    """

    config: SystemConfig
    memory: DramModel
    split: Split
    host: tuple[Processor, float] | None = None

    def __post_init__(self) -> None:
        if len({core.batch for core in self.config.cores}) > 1:
            raise ConfigError("cores of one system take different numbers of images", at="batch")
        if self.config.shared_reads and (self.split != "pictures" or not self.alike):
            raise ConfigError("reads are shared by cores that run one program: alike ones, each with a picture",
                              at="shared_reads")  # fmt: skip

    @cached_property
    def alike(self) -> bool:
        """Whether one program suits all cores."""
        return len({core.hash64 for core in self.config.cores}) == 1


def idle_axis(axes: Mapping[str, Sequence[Any]], assignment: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """An axis of nothing in a system of cores with these names, if it has not its first value: the system is that of
    another point."""
    for axis, values in axes.items():
        table, _, field = axis.rpartition(".")
        core = CORE if table == CORE else table.removeprefix("cores.") if table.startswith("cores.") else None
        idle = core is not None and core not in names
        idle |= table == "system" and field in ("ports", "split") and len(names) == 1
        if idle and assignment[axis] != values[0]:
            return axis
    return None


def system_design(
    assignment: Mapping[str, Any], cores: Sequence[CoreConfig], memory: DramModel
) -> SystemDesign:  # fmt: skip
    """What the axes of ``system`` say of these cores; without them, of a core alone. ConfigError: no such system."""
    ports = port_numbers(assignment.get("system.ports", ONE), len(cores))
    shares, split = assignment.get("system.shared_reads", False), assignment.get("system.split", "pictures")
    return SystemDesign(SystemConfig(cores=tuple(cores), ports=ports, shared_reads=shares), memory, split)
