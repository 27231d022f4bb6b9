"""What a board without a processor is: one TOML file each, in ``data`` or wherever a user keeps their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...hw.config import CoreConfig
from ...hw.errors import ConfigError
from ...hw.standalone.sdram_chip import SdramChip
from ...hw.standalone.settings import Standalone
from ..board import Board, DefaultCore, all_boards, read_board
from ..errors import BoardError
from ..folders import boards_in, named_board, own_folder
from ..table import FAMILY, read_fields, read_toml
from .ecp5 import Ecp5
from .family import CoreClock, Family
from .gowin import Gowin
from .pins import Pins

DATA = Path(__file__).parent / "data"

FAMILIES: Mapping[str, Family] = {"ecp5": Ecp5(), "gowin": Gowin()}


@dataclass(frozen=True)
class CrystalClock:
    """The board's own clock, and the core's, which is made of it; in MHz."""

    crystal_mhz: float
    mhz: float


@dataclass(frozen=True)
class StandaloneBoard:
    """A board. ``programmer`` is the command that takes a bitstream to it. ``memory_bytes`` are block RAM, or all of
    the chip ``sdram``."""

    family: str
    name: str
    title: str
    part: str
    package: str
    grade: int
    memory_bytes: int
    baud: int
    programmer: str
    clock: CrystalClock
    pins: Pins
    core: DefaultCore
    sdram: SdramChip | None = None

    def __post_init__(self) -> None:
        self._check_known("family", FAMILIES)
        self._check_known("part", self.kind.parts)
        self._check_known("grade", self.kind.grades)
        for field, also in (("name", "-_"), ("package", "")):
            text = getattr(self, field)
            if not text or not all(letter.isalnum() or letter in also for letter in text):
                raise BoardError(f"must be letters and digits{', - and _' * bool(also)}, not {text!r}", at=field)
        self._check_sdram()
        try:
            self.core_clock()
        except BoardError as error:
            raise BoardError(error.message, at=f"clock.{error.at}", hint=error.hint) from None
        self.kind.check_pins(self.pins)
        try:
            core = self.core.core(self.name)
        except BoardError as error:
            raise BoardError(error.message, at=f"core.{error.at}", hint=error.hint) from None
        self.design(core)

    def _check_known(self, field: str, known: Iterable[object]) -> None:
        if getattr(self, field) not in known:
            hint = f"known: {', '.join(map(str, known))}"
            raise BoardError(f"unknown: {getattr(self, field)!r}", at=field, hint=hint)

    def _check_sdram(self) -> None:
        if self.sdram and not self.kind.sdram:
            raise BoardError(f"there is no SDRAM on boards of family {self.family} yet", at="sdram")
        if (self.sdram is None) != (self.pins.sdram is None):
            there, missing = ("pins.sdram", "sdram") if self.sdram is None else ("sdram", "pins.sdram")
            raise BoardError(f"a board with {there} needs this table too", at=missing)
        if self.sdram and self.pins.sdram and len(self.pins.sdram.address) != self.sdram.row_bits:
            count = len(self.pins.sdram.address)
            raise BoardError(f"the chip has {self.sdram.row_bits}, not {count}", at="pins.sdram.address")

    @property
    def default_core(self) -> CoreConfig:
        return self.core.core(self.name)

    @property
    def kind(self) -> Family:
        """What is known of its family."""
        return FAMILIES[self.family]

    def core_clock(self, mhz: float | None = None) -> CoreClock:
        """The fastest that is not above ``mhz`` (default: the board's)."""
        return self.kind.clock(self.clock.crystal_mhz, self.clock.mhz if mhz is None else mhz)

    def design(self, core: CoreConfig | None = None, *, mhz: float | None = None) -> Standalone:
        """The logic for a core (default: the board's). :class:`BoardError` for a clock, a line or a memory that cannot
        be had."""
        clock_hz = round(self.core_clock(mhz).mhz * 1e6)
        try:
            return Standalone(core or self.default_core, self.memory_bytes, clock_hz, self.baud, self.sdram)
        except ConfigError as error:
            raise BoardError(error.message, at=error.at, hint=error.hint) from None


def is_standalone(values: dict[str, Any]) -> bool:
    """Whether a board's file is of this kind."""
    return FAMILY in values


def read_standalone_board(path: Path) -> StandaloneBoard:
    """The board that a file describes; :class:`BoardError` names file and field, OSError if it cannot be read."""
    return read_fields(StandaloneBoard, read_toml(path), path)


@cache
def _shipped() -> dict[str, StandaloneBoard]:
    return _in(DATA)


def _in(folder: Path) -> dict[str, StandaloneBoard]:
    return boards_in(folder, StandaloneBoard, is_standalone)


def standalone_boards() -> dict[str, StandaloneBoard]:
    """All boards of this kind by name: those of weft, and those in the folder that ``WEFT_BOARDS`` names."""
    return _shipped() | (_in(own) if (own := own_folder()) else {})


def any_board(text: str) -> Board | StandaloneBoard:
    """A board of either kind by its name, or the one in a ``.toml`` file; :class:`BoardError` lists the known names."""
    if text.endswith(".toml"):
        path = Path(text)
        return read_standalone_board(path) if is_standalone(read_toml(path)) else read_board(path)
    boards: dict[str, Board | StandaloneBoard] = {**all_boards(), **standalone_boards()}
    return named_board(text, boards)
