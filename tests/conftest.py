"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# No deadline: one example may wait for the C++ compiler. A failure prints the line that repeats it.
settings.register_profile("weft", deadline=None, print_blob=True)
settings.load_profile("weft")
