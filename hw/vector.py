"""The vector engine: lane-by-lane operations on accumulator entries."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .interfaces import ArbitratedReadPortSignature, EngineSignature, WritePortSignature, chunk_bits


class VectorEngine(wiring.Component):
    """Up to one micro-op a cycle."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        out_bits = 8 * config.out_bytes
        read = ArbitratedReadPortSignature(acc_index, acc_bits)
        super().__init__(
            {
                **EngineSignature(config).members,
                "read_a": Out(read),
                "read_b": Out(read),
                "read_d": Out(read),
                "write_acc": Out(WritePortSignature(acc_index, acc_bits, chunk_bits(config, config.acc_bytes))),
                "write_out": Out(WritePortSignature(ceil_log2(config.out_depth), out_bits, out_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        return Module()
