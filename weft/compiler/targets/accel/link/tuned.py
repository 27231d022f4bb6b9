"""Settings from a tuning database: under which key results stand, and the best of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....tune.database import Database, Key, Point
from ....tune.errors import TuningError
from ...sources import sources_digest
from ..operators.lower import Kernel
from ..schedule.tiling import ChainTiling, Tiling
from .forms import FORMS, SHARED

DETAILS = frozenset({"order", "epilogue_groups", "epilogue_rows", "portion"})


@dataclass(frozen=True)
class Setting:
    """A point of the space of a kernel, a depthwise layer or a chain.

    ``tiling``: None where the compiler chooses it. ``form``: how depthwise convolutions are computed (``forms.py``);
    empty for a kernel, and for a chain without them. ``on_array``: channel groups that the array computes of a layer
    that both engines share.
    """

    tiling: Tiling | None
    form: str = ""
    on_array: int = 0

    @property
    def tile(self) -> tuple[object, ...]:
        """The knobs by which settings differ most: not the parts that a tile is cut into, nor which of rows and columns
        is the outer loop."""
        point = {name: value for name, value in self.point.items() if name not in DETAILS}
        place = self.tiling.order.index("c") if self.tiling is not None else 0
        return (place, *point.values())

    @property
    def point(self) -> Point:
        """As a database keeps it."""
        named = {"form": self.form} if self.form else {}
        shared = {"on_array": self.on_array} if self.on_array else {}
        return {**named, **shared, **(tiling_point(self.tiling) if self.tiling is not None else {})}


@dataclass(frozen=True)
class Tuned:
    """A setting that was measured, the cycles that it took alone, and the number of the record."""

    setting: Setting
    cycles: int
    record: int

    @property
    def origin(self) -> str:
        """For people."""
        form = f", form {self.setting.form!r}" if self.setting.form else ""
        return f"record {self.record} of the tuning database: {self.cycles:,} cycles alone{form}"


Lookup = Callable[[str], Tuned | None]
"""The best setting of what a text stands for: a kernel's signature, or that of a layer or of a chain (below)."""

LAYER, CHAIN = "layer ", "chain "
"""What stands before the signature of a depthwise layer, and of a chain, whose settings have forms."""


def layer_text(kernel: Kernel) -> str:
    """What stands for a depthwise layer, whatever its form; ``kernel``: on the vector engine."""
    return LAYER + kernel.signature


def chain_text(kernel: Kernel) -> str:
    """What stands for a chain, whatever the form of its depthwise layers; ``kernel``: with these on the vector
    engine."""
    return CHAIN + kernel.signature


def tuning_key(text: str, config: CoreConfig, rate: DramRate) -> Key:
    """The key of the results of what ``text`` stands for on a core with this memory, by this compiler."""
    return Key(text, *machine_texts(config, rate), sources_digest())


def machine_texts(config: CoreConfig, rate: DramRate) -> tuple[str, str]:
    """What stands for a core and for its memory in keys; a core's name takes no part."""
    core = {name: value for name, value in asdict(config).items() if name != "name"}
    memory = {"bytes_per_cycle": rate.for_bus(config), "latency": rate.latency}
    return json.dumps(core, sort_keys=True), json.dumps(memory, sort_keys=True)


def tiling_point(tiling: Tiling) -> Point:
    return asdict(tiling)


def point_tiling(point: Point) -> Tiling:
    """The tiling of a point; TuningError for one that is none, as a stranger's file may hold."""
    kinds: tuple[type[Tiling], ...] = (Tiling, ChainTiling)
    kind = next((each for each in kinds if {field.name for field in fields(each)} == point.keys()), None)
    default = asdict(kind(1, 1, 1, 0, "cyx", 1, 1, 1)) if kind is not None else {}
    typed = all(type(point[name]) is type(value) for name, value in default.items())
    tiling = kind(**point) if kind is not None and typed else None
    if tiling is None or tiling.fault:
        raise TuningError(f"a tuning database holds {dict(point)!r}, which is no tiling", hint="make it anew")
    return tiling


def point_setting(text: str, point: Point) -> Setting:
    """The setting that a point of what ``text`` stands for is; TuningError for one that is none."""
    form, on_array = point.get("form", ""), point.get("on_array", 0)
    rest = {name: value for name, value in point.items() if name not in ("form", "on_array")}
    known = FORMS if text.startswith((LAYER, CHAIN)) else ("",)
    if text.startswith(CHAIN):
        known = tuple(form for form in (*known, "") if form != SHARED)
    if form not in known or type(on_array) is not int or (on_array > 0) != (form == SHARED) or on_array < 0:
        raise TuningError(f"a tuning database holds {dict(point)!r}, which has no form that is known here",
                          hint="make it anew")  # fmt: skip
    if form == SHARED and not rest:
        return Setting(None, form, on_array)
    tiling = point_tiling(rest)
    if isinstance(tiling, ChainTiling) != text.startswith(CHAIN):
        raise TuningError(f"a tuning database holds {dict(point)!r}, which is no tiling of a "
                          f"{'chain' if text.startswith(CHAIN) else 'kernel'}", hint="make it anew")  # fmt: skip
    return Setting(tiling, form)


def tuned_settings(path: str | Path, config: CoreConfig, rate: DramRate) -> Lookup:
    """The best settings of the database at ``path``. TuningError if there is none, or it cannot be read."""
    with Database(path, read_only=True) as database:
        best = database.best(*machine_texts(config, rate), sources_digest())

    def find(text: str) -> Tuned | None:
        result = best.get(text)
        if result is None:
            return None
        return Tuned(point_setting(text, result.point), int(result.cost or 0), result.number)

    return find
