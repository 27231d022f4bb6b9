"""What a board without a processor is: one TOML file each, in ``data`` or wherever a user keeps their own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ...hw.config import CoreConfig
from ...hw.errors import ConfigError
from ...hw.standalone.sdram_chip import BANK_BITS, DATA_BITS, DATA_BYTES, SdramChip
from ...hw.standalone.settings import LEDS, Standalone
from ..board import Board, DefaultCore, all_boards, read_board
from ..errors import BoardError
from ..folders import boards_in, named_board, own_folder
from ..table import FAMILY, read_fields, read_toml
from .pll import CRYSTAL_MHZ, Pll, find_pll

DATA = Path(__file__).parent / "data"

PARTS = {
    "LFE5U-25F": "--25k", "LFE5U-45F": "--45k", "LFE5U-85F": "--85k",
    "LFE5UM-25F": "--um-25k", "LFE5UM-45F": "--um-45k", "LFE5UM-85F": "--um-85k",
    "LFE5UM5G-25F": "--um5g-25k", "LFE5UM5G-45F": "--um5g-45k", "LFE5UM5G-85F": "--um5g-85k",
}  # fmt: skip
"""Parts of the family ECP5, and nextpnr's option for each."""

FAMILIES = ("ecp5",)
PULLS = ("NONE", "UP", "DOWN")
GRADES = (6, 7, 8)


@dataclass(frozen=True)
class Pin:
    """A ball of the package. ``inverted``: low means yes."""

    site: str
    pull: str = "NONE"
    standard: str = "LVCMOS33"
    inverted: bool = False

    def __post_init__(self) -> None:
        _check_site(self.site, "site")
        if self.pull not in PULLS:
            raise BoardError(f"unknown: {self.pull!r}", at="pull", hint=f"known: {', '.join(PULLS)}")
        if not self.standard.isalnum() or not self.standard.isascii():
            raise BoardError(f"must be an I/O standard such as LVCMOS33, not {self.standard!r}", at="standard")


def _check_site(site: str, field: str) -> None:
    if not site.isalnum() or not site.isascii():
        raise BoardError(f"must be a ball's letters and digits, not {site!r}", at=field)


@dataclass(frozen=True)
class SdramSites:
    """Balls of an SDRAM chip's pins, of vectors from the lowest bit on. All of them are LVCMOS33."""

    clock: str
    clock_enable: str
    select_n: str
    ras_n: str
    cas_n: str
    we_n: str
    bank: tuple[str, ...]
    address: tuple[str, ...]
    mask: tuple[str, ...]
    data: tuple[str, ...]

    def __post_init__(self) -> None:
        for port, site in self.ports():
            _check_site(site, port.partition("[")[0])
        for name, count in (("bank", BANK_BITS), ("mask", DATA_BYTES), ("data", DATA_BITS)):
            if len(getattr(self, name)) != count:
                raise BoardError(f"the chip has {count}, not {len(getattr(self, name))}", at=name)

    def ports(self) -> list[tuple[str, str]]:
        """All of them by name, with a number in brackets in a vector."""
        found = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str):
                found.append((field.name, value))
            else:
                found += [(f"{field.name}[{place}]", site) for place, site in enumerate(value)]
        return found


@dataclass(frozen=True)
class Pins:
    """The pins of the design: crystal, reset, the two ends of the serial line as the logic sees them, LEDs, SDRAM."""

    clock: Pin
    reset: Pin
    rx: Pin
    tx: Pin
    leds: tuple[Pin, ...] = ()
    sdram: SdramSites | None = None

    def __post_init__(self) -> None:
        if len(self.leds) > LEDS:
            raise BoardError(f"the design has {LEDS} LEDs, not {len(self.leds)}", at="leds")
        sites = [pin.site for pin in (self.clock, self.reset, self.rx, self.tx, *self.leds)]
        sites += [site for _, site in self.sdram.ports()] if self.sdram else []
        if twice := sorted({site for site in sites if sites.count(site) > 1}):
            raise BoardError(f"two pins are at {twice[0]}", at="site")


@dataclass(frozen=True)
class CrystalClock:
    """The board's own clock, and the core's, which a PLL makes of it; in MHz."""

    crystal_mhz: float
    mhz: float

    def __post_init__(self) -> None:
        low, high = CRYSTAL_MHZ
        if not low <= self.crystal_mhz <= high:
            raise BoardError(f"must be in {low:g}..{high:g} MHz, not {self.crystal_mhz:g}", at="crystal_mhz")
        find_pll(self.crystal_mhz, self.mhz)


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
        for field, known in (("family", FAMILIES), ("part", tuple(PARTS)), ("grade", GRADES)):
            if getattr(self, field) not in known:
                hint = f"known: {', '.join(map(str, known))}"
                raise BoardError(f"unknown: {getattr(self, field)!r}", at=field, hint=hint)
        for field, also in (("name", "-_"), ("package", "")):
            text = getattr(self, field)
            if not text or not all(letter.isalnum() or letter in also for letter in text):
                raise BoardError(f"must be letters and digits{', - and _' * bool(also)}, not {text!r}", at=field)
        self._check_sdram()
        try:
            core = self.core.core(self.name)
        except BoardError as error:
            raise BoardError(error.message, at=f"core.{error.at}", hint=error.hint) from None
        self.design(core)

    def _check_sdram(self) -> None:
        if (self.sdram is None) != (self.pins.sdram is None):
            there, missing = ("pins.sdram", "sdram") if self.sdram is None else ("sdram", "pins.sdram")
            raise BoardError(f"a board with {there} needs this table too", at=missing)
        if self.sdram and self.pins.sdram and len(self.pins.sdram.address) != self.sdram.row_bits:
            count = len(self.pins.sdram.address)
            raise BoardError(f"the chip has {self.sdram.row_bits}, not {count}", at="pins.sdram.address")

    @property
    def default_core(self) -> CoreConfig:
        return self.core.core(self.name)

    def pll(self, mhz: float | None = None) -> Pll:
        """The core's clock: the fastest that is not above ``mhz`` (default: the board's)."""
        return find_pll(self.clock.crystal_mhz, self.clock.mhz if mhz is None else mhz)

    def design(self, core: CoreConfig | None = None, *, mhz: float | None = None) -> Standalone:
        """The logic for a core (default: the board's). :class:`BoardError` for a clock, a line or a memory that cannot
        be had."""
        clock_hz = round(self.pll(mhz).mhz * 1e6)
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
