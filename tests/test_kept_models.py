"""Compiled models from the cache: found by another process, equal to what was compiled, and never a stale one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft import kept_models
from weft.cache import made_entries
from weft.compiler import compile as compiling
from weft.compiler.model import CompiledModel, HostStep, OpenModel
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here, host_target
from weft.compiler.targets.registry import find_target
from weft.hw.config import PYNQ, TINY
from weft.hw.dram_rate import DramRate
from weft.kept_models import Wish, compile_kept

from benchmarks.zoo.litert_networks import digits

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
WEIGHTS = np.linspace(-2, 2, 20, dtype=np.float32).reshape(4, 5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def network(weights: np.ndarray = WEIGHTS, rows: int | str = 3) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 5])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(path: Path, weights: np.ndarray = WEIGHTS, *, beside: bool = False) -> Path:
    """A network in a file; its weights in another one, if ``beside``."""
    model = network(weights)
    if beside:
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    else:
        onnx.save(model, path)
    for each in (path, path.with_name("weights.bin")):  # not of the moment in which the compilation begins
        if each.exists():
            os.utime(each, (1e9, 1e9))
    return path


def compiled(model: Any, **options: Any) -> tuple[CompiledModel, bool]:
    """The model, and whether it was compiled now."""
    before = made_entries().get("models", 0)
    found = weft.compile(model, **{"target": "cpu", **options})
    assert isinstance(found, CompiledModel)
    return found, made_entries().get("models", 0) > before


def result(model: CompiledModel) -> np.ndarray:
    return weft.load(model).run({"x": X})["y"]


@pytest.mark.skipif(len(executable_here()) < 3, reason="this machine executes one named processor's code, or none")
def test_each_processor_has_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine is taken for may change in a process: the first one's code stayed in use for all others."""
    path = written(folder / "net.onnx")
    for name in (*executable_here()[1:3], executable_here()[1]):
        monkeypatch.setenv(PRETENDED, name)
        model, _ = compiled(path)
        assert {step.program.processor for step in model.steps if isinstance(step, HostStep)} == {host_target().name}


def test_a_file_of_another_format_may_hold_the_word_of_files_with_weights(folder: Path) -> None:
    """A LiteRT file has no files beside it, even where the word ``location`` stands in it."""
    path = folder / "net.tflite"
    path.write_bytes(digits().model + b" location ")
    assert compiled(path)[1]
    assert not compiled(path)[1]


@pytest.mark.parametrize("beside", [False, True])
def test_a_model_is_compiled_once(folder: Path, beside: bool) -> None:
    path = written(folder / "net.onnx", beside=beside)
    first, made = compiled(path)
    second, again = compiled(str(path))
    assert (made, again) == (True, False)
    np.testing.assert_array_equal(result(second), result(first))
    np.testing.assert_allclose(result(second), np.tanh(X @ WEIGHTS), rtol=1e-5)
    assert second.name == "net"
    assert replace(second, statistics={}, steps=()) == replace(first, statistics={}, steps=())
    assert second.statistics.keys() == first.statistics.keys()


def test_bytes_of_a_file_are_a_model_too(folder: Path) -> None:
    content = network().SerializeToString()
    assert [compiled(content)[1], compiled(content)[1]] == [True, False]
    assert compiled(written(folder / "net.onnx"))[0].name == "net"


SECOND = """
import json, sys
import numpy as np, weft
from weft.cache import made_entries
model = weft.compile(sys.argv[1], target=sys.argv[2], **json.loads(sys.argv[3]))
module = weft.load(model)
inputs = {each.name: np.ones(each.shape, each.dtype) for each in model.inputs}
total = float(sum(value.astype(float).sum() for value in module.run(inputs).values()))
print(json.dumps([total, made_entries(), sorted(name for name in sys.modules if name.startswith("weft."))]))
"""


