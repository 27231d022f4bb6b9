"""The verilated core and its memory: cycles, traces, windows, the bus under stress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.hw.cycle_class import CycleClass
from weft.hw.errors import ConfigError
from weft.hw.isa import Engine
from weft.hw.memories import SCRATCHPADS, Memory
from weft.hw.registers import MAGIC, Register
from weft.hw.verilog import emit_verilog
from weft.runtime.device import RtlDevice
from weft.sim import build, rtl
from weft.sim.dram import DramModel
from weft.sim.errors import SimulationError
from weft.sim.fuzz import MEMORY_BYTES
from weft.sim.rtl import RtlSimulator

from .programs import run_text

COPY = """
load load scratchpad=acc8 index=0 offset=2048 rows=8 columns=16 stride=16 send=vector
loop vector level=0 extent=128 dst_stride=1 a_stride=1
vector vector op=add target=out b_immediate=1 levels=1 dst=0 a=0 wait=load send=store
store store index=0 offset=4096 rows=8 columns=16 stride=16 wait=vector
finish
"""


@pytest.fixture
def core(tiny_rtl: RtlSimulator) -> RtlSimulator:
    tiny_rtl.set_dram(DramModel())
    tiny_rtl.dram[...] = np.random.default_rng(0).integers(0, 256, MEMORY_BYTES)
    return tiny_rtl


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept for all tests of this file."""
    return tmp_path_factory.mktemp("cache")


def copied(core: RtlSimulator, start: int = 0) -> bool:
    data = core.dram[start:]
    return bool(np.array_equal(data[16384 : 16384 + 512], data[8192 : 8192 + 512]))


def test_scratchpads_of_a_new_core_are_zero_and_can_be_written():
    core = RtlSimulator(TINY, 4096)
    for name in SCRATCHPADS:
        content = core.read_scratchpad(name)
        assert not content.any()
        content[...] = np.arange(content.size).reshape(content.shape)
        core.write_scratchpad(name, content)
        np.testing.assert_array_equal(core.read_scratchpad(name), content)


def test_a_process_that_has_a_simulator_needs_no_cache_for_the_next(tiny_rtl, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "no-compiler")
    device = RtlDevice(TINY)
    device.allocate(64)
    device.write(0, np.arange(64, dtype=np.uint8))
    assert device.read(1, 1) == 1
    device.allocate(0)  # as at the end of a module
    assert not (tmp_path / "empty").exists()


def test_identity_registers(core):
    assert core.read_register(Register.MAGIC) == MAGIC
    assert core.read_register(Register.HASH_LO) | core.read_register(Register.HASH_HI) << 32 == TINY.hash64


def test_cycle_classes_sum_to_the_cycles(core):
    result = run_text(core, COPY)
    assert result.fault is None
    assert copied(core)
    assert result.cycles is not None
    for engine in Engine:
        assert sum(result.counters[engine].values()) == result.cycles
    assert result.counters[Engine.VECTOR][CycleClass.TOKEN_LOAD] > 50
    assert result.bytes_read >= 512 + 5 * 16
    assert result.bytes_written == 512


def test_trace_has_every_instruction_and_the_same_classes_as_the_counters(core):
    result = run_text(core, COPY, trace=True)
    trace = result.trace
    assert trace is not None
    assert sorted(trace.events["number"].tolist()) == [0, 1, 2, 3]
    assert (trace.events["start"] <= trace.events["retire"]).all()
    assert trace.events["retire"].max() < result.cycles
    for engine in Engine:
        mine = trace.activity[trace.activity["engine"] == engine]
        assert mine["start"][0] == 0
        np.testing.assert_array_equal(mine["start"][1:], np.cumsum(mine["cycles"])[:-1])
        totals = {
            CycleClass(kind): int(mine["cycles"][mine["kind"] == kind].sum()) for kind in set(mine["kind"].tolist())
        }
        assert totals == result.counters[engine]


def test_without_trace_the_cycles_are_the_same(core):
    assert run_text(core, COPY).cycles == run_text(core, COPY, trace=True).cycles


def test_runs_are_repeatable_with_jitter(core):
    cycles = []
    for _ in range(2):
        core.set_dram(DramModel(jitter=50, seed=3, reorder=True))
        cycles.append(run_text(core, COPY).cycles)
    assert cycles[0] == cycles[1]


def test_latency_and_bandwidth_cost_cycles(core):
    def cycles(**settings: int) -> int:
        core.set_dram(DramModel(**settings))
        result = run_text(core, COPY)
        assert copied(core)
        return result.cycles or 0

    base = cycles()
    # Fetch, load and store wait one after the other; two more latencies are those of the write's data and response.
    assert 300 <= cycles(latency=200) - base <= 500
    # 512 bytes each way: loads come at a byte instead of a word a cycle, stores instead of an entry of 4 bytes.
    assert 750 <= cycles(bytes_per_cycle=1) - base <= 1100


def test_window_at_a_page_inside_the_memory(core):
    outside = core.dram[:12288].copy()
    code_end = 5 * TINY.instruction_bytes
    run_text(core, COPY)  # leaves the program at the start of the memory
    program = core.dram[:code_end].copy()
    core.dram[:12288] = outside
    core.dram[12288 : 12288 + code_end] = program
    result = core.run(0, 5, window_start=12288, window_bytes=32768)
    assert result.fault is None
    assert copied(core, 12288)
    np.testing.assert_array_equal(core.dram[:12288], outside)


def test_window_must_start_at_a_page(core):
    with pytest.raises(SimulationError, match="window start 0x40 is not a multiple of 4096"):
        core.run(0, 1, window_start=64)


def test_two_cores_do_not_share_state(core):
    other = RtlSimulator(TINY, MEMORY_BYTES)
    run_text(core, COPY)
    assert not other.read_scratchpad(Memory.OUT).any()


def test_dram_settings_are_checked():
    with pytest.raises(ConfigError, match="DRAM: latency is 0, but must be an integer of at least 1"):
        DramModel(latency=0)
    with pytest.raises(SimulationError, match="DRAM model: outstanding is 0, but must be at least 1"):
        DramModel(outstanding=0)


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        ("AR", "load load scratchpad=inp index=0 offset=2048 rows=1 columns=34 stride=34\nfinish"),
        ("AW", "store store index=0 offset=2048 rows=1 columns=34 stride=34\nfinish"),
    ],
)
def test_a_burst_longer_than_the_configuration_says_is_found(
    monkeypatch: pytest.MonkeyPatch, shared_folder: Path, channel: str, text: str
):
    """The core inside is one with bursts of 32, and the program moves 17 words in a row."""

    def emit_another(config, multipliers, **form):
        return emit_verilog(replace(config, burst_beats=32), multipliers, **form)

    monkeypatch.setenv("WEFT_CACHE", str(shared_folder))  # nobody else must get this core
    monkeypatch.setattr(rtl, "_libraries", {})
    monkeypatch.setattr(build, "emit_verilog", emit_another)
    core = RtlSimulator(replace(TINY, burst_beats=16), MEMORY_BYTES)
    message = f"the core broke the bus protocol: {channel} burst of 17 of at most 16 beats"
    with pytest.raises(SimulationError, match=message):
        run_text(core, text)
