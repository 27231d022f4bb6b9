"""Random bursts of a core and accesses of a host, against an array: for any memory that both share."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from weft.hw.bus import Response


async def handshake(ctx: Any, random: Random, valid: Any, ready: Any, stall: float) -> None:
    """Offer what stands on a channel until it is taken."""
    while random.random() < stall:
        await ctx.tick()
    ctx.set(valid, 1)
    *_, taken = await ctx.tick().sample(ready)
    while not taken:
        *_, taken = await ctx.tick().sample(ready)
    ctx.set(valid, 0)


def response_of(value: Any) -> int:
    return int(value.value if hasattr(value, "value") else value)


@dataclass
class MemoryBench:
    """``content``: what the memory must hold; ``end``: the first address outside of it."""

    axi: Any
    host: Any
    beat_bytes: int
    content: npt.NDArray[np.uint8]
    end: int
    random: Random
    stall: float

    async def write(self, ctx: Any, address: int, beats: int, *, masked: bool = True) -> int:
        """Random bytes in a burst; its response."""
        axi, size, random = self.axi, self.beat_bytes, self.random
        ctx.set(axi.awaddr, address)
        ctx.set(axi.awlen, beats - 1)
        await handshake(ctx, random, axi.awvalid, axi.awready, self.stall)
        for beat in range(beats):
            data, mask = random.randbytes(size), random.getrandbits(size) if masked else -1
            ctx.set(axi.wdata, int.from_bytes(data, "little"))
            ctx.set(axi.wstrb, mask & (1 << size) - 1)
            ctx.set(axi.wlast, beat == beats - 1)
            await handshake(ctx, random, axi.wvalid, axi.wready, self.stall)
            for byte in range(size):
                if address < self.end and mask >> byte & 1:
                    self.content[address + beat * size + byte] = data[byte]
        ctx.set(axi.bready, 1)
        _, _, valid, response = await ctx.tick().sample(axi.bvalid, axi.bresp)
        while not valid:
            _, _, valid, response = await ctx.tick().sample(axi.bvalid, axi.bresp)
        ctx.set(axi.bready, 0)
        return response_of(response)

    async def read(self, ctx: Any, address: int, beats: int, number: int) -> list[tuple[int, int]]:
        """The beats of a burst and their responses; its number and its end are checked."""
        axi = self.axi
        ctx.set(axi.araddr, address)
        ctx.set(axi.arlen, beats - 1)
        ctx.set(axi.arid, number)
        await handshake(ctx, self.random, axi.arvalid, axi.arready, self.stall)
        found: list[tuple[int, int]] = []
        while len(found) < beats:
            ctx.set(axi.rready, self.random.random() >= self.stall)
            sampled = await ctx.tick().sample(axi.rvalid, axi.rready, axi.rdata, axi.rid, axi.rresp, axi.rlast)
            _, _, valid, ready, data, got, response, last = sampled
            if valid and ready:
                found.append((int(data), response_of(response)))
                assert (got, bool(last)) == (number, len(found) == beats)
        ctx.set(axi.rready, 0)
        return found

    async def access(self, ctx: Any, index: int, value: int | None) -> int:
        """The host writes a word, or reads one."""
        host = self.host
        ctx.set(host.write, value is not None)
        ctx.set(host.index, index)
        ctx.set(host.data, value or 0)
        ctx.set(host.enable, 1)
        await ctx.tick()
        ctx.set(host.enable, 0)
        while not ctx.get(host.done):
            await ctx.tick()
        if value is not None:
            self.content[4 * index : 4 * index + 4] = np.frombuffer(value.to_bytes(4, "little"), np.uint8)
        return int(ctx.get(host.result))

    async def rounds(self, ctx: Any, count: int, addresses: range) -> None:
        """So many bursts, each written and read again, with accesses of the host between; then a burst outside."""
        size, random = self.beat_bytes, self.random
        for number in range(count):
            address = random.choice(addresses) // size * size
            beats = random.randint(1, min(16, (addresses.stop - address) // size))
            assert await self.write(ctx, address, beats) == Response.OKAY
            for beat, (data, response) in enumerate(await self.read(ctx, address, beats, number % 3)):
                expected = self.content[address + beat * size :][:size].tobytes()
                assert (data, response) == (int.from_bytes(expected, "little"), Response.OKAY)
            await self.access(ctx, random.choice(addresses) // 4, random.getrandbits(32))
        outside = self.end + addresses.start  # that many bytes behind the end, what is inside stays as it is
        assert await self.write(ctx, outside, 2) == Response.DECERR
        assert [response for _, response in await self.read(ctx, outside, 3, 1)] == [Response.DECERR] * 3
        for place in range(addresses.start // 4, addresses.stop // 4):
            expected = self.content[4 * place :][:4].tobytes()
            assert await self.access(ctx, place, None) == int.from_bytes(expected, "little")
