"""How much of what the engines can do at the same time a program makes use of."""

from __future__ import annotations

from enum import StrEnum


class LatencyHiding(StrEnum):
    """The default is the last. The others are for experiments that show what each step is worth.

    ``NONE``: each instruction waits for the one before it, as on a core with a single queue. ``VTHREADS``: engines
    wait for data only, but consecutive tiles of a virtual thread lie in the same entries, so that only another virtual
    thread is what a tile's work overlaps with (section 4.4 of the TVM paper, arXiv:1802.04799). ``RINGS``: consecutive
    tiles and layers lie in different entries, and loads are issued before the vector work that they do not depend on.
    """

    NONE = "none"
    VTHREADS = "vthreads"
    RINGS = "rings"
