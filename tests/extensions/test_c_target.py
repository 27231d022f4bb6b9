"""A target that one file outside of weft adds (`c_target.py`, which the manual shows) works everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.compile import compile_model
from weft.compiler.frontends import read
from weft.compiler.graph import Attrs, Function, Module, Span, Tuple, Var, dtypes, evaluate, topological_order
from weft.compiler.graph.visit import respan, substitute
from weft.compiler.model import HostStep
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.operators.samples import all_samples
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.fusion import why_not_compiled
from weft.compiler.targets.loops.prepare import prepare

ROOT = Path(weft.__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
FILE = Path(__file__).with_name("c_target.py")
Command = Callable[..., Any]


@pytest.fixture
def c_target(extensions: None) -> ModuleType:
    module = import_module("c_target")
    weft.register_target(module.CTarget())
    return module


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_an_elementwise_network_is_one_kernel_in_c(c_target: ModuleType, elementwise: Path) -> None:
    model = weft.compile(elementwise, target="c", strict=True)
    (layer,) = model.layers
    assert (layer.device, layer.operators) == ("cpu", ("nn.multiply", "nn.sigmoid", "nn.maximum"))
    x = random((4, 6))
    wanted = evaluate(read(elementwise).module({}, require_quantised=False), {"x": x})["y"]
    np.testing.assert_allclose(weft.load(model).run({"x": x})["y"], wanted, rtol=1e-6)


def test_its_option_is_a_keyword(c_target: ModuleType, elementwise: Path) -> None:
    options: dict[str, Any] = {"compiler": "cc"}
    model = weft.compile(elementwise, target="c", **options)
    (step,) = model.steps
    assert step.program.processor == "cc"
    with pytest.raises(CompileError, match="target 'c' has no option 'threads'; hint: its options: compiler"):
        weft.compile(elementwise, target="c", threads=2)


def test_what_it_cannot_do_runs_in_numpy_with_the_reason(c_target: ModuleType, mixed: Path) -> None:
    model = weft.compile(mixed, target="c")
    assert [(layer.device, layer.operators) for layer in model.layers] == [
        ("cpu", ("nn.exp",)), ("numpy", ("nn.softmax",)), ("cpu", ("nn.multiply",)),
    ]  # fmt: skip
    assert model.layers[1].reason == "target 'c' has elementwise kernels only, and nn.softmax is none"
    x = random((4, 6))
    wanted = evaluate(read(mixed).module({}, require_quantised=False), {"x": x})["y"]
    np.testing.assert_allclose(weft.load(model).run({"x": x})["y"], wanted, rtol=1e-6)
    with pytest.raises(CompileError, match="node 'softmax': NumPy would run it: target 'c' has elementwise kernels"):
        weft.compile(mixed, target="c", strict=True)


def test_a_quantised_network_gives_the_integers_of_the_cpu(c_target: ModuleType) -> None:
    image = {"image": np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)}
    ours, theirs = (weft.load(weft.compile(DIGITS, target=name)).run(image)["logits"] for name in ("c", "cpu"))
    np.testing.assert_array_equal(ours, theirs)


SPECIAL = (0, -0.0, 1, -1, 2, 3, 100, 0.5, -0.25, 1e30, np.inf, -np.inf, np.nan)


def awkward(param: Var, generator: np.random.Generator) -> np.ndarray:
    """Values that C, left to itself, gets wrong."""
    dtype, shape = param.type.dtype, param.type.shape
    if dtypes.is_float(dtype):
        return generator.choice(SPECIAL, shape).astype(dtypes.numpy_dtype(dtype))
    ends = np.array([*dtypes.limits(dtype), 0, 1] if dtype != "bool" else [0, 1], object)
    return np.asarray(generator.choice(ends, shape)).astype(dtypes.numpy_dtype(dtype))


def test_every_operator_that_it_accepts_is_to_the_bit_or_step_what_it_means(c_target: ModuleType) -> None:
    """Also at infinity, at nan, and at the ends of integers."""
    nodes = [
        respan(node, Span(tensor=f"{node.op}.{dtype}"))
        for calls in all_samples().values() for dtype, node in calls.items()
        if not (c_target.why_not(node) or why_not_compiled(node))
    ]  # fmt: skip
    assert len(nodes) > 150
    params = {item: None for node in nodes for item in topological_order(node) if isinstance(item, Var)}
    named = {param: replace(param, name=f"x{number}") for number, param in enumerate(params)}
    body = Tuple(tuple(substitute(node, dict(named)) for node in nodes))
    attrs = Attrs({"name": "main", "outputs": tuple(node.span.tensor for node in nodes)})
    module = Module(Function(tuple(named.values()), body, attrs), "operators")
    model = weft.compile(module, target="c", strict=True)
    assert {name for layer in model.layers for name in layer.operators} == {str(node.op) for node in nodes}
    generator, loaded = np.random.default_rng(0), weft.load(model)
    for _ in range(3):
        values = {param.name: awkward(param, generator) for param in module.main.params}
        with np.errstate(all="ignore"):
            wanted = evaluate(module, values)
        for name, result in loaded.run(values).items():
            if dtypes.is_float(result.dtype.name):
                np.testing.assert_allclose(result, wanted[name], rtol=2e-6, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(result, wanted[name], err_msg=name)


def test_random_graphs_of_all_operators(c_target: ModuleType) -> None:
    in_c = 0
    for seed in range(6):
        graph = random_graph(seed, 8)
        model = compile_model(prepare(graph.module), "c")
        assert isinstance(model, weft.CompiledModel)
        in_c += sum(layer.device == "cpu" for layer in model.layers)
        results = weft.load(model).run({each.name: graph.inputs[each.name] for each in model.inputs})
        for name, wanted in evaluate(graph.module, graph.inputs).items():
            tolerance = 0.0 if not dtypes.is_float(wanted.dtype.name) else 2e-2 if wanted.dtype.itemsize == 2 else 1e-4
            ours, theirs = results[name].astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max(initial=1))
    assert in_c > 6


# The command


def test_the_command_knows_it(c_target: ModuleType, mixed: Path, weft_command: Command) -> None:
    agreed = weft_command("compare", "c", "cpu", mixed)
    assert agreed.status == 0
    assert "all 2 tensors agree" in agreed.out
    listed = weft_command("passes", "--target", "c")
    assert "c: quantised models" in listed.out
    assert "legalise" in listed.out
    assert "c: float models" in listed.out
    result = weft_command("run", "--target", "c", "--compiler", "g++", mixed)
    assert result.status == 0, result.err
    assert "mixed on target c, 1 thread: placement" in result.out
    assert "1 layer on numpy: target 'c' has elementwise kernels only, and nn.softmax is none (softmax)" in result.out
    assert "ms a run" in result.out


def test_the_command_refuses_what_it_does_not_have(c_target: ModuleType, mixed: Path, weft_command: Command) -> None:
    for words, message in (
        ("run --target c --threads 3", "target 'c' has no option --threads; hint: its options: --compiler"),
        ("run --target c --compiler rm", "'rm' is no compiler of C; hint: choose gcc, g++, cc, c++, clang"),
        ("compile --target c --strict", "node 'softmax': NumPy would run it: target 'c' has elementwise"),
        ("run --target cpu --compiler gcc", "target 'cpu' has no option --compiler; hint: its options: --threads"),
    ):
        result = weft_command(*words.split(), mixed)
        assert result.status == 1
        assert f"error: {message}" in result.err
    assert not mixed.with_suffix(".weft").exists()


def test_its_option_reaches_the_compiler(
    c_target: ModuleType, elementwise: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def run(command: list[str], **options: Any) -> Any:
        started.append(command[0])
        raise FileNotFoundError(2, "No such file or directory")

    model = compile_model(elementwise, "c", {"compiler": "clang"})
    assert isinstance(model, weft.CompiledModel)
    monkeypatch.setattr(c_target.subprocess, "run", run)
    with pytest.raises(CompileError, match="clang cannot be run: No such file or directory; hint: choose another"):
        weft.load(model)
    assert started == ["clang"]


# Artifacts and entry points


def test_an_artifact_loads_where_the_target_is_and_nowhere_else(installed: Path, mixed: Path, tmp_path: Path) -> None:
    """In new processes: with the installed package, and without."""
    path = tmp_path / "mixed.weft"
    model = weft.compile(mixed, target="c")
    weft.save(model, path)
    np.save(tmp_path / "x.npy", random((4, 6)))

    def run(*folders: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        words = ["run", str(path), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz")]
        command = [sys.executable, "-m", "weft", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    with_it, without = run(installed, FILE.parent), run()
    assert with_it.returncode == 0, with_it.stderr
    wanted = weft.load(model).run({"x": random((4, 6))})["y"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], wanted)
    assert without.returncode == 1
    message = "there is no target 'c'; hint: known: accel, cpu, opencl, cuda, or install the package that adds it"
    assert message in " ".join(without.stderr.split())


def test_a_file_names_no_command_to_run_and_no_threads(c_target: ModuleType, elementwise: Path) -> None:
    model = weft.compile(elementwise, target="c")
    (step,) = model.steps
    assert isinstance(step, HostStep)
    changes: dict[str, dict[str, Any]] = {"'rm' is no compiler": {"processor": "rm"}, "not on 2": {"threads": 2}}
    for message, change in changes.items():
        program = replace(step.program, **change)
        with pytest.raises(CompileError, match=message):
            weft.load(replace(model, steps=(replace(step, program=program),)))


def test_an_installed_target_needs_no_import(installed: Path, elementwise: Path, weft_command: Command) -> None:
    assert weft_command("compile", elementwise, "--target", "c", "--compiler", "cc").status == 0
    record = weft_command("run", elementwise.with_suffix(".weft"), "--json").json
    assert (record["target"], record["layers"][0]["on"]) == ("c", "cpu")
    assert "The compiler of C: gcc" in weft_command("run", "--help").out


def test_a_name_belongs_to_one_target(c_target: ModuleType) -> None:
    with pytest.raises(CompileError, match="there is a target 'c' already"):
        weft.register_target(c_target.CTarget())


def test_a_target_that_cannot_be_loaded_is_named(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = next(installed.glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[weft.targets]\nbroken = c_target:Nothing\n")
    message = r"target 'broken' \(c_target:Nothing\) cannot be loaded: AttributeError: module 'c_target' has no"
    with pytest.raises(CompileError, match=message):
        weft.compile("model.onnx", target="broken")


def test_the_manual_quotes_this_very_file() -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    (quoted,) = [code for code in shown if "class CTarget" in code]
    assert "class COptions" in quoted
    assert "def why_not" in quoted
    assert quoted in FILE.read_text()
    assert len(FILE.read_text().splitlines()) <= 220


TOOLS = """
from weft.cli.output import err
from weft.progress import progress

