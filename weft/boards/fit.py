"""Which cores fit which boards: what a core takes, measured once, against what the part has.

A system takes what its cores do, and an arbiter and a relay, which :data:`ARBITER` and :data:`RELAY` say.

Figures are of open synthesis for 7-series (docs/synthesis.md), without what stands around a core: the two
SmartConnects, the interrupt controller and the reset. UltraScale+ has the same look-up tables and block RAMs, and
multipliers that are wider, so a core takes about as much there; UltraRAM is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from ..hw.config import CoreConfig
from ..hw.synthesis_report import SHARE_LIMIT
from ..hw.system_config import SystemConfig
from .board import Board
from .errors import BoardError

MEASURED = Path(__file__).parent / "measured.json"
"""Written by ``benchmarks/hardware/synthesis.py --measured``; ``synthesis_difference.py`` beside it adds cores."""

ARBITER = {2: {"LUT": 226, "FF": 114}, 4: {"LUT": 245, "FF": 120}}
SHARING_ARBITER = {2: {"LUT": 436, "FF": 215}, 4: {"LUT": 788, "FF": 308}}
RELAY = {2: {"LUT": 348, "FF": 211, "BRAM36": 2}, 4: {"LUT": 878, "FF": 323, "BRAM36": 4}}
"""By the number of cores: as ``docs/systems.md`` has them from ``benchmarks/systems/systems.py --area``."""

HARDLY_MATTERS = ("name", "address_bits", "burst_beats")
"""Fields that change widths of a few registers and adders in a core; what the others change is the core."""


@dataclass(frozen=True)
class Measurement:
    """What synthesis found that a core takes, by the names of :class:`~weft.boards.board.Resources`.

    ``base`` is empty if all modules were synthesised. Otherwise it is the name of the measured core that the figures
    start from: only modules in which the two differ were synthesised, in both forms.
    """

    core: CoreConfig
    figures: Mapping[str, float]
    base: str = ""


@dataclass(frozen=True)
class Fit:
    """A core on a board's part.

    ``needs`` is None where nothing like the core was measured; ``differs`` names the fields in which the core that
    was measured is another one; ``shortages`` has one text for each resource that is short.
    """

    board: Board
    core: CoreConfig | SystemConfig
    needs: Mapping[str, float] | None
    differs: tuple[str, ...]
    shortages: tuple[str, ...]

    @property
    def measured(self) -> bool:
        return self.needs is not None

    @property
    def shares(self) -> Mapping[str, float]:
        """What share of each resource the core takes."""
        return {name: value / getattr(self.board.resources, name) for name, value in (self.needs or {}).items()}

    def require(self) -> None:
        """:class:`BoardError` with what is short."""
        if self.shortages:
            what = "core" if isinstance(self.core, CoreConfig) else "system"
            raise BoardError(
                f"{what} {self.core.name!r} does not fit {self.board.name}: {'; '.join(self.shortages)}",
                hint="a smaller core: `weft board list --cores` shows those that were measured",
            )


def measurement_text(measurements: Sequence[Measurement]) -> str:
    """The text of :data:`MEASURED`. Only what differs from the default core is kept of a configuration."""
    default = asdict(CoreConfig())
    entries = [
        {
            "core": {name: value for name, value in asdict(each.core).items() if value != default[name]},
            "figures": dict(each.figures),
            **({"base": each.base} if each.base else {}),
        }
        for each in measurements
    ]
    return json.dumps(entries, indent=1) + "\n"


@cache
def measurements() -> tuple[Measurement, ...]:
    """All cores that were measured."""
    entries = json.loads(MEASURED.read_text())
    return tuple(Measurement(CoreConfig(**entry["core"]), entry["figures"], entry.get("base", "")) for entry in entries)


def find_measurement(core: CoreConfig) -> tuple[Measurement, tuple[str, ...]] | None:
    """What was measured of a core, or of one that is nearly the same; and the fields in which that one differs."""
    for names in (("name",), HARDLY_MATTERS):
        for each in measurements():
            mine, other = asdict(core), asdict(each.core)
            differing = tuple(name for name in mine if mine[name] != other[name])
            if set(differing) <= set(names):
                return each, tuple(name for name in differing if name != "name")
    return None


def system_needs(system: SystemConfig) -> tuple[Mapping[str, float], tuple[str, ...]] | None:
    """What a system takes, and the fields in which cores that were measured are others; None if a core was not."""
    figures: dict[str, float] = {}
    differing: dict[str, None] = {}
    for core in system.cores:
        found = find_measurement(core)
        if found is None:
            return None
        differing |= dict.fromkeys(found[1])
        for name, value in found[0].figures.items():
            figures[name] = figures.get(name, 0) + value
    arbiters = [len(members) for port in range(system.port_count) if len(members := system.cores_of(port)) > 1]
    more = [_of_count(SHARING_ARBITER if system.shared_reads else ARBITER, count) for count in arbiters]
    if system.relay and len(system.cores) > 1:
        more.append(_of_count(RELAY, len(system.cores)))
    for each in more:
        for name, value in each.items():
            figures[name] = figures.get(name, 0) + value
    return figures, tuple(differing)


def _of_count(measured: Mapping[int, Mapping[str, float]], cores: int) -> Mapping[str, float]:
    """What was measured for the next larger number of cores; for more than that, in proportion."""
    larger = [count for count in sorted(measured) if count >= cores]
    if larger:
        return measured[larger[0]]
    most = max(measured)
    return {name: value * cores / most for name, value in measured[most].items()}


def fit(board: Board, core: CoreConfig | SystemConfig) -> Fit:
    """How a core, or a system, fits a board, as far as that was measured."""
    if isinstance(core, SystemConfig):
        found = system_needs(core)
    else:
        measured = find_measurement(core)
        found = None if measured is None else (measured[0].figures, measured[1])
    if found is None:
        return Fit(board, core, None, (), ())
    figures, differs = found
    shortages = []
    for name, value in figures.items():
        available = getattr(board.resources, name)
        if value > SHARE_LIMIT * available:
            shortages.append(
                f"it needs {number(value)} {name}, {board.part} has {number(available)} "
                f"of which {SHARE_LIMIT:.0%} may be used"
            )
    return Fit(board, core, figures, differs, tuple(shortages))


def measured_cores() -> tuple[CoreConfig, ...]:
    """The cores of all measurements, smallest array first."""
    return tuple(sorted((each.core for each in measurements()), key=lambda core: core.macs_per_cycle))


def number(value: float) -> str:
    """A count with separators; half a block RAM shows as such."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
