"""The accumulator memory: who gets a bank, and that nobody's data is mixed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.acc_memory import ARBITRATED_READERS, ARBITRATED_WRITERS, AccMemory
from weft.hw.config import CoreConfig

READERS = ("gemm_read", *ARBITRATED_READERS)
WRITERS = ("gemm_write", *ARBITRATED_WRITERS)


def granted(banks: list[int | None]) -> list[bool]:
    """Which of the requests (their banks, by priority) go ahead."""
    return [bank is not None and bank not in banks[:place] for place, bank in enumerate(banks)]


@pytest.mark.parametrize("acc_banks", [1, 2, 4])
def test_priorities_and_data(acc_banks: int) -> None:
    config = CoreConfig(block_in=2, block_out=4, acc_depth=16, acc_banks=acc_banks)
    memory = AccMemory(config)
    size = config.acc_depth // acc_banks
    random = np.random.default_rng(acc_banks)
    chunks = len(memory.gemm_write.mask)
    assert chunks == 2

    async def bench(ctx: Any) -> None:
        content = [0] * config.acc_depth
        answers: list[list[int | None]] = [[None] * len(READERS) for _ in range(2)]
        for _ in range(500):
            reads = [int(random.integers(config.acc_depth)) if random.random() < 0.5 else None for _ in READERS]
            writes = [int(random.integers(config.acc_depth)) if random.random() < 0.4 else None for _ in WRITERS]
            # Undefined, so nobody does it: a read of an entry in the cycle of its write.
            reads = [None if index in writes else index for index in reads]
            values = [int.from_bytes(random.bytes(config.acc_bytes), "little") for _ in WRITERS]
            masks = [int(random.integers(2**chunks)) for _ in WRITERS]
            for name, index in zip(READERS, reads, strict=True):
                ctx.set(getattr(memory, name).enable, index is not None)
                ctx.set(getattr(memory, name).index, index or 0)
            for name, index, value, mask in zip(WRITERS, writes, values, masks, strict=True):
                port = getattr(memory, name)
                ctx.set(port.enable, index is not None)
                ctx.set(port.index, index or 0)
                ctx.set(port.data, value)
                ctx.set(port.mask, mask)
            read_grants = granted([None if index is None else index // size for index in reads])
            write_grants = granted([None if index is None else index // size for index in writes])
            for names, requests, grants in ((READERS, reads, read_grants), (WRITERS, writes, write_grants)):
                for name, index, grant in zip(names, requests, grants, strict=True):
                    if index is not None and name != "gemm_read":
                        assert ctx.get(getattr(memory, name).ready) == grant, name
            answers.append(
                [
                    content[index] if grant and index is not None else None
                    for index, grant in zip(reads, read_grants, strict=True)
                ]
            )
            for name, answer in zip(READERS, answers.pop(0), strict=True):
                if answer is not None:
                    assert ctx.get(getattr(memory, name).data) == answer, name
            for index, value, mask, grant in zip(writes, values, masks, write_grants, strict=True):
                if index is not None and grant:
                    part = sum(0xFFFFFFFFFFFFFFFF << 64 * chunk for chunk in range(chunks) if mask >> chunk & 1)
                    content[index] = content[index] & ~part | value & part
            await ctx.tick()

    simulator = Simulator(memory)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
