"""Tilings from a tuning database: under which key a kernel's results stand, and the best of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ....hw.config import CoreConfig
from ....hw.dram_rate import DramRate
from ...tune.database import Database, Key, Point
from ...tune.errors import TuningError
from ..sources import sources_digest
from .lower import Kernel
from .tiling import Tiling


@dataclass(frozen=True)
class Tuned:
    """A tiling that was measured, the cycles that the kernel took alone, and the number of the record."""

    tiling: Tiling
    cycles: int
    record: int


Lookup = Callable[[Kernel], Tuned | None]


def tuning_key(kernel: Kernel, config: CoreConfig, rate: DramRate) -> Key:
    """The key of a kernel's results on a core with this memory, by this compiler."""
    return Key(kernel.signature, *machine_texts(config, rate), sources_digest())


def machine_texts(config: CoreConfig, rate: DramRate) -> tuple[str, str]:
    """What stands for a core and for its memory in keys; a core's name takes no part."""
    core = {name: value for name, value in asdict(config).items() if name != "name"}
    memory = {"bytes_per_cycle": rate.for_bus(config), "latency": rate.latency}
    return json.dumps(core, sort_keys=True), json.dumps(memory, sort_keys=True)


def tiling_point(tiling: Tiling) -> Point:
    return asdict(tiling)


def point_tiling(point: Point) -> Tiling:
    """The tiling of a point; TuningError for one that is none, as a stranger's file may hold."""
    default = asdict(Tiling(1, 1, 1, 0, True, 1, 1, 1))
    right = point.keys() == default.keys() and all(
        type(point[name]) is type(value) and (isinstance(value, bool) or 0 <= point[name] <= 1 << 20)
        for name, value in default.items()
    )
    sizes = ("groups", "rows", "columns", "epilogue_groups", "epilogue_rows", "threads")
    if not right or any(point[name] < 1 for name in sizes):
        raise TuningError(f"a tuning database holds {dict(point)!r}, which is no tiling", hint="make it anew")
    return Tiling(**point)


def tuned_tilings(path: str | Path, config: CoreConfig, rate: DramRate) -> Lookup:
    """The best tilings of the database at ``path``. TuningError if there is none, or it cannot be read."""
    with Database(path, read_only=True) as database:
        best = database.best(*machine_texts(config, rate), sources_digest())

    def find(kernel: Kernel) -> Tuned | None:
        result = best.get(kernel.signature)
        return Tuned(point_tiling(result.point), int(result.cost or 0), result.number) if result else None

    return find
