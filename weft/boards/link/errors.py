"""Errors that travel: each has a kind that programs can tell apart, and a text for people."""

from __future__ import annotations

KINDS = (
    "protocol",  # a frame or a message that is not what it should be
    "version",  # the two ends have no protocol in common
    "closed",  # the other end is gone
    "deadline",  # something took longer than it may
    "busy",  # somebody else has the board
    "pynq",  # pynq is not there, or cannot do what is asked
    "permission",  # the program may not do on the board what it has to
    "overlay",  # the design cannot be loaded, or has no core
    "identity",  # there is a core, but another one
    "memory",  # no memory for the core
    "address",  # memory that the core cannot reach
    "range",  # bytes outside of a window
    "stuck",  # the core does not stop
    "code",  # machine code for the board's processor that it cannot load
    "input",  # values that a model cannot take
    "clock",  # the core has no clock
    "interrupt",  # the core's interrupt is not there, does not come, or comes without cause
    "internal",  # a mistake in the code on the board
)


class LinkError(Exception):
    """What went wrong between host and board: one of :data:`KINDS`, and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        if kind not in KINDS:
            raise ValueError(f"there is no kind of error {kind!r}")
        self.kind = kind
        self.message = message
