"""Settings for every test."""

from __future__ import annotations

from hypothesis import Phase, settings

# No deadline: one example may wait for the C++ compiler. A failure prints the line that repeats it.
settings.register_profile("weft", deadline=None, print_blob=True)
settings.load_profile("weft")
# For tests.mutation: the first failure is all that counts, and the same faults are caught in every run.
settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
