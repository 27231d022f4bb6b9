"""A core, or a system of cores, on a board: names, addresses, clock and ports.

Block design, Tcl, ``.hwh`` and manifest derive from it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..hw.bus import PAGE_BYTES, REGISTER_ADDRESS_BITS
from ..hw.config import CoreConfig
from ..hw.register_windows import ADDRESS_BITS
from ..hw.system_config import SystemConfig
from .board import Board, Clock
from .errors import BoardError
from .processing_system import MemoryPort, ProcessingSystem
from .ranges import Range

NAME = "weft"
"""Stem of the overlay's files, and name of the block design."""

CORE_CELL = "weft_core"
"""The core in the block design; pynq's ``Overlay`` has it as an attribute of this name."""

CORE_VLNV = "weft:hw:weft_core:1.0"
"""Type of the core's cell; a pynq driver names it in ``bindto``."""

SYSTEM_CELL = "weft_system"
SYSTEM_VLNV = "weft:hw:weft_system:1.0"
"""The same of a system of cores: what drives one core finds no core there, and the other way round."""

REGISTER_SPACE = 64 * 1024
"""Addresses that each slave gets: as many as a system's registers have, more than a core's, and what Vivado aligns
to."""


@dataclass(frozen=True)
class Segment:
    """A part of DDR memory as a port's address segment: ``name`` is Vivado's."""

    name: str
    addresses: Range


@dataclass(frozen=True)
class Design:
    """One core on one board, all choices made. :func:`make_design` makes and checks it.

    ``cores``: the system that takes the place of the one core, which is then its first. ``control`` and ``interrupts``
    are the bus addresses of the registers of the core and of the interrupt controller;
    ``port`` is the port through which the core reads and writes ``memory``, set to ``port_bits`` of data.
    """

    board: Board
    core: CoreConfig
    clock: Clock
    control: Range
    interrupts: Range
    port: MemoryPort
    port_bits: int
    memory: tuple[Segment, ...]
    cores: SystemConfig | None = None

    @property
    def held(self) -> CoreConfig | SystemConfig:
        """What is in the logic."""
        return self.cores or self.core

    @property
    def cell(self) -> str:
        """Name of its cell in the block design."""
        return SYSTEM_CELL if self.cores else CORE_CELL

    @property
    def vlnv(self) -> str:
        """Type of that cell."""
        return SYSTEM_VLNV if self.cores else CORE_VLNV

    @property
    def digits(self) -> str:
        """16 hexadecimal digits that change with what is in the logic: of a core its hash."""
        return f"{self.core.hash64:016x}" if self.cores is None else system_digits(self.cores)

    @property
    def system(self) -> ProcessingSystem:
        return self.board.system

    @property
    def splits_bursts(self) -> bool:
        """Whether the converter in front of the port has to cut the core's bursts.

        A core without ``burst_beats`` sends up to 64 beats, which a port that speaks AXI3 cannot take.
        """
        beats = getattr(self.core, "burst_beats", 64)
        return int(beats) > self.port.protocol.burst_beats

    def as_dict(self) -> dict[str, Any]:
        """The choices as plain values, for the manifest and the hash."""
        system = {} if self.cores is None else {"system": json.loads(self.cores.to_json())}
        return {
            "board": self.board.name,
            "part": self.board.part,
            "core": json.loads(self.core.to_json()),
            "core_hash": f"{self.core.hash64:016x}",
            **system,
            "cell": self.cell,
            "vlnv": self.vlnv,
            "clock": asdict(self.clock) | {"mhz": round(self.clock.mhz, 6)},
            "control": asdict(self.control),
            "interrupts": asdict(self.interrupts),
            "port": self.port.name,
            "port_bits": self.port_bits,
            "memory": [asdict(segment) for segment in self.memory],
        }

    @property
    def hash(self) -> str:
        """64 hexadecimal digits that change with every choice."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


def system_digits(system: SystemConfig) -> str:
    """16 hexadecimal digits of all that the RTL of a system follows from."""
    hashes = [f"{core.hash64:016x}" for core in system.cores]
    wires = [hashes, list(system.ports), system.shared_reads, system.relay]
    return hashlib.sha256(json.dumps(wires).encode()).hexdigest()[:16]


def make_design(board: Board, core: CoreConfig | SystemConfig | None = None, *, mhz: float | None = None) -> Design:
    """The design of a core (default: the board's), or of a system of cores, with a clock of at most ``mhz`` (default:
    the board's).

    :class:`BoardError` says why the board cannot hold it and what to change. Whether the part is large enough is
    another question: :mod:`.fit` answers it.
    """
    cores = core if isinstance(core, SystemConfig) else None
    core = board.default_core if core is None else core.cores[0] if isinstance(core, SystemConfig) else core
    system, port = board.system, board.port
    _check_bus(board, core, port)
    if cores is not None and cores.port_count > 1:
        raise BoardError(
            f"system {cores.name!r} has {cores.port_count} memory ports, but a design has one: {port.name}",
            at="ports", hint="leave out ports: then all cores share one",
        )  # fmt: skip
    design = Design(
        board=board,
        core=core,
        clock=board.clock.clock(mhz),
        control=Range(system.core_base, REGISTER_SPACE),
        interrupts=Range(system.interrupt_base, REGISTER_SPACE),
        port=port,
        port_bits=core.bus_bits,
        memory=tuple(Segment(name, window) for name, window in zip(port.segments, board.ddr.windows, strict=False)),
        cores=cores,
    )
    _check_addresses(design)
    return design


def _check_bus(board: Board, core: CoreConfig, port: MemoryPort) -> None:
    if core.bus_bits not in port.data_bits:
        widths = " or ".join(f"bus_bits={bits}" for bits in port.data_bits if bits >= 64)
        raise BoardError(
            f"core {core.name!r} has a bus of {core.bus_bits} bits, but {port.name} of {board.name} has at most "
            f"{max(port.data_bits)}",
            hint=f"a core with {widths}",
        )
    if core.address_bits > port.address_bits:
        raise BoardError(
            f"core {core.name!r} has {core.address_bits} address bits, but {port.name} of {board.name} takes "
            f"{port.address_bits}",
            hint=f"a core with address_bits={port.address_bits}",
        )
    needed = board.ddr.last.bit_length()
    if core.address_bits < needed:
        raise BoardError(
            f"core {core.name!r} has {core.address_bits} address bits, but memory of {board.name} ends at "
            f"{board.ddr.last:#x}: a buffer may lie where the core cannot reach",
            hint=f"a core with address_bits={max(needed, 40)}",
        )


def _check_addresses(design: Design) -> None:
    """What would be a mistake in this package rather than the user's."""
    assert REGISTER_SPACE >= 1 << ADDRESS_BITS >= 1 << REGISTER_ADDRESS_BITS >= PAGE_BYTES
    for registers in (design.control, design.interrupts):
        assert registers.base % registers.bytes == 0
        assert design.system.window.holds(registers)
        assert not any(registers.overlaps(segment.addresses) for segment in design.memory)
    assert not design.control.overlaps(design.interrupts)


def fitted_core(board: Board, core: CoreConfig) -> CoreConfig:
    """``core`` with the number of address bits that the board's memory asks for, if it has too few."""
    needed = board.ddr.last.bit_length()
    return core if core.address_bits >= needed else replace(core, address_bits=max(needed, 40))
