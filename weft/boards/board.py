"""What a board is: one TOML file each, in ``boards/data`` or wherever a user keeps their own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ..hw.config import NAMED, CoreConfig
from ..hw.errors import ConfigError
from .errors import BoardError
from .folders import boards_in, named_board, own_folder
from .processing_system import HIGHEST_DIVISOR, PROCESSING_SYSTEMS, MemoryPort, ProcessingSystem
from .ranges import Range
from .table import FAMILY, read_fields, read_toml

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Resources:
    """What the part has: look-up tables, registers, block RAMs of 36 Kibit, UltraRAMs, DSP blocks."""

    LUT: int
    FF: int
    BRAM36: float
    URAM: int
    DSP: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "URAM"):
                raise BoardError(f"must be positive, not {value}", at=name)


@dataclass(frozen=True)
class Clock:
    """A clock for the logic: a PLL's rate divided by two integers. Rates are in MHz."""

    pll: str
    pll_mhz: float
    asked_mhz: float
    divisors: tuple[int, int]

    @property
    def mhz(self) -> float:
        """The rate that the dividers give; at most the one asked for."""
        return self.pll_mhz / (self.divisors[0] * self.divisors[1])


@dataclass(frozen=True)
class ClockSource:
    """The PLL that feeds clock 0 of the logic, and the rate to ask for, in MHz."""

    pll: str
    pll_mhz: float
    mhz: float

    def __post_init__(self) -> None:
        for name, low, high in (("pll_mhz", 100.0, 3000.0), ("mhz", 1.0, 500.0)):
            if not low <= getattr(self, name) <= high:
                raise BoardError(f"must be in {low:g}..{high:g} MHz, not {getattr(self, name):g}", at=name)

    def clock(self, mhz: float | None = None) -> Clock:
        """The fastest clock that is not above ``mhz`` (default: the board's); :class:`BoardError` if there is none."""
        asked = self.mhz if mhz is None else mhz
        lowest = self.pll_mhz / HIGHEST_DIVISOR**2
        if not math.isfinite(asked) or not lowest <= asked <= self.pll_mhz:
            raise BoardError(
                f"a clock of {asked:g} MHz is not possible", hint=f"{lowest:.3g}..{self.pll_mhz:g} MHz are"
            )
        pairs = [
            (first, second)
            for first in range(1, HIGHEST_DIVISOR + 1)
            for second in range(1, first + 1)
            if self.pll_mhz / (first * second) <= asked
        ]
        divisors = min(pairs, key=lambda pair: (pair[0] * pair[1], pair[0] - pair[1]))
        return Clock(self.pll, self.pll_mhz, asked, divisors)


@dataclass(frozen=True)
class Ddr:
    """DDR memory of the processing system: ``megatransfers`` a second of ``bits``, at the addresses in ``windows``."""

    kind: str
    megatransfers: int
    bits: int
    windows: tuple[Range, ...]

    def __post_init__(self) -> None:
        if not 100 <= self.megatransfers <= 8000:
            raise BoardError(f"must be in 100..8000, not {self.megatransfers}", at="megatransfers")
        if self.bits not in (16, 32, 64):
            raise BoardError(f"must be 16, 32 or 64, not {self.bits}", at="bits")
        if not self.windows or any(window.bytes <= 0 or window.base < 0 for window in self.windows):
            raise BoardError("must name addresses, each with a base and a positive number of bytes", at="windows")
        if any(one.last >= other.base for one, other in zip(self.windows, self.windows[1:], strict=False)):
            raise BoardError("must rise and not overlap", at="windows")

    @property
    def bytes(self) -> int:
        return sum(window.bytes for window in self.windows)

    @property
    def bytes_per_second(self) -> float:
        """The peak; no memory controller reaches it."""
        return self.megatransfers * 1e6 * self.bits / 8

    @property
    def last(self) -> int:
        """The highest address of memory."""
        return self.windows[-1].last


@dataclass(frozen=True)
class Software:
    """What runs on the board: the SD image, the pynq in it, its Python, and the Vivado of its own overlays."""

    image: str
    pynq: str
    python: str
    vivado: str


