"""Random graphs on OpenCL and as PTX, in the short form of `benchmarks/campaigns/fuzz_graphs.py --target opencl`."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.mark.parametrize("target", ["opencl", "cuda"])
def test_kernels_agree_with_numpy(campaign: ModuleType, target: str) -> None:
    tally = campaign.Tally()
    for seed in (*range(7), 1008):  # the last sums up everything, with axes of 1 around
        assert campaign.check(seed, 12, tally, target) == ""
    assert tally.operators > 40
    assert tally.in_numpy < tally.operators / 2


@pytest.mark.long
def test_a_thousand_graphs(campaign: ModuleType) -> None:
    tally = campaign.Tally()
    found = [wrong for seed in range(1000) if (wrong := campaign.check(seed, 12, tally, "opencl"))]
    assert not found, "\n".join(found[:5])
