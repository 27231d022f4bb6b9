"""What AXI4 and AXI4-Lite demand, as checkers that are told what each channel shows in a clock cycle.

They know nothing of a simulator: :mod:`weft.testbench.watch` feeds them in one, tests feed them recorded traces.
Sections named are those of the AMBA AXI specification (ARM IHI 0022, issue E).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from ..hw.bus import PAGE_BYTES, Response

FIXED, INCR, WRAP = 0, 1, 2
"""AxBURST."""

WRAP_BEATS = (2, 4, 8, 16)
FIXED_BEATS_AT_MOST = 16

Payload = Mapping[str, int]
"""Signals of a channel without its prefix: ``addr``, ``len``, ... of AR; ``data``, ``strb``, ``last`` of W."""


class Rule(StrEnum):
    """What a violation breaks."""

    VALID_STABLE = "VALID stays until READY (A3.2.1)"
    PAYLOAD_STABLE = "the payload stays until READY (A3.2.1)"
    VALID_IN_RESET = "VALID is low in reset (A3.1.2)"
    PAGE = "a burst stays in one 4 KiB page (A3.4.1)"
    SIZE = "a beat is not wider than the bus (A3.4.1)"
    LENGTH = "a burst is no longer than the configuration says (A3.4.1)"
    BURST_TYPE = "AxBURST is FIXED, INCR or WRAP (A3.4.1)"
    FIXED_LENGTH = "a FIXED burst has 1 to 16 beats (A3.4.1)"
    WRAP_LENGTH = "a WRAP burst has 2, 4, 8 or 16 beats (A3.4.1)"
    WRAP_ALIGNED = "a WRAP burst starts at a multiple of its beat (A3.4.1)"
    READ_UNASKED = "read data follow their request (A3.3.1)"
    READ_LAST = "RLAST marks the last of AxLEN + 1 beats (A3.2.2)"
    WRITE_LAST = "WLAST marks the last of AxLEN + 1 beats (A3.2.2)"
    STROBE = "WSTRB names no byte lane outside the beat (A3.4.3)"
    RESPONSE_EARLY = "a write response follows its address and its last beat (A3.3.1)"
    RESPONSE_ID = "a response has the ID of a request (A5.3)"
    EXOKAY = "EXOKAY answers only exclusive accesses (A3.4.4)"
    UNANSWERED = "each request is answered (A3.3)"


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, where and when."""

    rule: Rule
    channel: str
    cycle: int
    detail: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}, {self.channel}: {self.detail}: {self.rule}"


@dataclass
class Handshake:
    """Checks one channel's VALID and payload; the payload counts when :meth:`sample` says that it is transferred."""

    channel: str
    violations: list[Violation]
    waiting: Payload | None = None  # offered in the cycle before and not taken
    since: int = 0
    in_reset: bool = False  # a synchronous reset shows from its second cycle on

    def sample(self, cycle: int, payload: Payload | None, *, ready: bool, reset: bool = False) -> bool:
        """One clock cycle: ``payload`` is what VALID offers, ``None`` while VALID is low. Is it transferred?"""
        if reset:
            if payload is not None and self.in_reset:
                self._broken(Rule.VALID_IN_RESET, cycle, "VALID is high")
            self.waiting, self.in_reset = None, True
            return False
        self.in_reset = False
        if self.waiting is not None and payload is None:
            self._broken(Rule.VALID_STABLE, cycle, f"VALID fell, offered since cycle {self.since}")
        elif self.waiting is not None and payload is not None and payload != self.waiting:
            changed = ", ".join(
                f"{name} from {self.waiting[name]:#x} to {value:#x}"
                for name, value in payload.items()
                if value != self.waiting[name]
            )
            self._broken(Rule.PAYLOAD_STABLE, cycle, f"changed {changed}")
        if payload is not None and self.waiting is None:
            self.since = cycle
        self.waiting = None if ready else payload
        return ready and payload is not None

    def _broken(self, rule: Rule, cycle: int, detail: str) -> None:
        self.violations.append(Violation(rule, self.channel, cycle, detail))


