"""Frames: a short JSON object and raw bytes, both of stated and limited length, over two file descriptors.

A frame is four bytes ``WEF1``, the header's length and the payload's (each 32 bits, little endian), the header and the
payload. Nothing is allocated before its length was checked; every wait has a deadline; whatever is wrong is a
:class:`~.errors.LinkError`, after which the stream is of no more use.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import LinkError

MARK = b"WEF1"
PREFIX = struct.Struct("<4sII")
HEADER_BYTES = 1 << 16
"""Most bytes of a header."""

PAYLOAD_BYTES = 1 << 20
"""Most bytes of a payload; whoever has more sends several frames."""

FRAME_SECONDS = 60.0
"""What a frame may take from its first byte to its last, unless the stream says otherwise."""

Header = dict[str, Any]


def pack(header: Header, payload: bytes | memoryview = b"") -> list[bytes | memoryview]:
    """The pieces of a frame, in order. LinkError if they are over the limits: nothing of it was sent then."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    size = memoryview(payload).nbytes
    if len(text) > HEADER_BYTES or size > PAYLOAD_BYTES:
        raise LinkError("protocol", f"a frame of {len(text)} + {size} bytes is over the limits")
    return [PREFIX.pack(MARK, len(text), size) + text, payload]


def parse_header(raw: bytes) -> Header:
    """The object in a header's bytes; LinkError for anything else."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_doubles, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise LinkError("protocol", f"a header is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise LinkError("protocol", "a header is not an object")
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> Header:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return result


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


class Stream:
    """Bytes in from one descriptor and out to another; both become non-blocking and stay the caller's to close.

    ``frame_seconds``: a frame that has begun must be over in this time. ``why_closed`` may add to the message when the
    other end is gone.
    """

    def __init__(
        self, source: int, sink: int, *, frame_seconds: float = FRAME_SECONDS,
        why_closed: Callable[[], str] = lambda: "",
    ) -> None:  # fmt: skip
        self._source, self._sink = source, sink
        self._frame_seconds, self._why_closed = frame_seconds, why_closed
        os.set_blocking(source, False)
        os.set_blocking(sink, False)

    def send(self, header: Header, payload: bytes | memoryview = b"") -> None:
        """Write a frame."""
        self.send_bytes(*pack(header, payload))

    def send_bytes(self, *parts: bytes | memoryview) -> None:
        """Write bytes that are no frame."""
        end = time.monotonic() + self._frame_seconds
        rest = [memoryview(part).cast("B") for part in parts if len(part)]
        while rest:
            try:
                done = os.writev(self._sink, rest)  # in one piece where it can be: the other end wakes up once
            except BlockingIOError:
                _wait(self._sink, select.POLLOUT, end, "nobody took what was sent")
                continue
            except OSError as error:
                raise self._closed(error.strerror or "") from None
            while done:
                taken = min(done, len(rest[0]))
                rest[0], done = rest[0][taken:], done - taken
                if not rest[0]:
                    rest.pop(0)

    def receive(self, *, seconds: float | None = None) -> tuple[Header, bytes]:
        """Read a frame that begins within ``seconds`` (None: whenever)."""
        first = self._read(1, None if seconds is None else time.monotonic() + seconds)
        end = time.monotonic() + self._frame_seconds
        mark, header_bytes, payload_bytes = PREFIX.unpack(first + self._read(PREFIX.size - 1, end))
        if mark != MARK:
            raise LinkError("protocol", f"a frame begins with {bytes(mark)!r}, not {MARK!r}")
        if header_bytes > HEADER_BYTES or payload_bytes > PAYLOAD_BYTES:
            raise LinkError("protocol", f"a frame claims {header_bytes} + {payload_bytes} bytes, over the limits")
        header = parse_header(self._read(header_bytes, end))
        return header, self._read(payload_bytes, end)

    def ended(self) -> bool:
        """Whether the other end has gone, as far as can be seen without reading."""
        poll = select.poll()
        poll.register(self._source, select.POLLRDHUP)
        return any(events & (select.POLLHUP | select.POLLRDHUP) for _, events in poll.poll(0))

    def _read(self, size: int, end: float | None) -> bytes:
        parts: list[bytes] = []
        while size:
            try:
                part = os.read(self._source, min(size, 1 << 18))
            except BlockingIOError:
                _wait(self._source, select.POLLIN, end, "no answer")
                continue
            except OSError as error:
                raise self._closed(error.strerror or "") from None
            if not part:
                raise self._closed("in the middle of a frame" if parts else "")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _closed(self, detail: str) -> LinkError:
        details = [text for text in (detail, self._why_closed()) if text]
        return LinkError("closed", "the other end closed the link" + "".join(f": {text}" for text in details))


def _wait(descriptor: int, event: int, end: float | None, what: str) -> None:
    """Until the descriptor is ready; LinkError at the deadline."""
    poll = select.poll()
    poll.register(descriptor, event)
    while True:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise LinkError("deadline", f"{what} before the deadline")
        if poll.poll(None if left is None else left * 1e3 + 1):
            return


def pieces(size: int) -> Sequence[tuple[int, int]]:
    """(start, bytes) of the frames that carry ``size`` bytes."""
    return [(start, min(PAYLOAD_BYTES, size - start)) for start in range(0, size, PAYLOAD_BYTES)]
