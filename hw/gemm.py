"""The gemm engine: one ``[batch x block_in] x [block_in x block_out]`` product a cycle."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.utils import ceil_log2

from .config import CoreConfig
from .interfaces import EngineSignature, ReadPortSignature, WritePortSignature, chunk_bits


class GemmEngine(wiring.Component):
    """One micro-op a cycle, also from one instruction to the next."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        acc_index, acc_bits = ceil_log2(config.acc_depth), 8 * config.acc_bytes
        super().__init__(
            {
                **EngineSignature(config).members,
                "read_inp": Out(ReadPortSignature(ceil_log2(config.inp_depth), 8 * config.inp_bytes)),
                "read_wgt": Out(ReadPortSignature(ceil_log2(config.wgt_depth), 8 * config.wgt_bytes)),
                "read_acc": Out(ReadPortSignature(acc_index, acc_bits)),
                "write_acc": Out(WritePortSignature(acc_index, acc_bits, chunk_bits(config, config.acc_bytes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        return Module()
