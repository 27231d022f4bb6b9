"""Every rule of the protocol checkers fires on a recorded trace that breaks it, and none on one that does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from weft.testbench.protocol import ReadChecker, Rule, Violation, WriteChecker

BUS_BYTES = 8
BURST_BEATS = 32


@dataclass(frozen=True)
class Seen:
    """What a channel shows in one cycle; ``offer`` is ``None`` while VALID is low."""

    channel: str
    offer: Mapping[str, int] | None
    ready: bool = True
    reset: bool = False


def ar(address: int, beats: int = 1, *, ready: bool = True, number: int = 0, size: int = 3, burst: int = 1) -> Seen:
    offer = {"id": number, "addr": address, "len": beats - 1, "size": size, "burst": burst}
    return Seen("ar", offer, ready)


def aw(address: int, beats: int = 1, *, size: int = 3, burst: int = 1) -> Seen:
    return Seen("aw", {"id": 0, "addr": address, "len": beats - 1, "size": size, "burst": burst})


def r(*, last: bool, number: int = 0, resp: int = 0, ready: bool = True) -> Seen:
    return Seen("r", {"id": number, "data": 7, "resp": resp, "last": last}, ready)


def w(*, last: bool, strb: int = 0xFF) -> Seen:
    return Seen("w", {"data": 7, "strb": strb, "last": last})


def b(*, number: int = 0, resp: int = 0) -> Seen:
    return Seen("b", {"id": number, "resp": resp})


def replay(trace: Sequence[Seen]) -> list[Violation]:
    """What the checkers find in a trace, one entry a cycle."""
    violations: list[Violation] = []
    limits = (BUS_BYTES, BURST_BEATS, "m_axi_", violations)
    read, write = ReadChecker(*limits), WriteChecker(*limits)
    for cycle, seen in enumerate(trace):
        checker = read if seen.channel in ("ar", "r") else write
        checker.sample(seen.channel, cycle, seen.offer, ready=seen.ready, reset=seen.reset)
    read.finish(len(trace))
    write.finish(len(trace))
    return violations


GOOD: dict[str, list[Seen]] = {
    "a burst": [ar(0x40, 2, ready=False), ar(0x40, 2), r(last=False), r(last=True, ready=False), r(last=True)],
    "IDs mix and overtake": [
        ar(0, 2, number=0), ar(8, 2, number=1), r(last=False, number=1), r(last=False, number=0),
        r(last=True, number=1), r(last=True, number=0),
    ],
    "the longest burst": [ar(0, 32), *[r(last=False)] * 31, r(last=True)],
    "a burst up to the end of a page": [ar(0xFC0, 8), *[r(last=False)] * 7, r(last=True)],
    "a narrow beat at an odd place": [aw(0x45, size=1), w(last=True, strb=0x20), b()],
    "data before their address": [w(last=False), w(last=True), aw(0, 2), b()],
    "wrapping": [aw(0x18, 4, burst=2), *[w(last=False)] * 3, w(last=True), b(resp=2)],
    "fixed": [ar(0x18, 2, burst=0), r(last=False), r(last=True, resp=3)],
    "reset takes its offer back": [ar(8, ready=False), Seen("ar", ar(8).offer, reset=True), ar(0), r(last=True)],
}  # fmt: skip


@pytest.mark.parametrize("trace", GOOD.values(), ids=GOOD)
def test_good_trace_is_accepted(trace: list[Seen]) -> None:
    assert replay(trace) == []


BAD: dict[Rule, tuple[list[Seen], str]] = {
    Rule.VALID_STABLE: (
        [ar(0, ready=False), Seen("ar", None)],
        "cycle 1, m_axi_ar: VALID fell, offered since cycle 0",
    ),
    Rule.PAYLOAD_STABLE: (
        [ar(0x40, ready=False), ar(0x48), r(last=True)],
        "cycle 1, m_axi_ar: changed addr from 0x40 to 0x48",
    ),
    Rule.VALID_IN_RESET: (
        [Seen("ar", None, reset=True), Seen("ar", {"addr": 0}, reset=True)],
        "cycle 1, m_axi_ar: VALID is high",
    ),
    Rule.PAGE: (
        [ar(0xFF8, 2), r(last=False), r(last=True)],
        "cycle 0, m_axi_ar: 2 beats from 0xff8 to 0x1007",
    ),
    Rule.SIZE: ([ar(0, size=4), r(last=True)], "cycle 0, m_axi_ar: 16 bytes a beat on a bus of 8"),
    Rule.LENGTH: (
        [aw(0, 33), *[w(last=False)] * 32, w(last=True), b()],
        "cycle 0, m_axi_aw: 33 beats, at most 32",
    ),
    Rule.BURST_TYPE: ([ar(0, burst=3), r(last=True)], "cycle 0, m_axi_ar: burst type 3"),
    Rule.FIXED_LENGTH: (
        [aw(0, 17, burst=0), *[w(last=False)] * 16, w(last=True), b()],
        "cycle 0, m_axi_aw: 17 beats",
    ),
    Rule.WRAP_LENGTH: (
        [ar(0, 3, burst=2), r(last=False), r(last=False), r(last=True)],
        "cycle 0, m_axi_ar: 3 beats",
    ),
    Rule.WRAP_ALIGNED: (
        [ar(0x4, 2, burst=2), r(last=False), r(last=True)],
        "cycle 0, m_axi_ar: address 0x4, 8 bytes a beat",
    ),
    Rule.READ_UNASKED: ([r(last=True, number=1)], "cycle 0, m_axi_r: data with ID 1"),
    Rule.READ_LAST: (
        [ar(0, 2), r(last=True), r(last=True)],
        "cycle 1, m_axi_r: RLAST is True in beat 1 of 2",
    ),
    Rule.WRITE_LAST: (
        [aw(0, 2), w(last=False), w(last=False), b()],
        "cycle 2, m_axi_w: WLAST is False in beat 2 of 2",
    ),
    Rule.STROBE: (
        [aw(0x2, size=1), w(last=True, strb=0x1C), b()],
        "cycle 1, m_axi_w: strobes 0x1c in beat 1",
    ),
    Rule.RESPONSE_EARLY: (
        [aw(0, 2), w(last=False), b(), w(last=True), b()],
        "cycle 2, m_axi_b: response with ID 0 before the last beat",
    ),
    Rule.RESPONSE_ID: (
        [aw(0), w(last=True), b(number=2), b()],
        "cycle 2, m_axi_b: response with ID 2, which no open request has",
    ),
    Rule.EXOKAY: ([ar(0), r(last=True, resp=1)], "cycle 1, m_axi_r: response EXOKAY"),
    Rule.UNANSWERED: (
        [ar(0x80, 2, number=1), r(last=False, number=1)],
        "cycle 2, m_axi_ar: burst at 0x80 with ID 1, asked for in cycle 0",
    ),
}


def test_every_rule_has_a_trace_that_breaks_it() -> None:
    assert set(BAD) == set(Rule)


@pytest.mark.parametrize("rule", BAD)
def test_bad_trace_is_reported(rule: Rule) -> None:
    trace, text = BAD[rule]
    (violation,) = replay(trace)
    assert violation.rule is rule
    assert str(violation) == f"{text}: {rule}"


def test_all_that_is_left_open_is_reported() -> None:
    texts = [violation.detail for violation in replay([aw(0x10), w(last=True), w(last=True)])]
    assert texts == ["burst at 0x10 with ID 0, asked for in cycle 0", "1 beats without an address"]