@pytest.mark.parametrize(
    ("target", "options"), [("cpu", {}), ("cpu", {"threads": 2}), ("accel", {"config": "tiny"})], ids=str
)
def test_another_process_makes_nothing(target: str, options: dict[str, Any]) -> None:
    runs = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SECOND, str(DIGITS), target, json.dumps(options)]
        done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    (first, made, _), (second, again, modules) = runs
    assert (made["models"], again) == (1, {})
    assert first == second
    assert not [name for name in modules if name.startswith(("weft.compiler.passes", "weft.compiler.frontends"))]
    if target == "cpu":
        assert "weft.compiler.operators" not in modules
        assert len(modules) <= 70, modules


def test_whatever_a_compilation_reads_takes_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder / "net.onnx")
    assert compiled(path)[1]
    other_weights = WEIGHTS.copy()
    other_weights[3, 4] += 1
    calls: list[Callable[[], bool]] = [
        lambda: compiled(path, threads=2)[1],
        lambda: compiled(path, integers="all")[1],
        lambda: compiled(path, target="opencl")[1],
        lambda: compiled(path, target="cuda")[1],
        lambda: compiled(path, target="cuda", gpu="sm_90")[1],
        lambda: compiled(path, keep=True)[1],
        lambda: compiled(path, strict=True)[1],
        lambda: compiled(path, shapes={"x": (3, 4)})[1],
        lambda: compiled(shutil.copy2(path, folder / "other.onnx"))[1],  # the model's name
        lambda: compiled(written(folder / "net.onnx", other_weights))[1],
    ]
    for number, call in enumerate(calls):
        assert (call(), call()) == (True, False), number
    path = written(folder / "net.onnx")
    assert not compiled(path)[1]
    surroundings = kept_models._surroundings()
    for number in range(len(surroundings)):
        changed = (*surroundings[:number], "changed", *surroundings[number + 1 :])
        monkeypatch.setattr(kept_models, "_surroundings", lambda changed=changed: changed)
        assert (compiled(path)[1], compiled(path)[1]) == (True, False)
    monkeypatch.setattr(kept_models, "_surroundings", lambda: surroundings)
    assert not compiled(path)[1]


def test_weights_in_another_file_take_part(folder: Path) -> None:
    path = written(folder / "net.onnx", beside=True)
    assert [compiled(path)[1], compiled(path)[1]] == [True, False]
    raw = bytearray((folder / "weights.bin").read_bytes())
    raw[3] ^= 0x40
    (folder / "weights.bin").write_bytes(raw)
    os.utime(folder / "weights.bin", (1e9, 1e9))
    changed, made = compiled(path)
    assert made
    weights = np.frombuffer(bytes(raw), np.float32, 20).reshape(4, 5)
    np.testing.assert_allclose(result(changed), np.tanh(X @ weights), rtol=1e-5)
    (folder / "weights.bin").unlink()
    with pytest.raises(weft.WeftError):
        compiled(path)


def test_files_that_options_name_take_part(folder: Path) -> None:
    core = folder / "core.json"
    core.write_text(TINY.to_json())
    assert [compiled(DIGITS, target="accel", config=str(core))[1] for _ in range(2)] == [True, False]
    values = json.loads(core.read_text())
    core.write_text(json.dumps({**values, "queue_depth": 32}))
    model, made = compiled(DIGITS, target="accel", config=str(core))
    assert made
    assert model.config.queue_depth == 32
    assert [compiled(DIGITS, target="accel", config=each)[1] for each in ("tiny", "tiny", TINY, PYNQ)] == [
        True, False, True, True
    ]  # fmt: skip
    rates = ("4", "4,200", DramRate(bytes_per_cycle=4), DramRate(bytes_per_cycle=4, latency=200))
    assert all(compiled(DIGITS, target="accel", config="tiny", dram=rate)[1] for rate in rates)


def test_a_tuning_database_takes_part(folder: Path) -> None:
    from weft.compiler.tune.database import Database, Key

    path, database = written(folder / "net.onnx"), folder / "tuned.sqlite"
    Database(database).close()
    assert [compiled(path, tuned=str(database))[1] for _ in range(2)] == [True, False]
    with Database(database) as opened:
        opened.add(Key("a", "b", "c", "d"), {"x": 1}, 1.0)
    assert compiled(path, tuned=str(database))[1]
    with pytest.raises(weft.WeftError, match="no tuning database"):
        compiled(path, tuned=str(folder / "missing.sqlite"))


