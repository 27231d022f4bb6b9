"""What a family of parts has of its own on the way from a board's file to a bitstream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Protocol

from ..area import Area
from .pins import Pins

NETLIST, REPORT = "netlist.json", "report.json"

Tool = tuple[str, str]
"""A package, and the function of it that takes a tool's arguments."""


class CoreClock(Protocol):
    """How the core's clock is made of the crystal's."""

    @property
    def mhz(self) -> float:
        """The core's clock."""

    @property
    def ticks(self) -> int:
        """Cycles of the crystal for one of the core in a simulation."""

    @property
    def formula(self) -> str:
        """The arithmetic, to be read by people."""

    def verilog(self) -> str:
        """What drives ``clk`` and ``locked`` from ``crystal``."""


class Family(ABC):
    """``parts`` and ``grades`` may stand in a board's file; with ``sdram`` it may have a chip of that. ``sizes``: what
    each part has, 0 of what the tools do not use. ``blocks`` are models of the hard
    blocks in a board's top; ``blocks_known``: whether Yosys has them in its own libraries. ``cells``: names of columns,
    and the cells of nextpnr's report that are counted there."""

    parts: ClassVar[Mapping[str, str]]
    sizes: ClassVar[Mapping[str, Area]]
    grades: ClassVar[tuple[int, ...]]
    sdram: ClassVar[bool]
    blocks: ClassVar[str]
    blocks_known: ClassVar[bool]
    packages: ClassVar[tuple[str, ...]]
    nextpnr: ClassVar[Tool]
    packer: ClassVar[Tool]
    routed: ClassVar[str]
    bitstream: ClassVar[str]
    cells: ClassVar[Mapping[str, str]]

    @abstractmethod
    def synthesis(self, part: str) -> str:
        """Yosys's command."""

    @abstractmethod
    def clock(self, crystal_mhz: float, mhz: float) -> CoreClock:
        """The fastest clock that is not above ``mhz``; BoardError, at a field of the table ``clock``, if there is
        none."""

    @abstractmethod
    def check_pins(self, pins: Pins) -> None:
        """BoardError for what the family's pins cannot be."""

    @abstractmethod
    def constraints(self, pins: Pins, crystal_mhz: float) -> dict[str, str]:
        """The pins and the crystal's clock as nextpnr reads them, by file name."""

    @abstractmethod
    def place_and_route(self, part: str, package: str, grade: int, mhz: float) -> tuple[str, ...]:
        """Arguments of nextpnr. Timing that is not met is no failure of its own: the report says how much is
        missing."""

    @abstractmethod
    def pack(self, part: str) -> tuple[str, ...]:
        """Arguments of the tool that makes the bitstream."""

    def refused(self, log: str) -> str:
        """What no other clock would mend of a design whose routing left this log; or nothing."""
        return ""
