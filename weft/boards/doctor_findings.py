"""What a difference between two windows says about the wires between core, memory and processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from .doctor_programs import Bytes

Element = TypeVar("Element", bound=np.generic)

PROVEN_BYTES = 4
"""So many bytes of a lane must agree before it is said where they come from."""


def describe_difference(before: Bytes, expected: Bytes, found: Bytes, bus_bytes: int) -> str:
    """Why ``found`` is not ``expected``, where the window held ``before``; an empty text if it is.

    The likeliest reason, from what all bytes have in common; else the first byte that differs.
    """
    wrong = expected != found
    if not wrong.any():
        return ""
    written = expected != before
    number = int(wrong.sum())
    first = int(np.argmax(wrong))
    values = f"{found[first]:#04x}, not {expected[first]:#04x}"
    at = f"{number:,} bytes differ; the first is byte {first:#x} of the window: {values}"
    if written.any() and (found == before)[written].all():
        return f"nothing that the core wrote is there: every byte is what it was before the run ({at})"
    if lanes := _lanes(expected, found, written, bus_bytes):
        moved = ", ".join(f"byte {lane} of a bus word comes from byte {origin}" for lane, origin in lanes)
        return f"byte lanes are exchanged: {moved} ({at})"
    if bits := _stuck_bits(expected, found, written, bus_bytes):
        stuck = ", ".join(f"bit {bit} of byte {lane} of a bus word is always {value}" for lane, bit, value in bits)
        return f"data lines are stuck: {stuck} ({at})"
    if not (wrong & written).any():
        return f"bytes beside those that the core should write have changed ({at})"
    return at


def _words(values: npt.NDArray[Element], bus_bytes: int) -> npt.NDArray[Element]:
    """As words of the bus: ``(words, lanes)``."""
    return values[: values.size // bus_bytes * bus_bytes].reshape(-1, bus_bytes)


def _lanes(expected: Bytes, found: Bytes, written: npt.NDArray[np.bool_], bus_bytes: int) -> list[tuple[int, int]]:
    """The lanes that hold, in every word that was written, what another lane should: (lane, the other). Empty unless
    that explains every lane."""
    whole = _words(written, bus_bytes).all(axis=1)
    if whole.sum() < PROVEN_BYTES:
        return []
    right, real = _words(expected, bus_bytes)[whole], _words(found, bus_bytes)[whole]
    moved = []
    for lane in range(bus_bytes):
        origins = [other for other in range(bus_bytes) if (real[:, lane] == right[:, other]).all()]
        if not origins:
            return []
        if lane not in origins:
            moved.append((lane, origins[0]))
    return moved


def _stuck_bits(
    expected: Bytes, found: Bytes, written: npt.NDArray[np.bool_], bus_bytes: int
) -> list[tuple[int, int, int]]:
    """The bits (lane, bit, value) that never change where they should. Empty unless they explain every difference."""
    mask = _words(written, bus_bytes)
    right, real = _words(expected, bus_bytes), _words(found, bus_bytes)
    explained = right.copy()
    stuck = []
    for lane in range(bus_bytes):
        rows = mask[:, lane]
        for bit in range(8):
            wanted, seen = (values[rows, lane] >> bit & 1 for values in (right, real))
            if wanted.size >= PROVEN_BYTES and np.ptp(wanted) and not np.ptp(seen):
                value = int(seen[0])
                stuck.append((lane, bit, value))
                explained[rows, lane] = explained[rows, lane] & ~np.uint8(1 << bit) | np.uint8(value << bit)
    return stuck if (explained == real).all() else []


def stuck_bits(arrivals: Sequence[tuple[Bytes, bool]], bus_bytes: int) -> list[tuple[int, int, int]]:
    """The bits (lane, bit, value) of a bus word that explain which of some bytes arrived as they were sent: all that
    have that value there, and no others."""
    if not any(arrived for _, arrived in arrivals) or all(arrived for _, arrived in arrivals):
        return []
    words = [(np.unpackbits(_words(sent, bus_bytes), axis=1, bitorder="little"), arrived) for sent, arrived in arrivals]
    return [
        (bit // 8, bit % 8, value)
        for bit in range(8 * bus_bytes)
        for value in (0, 1)
        if all((bits[:, bit] == value).all() == arrived for bits, arrived in words)
    ]


def exchanges(bus_bytes: int) -> dict[str, npt.NDArray[np.intp]]:
    """Ways in which the byte lanes of a bus may be wired wrongly, each as the lane that every lane comes from."""
    lanes = np.arange(bus_bytes)
    found = {}
    size = 2
    while size <= bus_bytes:
        found[f"bytes are reversed in groups of {size}"] = lanes ^ (size - 1)
        if size > 2:
            found[f"halves of {size} bytes are exchanged"] = lanes ^ (size // 2)
        size *= 2
    for a in range(bus_bytes):
        for b in range(a + 1, bus_bytes):
            swap = lanes.copy()
            swap[[a, b]] = b, a
            found.setdefault(f"bytes {a} and {b} of a bus word are exchanged", swap)
    return found
