"""What may be said: for each request, the fields of the question and of the answer, each with its type and range.

Both ends check what they get against these tables before they look at it. An answer has the field ``ok``; if that is
false, ``kind`` and ``message`` say why (:class:`~.errors.LinkError`). Bytes travel as payloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import KINDS, LinkError
from .frames import Header

PROTOCOL = 4
"""Version of all that is in this file; raised whenever one end would misunderstand the other."""

TEXT_CHARACTERS = 4000
LARGEST_FILE = 1 << 28
LARGEST_WINDOW = 1 << 32
LONGEST_RUN = 24 * 3600.0


@dataclass(frozen=True)
class Whole:
    """A whole number in ``least`` .. ``most``."""

    least: int = 0
    most: int = (1 << 64) - 1

    def fits(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most


@dataclass(frozen=True)
class Real:
    """A number in ``least`` .. ``most``."""

    least: float = 0.0
    most: float = 1e12

    def fits(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.least <= value <= self.most


@dataclass(frozen=True)
class Text:
    """Characters that can be printed, at most so many."""

    most: int = TEXT_CHARACTERS

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and len(value) <= self.most


@dataclass(frozen=True)
class OneOf:
    """One of some texts."""

    texts: tuple[str, ...]

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and value in self.texts


@dataclass(frozen=True)
class Hex:
    """A number of so many hexadecimal digits, in lower case."""

    digits: int

    def fits(self, value: object) -> bool:
        return isinstance(value, str) and len(value) == self.digits and not set(value) - set("0123456789abcdef")


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def fits(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Many:
    """A list of values of one kind."""

    each: Kind
    least: int = 0
    most: int = 256

    def fits(self, value: object) -> bool:
        return isinstance(value, list) and self.least <= len(value) <= self.most and all(map(self.each.fits, value))


@dataclass(frozen=True)
class Maybe:
    """A value, or null."""

    some: Kind

    def fits(self, value: object) -> bool:
        return value is None or self.some.fits(value)


@dataclass(frozen=True)
class Record:
    """An object with these fields."""

    fields: Mapping[str, Kind]

    def fits(self, value: object) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() == self.fields.keys()
            and all(kind.fits(value[key]) for key, kind in self.fields.items())
        )


Kind = Whole | Real | Text | OneOf | Hex | Flag | Many | Maybe | Record
Fields = Mapping[str, Kind]

WINDOW = Whole(1, (1 << 31) - 1)
OFFSET = Whole(0, LARGEST_WINDOW)
SIZE = Whole(0, LARGEST_WINDOW)
COUNT = Whole(0, (1 << 63) - 1)

MODEL = Whole(1, (1 << 31) - 1)
BATCH = Whole(1, 1 << 16)

RUN: Fields = {
    "cycles": COUNT,
    "fault": Maybe(Many(Whole(0, (1 << 32) - 1), 3, 3)),  # cause, engine, number
    "read_beats": COUNT,
    "write_beats": COUNT,
    "counters": Many(Many(COUNT, 3, 3)),  # engine, class, cycles
    "seconds": Real(),
    "polls": COUNT,
    "wakes": COUNT,
}

WAITS = ("auto", "poll", "interrupt")
"""How the board may learn that a program has ended."""

CORE: Fields = {
    "hash": Hex(16),
    "address_bits": Whole(32, 64),
    "bus_bytes": Whole(1, 128),
    "instruction_bytes": Whole(1, 256),
}

MOST_CORES = 8

PROGRAM: Fields = {
    "start": OFFSET,  # of the core's part of the window
    "size": Whole(1, LARGEST_WINDOW),
    "offset": OFFSET,  # in that part
    "count": Whole(0, (1 << 32) - 1),  # instructions
}

SEVERAL: Fields = {
    "window": WINDOW,
    "programs": Many(Maybe(Record(PROGRAM)), 1, MOST_CORES),  # null: this core does not run
    "shared": Many(OFFSET, 2, 2),  # bytes of the window that all cores read: first, and first behind them
    "seconds": Real(1e-3, LONGEST_RUN),
    "watchdog": Whole(0, (1 << 32) - 1),
    "wait": OneOf(WAITS),
}
"""A program on each core of a system."""

FILES = (
    "bit",
    "hwh",
    "code",  # a shared library for the board's processor
    "constants",  # of all host steps of a model
    "plan",  # how a model runs: ``link/plan.py``
)

REQUESTS: Mapping[str, Fields] = {
    # First of all: the versions of the protocol that the host speaks.
    "hello": {"protocols": Many(Whole(1, 1 << 16), least=1)},
    # A part of a file, in order; the payload is the part.
    "file": {"name": OneOf(FILES), "offset": Whole(0, LARGEST_FILE), "size": Whole(1, LARGEST_FILE)},
    # Load the design of those files, and check that it holds the core that the host was told of.
    "load": {
        "bit": Hex(64),  # SHA-256 of the files
        "hwh": Hex(64),
        "ip": Maybe(Text(200)),  # the core's name in the design; null: the only one of its type
        "clock_mhz": Maybe(Real(0.1, 2000.0)),  # null: as the design says
        "version": Whole(0, (1 << 32) - 1),
        "cores": Many(Record(CORE), 1, MOST_CORES),
        "system": Flag(),  # several cores, or one behind the registers of several
    },
    # What the board has for the core: pynq's device, and the kernel's contiguous memory.
    "system": {},
    # Write settings of the core, each an address and a value, in this order; then read all of them back.
    "settings": {"values": Many(Many(Whole(0, (1 << 32) - 1), 2, 2), 1)},
    # A window of zeros.
    "allocate": {"size": Whole(1, LARGEST_WINDOW)},
    "free": {"window": WINDOW},
    "write": {"window": WINDOW, "offset": OFFSET},
    # Answered by as many frames as it takes, each with ``more``.
    "read": {"window": WINDOW, "offset": OFFSET, "size": SIZE},
    "run": {
        "window": WINDOW,
        "offset": OFFSET,
        "count": Whole(0, (1 << 32) - 1),  # instructions
        "seconds": Real(1e-3, LONGEST_RUN),  # the deadline
        "watchdog": Whole(0, (1 << 32) - 1),  # cycles without progress until the core gives up; 0: never
        "wait": OneOf(WAITS),
    },
    # A program on each core of a system, all at once.
    "together": SEVERAL,
    # Runs of cores that start each other, from their first programs on. The payload is what they wait for, and their
    # other programs: address and value of one register after the other, 32 bits each.
    "relay": {**SEVERAL, "runs": Whole(1, (1 << 15) - 1)},  # of each core
    # Machine code for the board's own processor, from the file "code".
    "library": {"digest": Hex(64)},
    # A whole model, from the files "plan" and "constants"; it goes with its window.
    "model": {"plan": Hex(64), "constants": Maybe(Hex(64)), "libraries": Many(MODEL), "window": WINDOW},
    # A part of the inputs of the next batch, in order.
    "feed": {"model": MODEL, "offset": OFFSET},
    # Run a model for each item of a batch, whose inputs were fed, or are the payload. Answered by the outputs, in as
    # many frames as they take; the first of them has the last program's account, frames before it those of others.
    "infer": {
        "model": MODEL,
        "count": BATCH,
        "seconds": Real(1e-3, LONGEST_RUN),  # of each program
        "watchdog": Whole(0, (1 << 32) - 1),
        "wait": OneOf(WAITS),
    },
    # What the core's registers say now, and the clock.
    "state": {},
    "close": {},
}

ANSWERS: Mapping[str, Fields] = {
    "hello": {
        "protocol": Whole(1, 1 << 16),
        "python": Text(200),
        "numpy": Text(200),
        "pynq": Text(200),  # empty: it cannot be imported
        "machine": Text(200),
        "user": Whole(0, (1 << 32) - 1),
        "code": Text(200),  # digest of the code on the board
    },
    "file": {},
    "load": {
        "address": Whole(),
        "clock_mhz": Maybe(Real()),
        "device": Text(200),
        "no_interrupt": Text(200),  # why the core has no interrupt; empty if it has one
    },
    "system": {"pynq": Text(200), "device": Text(200), "cma_total": Maybe(COUNT), "cma_free": Maybe(COUNT)},  # bytes
    "settings": {"values": Many(Whole(0, (1 << 32) - 1))},
    "allocate": {"window": WINDOW, "address": Whole()},
    "free": {},
    "write": {},
    "read": {"more": Flag()},
    "run": RUN,
    "together": {"runs": Many(Maybe(Record(RUN)), 1, MOST_CORES)},
    "relay": {
        "runs": Many(Maybe(Record(RUN)), 1, MOST_CORES),  # the last one of each core
        "ended": Many(COUNT, 1, MOST_CORES),  # runs of each core, without a fault
        "cycles": COUNT,  # from the first begin to the last end
    },
    "library": {"library": MODEL},
    "model": {"model": MODEL},
    "feed": {},
    "infer": {
        "more": Flag(),
        "run": Maybe(Record(RUN)),
        "done": Whole(0, 1 << 16),  # items
        "cycles": COUNT,  # of all items
        "seconds": Real(),  # on the board, for all items
    },
    "state": {"status": Whole(0, (1 << 32) - 1), "cycles": COUNT, "clock_mhz": Maybe(Real())},
    "close": {},
}

FAILURE: Fields = {"kind": OneOf(KINDS), "message": Text()}

PAYLOAD_TO_BOARD = ("file", "write", "feed", "infer", "relay")
PAYLOAD_TO_HOST = ("read", "infer")


def check_request(header: Header, payload: bytes) -> tuple[str, dict[str, Any]]:
    """The name of a request and its fields; LinkError says what is wrong with it."""
    name = header.get("do")
    if not isinstance(name, str) or name not in REQUESTS:
        raise LinkError("protocol", f"there is no request {str(name)[:40]!r}")
    if payload and name not in PAYLOAD_TO_BOARD:
        raise LinkError("protocol", f"{name}: {len(payload)} bytes that nobody wants")
    return name, _checked(name, {key: value for key, value in header.items() if key != "do"}, REQUESTS[name])


def check_answer(name: str, header: Header, payload: bytes) -> dict[str, Any]:
    """The fields of the answer to a request. LinkError: as the other end reports, or what is wrong with the answer."""
    fields = {key: value for key, value in header.items() if key != "ok"}
    if header.get("ok") is False:
        failure = _checked(name, fields, FAILURE)
        raise LinkError(failure["kind"], failure["message"])
    if header.get("ok") is not True:
        raise LinkError("protocol", f"{name}: the answer does not say whether it went well")
    if payload and name not in PAYLOAD_TO_HOST:
        raise LinkError("protocol", f"{name}: {len(payload)} bytes that nobody asked for")
    return _checked(name, fields, ANSWERS[name])


def failure(error: LinkError) -> Header:
    """The answer that says what went wrong."""
    return {"ok": False, "kind": error.kind, "message": error.message[:TEXT_CHARACTERS]}


def check_fields(name: str, values: Mapping[str, Any], fields: Fields) -> None:
    """LinkError unless these are the fields, each as it should be; ``name`` says what they are of."""
    if values.keys() != fields.keys():
        odd = ", ".join(sorted(values.keys() ^ fields.keys()))[:200]
        raise LinkError("protocol", f"{name}: missing or unknown fields: {odd}")
    for key, kind in fields.items():
        if not kind.fits(values[key]):
            raise LinkError("protocol", f"{name}: {key} is {str(values[key])[:80]}, not {kind}")


def _checked(name: str, values: dict[str, Any], fields: Fields) -> dict[str, Any]:
    check_fields(name, values, fields)
    return values
