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


def test_a_dram_with_banks_is_asked_for_by_name() -> None:
    usual, banked = ran("--config", "tiny"), ran("--config", "tiny", "--memory", "ddr3-1066x16@200")
    assert banked["dram"] == {**usual["dram"], "memory": "ddr3-1066x16", "core_mhz": 200}
    assert banked["results"] == usual["results"]
    assert banked["cycles"] != usual["cycles"]
    table = CliRunner().invoke(app, ["run", str(MODEL), "--config", "tiny", "--memory", "DDR3-1066x16"]).output
    assert "latency 100, ddr3-1066x16 beside a core of 100 MHz" in " ".join(table.split())


def test_cores_with_own_ports_share_a_dram_with_banks(tmp_path: Path) -> None:
    path = tmp_path / "pair.json"
    path.write_text('{"name": "pair", "cores": ["tiny", "tiny"], "ports": [0, 1]}')
    usual = ran("--config", "tiny", "--system", str(path))
    assert [core["waited"] for core in usual["cores"]] == [0, 0]
    banked = ran("--config", "tiny", "--system", str(path), "--memory", "ddr3-1066x16@400", "--bandwidth", "16")
    assert sum(core["waited"] for core in banked["cores"]) > 0
    slow = ran("--config", "tiny", "--system", str(path), "--bandwidth", "1")
    assert slow["cycles"] > usual["cycles"]


@pytest.mark.parametrize("extra", [[], ["--system", "pair.json"]])
def test_a_profile_says_what_the_banks_did(extra: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pair.json").write_text('{"name": "pair", "cores": ["tiny", "tiny"], "ports": [0, 1]}')
    command = ["profile", str(MODEL), "--config", "tiny", "--memory", "ddr3-1066x16", "-o", "p", *extra]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    dram = json.loads(result.stdout)["dram"]
    assert dram["memory"] == "ddr3-1066x16 beside a core of 100 MHz"
    assert 0.5 < dram["row_hits"] < 1
    assert dram["accesses"] > dram["activations"] > 0
    assert dram["refreshes"] > 0
    assert 0 < dram["refresh_share"] < dram["bus_busy"] < 1
    assert "what the DRAM did" in Path("p/report.txt").read_text()


@pytest.mark.parametrize("command", ["run", "profile"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--memory", "ddr5"], "unknown memory 'ddr5'"),
        (["--memory", "ddr3-1066x16@x"], "'x' is no clock of a core in MHz"),
        (["--memory", "ddr3-1066x16", "--latency", "2"], "a read of a closed bank of ddr3-1066x16"),
        (["--memory", "ddr3-1066x16", "--target", "cpu"], "--memory is of a core"),
    ],
)
def test_memories_that_cannot_be_are_told(command: str, arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(app, [command, str(MODEL), *arguments])
    assert result.exit_code
    assert told in str(result.exception)
