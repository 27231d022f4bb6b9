"""AXI4 and AXI4-Lite signatures, named so that Vivado and cocotbext-axi recognise the exported ports.

Only the signals that the core drives or reads are there; what AXI4 lets a master leave out (lock, QoS,
region, user) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, unique

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .isa import Engine

PAGE_BYTES = 4096
"""No burst crosses a multiple of this; the DMA window starts at one."""

REGISTER_BITS = 32
"""Data width of the AXI4-Lite slave."""

REGISTER_ADDRESS_BITS = 12
"""Address width of the AXI4-Lite slave: one page."""

BURST_INCR = 0b01
CACHE_NORMAL = 0b0011
"""AxCACHE: normal memory, bufferable, not cached, as Xilinx asks of masters on HP ports."""


@unique
class Response(IntEnum):
    """AXI response; the upper bit tells an error."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


@unique
class ReadClient(IntEnum):
    """Who reads memory; the value is the AXI ID, so that an interconnect may reorder between them."""

    LOAD = Engine.LOAD
    LOADW = Engine.LOADW
    FETCH = 2


ID_BITS = 2
"""Width of the read IDs; writes all have ID 0."""


def _address_channel(config: CoreConfig, prefix: str, id_bits: int) -> dict[str, object]:
    return {
        f"{prefix}id": Out(id_bits),
        f"{prefix}addr": Out(config.address_bits),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3, init=config.bus_bytes.bit_length() - 1),
        f"{prefix}burst": Out(2, init=BURST_INCR),
        f"{prefix}cache": Out(4, init=CACHE_NORMAL),
        f"{prefix}prot": Out(3),
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
    }


def _read_members(config: CoreConfig, id_bits: int = ID_BITS) -> dict[str, object]:
    return _address_channel(config, "ar", id_bits) | {
        "rid": In(id_bits),
        "rdata": In(config.bus_bits),
        "rresp": In(Response),
        "rlast": In(1),
        "rvalid": In(1),
        "rready": Out(1),
    }


def _write_members(config: CoreConfig, id_bits: int = ID_BITS) -> dict[str, object]:
    return _address_channel(config, "aw", id_bits) | {
        "wdata": Out(config.bus_bits),
        "wstrb": Out(config.bus_bytes),
        "wlast": Out(1),
        "wvalid": Out(1),
        "wready": In(1),
        "bid": In(id_bits),
        "bresp": In(Response),
        "bvalid": In(1),
        "bready": Out(1),
    }


class ReadMasterSignature(wiring.Signature):
    """Read channels of an AXI4 master."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(_read_members(config))


class WriteMasterSignature(wiring.Signature):
    """Write channels of an AXI4 master."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(_write_members(config))


class MasterSignature(wiring.Signature):
    """All five channels of an AXI4 master; ``id_bits`` are more than the core's own behind an arbiter."""

    def __init__(self, config: CoreConfig, id_bits: int = ID_BITS) -> None:
        super().__init__(_write_members(config, id_bits) | _read_members(config, id_bits))


class RegisterSlaveSignature(wiring.Signature):
    """AXI4-Lite, from the slave's side."""

    def __init__(self, address_bits: int = REGISTER_ADDRESS_BITS) -> None:
        members: Mapping[str, object] = {
            "awaddr": In(address_bits),
            "awprot": In(3),
            "awvalid": In(1),
            "awready": Out(1),
            "wdata": In(REGISTER_BITS),
            "wstrb": In(REGISTER_BITS // 8),
            "wvalid": In(1),
            "wready": Out(1),
            "bresp": Out(Response),
            "bvalid": Out(1),
            "bready": In(1),
            "araddr": In(address_bits),
            "arprot": In(3),
            "arvalid": In(1),
            "arready": Out(1),
            "rdata": Out(REGISTER_BITS),
            "rresp": Out(Response),
            "rvalid": Out(1),
            "rready": In(1),
        }
        super().__init__(members)
