"""The command with ``--system``: several cores on one memory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from weft.cli.system_options import for_system
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, TINY
from weft.hw.system_config import SystemConfig

from .test_cli import weft

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    path = tmp_path / "pair.json"
    path.write_text('{"name": "pair", "cores": ["tiny", "tiny"]}')
    return path


def test_a_model_runs_on_all_cores_and_says_who_waited(pair: Path, tmp_path: Path) -> None:
    result = weft("run", MODEL, "-c", "tiny", "--system", pair, "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["system"], told["device"], len(told["results"])) == ("pair", "fsim", 2)
    assert told["cycles"] == max(core["cycles"] for core in told["cores"])
    assert all(core["waited"] == core["cycles"] - told["cycles_alone"] > 0 for core in told["cores"])
    assert told["results"][0] != told["results"][1]  # each core has an item of its own
    alone = weft("run", MODEL, "-c", "tiny", "--seed", "1", "--json", folder=tmp_path)
    assert json.loads(alone.stdout)["results"] == told["results"][1]
    result = weft("run", MODEL, "-c", "tiny", "--system", pair, "-o", "out.npz", folder=tmp_path)
    assert "2 items in" in result.stdout
    assert (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("way", [(), ("--split", "2"), ("--stages", "2")])
def test_a_run_has_a_timeline_of_all_cores(way: tuple[str, ...], pair: Path, tmp_path: Path) -> None:
    result = weft("run", MODEL, "-c", "tiny", *way, "--system", pair, "--trace", "t.json", "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"core 0", "core 1", "bus of port 0"}
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") == told["cycles"]


def test_an_item_is_split_over_all_cores(pair: Path, tmp_path: Path) -> None:
    result = weft("run", MODEL, "-c", "tiny", "--split", "2", "--system", pair, "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    alone = json.loads(weft("run", MODEL, "-c", "tiny", "--json", folder=tmp_path).stdout)
    assert told["results"] == [alone["results"]]
    assert told["latency"] == told["cycles"]
    assert [core["items"] for core in told["cores"]] == [1, 1]
    result = weft("run", MODEL, "-c", "tiny", "--split", "2", "--system", pair, "-o", "out.npz", folder=tmp_path)
    assert f"{told['latency']:,} cycles for an item, in {told['turns']} turns of 2 cores" in result.stdout
    assert (tmp_path / "out.npz").exists()


def test_what_cores_share_is_compiled_for_their_ports() -> None:
    pair = SystemConfig(cores=(TINY, TINY))
    told = for_system(Path("model.onnx"), {"split": 2}, pair)
    assert told == {"config": TINY, "split": 2, "ports": (0, 0)}
    assert for_system(Path("model.onnx"), {"split": 2, "ports": "0,1"}, pair)["ports"] == "0,1"
    assert for_system(Path("model.onnx"), {"stages": 2}, pair)["ports"] == (0, 0)
    assert "ports" not in for_system(Path("model.onnx"), {}, pair)
    together = SystemConfig(cores=(TINY, TINY), shared_reads=True)
    told = for_system(Path("model.onnx"), {"split": 2}, together)
    assert told == {"config": TINY, "split": 2, "ports": (0, 0), "branches": False}
    assert for_system(Path("model.onnx"), {"split": 2, "branches": True}, together)["branches"] is True
    assert "branches" not in for_system(Path("model.onnx"), {}, together)
    told = for_system(Path("model.onnx"), {"cores": "tiny,tiny"}, pair)
    assert told == {"cores": "tiny,tiny", "ports": (0, 0)}
    mixed = SystemConfig(cores=(TINY, PYNQ))
    told = for_system(Path("model.onnx"), {"stages": 2}, mixed)
    assert told == {"cores": mixed.cores, "stages": 2, "ports": (0, 0)}
    assert for_system(Path("model.onnx"), {"cores": "tiny,pynq"}, mixed) == {"cores": "tiny,pynq", "ports": (0, 0)}


def test_cores_that_are_not_as_many_as_those_of_the_system_are_refused_at_once() -> None:
    mixed = SystemConfig(cores=(TINY, PYNQ), name="mixed")
    text = "--cores: 3 cores are to have a part of the model, but 'mixed' has 2; hint: name 2 cores, or leave it out"
    with pytest.raises(CompileError, match=re.escape(text)):
        for_system(Path("model.onnx"), {"cores": "tiny,pynq,pynq"}, mixed)
    for chosen in ({}, {"cores": "tiny"}, {"cores": (TINY,)}):
        with pytest.raises(CompileError, match="--system: the cores of 'mixed' are unlike, so there is no program"):
            for_system(Path("model.onnx"), chosen, mixed)


@pytest.mark.parametrize("way", ["split", "stages"])
def test_parts_that_are_not_as_many_as_cores_are_refused_at_once(way: str) -> None:
    pair = SystemConfig(cores=(TINY, TINY), name="pair")
    text = f"--{way}: 3 cores are to have a part of the model, but 'pair' has 2; hint: --{way} 2, or leave it out"
    with pytest.raises(CompileError, match=re.escape(text)):
        for_system(Path("model.onnx"), {way: 3}, pair)


def test_an_item_that_is_split_is_started_once_where_cores_start_each_other(pair: Path, tmp_path: Path) -> None:
    pair.write_text('{"name": "pair", "cores": ["tiny", "tiny"], "ports": [0, 1], "relay": true}')
    command = ("run", MODEL, "-c", "tiny", "--split", "2", "--system", pair)
    told = json.loads(weft(*command, "--json", folder=tmp_path).stdout)
    assert (told["starts"], len(told["waits"])) == (1, 2)
    result = weft(*command, folder=tmp_path)
    assert "turns of 2 cores, by 1 start of the host" in result.stdout
    assert "core 1 waited " in result.stdout


@pytest.mark.parametrize("way", ["split", "stages"])
def test_a_model_that_cores_share_is_profiled(way: str, pair: Path, tmp_path: Path) -> None:
    command = ("profile", MODEL, "-c", "tiny", f"--{way}", "2", "--system", pair, "--output", "out")
    result = weft(*command, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    report = (tmp_path / "out" / "report.txt").read_text()
    for text in ("waits for 0", "waits for 1", "turns in which most is lost" if way == "split" else "stages"):
        assert text in report
    assert "what the arrays wait for in programs" in report
    assert "who has the bus" in report
    files = {"report.txt", "timeline.png", "timeline.svg", "trace.perfetto.json.gz"}
    assert {each.name for each in (tmp_path / "out").iterdir()} == files
    told = json.loads(weft(*command, "--memory", "ddr3-1066x16", "--json", folder=tmp_path).stdout)
    assert "what the DRAM did" in (tmp_path / "out" / "report.txt").read_text()
    assert told["dram"]["accesses"] > 0
    assert (told["items"], len(told["cores"]), told["system"]) == (1 if way == "split" else 6, 2, "pair")
    assert all(core["busy"] <= told["cycles"] for core in told["cores"])


def test_cores_are_those_of_the_system_where_none_are_named(pair: Path, tmp_path: Path) -> None:
    command = ("run", MODEL, "--system", pair, "--json")
    assert json.loads(weft(*command, folder=tmp_path).stdout)["cycles_alone"] == 58_801  # of "tiny"
    pair.write_text('{"name": "mixed", "cores": ["tiny", {"wgt_depth": 512}], "ports": [0, 1], "relay": true}')
    told = json.loads(weft(*command, "--stages", "2", folder=tmp_path).stdout)
    one, other = json.loads(weft(*command, "--cores", f"tiny,{_core(tmp_path)}", folder=tmp_path).stdout), told
    assert one == other
    assert told["interval"] < told["cycles_alone"] < 58_801
    alone = json.loads(weft("run", MODEL, "-c", "tiny", "--json", folder=tmp_path).stdout)
    assert told["results"][0] == alone["results"]
    result = weft("profile", MODEL, "--stages", "2", "--system", pair, "--output", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    for way in ((), ("--split", "2")):
        result = weft(*command, *way, folder=tmp_path)
        assert result.returncode == 1
        assert "the cores of 'mixed' are unlike, so there is no program that all of them can run" in result.stderr
        assert "hint: --stages 2 gives each a stage of the model" in result.stderr


def _core(folder: Path) -> Path:
    path = folder / "core.json"
    path.write_text('{"wgt_depth": 512}')
    return path


def test_a_page_has_the_cores_of_a_system(pair: Path, tmp_path: Path) -> None:
    command = ("view", MODEL, "--system", pair, "--output", "out.html")
    result = weft(*command, "--split", "2", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert '"system":"pair"' in (tmp_path / "out.html").read_text().replace(": ", ":")
    for way, text in (((), "each core of 'pair' would have 'digits' whole"), (("--live",), "hint: leave out --live")):
        result = weft(*command, *way, folder=tmp_path)
        assert result.returncode == 1
        assert text in result.stderr


def test_what_is_wrong_is_named(pair: Path, tmp_path: Path) -> None:
    for words, problem in (
        (["--record", "r.wrec"], "--record: a recording has the programs of one core; hint: run without --system"),
        (["--trace", "t.json", "-d", "rtl"], "--trace: the timing model has the trace of several cores, not 'rtl'"),
    ):
        result = weft("run", MODEL, "-c", "tiny", "--system", pair, *words, folder=tmp_path)
        assert result.returncode == 1
        assert problem in result.stderr
    result = weft("run", MODEL, "-c", "pynq", "--system", pair, folder=tmp_path)
    assert "core 0 is a 'tiny'" in result.stderr
    pair.write_text('{"cores": ["tiny", 5]}')
    for command in (("hw",), ("run", MODEL, "-c", "tiny")):
        result = weft(*command, "--system", pair, folder=tmp_path)
        assert result.returncode == 1
        assert "pair.json: cores[1]: 5 is neither the name of a configuration nor an object" in result.stderr


def test_a_system_is_profiled(pair: Path, tmp_path: Path) -> None:
    result = weft("profile", MODEL, "-c", "tiny", "--system", pair, "--output", "out", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    report = (tmp_path / "out" / "report.txt").read_text()
    for text in ("what the others cost each core", "who has the bus", "layers that lose most", "why is it slow"):
        assert text in report
    assert {each.name for each in (tmp_path / "out").iterdir()} >= {
        "report.txt",
        "trace.perfetto.json.gz",
        "timeline.svg",
    }
    told = json.loads(weft("profile", MODEL, "-c", "tiny", "--system", pair, "--json", folder=tmp_path).stdout)
    assert len(told["cores"]) == 2
    assert all(core["waited"] > 0 for core in told["cores"])
    for words, problem in (
        (["--device", "rtl"], "a system is profiled by the timing model, not on 'rtl'"),
        (["--target", "cpu"], "--system is of cores, but the target is 'cpu'"),
        (["-c", "pynq"], "the model is compiled for 'pynq', but core 0 is a 'tiny'"),
    ):
        result = weft("profile", MODEL, "-c", "tiny", "--system", pair, *words, folder=tmp_path)
        assert result.returncode == 1
        assert problem in result.stderr


def test_hw_writes_a_core_or_a_system(pair: Path, tmp_path: Path) -> None:
    result = weft("hw", "-c", "tiny", "--system", pair, folder=tmp_path)
    assert (result.returncode, list(tmp_path.glob("*.v"))) == (1, [])
    assert "error: --config: a system says which cores it has; hint: leave out --config or --system" in result.stderr