@dataclass(frozen=True)
class Burst:
    """A request; AXI4-Lite is a burst of one beat of the whole bus."""

    cycle: int
    address: int
    beats: int
    beat_bytes: int
    kind: int = INCR

    @staticmethod
    def of(cycle: int, payload: Payload, bus_bytes: int) -> Burst:
        size = payload.get("size", bus_bytes.bit_length() - 1)
        return Burst(cycle, payload["addr"], payload.get("len", 0) + 1, 1 << size, payload.get("burst", INCR))

    def problems(self, bus_bytes: int, burst_beats: int) -> list[tuple[Rule, str]]:
        """Rules that the request breaks; ``burst_beats``: the most that it may have."""
        violations = []
        if self.beats > burst_beats:
            violations.append((Rule.LENGTH, f"{self.beats} beats, at most {burst_beats}"))
        if self.beat_bytes > bus_bytes:
            violations.append((Rule.SIZE, f"{self.beat_bytes} bytes a beat on a bus of {bus_bytes}"))
        if self.kind not in (FIXED, INCR, WRAP):
            violations.append((Rule.BURST_TYPE, f"burst type {self.kind}"))
        if self.kind == FIXED and self.beats > FIXED_BEATS_AT_MOST:
            violations.append((Rule.FIXED_LENGTH, f"{self.beats} beats"))
        if self.kind == WRAP:
            if self.beats not in WRAP_BEATS:
                violations.append((Rule.WRAP_LENGTH, f"{self.beats} beats"))
            if self.address % self.beat_bytes:
                violations.append((Rule.WRAP_ALIGNED, f"address {self.address:#x}, {self.beat_bytes} bytes a beat"))
        first = self.address - self.address % self.beat_bytes
        last = first + self.beats * self.beat_bytes - 1
        if self.kind == INCR and first // PAGE_BYTES != last // PAGE_BYTES:
            violations.append((Rule.PAGE, f"{self.beats} beats from {self.address:#x} to {last:#x}"))
        return violations

    def lanes(self, beat: int, bus_bytes: int) -> int:
        """Mask of the byte lanes that a beat may use."""
        aligned = self.address - self.address % self.beat_bytes
        start = self.address if beat == 0 or self.kind == FIXED else aligned + beat * self.beat_bytes
        if self.kind == WRAP:
            size = self.beats * self.beat_bytes
            start = self.address - self.address % size + (self.address + beat * self.beat_bytes) % size
        first = start % bus_bytes
        stop = (start - start % self.beat_bytes) % bus_bytes + self.beat_bytes
        return (1 << stop) - (1 << first)


@dataclass
class _Side:
    """What the read and the write side share: requests, handshakes, violations."""

    bus_bytes: int
    burst_beats: int
    prefix: str = ""
    violations: list[Violation] = field(default_factory=list)
    channels: dict[str, Handshake] = field(init=False)

    CHANNELS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.channels = {name: Handshake(self.prefix + name, self.violations) for name in self.CHANNELS}

    def sample(self, channel: str, cycle: int, payload: Payload | None, *, ready: bool, reset: bool = False) -> None:
        """What ``channel`` shows in ``cycle``; cycles in which it offers nothing need no call after a transfer."""
        if self.channels[channel].sample(cycle, payload, ready=ready, reset=reset) and payload is not None:
            self._transfer(channel, cycle, payload)

    def _transfer(self, channel: str, cycle: int, payload: Payload) -> None:
        raise NotImplementedError

    def _request(self, channel: str, cycle: int, payload: Payload) -> Burst:
        burst = Burst.of(cycle, payload, self.bus_bytes)
        for rule, detail in burst.problems(self.bus_bytes, self.burst_beats):
            self._broken(rule, channel, cycle, detail)
        return burst

    def _broken(self, rule: Rule, channel: str, cycle: int, detail: str) -> None:
        self.violations.append(Violation(rule, self.prefix + channel, cycle, detail))

    def _response(self, channel: str, cycle: int, payload: Payload) -> None:
        if payload["resp"] == Response.EXOKAY:
            self._broken(Rule.EXOKAY, channel, cycle, "response EXOKAY")


