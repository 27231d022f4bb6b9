"""Latency and bandwidth of DRAM, and their text."""

from __future__ import annotations

import pytest
from weft.hw.config import PYNQ, WIDE
from weft.hw.dram_rate import DramRate, parse_dram_rate
from weft.hw.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "rate"),
    [("4", DramRate(bytes_per_cycle=4)), ("16,250", DramRate(bytes_per_cycle=16, latency=250))],
)
def test_a_rate_is_read(text: str, rate: DramRate) -> None:
    assert parse_dram_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "4,", "4,x", "4,100,3", "0", "-1", "4,0", "1.5"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="DRAM: "):
        parse_dram_rate(text)


@pytest.mark.parametrize("value", [0, -3, 2.0, True, "8"])
def test_fields_are_checked(value: object) -> None:
    for name in ("latency", "bytes_per_cycle"):
        with pytest.raises(ConfigError, match=f"DRAM: {name} is {value!r}, but must be an integer of at least 1"):
            DramRate(**{name: value})  # type: ignore[arg-type]


def test_a_bus_takes_no_more_than_it_is_wide() -> None:
    assert [DramRate(bytes_per_cycle=16).for_bus(core) for core in (PYNQ, WIDE)] == [8, 16]
    assert DramRate(bytes_per_cycle=3).for_bus(WIDE) == 3
