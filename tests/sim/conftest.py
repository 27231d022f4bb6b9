"""Simulators that tests share: building one takes long, resetting its memories does not."""

from __future__ import annotations

import pytest
from weft.hw.config import TINY
from weft.sim.fsim import FunctionalSimulator
from weft.sim.fuzz import MEMORY_BYTES
from weft.sim.rtl import RtlSimulator


@pytest.fixture(scope="session")
def tiny_rtl() -> RtlSimulator:
    return RtlSimulator(TINY, MEMORY_BYTES, watchdog=5000)


@pytest.fixture(scope="session")
def tiny_fsim() -> FunctionalSimulator:
    return FunctionalSimulator(TINY, MEMORY_BYTES)