class ReadChecker(_Side):
    """Channels ``ar`` and ``r``: requests are answered in order within an ID; IDs may mix."""

    CHANNELS: ClassVar[tuple[str, ...]] = ("ar", "r")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._open: defaultdict[int, deque[Burst]] = defaultdict(deque)
        self._beats: defaultdict[int, int] = defaultdict(int)  # of the oldest burst of each ID

    @property
    def idle(self) -> bool:
        """Is every request answered?"""
        return not any(self._open.values())

    def finish(self, cycle: int) -> None:
        """The end of a test: nothing may be left open."""
        for number, bursts in self._open.items():
            for burst in bursts:
                detail = f"burst at {burst.address:#x} with ID {number}, asked for in cycle {burst.cycle}"
                self._broken(Rule.UNANSWERED, "ar", cycle, detail)

    def _transfer(self, channel: str, cycle: int, payload: Payload) -> None:
        number = payload.get("id", 0)
        if channel == "ar":
            self._open[number].append(self._request(channel, cycle, payload))
            return
        self._response(channel, cycle, payload)
        if not self._open[number]:
            self._broken(Rule.READ_UNASKED, channel, cycle, f"data with ID {number}")
            return
        burst = self._open[number][0]
        self._beats[number] += 1
        ends = self._beats[number] == burst.beats
        if payload.get("last", ends) != ends:
            detail = f"RLAST is {payload['last']} in beat {self._beats[number]} of {burst.beats}"
            self._broken(Rule.READ_LAST, channel, cycle, detail)
        if ends:
            self._open[number].popleft()
            self._beats[number] = 0


class WriteChecker(_Side):
    """Channels ``aw``, ``w`` and ``b``. Data come in the order of the addresses, and may come before them."""

    CHANNELS: ClassVar[tuple[str, ...]] = ("aw", "w", "b")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._addresses: deque[tuple[int, Burst]] = deque()  # their data are not all there
        self._data: deque[tuple[int, Payload]] = deque()  # their address is not there; with their cycle
        self._beats = 0  # of the oldest address
        self._complete: defaultdict[int, deque[Burst]] = defaultdict(deque)  # may be answered, by ID

    @property
    def idle(self) -> bool:
        """Is every request answered?"""
        return not (self._addresses or self._data or any(self._complete.values()))

    def finish(self, cycle: int) -> None:
        """The end of a test: nothing may be left open."""
        for number, burst in (*self._addresses, *((n, b) for n, bursts in self._complete.items() for b in bursts)):
            detail = f"burst at {burst.address:#x} with ID {number}, asked for in cycle {burst.cycle}"
            self._broken(Rule.UNANSWERED, "aw", cycle, detail)
        if self._data:
            self._broken(Rule.UNANSWERED, "w", cycle, f"{len(self._data)} beats without an address")

    def _transfer(self, channel: str, cycle: int, payload: Payload) -> None:
        match channel:
            case "aw":
                self._addresses.append((payload.get("id", 0), self._request(channel, cycle, payload)))
                self._match()
            case "w":
                self._data.append((cycle, payload))
                self._match()
            case "b":
                self._response(channel, cycle, payload)
                self._answer(cycle, payload.get("id", 0))

    def _match(self) -> None:
        """Assign the data that have come to the addresses that have come."""
        while self._addresses and self._data:
            number, burst = self._addresses[0]
            cycle, payload = self._data.popleft()
            outside = payload.get("strb", 0) & ~burst.lanes(self._beats, self.bus_bytes)
            if outside:
                self._broken(Rule.STROBE, "w", cycle, f"strobes {payload['strb']:#x} in beat {self._beats + 1}")
            self._beats += 1
            ends = self._beats == burst.beats
            if payload.get("last", ends) != ends:
                detail = f"WLAST is {payload['last']} in beat {self._beats} of {burst.beats}"
                self._broken(Rule.WRITE_LAST, "w", cycle, detail)
            if ends:
                self._complete[number].append(burst)
                self._addresses.popleft()
                self._beats = 0

    def _answer(self, cycle: int, number: int) -> None:
        if self._complete[number]:
            self._complete[number].popleft()
        elif any(other == number for other, _ in self._addresses):
            self._broken(Rule.RESPONSE_EARLY, "b", cycle, f"response with ID {number} before the last beat")
        else:
            self._broken(Rule.RESPONSE_ID, "b", cycle, f"response with ID {number}, which no open request has")
