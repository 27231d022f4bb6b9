"""What a GPU is for the runtime: memory, code and launches, whatever the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NewType, Protocol, TypeVar

import numpy.typing as npt

from ...compiler.model import GpuCode, GridCall
from ..errors import DeviceError

Array = npt.NDArray[Any]

Memory = NewType("Memory", object)
"""Bytes on a device."""

Program = NewType("Program", object)
"""Code that a device has taken."""

Launch = NewType("Launch", object)
"""A function of a program with its arguments, ready to run as often as wanted."""


class Gpu(Protocol):
    """A device for one user, who calls from one thread at a time. What is asked of it happens in that order;
    `DeviceError` says what it cannot do.

    ``name``: of the device, for people.
    """

    name: str

    def allocate(self, nbytes: int) -> Memory:
        """Memory of at least so many bytes, which live as long as the result."""

    def write(self, memory: Memory, offset: int, data: Array) -> None:
        """Copy a contiguous array to a byte of the memory; the array may be changed afterwards."""

    def read(self, memory: Memory, offset: int, data: Array) -> None:
        """Fill a contiguous array from a byte of the memory on, when all before is done."""

    def copy(self, source: Memory, source_offset: int, target: Memory, target_offset: int, nbytes: int) -> None:
        """Copy bytes between memories, or between parts of one that do not overlap."""

    def load(self, code: GpuCode) -> Program:
        """Compile code for the device, unless that was done before."""

    def prepare(self, program: Program, call: GridCall, arguments: Sequence[tuple[Memory, int]]) -> Launch:
        """A launch of a function; each argument is a memory and a byte in it."""

    def joined(self, launches: Sequence[Launch]) -> Launch | None:
        """Launches as one that runs them in this order, with less to do for the host; None where the driver has no
        such thing."""

    def launch(self, launch: Launch) -> None:
        """Run it, after all before."""

    def timed(self, launch: Launch) -> float:
        """Run it and wait; gives the seconds that the device took."""

    def synchronise(self) -> None:
        """Wait for all that was asked."""


Thing = TypeVar("Thing")


def own(thing: object, kind: type[Thing], whose: str) -> Thing:
    """What a device has made itself. DeviceError for what is another's, which ``whose`` says not to be."""
    if not isinstance(thing, kind):
        raise DeviceError(f"{type(thing).__name__} is not of {whose}")
    return thing
