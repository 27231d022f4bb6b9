"""Frames: what goes in comes out, and what is no frame is refused in time."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from weft.boards.link.errors import LinkError
from weft.boards.link.frames import HEADER_BYTES, MARK, PAYLOAD_BYTES, PREFIX, Stream, pack, parse_header, pieces

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = socket.socketpair()
    yield a, b
    a.close()
    b.close()


def stream(end: socket.socket, seconds: float = 2.0) -> Stream:
    return Stream(end.fileno(), end.fileno(), frame_seconds=seconds)


def prefix(header: int, payload: int, mark: bytes = MARK) -> bytes:
    return PREFIX.pack(mark, header, payload)


@pytest.mark.parametrize("size", [0, 1, 70_000, PAYLOAD_BYTES])
def test_a_frame_arrives_as_it_was_sent(pair: Pair, size: int) -> None:
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    sender = threading.Thread(target=stream(pair[0]).send, args=({"do": "x", "n": [1, "ä", None]}, payload))
    sender.start()
    assert stream(pair[1]).receive(seconds=5) == ({"do": "x", "n": [1, "ä", None]}, payload)
    sender.join()


def test_frames_that_are_too_large_are_not_sent(pair: Pair) -> None:
    for header, payload in (({"a": "x" * HEADER_BYTES}, b""), ({}, bytes(PAYLOAD_BYTES + 1))):
        with pytest.raises(LinkError, match="over the limits"):
            stream(pair[0]).send(header, payload)
    pair[0].shutdown(socket.SHUT_WR)
    assert pair[1].recv(1) == b""


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (prefix(2, 0, b"HTTP") + b"{}", "begins with b'HTTP'"),
        (prefix(HEADER_BYTES + 1, 0), "over the limits"),
        (prefix(2, PAYLOAD_BYTES + 1), "over the limits"),
        (prefix(2, 0xFFFF_FFFF), "over the limits"),
        (prefix(2, 0) + b"[]", "not an object"),
        (prefix(3, 0) + b"{]}", "not JSON"),
        (prefix(1, 0) + b"\xff", "not JSON"),
        (prefix(9, 0) + b'{"a":NaN}'[:9], "not JSON"),
        (prefix(13, 0) + b'{"a":1,"a":2}', "stands twice"),
        (prefix(40_000, 0) + b"[" * 40_000, "not JSON"),
        (prefix(40_000, 0) + b"9" * 40_000, "not"),
    ],
)
def test_what_is_no_frame_is_refused(pair: Pair, raw: bytes, message: str) -> None:
    pair[0].sendall(raw)
    with pytest.raises(LinkError, match=message) as caught:
        stream(pair[1]).receive(seconds=1)
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize("kept", [1, 4, 11, 12, 13, 20])
def test_a_frame_that_stops_in_the_middle(pair: Pair, kept: int) -> None:
    whole = b"".join(bytes(piece) for piece in pack({"a": 1}, b"12345"))
    pair[0].sendall(whole[:kept])
    started = time.monotonic()
    with pytest.raises(LinkError, match="no answer before the deadline"):
        stream(pair[1], 0.1).receive(seconds=1)
    assert time.monotonic() - started < 5
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(LinkError, match="closed the link"):
        stream(pair[1], 1).receive(seconds=1)


def test_nobody_reads(pair: Pair) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    with pytest.raises(LinkError, match="nobody took what was sent") as caught:
        stream(pair[0], 0.1).send({}, bytes(PAYLOAD_BYTES))
    assert caught.value.kind == "deadline"


def test_an_end_that_is_gone_is_seen_without_reading() -> None:
    source, sink = os.pipe()
    listener = Stream(source, sink)
    assert not listener.ended()
    os.close(sink)
    assert listener.ended()
    os.close(source)


def test_pieces_cover_all_bytes_once() -> None:
    for size in (0, 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 5 * PAYLOAD_BYTES):
        parts = pieces(size)
        assert sum(length for _, length in parts) == size
        assert [start for start, _ in parts] == [number * PAYLOAD_BYTES for number in range(len(parts))]
        assert all(0 < length <= PAYLOAD_BYTES for _, length in parts)


def test_random_headers_end_in_an_object_or_an_error() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        raw = bytearray(b'{"do":"run","window":1,"offset":0,"seconds":1e3,"list":[1,[2]],"t":"\\u00e4"}')
        for _ in range(random.integers(1, 6)):
            raw[random.integers(len(raw))] = random.integers(256)
        with suppress(LinkError):
            assert isinstance(parse_header(bytes(raw)), dict)