@pytest.mark.parametrize("which", ["net.onnx", "weights.bin"])
def test_a_file_that_changes_meanwhile_is_not_believed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    path = written(folder / "net.onnx", beside=True)
    real = compiling.compile_model

    def slow(*arguments: Any, **others: Any) -> Any:
        made = real(*arguments, **others)
        (folder / which).write_bytes((folder / which).read_bytes())
        os.utime(folder / which, (1e9, 1e9))
        return made

    monkeypatch.setattr(compiling, "compile_model", slow)
    compiled(path)
    monkeypatch.setattr(compiling, "compile_model", real)
    assert [compiled(path)[1], compiled(path)[1]] == [True, False]


def test_what_cannot_be_told_apart_is_compiled_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(folder / "net.onnx")
    compiled(path)
    assert not compiled(onnx.load(path))[1]  # a model in memory makes no entry
    assert not compiled(path, dump=folder / "dump")[1]
    assert list((folder / "dump").iterdir())
    monkeypatch.setattr(compiling, "compile_model", lambda *_, **__: pytest.fail("compiled"))
    compiled(path)
    with pytest.raises(pytest.fail.Exception):
        compiled(path, cache=False)
    with pytest.raises(pytest.fail.Exception):
        compile_kept(path, find_target("cpu"), {})
    monkeypatch.setenv("WEFT_CACHE_LIMIT", "0")
    with pytest.raises(pytest.fail.Exception):
        compiled(path)


@pytest.mark.parametrize("group", ["weft.operators", "weft.frontends"])
def test_code_from_outside_may_change_so_nothing_is_kept_beside_it(
    folder: Path, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder / "net.onnx")
    information = folder / "site" / "outside-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\nmine = outside:mine\n")
    (folder / "site" / "outside.py").write_text("def mine(model):\n    return None\n")
    monkeypatch.syspath_prepend(folder / "site")
    compiled(path)
    monkeypatch.setattr(compiling, "compile_model", lambda *_, **__: pytest.fail("compiled"))
    with pytest.raises(pytest.fail.Exception):
        compiled(path)


def test_open_sizes_are_compiled_as_before(folder: Path) -> None:
    onnx.save(network(rows="n"), folder / "open.onnx")
    model = weft.compile(folder / "open.onnx", target="cpu")
    assert isinstance(model, OpenModel)
    fixed = [compiled(folder / "open.onnx", shapes={"x": (rows, 4)}) for rows in (2, 3, 2)]
    assert [made for _, made in fixed] == [True, True, False]
    assert [model.inputs[0].shape for model, _ in fixed] == [(2, 4), (3, 4), (2, 4)]


def test_errors_are_told_each_time(folder: Path) -> None:
    path = written(folder / "net.onnx")
    for _ in range(2):
        with pytest.raises(weft.WeftError, match="threads is 0"):
            compiled(path, threads=0)
        with pytest.raises(weft.WeftError, match="no option 'depth'"):
            compiled(path, depth=1)
        with pytest.raises(weft.WeftError, match="cannot be read"):
            compiled(folder / "missing.onnx")
        with pytest.raises(weft.WeftError):
            compiled(folder)


def test_a_damaged_entry_is_made_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(folder / "net.onnx")
    expected = result(compiled(path)[0])
    (entry,) = (folder / "cache" / "models").iterdir()
    entry.write_bytes(entry.read_bytes()[:-40])
    again, made = compiled(path)
    assert made
    assert "is damaged" in capfd.readouterr().err
    np.testing.assert_array_equal(result(again), expected)


def test_what_is_wished_takes_part(folder: Path) -> None:
    wishes = [Wish(), Wish(strict=True), Wish(keep=True), Wish(measured=False)]
    for wish in wishes:
        before = made_entries().get("models", 0)
        for _ in range(2):
            compile_kept(DIGITS, "accel", {"config": "tiny"}, wish=wish)
        assert made_entries()["models"] == before + 1
