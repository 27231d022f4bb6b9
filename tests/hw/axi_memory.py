"""An AXI4 memory for Amaranth's simulator that checks the protocol and does whatever the protocol allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from weft.hw.config import CoreConfig

PAGE_BYTES = 4096


@dataclass
class AxiMemory:
    """``content`` lies at bus address ``base``; bursts that touch an address in ``errors`` get an error response.

    ``config``: the core's, of which the bus's width and the length of bursts are checked.
    Random latencies and stalls; responses of different IDs overtake each other and interleave.
    """

    content: bytearray
    config: CoreConfig
    seed: int = 0
    base: int = 0
    latency: int = 10
    stall: float = 0.2
    errors: Sequence[int] = ()
    outstanding_limit: int = 64
    read_beats: int = 0
    write_beats: int = 0
    answered_beats: int = 0  # of writes whose response has been taken
    bursts: list[tuple[str, int, int]] = field(default_factory=list)  # channel, offset, beats
    open_reads: int = 0
    open_writes: int = 0

    @property
    def bus_bytes(self) -> int:
        return self.config.bus_bytes

    def address_of(self, address: int, beats: int, size: int, burst: int, channel: str) -> int:
        """Check a burst's request; return its offset in ``content``."""
        offset = address - self.base
        total = beats * self.bus_bytes
        assert (1 << size, burst) == (self.bus_bytes, 1)
        assert address % self.bus_bytes == 0
        assert beats <= self.config.burst_beats, f"a burst of {beats} beats"
        assert address // PAGE_BYTES == (address + total - 1) // PAGE_BYTES, "burst crosses a page"
        assert 0 <= offset <= len(self.content) - total, f"{channel} outside the memory: {address:#x}"
        self.bursts.append((channel, offset, beats))
        return offset

    def response(self, offset: int) -> int:
        return 2 if any(offset <= error < offset + self.bus_bytes for error in self.errors) else 0

    async def serve_reads(self, ctx: Any, axi: Any) -> None:
        random = Random(self.seed)
        waiting: dict[int, deque[tuple[int, int, int]]] = {}  # by ID: time, offset, beats left
        offered: tuple[int, bool] | None = None
        previous = None
        time = 0
        while True:
            ctx.set(axi.arready, random.random() >= self.stall)
            if offered is None:
                ready = [number for number, queue in waiting.items() if queue and queue[0][0] <= time]
                if ready and random.random() >= self.stall:
                    number = random.choice(ready)
                    _, offset, beats = waiting[number][0]
                    word = int.from_bytes(self.content[offset : offset + self.bus_bytes], "little")
                    for name, value in (
                        ("rid", number), ("rdata", word), ("rresp", self.response(offset)), ("rlast", beats == 1),
                    ):  # fmt: skip
                        ctx.set(getattr(axi, name), value)
                    offered = (number, beats == 1)
            ctx.set(axi.rvalid, offered is not None)
            address_channel = (axi.arid, axi.araddr, axi.arlen, axi.arsize, axi.arburst)
            _, _, valid, ready_, taken, *request = await ctx.tick().sample(
                axi.arvalid, axi.arready, axi.rready, *address_channel
            )
            time += 1
            if previous is not None:
                assert [*request, valid] == [*previous, 1], "AR changed before it was accepted"
            previous = request if valid and not ready_ else None
            if valid and ready_:
                number, address, length, size, burst = request
                offset = self.address_of(address, length + 1, size, burst, "read")
                delay = time + random.randint(1, 2 * self.latency)
                waiting.setdefault(number, deque()).append((delay, offset, length + 1))
                self.open_reads += 1
                assert self.open_reads <= self.outstanding_limit
            if offered is not None and taken:
                number, last = offered
                when, offset, beats = waiting[number].popleft()
                self.read_beats += 1
                if last:
                    self.open_reads -= 1
                else:
                    waiting[number].appendleft((when, offset + self.bus_bytes, beats - 1))
                offered = None

    async def serve_writes(self, ctx: Any, axi: Any) -> None:
        random = Random(self.seed + 1)
        addresses: deque[tuple[int, int]] = deque()  # offset, beats left
        lengths: deque[int] = deque()
        words: deque[tuple[int, int, int]] = deque()
        answers: deque[tuple[int, int, int]] = deque()  # time, response, beats
        previous_address = previous_word = None
        response = 0
        inside_burst = False
        time = 0
        while True:
            ctx.set(axi.awready, random.random() >= self.stall)
            ctx.set(axi.wready, random.random() >= self.stall)
            answer = bool(answers) and answers[0][0] <= time
            ctx.set(axi.bvalid, answer)
            if answer:
                ctx.set(axi.bresp, answers[0][1])
            word_channel = (axi.wdata, axi.wstrb, axi.wlast)
            address_channel = (axi.awid, axi.awaddr, axi.awlen, axi.awsize, axi.awburst)
            _, _, aw_valid, aw_ready, w_valid, w_ready, b_ready, *request = await ctx.tick().sample(
                axi.awvalid, axi.awready, axi.wvalid, axi.wready, axi.bready, *word_channel, *address_channel
            )
            time += 1
            word, address = request[:3], request[3:]
            if previous_address is not None:
                assert [*address, aw_valid] == [*previous_address, 1], "AW changed before it was accepted"
            if previous_word is not None:
                assert [*word, w_valid] == [*previous_word, 1], "W changed before it was accepted"
            assert w_valid or not inside_burst, "W starves within a burst"
            previous_address = address if aw_valid and not aw_ready else None
            previous_word = word if w_valid and not w_ready else None
            if answer and b_ready:
                self.answered_beats += answers.popleft()[2]
                self.open_writes -= 1
            if aw_valid and aw_ready:
                _, start, length, size, burst = address
                addresses.append((self.address_of(start, length + 1, size, burst, "write"), length + 1))
                lengths.append(length + 1)
                self.open_writes += 1
                assert self.open_writes <= self.outstanding_limit
            if w_valid and w_ready:
                words.append((word[0], word[1], word[2]))
                inside_burst = not word[2]
                self.write_beats += 1
            while words and addresses:
                data, strobe, last = words.popleft()
                offset, beats = addresses.popleft()
                assert last == (beats == 1), "WLAST at the wrong beat"
                response |= self.response(offset)
                for byte in range(self.bus_bytes):
                    if strobe >> byte & 1:
                        self.content[offset + byte] = data >> 8 * byte & 0xFF
                if beats > 1:
                    addresses.appendleft((offset + self.bus_bytes, beats - 1))
                else:
                    answers.append((time + random.randint(1, 2 * self.latency), response, lengths.popleft()))
                    response = 0


def random_bytes(count: int, seed: int) -> bytearray:
    return bytearray(Random(seed).randbytes(count))
