"""One memory: what schedules are chosen for is what simulators have, unless a command says another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from typer.testing import CliRunner
from weft.cli import app
from weft.hw.config import TINY, WIDE, CoreConfig
from weft.hw.dram_rate import DramRate
from weft.runtime.device import SIMULATORS, FsimDevice, memory_of

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def ran(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["run", str(MODEL), "--json", *arguments])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize("config", [TINY, WIDE])
def test_compiler_and_simulators_have_one_default(config: CoreConfig) -> None:
    model = weft.compile(MODEL, target="accel", config=config)
    usual = DramRate(latency=100, bytes_per_cycle=config.bus_bytes)
    assert (model.statistics["dram_latency"], model.statistics["dram_bytes_per_cycle"]) == (100, config.bus_bytes)
    for memory in (memory_of(model), weft.load(model).device.dram, *(kind(config).dram for kind in SIMULATORS)):
        assert (memory.latency, memory.bytes_per_cycle) == (usual.latency, usual.bytes_per_cycle)


def test_a_simulator_has_the_memory_that_a_model_is_compiled_for() -> None:
    slow = weft.compile(MODEL, target="accel", config=TINY, dram="2,40")
    loaded = weft.load(slow)
    assert (loaded.device.dram.bytes_per_cycle, loaded.device.dram.latency) == (2, 40)
    other = FsimDevice(TINY, dram=memory_of(slow))
    assert weft.load(slow, other).device.dram == loaded.device.dram


def test_the_command_takes_a_memory_and_says_which_it_was() -> None:
    usual = ran("--config", "tiny")
    assert usual["dram"] == {"bytes_per_cycle": TINY.bus_bytes, "latency": 100}
    scheduled = ran("--config", "tiny", "--dram", "2,40")
    assert scheduled["dram"] == {"bytes_per_cycle": 2, "latency": 40}
    simulated = ran("--config", "tiny", "--dram", "2,40", "--latency", "300", "--bandwidth", "1")
    assert simulated["dram"] == {"bytes_per_cycle": 1, "latency": 300}
    assert simulated["cycles"] > scheduled["cycles"] != usual["cycles"]
    table = CliRunner().invoke(app, ["run", str(MODEL), "--config", "tiny", "--bandwidth", "4"]).output
    assert "DRAM of 4 bytes a cycle, latency 100" in " ".join(table.split())


@pytest.mark.parametrize("arguments", [["--target", "cpu"], ["--device", "null"]])
def test_a_memory_for_what_simulates_none_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["run", str(MODEL), "--bandwidth", "4", *arguments])
    assert result.exit_code
    assert "--latency and --bandwidth" in str(result.exception)