@dataclass(frozen=True)
class DefaultCore:
    """The core that is built unless another one is asked for: a named configuration, and what is changed of it."""

    config: str
    changes: dict[str, int] = field(default_factory=dict)

    def core(self, board: str) -> CoreConfig:
        """The configuration; one with changes has a name of its own. :class:`BoardError` if there is none."""
        if self.config not in NAMED:
            raise BoardError(f"unknown configuration {self.config!r}", at="config", hint=f"known: {', '.join(NAMED)}")
        try:
            core = replace(NAMED[self.config], **self.changes)  # type: ignore[arg-type]
        except (TypeError, ConfigError) as error:
            raise BoardError(str(error), at="changes") from None
        return replace(core, name=f"{self.config}-{board}") if self.changes else core


@dataclass(frozen=True)
class Board:
    """A board. ``board_part`` is Vivado's name for its settings, which are used where that Vivado has them.

    ``memory_port`` is the port of the processing system that the core's reads and writes take; ``cma_bytes`` is how
    much memory one and all buffers can have at most on the image as it comes.
    """

    name: str
    title: str
    part: str
    board_part: str
    processing_system: str
    processor: str
    processors: int
    memory_port: str
    cma_bytes: int
    resources: Resources
    clock: ClockSource
    ddr: Ddr
    software: Software
    core: DefaultCore

    def __post_init__(self) -> None:
        if self.processing_system not in PROCESSING_SYSTEMS:
            known = ", ".join(PROCESSING_SYSTEMS)
            raise BoardError(f"unknown: {self.processing_system!r}", at="processing_system", hint=f"known: {known}")
        if self.memory_port not in (ports := [port.name for port in self.system.memory_ports]):
            raise BoardError(f"unknown: {self.memory_port!r}", at="memory_port", hint=f"known: {', '.join(ports)}")
        if not self.name or not all(letter.isalnum() or letter in "-_" for letter in self.name):
            raise BoardError(f"must be letters, digits, - and _, not {self.name!r}", at="name")
        if not 0 < self.cma_bytes <= self.ddr.bytes:
            raise BoardError(f"must be in 1..{self.ddr.bytes}, the DDR memory, not {self.cma_bytes}", at="cma_bytes")
        if self.processors < 1:
            raise BoardError(f"must be positive, not {self.processors}", at="processors")
        if len(self.ddr.windows) > len(self.port.segments):
            raise BoardError(
                f"{len(self.ddr.windows)} windows, but {self.memory_port} reaches {len(self.port.segments)}",
                at="ddr.windows",
            )
        try:
            self.core.core(self.name)
        except BoardError as error:
            raise BoardError(error.message, at=f"core.{error.at}", hint=error.hint) from None

    @property
    def system(self) -> ProcessingSystem:
        return PROCESSING_SYSTEMS[self.processing_system]

    @property
    def port(self) -> MemoryPort:
        """The port that :attr:`memory_port` names."""
        return next(port for port in self.system.memory_ports if port.name == self.memory_port)

    @property
    def default_core(self) -> CoreConfig:
        return self.core.core(self.name)


def read_board(path: Path) -> Board:
    """The board that a file describes; :class:`BoardError` names file and field, OSError if it cannot be read."""
    return read_fields(Board, read_toml(path), path)


@cache
def _shipped() -> dict[str, Board]:
    return _in(DATA)


def _in(folder: Path) -> dict[str, Board]:
    return boards_in(folder, Board, lambda values: FAMILY not in values)


def all_boards() -> dict[str, Board]:
    """All boards by name: those of weft, and those in the folder that ``WEFT_BOARDS`` names."""
    return _shipped() | (_in(own) if (own := own_folder()) else {})


def find_board(text: str) -> Board:
    """A board by its name, or the one in a ``.toml`` file; :class:`BoardError` lists the known names."""
    if text.endswith(".toml"):
        return read_board(Path(text))
    return named_board(text, all_boards())
