"""The estimate of energy: the published figures, and what follows from counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.explore.energy import LANE_PJ, MAC_PJ, REGISTER_PJ, energy_pj, entry_pj, registers_of
from weft.explore.measure import Measure
from weft.explore.processors import PROCESSORS
from weft.hw.config import PYNQ
from weft.hw.energies import DRAM_64_BITS_PJ, SRAM_64_BITS_PJ, sram_pj
from weft.hw.memories import Memory

NOTHING = Measure(1, 1, 0, 0, 0, 0, 0, ())
A9 = PROCESSORS["cortex-a9"]


@pytest.mark.parametrize(("capacity", "energy"), SRAM_64_BITS_PJ)
def test_published_memories_cost_what_was_published(capacity: int, energy: float) -> None:
    assert sram_pj(capacity) == pytest.approx(energy)


def test_larger_memories_cost_more() -> None:
    found = [sram_pj(2**bits) for bits in range(8, 24)]
    assert found == sorted(found)
    assert sram_pj(2 * 8192) == pytest.approx(10 * 2**0.5)  # half way between 8 and 32 KiB, in logarithms


def test_an_entry_is_slices_of_64_bits() -> None:
    assert entry_pj(PYNQ, Memory.WGT) == pytest.approx(32 * 10.0)  # 2,048 bits, 1,024 entries of 8 bytes each
    assert entry_pj(replace(PYNQ, acc_banks=1), Memory.ACC) > entry_pj(PYNQ, Memory.ACC)


def test_energy_is_what_the_counts_say() -> None:
    assert sum(energy_pj(PYNQ, replace(NOTHING, cycles=0), A9).values()) == 0
    control = energy_pj(PYNQ, replace(NOTHING, cycles=1000), A9)
    assert control["control"] == pytest.approx(1000 * registers_of(PYNQ) * REGISTER_PJ) == sum(control.values())
    array = energy_pj(PYNQ, replace(NOTHING, array=1000), A9)
    assert array["array"] == pytest.approx(1000 * 256 * MAC_PJ)
    assert array["vector"] == array["dram"] == 0
    gemm_entries = entry_pj(PYNQ, Memory.INP) + entry_pj(PYNQ, Memory.WGT) + 2 * entry_pj(PYNQ, Memory.ACC)
    assert array["scratchpads"] == pytest.approx(1000 * gemm_entries)
    vector = energy_pj(PYNQ, replace(NOTHING, vector=10), A9)
    assert vector["vector"] == pytest.approx(10 * 16 * LANE_PJ)
    assert vector["scratchpads"] == pytest.approx(10 * 2 * entry_pj(PYNQ, Memory.ACC))
    moved = energy_pj(PYNQ, replace(NOTHING, bytes_read=64, bytes_written=16), A9)
    assert moved["dram"] == pytest.approx(10 * DRAM_64_BITS_PJ)
    assert moved["scratchpads"] > 0


def test_the_host_takes_an_instruction_a_cycle_and_the_same_dram() -> None:
    host = energy_pj(PYNQ, replace(NOTHING, host_operations=200, host_bytes=80), A9)
    assert host["host"] == pytest.approx((200 / 2 + 80 / 1) * 70 + 10 * DRAM_64_BITS_PJ)
    assert host["array"] == host["dram"] == 0
