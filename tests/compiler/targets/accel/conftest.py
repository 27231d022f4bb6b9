"""Cores that tests of the compiler run for some thousand cycles."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from weft.hw.config import NAMED, CoreConfig
from weft.hw.mac_array_packed import Multipliers
from weft.sim import rtl
from weft.sim.build import BuildTimes


@pytest.fixture(autouse=True)
def _few_cycles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that is named runs in many tests and is compiled once for all. Another runs a few programs: the optimiser
    would take longer than they do. Long campaigns have all cores optimised."""
    if request.node.get_closest_marker("long"):
        return
    library = rtl.simulator_library

    def quick_library(
        config: CoreConfig, multipliers: Multipliers, quick: bool, *others: Any
    ) -> tuple[ctypes.CDLL, BuildTimes]:
        return library(config, multipliers, quick or config not in NAMED.values(), *others)

    monkeypatch.setattr(rtl, "simulator_library", quick_library)
