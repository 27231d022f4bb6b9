"""What can be tuned of a network for a core: a point of its space, and what all tasks have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..compiler.targets.accel.link.alone import Program
from ..compiler.targets.accel.link.tuned import Setting, tuning_key
from ..compiler.targets.errors import CompileError
from ..compiler.tune.database import Key, point_text
from ..compiler.tune.errors import TuningError
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..sim.timing import program_cycles


class RefusedError(TuningError):
    """The compiler does not take a setting; the text says why."""


@dataclass(frozen=True)
class Point:
    """A setting and the cycles that the estimate expects; infinite for one that it does not take."""

    setting: Setting
    estimate: float

    @property
    def text(self) -> str:
        return point_text(self.setting.point)


@dataclass(frozen=True)
class Region:
    """A part of a space, which is cut into smaller ones when a proof looks at it."""

    parts: Callable[[], Iterable[Bounded]]


Bounded = tuple[float, Region | Setting]
"""A part of a space, or one of its points, and cycles below which nothing in it gets."""


@dataclass(frozen=True)
class Task(ABC):
    """Something to tune, and how often the network has it. ``name``: of the first such function."""

    name: str
    config: CoreConfig
    rate: DramRate
    vthreads: int
    count: int

    in_sum = True
    """Whether the network's cycles are the sum over such tasks; not so of chains, whose layers are tasks, too."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What stands for it in the database."""

    @abstractmethod
    def settings(self) -> Iterable[Setting]:
        """What the compiler tries without a database, in its order: it takes the first that finds room."""

    def alone(self) -> Iterable[Setting]:
        """As :meth:`settings`, where it is the first of its program, as in a program of its own."""
        return self.settings()

    @abstractmethod
    def space(self) -> Iterable[Point]:
        """All points that may be worth measuring."""

    @abstractmethod
    def regions(self) -> Iterable[Bounded]:
        """The same points, in parts that have bounds."""

    @abstractmethod
    def estimate(self, setting: Setting) -> float:
        """What the estimate expects of one of :meth:`settings`; infinite where it does not take it."""

    @abstractmethod
    def program(self, setting: Setting) -> Program:
        """It alone, compiled so. Raises CompileError."""

    @abstractmethod
    def features_of(self, point: Point) -> Mapping[str, float]:
        """What a ranking sees of a point that the estimate takes."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """Cycles below which no setting can get."""

    @property
    def key(self) -> Key:
        return tuning_key(self.text, self.config, self.rate)

    @cached_property
    def defaults(self) -> Sequence[str]:
        """The texts of :meth:`settings`."""
        return [point_text(setting.point) for setting in self.settings()]

    @cached_property
    def points(self) -> Mapping[str, Point]:
        """The space by the texts of its points, the cheapest by the estimate first; then :attr:`defaults`."""
        found = {point.text: point for point in sorted(self.space(), key=lambda each: each.estimate)}
        for text, setting in zip(self.defaults, self.settings(), strict=True):
            if text not in found:
                found[text] = Point(setting, self.estimate(setting))
        return found

    @property
    def known_points(self) -> int | None:
        """How many :attr:`points` there are; None before something needed them, since listing a space takes long."""
        points = self.__dict__.get("points")
        return None if points is None else len(points)

    def features(self, text: str) -> Mapping[str, float]:
        """What a ranking sees of a point; nothing of one that the estimate does not take."""
        if text not in self._features:
            point = self.points[text]
            self._features[text] = self.features_of(point) if point.estimate < math.inf else {}
        return self._features[text]

    @cached_property
    def _features(self) -> dict[str, Mapping[str, float]]:
        return {}

    def cycles(self, setting: Setting) -> int:
        """Of a program of its own, exact as the timing model is. Raises :class:`RefusedError`."""
        try:
            program, end = self.program(setting)
        except CompileError as error:
            raise RefusedError(error.message) from error
        return program_cycles(self.config, self.rate, program, end)
