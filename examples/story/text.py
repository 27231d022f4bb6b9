"""Text that every Python has: its language reference, as ``help()`` shows it, as bytes."""

from __future__ import annotations

from pydoc_data.topics import topics

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

HELD_OUT = 20
"""One part in so many is not trained on."""


def reference() -> Bytes:
    """All topics in the order of their names."""
    return np.frombuffer("\n\n".join(topics[name] for name in sorted(topics)).encode(), np.uint8)


def parts() -> tuple[Bytes, Bytes]:
    """What is trained on, and behind it what is not."""
    text = reference()
    cut = len(text) - len(text) // HELD_OUT
    return text[:cut], text[cut:]


def windows(text: Bytes, count: int, length: int) -> NDArray[np.int64]:
    """``count`` pieces of a text, evenly spread, ``(count, length)``."""
    starts = np.linspace(0, len(text) - length, count).astype(np.int64)
    return text[starts[:, None] + np.arange(length)].astype(np.int64)
