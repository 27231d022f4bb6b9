"""AXI4 and AXI4-Lite signatures, named so that Vivado and cocotbext-axi recognise the exported ports.

Only the signals that the core drives or reads are there; what AXI4 lets a master leave out (lock, QoS,
region, user) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bus import BURST_INCR, CACHE_NORMAL, ID_BITS, REGISTER_ADDRESS_BITS, REGISTER_BITS, Response
from .config import CoreConfig


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
