"""The memory behind the core's AXI4 port: cocotbext-axi's slave, with latencies, reordering and error responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb
import numpy as np
import numpy.typing as npt
from cocotb.triggers import ClockCycles, Event
from cocotbext.axi import AddressSpace, AxiBurstType, AxiSlaveRead, AxiSlaveWrite, Region

from ..hw.bus import Response
from ..sim.dram import BusErrors


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How the memory behaves; all ranges in clock cycles, both ends included.

    latency
        From a read address to its first word, and from the last written word to the response.
    stall
        Share of the cycles in which each of AR, AW and W is not ready and each of R and B offers nothing new.
    gap
        Share of the read words before which a burst lets words of other bursts pass.
    reorder
        Read bursts with different IDs are answered side by side; otherwise one after another.
    """

    latency: tuple[int, int] = (1, 1)
    stall: float = 0.0
    gap: float = 0.0
    reorder: bool = False

    @staticmethod
    def random(random: Random) -> Timing:
        """Any of: fast or slow, steady or stuttering, in order or not."""
        least = random.choice((1, 1, 10, 40))
        return Timing(
            latency=(least, least + random.choice((0, 5, 60))),
            stall=random.choice((0.0, 0.2, 0.5, 0.8)),
            gap=random.choice((0.0, 0.3)),
            reorder=random.random() < 0.7,
        )


class _RefusedError(Exception):
    """An access that gets an error response."""


class Dram(Region):
    """Bytes that bus addresses from ``base`` on reach; an access in ``errors`` is refused with ``error_response``."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.content: npt.NDArray[np.uint8] = np.zeros(size, np.uint8)
        self.errors: BusErrors | None = None
        self.error_response = Response.SLVERR

    async def _read(self, address: int, length: int, **_: Any) -> bytes:
        if self.errors is not None and self.errors.hits(address, address + length, write=False):
            raise _RefusedError
        return self.content[address : address + length].tobytes()

    async def _write(self, address: int, data: bytes, **_: Any) -> None:
        if self.errors is not None and self.errors.hits(address, address + len(data), write=True):
            raise _RefusedError
        self.content[address : address + len(data)] = np.frombuffer(data, np.uint8)


class Memory:
    """AXI4 slave with a :class:`Dram` at ``base``; addresses outside it are answered with DECERR."""

    def __init__(self, bus: Any, clock: Any, reset: Any, *, base: int, size: int, random: Random) -> None:
        self.dram = Dram(size)
        self.timing = Timing()
        self._random = random
        space = AddressSpace()
        space.register_region(self.dram, base)
        reads = _Reads(self, bus.read, clock, reset, space)
        writes = _Writes(self, bus.write, clock, reset, space)
        self._channels = {
            "ar": reads.ar_channel,
            "r": reads.r_channel,
            "aw": writes.aw_channel,
            "w": writes.w_channel,
            "b": writes.b_channel,
        }

    def set_timing(self, timing: Timing) -> None:
        """Behave like this from now on."""
        self.timing = timing
        for channel in self._channels.values():
            channel.set_pause_generator(self.stalls(timing.stall) if timing.stall else None)
            channel.pause = False

    def hang(self, *channels: str) -> None:
        """Nothing passes these channels (default: all) until the timing is set again."""
        for name in channels or self._channels:
            self._channels[name].set_pause_generator(None)
            self._channels[name].pause = True

    async def latency(self, clock: Any) -> None:
        """Wait as long as an answer takes."""
        await ClockCycles(clock, self._random.randint(*self.timing.latency))

    def lets_pass(self) -> int:
        """Cycles that a read burst waits before its next word."""
        return self._random.randint(1, 8) if self._random.random() < self.timing.gap else 0

    def response(self, error: Exception) -> Response:
        """Refused by the memory, or there is no memory."""
        return self.dram.error_response if isinstance(error, _RefusedError) else Response.DECERR

    def stalls(self, share: float) -> Iterator[bool]:
        """Endless: is this a cycle of stall?"""
        while True:
            yield self._random.random() < share


class _Reads(AxiSlaveRead):
    """Bursts of one ID are answered in order (AXI A5.3); those of different IDs side by side, their words mixed."""

    def __init__(self, memory: Memory, bus: Any, clock: Any, reset: Any, target: AddressSpace) -> None:
        self._memory = memory
        self._waiting: dict[int, deque[Any]] = {}
        self._came: dict[int, Event] = {}
        super().__init__(bus, clock, reset, target)

    async def _process_read(self) -> None:
        while True:
            burst = await self.ar_channel.recv()
            if not self._memory.timing.reorder and not any(self._waiting.values()):
                await self._answer(burst)
                continue
            number = int(burst.arid)
            if number not in self._waiting:
                self._waiting[number], self._came[number] = deque(), Event()
                cocotb.start_soon(self._serve(number))
            self._waiting[number].append(burst)
            self._came[number].set()

    async def _serve(self, number: int) -> None:
        """Answer the bursts of one ID."""
        queue, came = self._waiting[number], self._came[number]
        while True:
            while not queue:
                came.clear()
                await came.wait()
            await self._answer(queue[0])
            queue.popleft()

    async def _answer(self, burst: Any) -> None:
        if int(burst.arburst) != AxiBurstType.INCR or 1 << int(burst.arsize) != self.byte_lanes:
            raise NotImplementedError(f"only bursts of whole words at rising addresses are served, not {burst}")
        await self._memory.latency(self.clock)
        for beat in range(int(burst.arlen) + 1):
            if wait := self._memory.lets_pass():
                await ClockCycles(self.clock, wait)
            word = self.r_channel._transaction_obj(rid=int(burst.arid), rlast=beat == int(burst.arlen))
            try:
                data = await self._read(int(burst.araddr) + beat * self.byte_lanes, self.byte_lanes)
                word.rdata = int.from_bytes(data, "little")
            except Exception as error:
                word.rresp = self._memory.response(error)
            await self.r_channel.send(word)


class _Writes(AxiSlaveWrite):
    """As the library writes, but the response takes its time and tells what went wrong."""

    def __init__(self, memory: Memory, bus: Any, clock: Any, reset: Any, target: AddressSpace) -> None:
        self._memory = memory
        super().__init__(bus, clock, reset, target)

    async def _process_write(self) -> None:
        while True:
            burst = await self.aw_channel.recv()
            response = Response.OKAY
            for beat in range(int(burst.awlen) + 1):
                word = await self.w_channel.recv()
                data = int(word.wdata).to_bytes(self.byte_lanes, "little")
                address = int(burst.awaddr) + beat * self.byte_lanes
                for lane in range(self.byte_lanes):
                    if int(word.wstrb) >> lane & 1:
                        try:
                            await self._write(address + lane, data[lane : lane + 1])
                        except Exception as error:
                            response = self._memory.response(error)
            await self._memory.latency(self.clock)
            await self.b_channel.send(self.b_channel._transaction_obj(bid=int(burst.awid), bresp=response))
