"""Where the ports of a board's top are on the package, as its file says it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...hw.standalone.sdram_chip import BANK_BITS, DATA_BITS, DATA_BYTES
from ...hw.standalone.settings import LEDS
from ..errors import BoardError

PULLS = ("NONE", "UP", "DOWN")


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

    def named(self) -> list[tuple[str, Pin]]:
        """Ports of the board's top, the crystal first, and their pins; those of SDRAM are not among them."""
        rx, tx = f"rx{'_n' * self.rx.inverted}", f"tx{'_n' * self.tx.inverted}"
        leds = [(f"leds[{place}]", pin) for place, pin in enumerate(self.leds)]
        return [("crystal", self.clock), ("reset", self.reset), (rx, self.rx), (tx, self.tx), *leds]