def profile(request):
    with progress("reading", err) as status:
        model = request.compiled(request.given(status), request.options(), status)
    print(f"{model.name}: {len(model.layers)} layer")

def tune(request):
    with progress("reading", err) as status:
        module = request.prepared(status)
    print(f"{len(module.main.params)} input, {request.budget.trials} trials, by {request.options.compiler}")
"""


@pytest.fixture
def tools(c_target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the target offers to ``weft profile`` and ``weft tune``, in a file of its own."""
    (tmp_path / "c_tools.py").write_text(TOOLS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "c_tools", raising=False)
    found = {"profile": "c_tools:profile", "tune": "c_tools:tune"}
    monkeypatch.setattr(c_target.CTarget, "tools", found, raising=False)
    return found


def test_commands_ask_it_for_its_tools(tools: dict[str, str], elementwise: Path, weft_command: Command) -> None:
    profiled = weft_command("profile", elementwise, "--target", "c")
    assert (profiled.status, profiled.out) == (0, "elementwise: 1 layer"), profiled.err
    tuned = weft_command("tune", elementwise, "--target", "c", "--compiler", "cc", "--trials", "7")
    assert (tuned.status, tuned.out) == (0, "1 input, 7 trials, by cc"), tuned.err


def test_a_tool_that_is_not_there_is_named(tools: dict[str, str], elementwise: Path, weft_command: Command) -> None:
    tools["tune"] = "c_tools:search"
    refused = weft_command("tune", elementwise, "--target", "c")
    assert refused.status != 0
    assert "the tool 'c_tools:search' of target 'c' cannot be loaded" in refused.err
    del tools["tune"]
    refused = weft_command("tune", elementwise, "--target", "c")
    assert "target 'c' has no schedules to choose from that can be measured here; hint: tune for accel" in refused.err
