"""Models on a device with OpenCL: from threads, after errors, in other processes, and where there is none."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, Span, TensorType, Var, call, evaluate
from weft.compiler.graph.visit import respan
from weft.compiler.model import GpuCode
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.registry import find_target
from weft.runtime.artifact import save
from weft.runtime.errors import DeviceError, InputError
from weft.runtime.gpu import opencl
from weft.runtime.gpu.executor import GpuExecutor

from tests.threads import in_threads

X = Var("x", TensorType((3, 40), "float32"))
I = Var("i", TensorType((2,), "int64"))  # noqa: E741 - as in "index"


@pytest.fixture(autouse=True)
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(opencl.OPTIONS_VARIABLE, "-cl-opt-disable")


def module_of(params: Sequence[Var], body: Expr) -> Module:
    return prepare(Module(Function(tuple(params), body, Attrs({"name": "main", "outputs": ("y",)}))))


def compiled(module: Module) -> weft.CompiledModel:
    model = weft.compile(module, target="opencl")
    assert isinstance(model, weft.CompiledModel)
    return model


def numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, 40)).astype(np.float32)


SOFTMAX = module_of([X], call("nn.softmax", X, axis=1))


def test_runs_from_several_threads_do_not_meet() -> None:
    module = weft.load(compiled(SOFTMAX))
    wanted = [evaluate(SOFTMAX, {"x": numbers(seed)})["y"] for seed in range(4)]

    def work(seed: int) -> None:
        for _ in range(20):
            np.testing.assert_allclose(module.run({"x": numbers(seed)})["y"], wanted[seed], atol=1e-6)

    in_threads(work)


def test_what_has_no_kernel_runs_in_numpy_between_kernels() -> None:
    matrix = Var("x", TensorType((2, 3, 3), "float32"))
    module = module_of([matrix], call("nn.exp", call("nn.inverse", call("nn.abs", matrix))))
    model = compiled(module)
    assert [layer.device for layer in model.layers] == ["gpu", "numpy", "gpu"]
    x = np.random.default_rng(1).normal(size=(2, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(weft.load(model).run({"x": x})["y"], evaluate(module, {"x": x})["y"], rtol=1e-4)
    with pytest.raises(weft.WeftError, match="NumPy would run it"):
        weft.compile(module, target="opencl", strict=True)


def test_an_index_outside_of_its_axis_is_refused_and_the_next_run_is_right() -> None:
    module = module_of([X, I], call("gather", X, respan(I, Span(("i",), "i")), axis=1))
    loaded = weft.load(compiled(module))
    values = {"x": numbers(), "i": np.array([1, 40], np.int64)}
    with pytest.raises(InputError, match="index 40 is outside of an axis of 40 elements"):
        loaded.run(values)
    values["i"] = np.array([1, -40], np.int64)
    np.testing.assert_array_equal(loaded.run(values)["y"], values["x"][:, [1, -40]])


def test_a_traced_run_gives_the_seconds_of_each_layer() -> None:
    model = compiled(SOFTMAX)
    loaded = weft.load(model)
    loaded.run({"x": numbers()}, trace=True)
    assert len(loaded.seconds) == len(model.layers)
    assert all(seconds > 0 for seconds in loaded.seconds)


def test_results_and_every_value_between_kernels_can_be_kept(tmp_path: Path) -> None:
    """An artifact is the same file as for a CPU, and is proved before its kernels run."""
    doubled = call("nn.matmul", call("nn.exp", X, span=Span(("e",), "e")), Constant(np.ones((40, 2), np.float32)))
    module = module_of([X], doubled)
    kept = weft.compile(module, target="opencl", keep=True)
    assert isinstance(kept, weft.CompiledModel)
    save(kept, tmp_path / "model.weft")
    values = weft.load(tmp_path / "model.weft").run({"x": numbers()}, keep=True)
    np.testing.assert_allclose(values["e"], np.exp(numbers()), rtol=1e-5)
    np.testing.assert_allclose(values["y"], np.exp(numbers()) @ np.ones((40, 2)), rtol=1e-4)


def test_empty_tensors_pass() -> None:
    empty = Var("x", TensorType((0, 4), "float32"))
    loaded = weft.load(compiled(module_of([empty], call("nn.exp", empty))))
    assert loaded.run({"x": np.zeros((0, 4), np.float32)})["y"].shape == (0, 4)


# Devices


def test_a_device_is_chosen_by_number_or_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled(SOFTMAX)
    wanted = evaluate(SOFTMAX, {"x": numbers()})["y"]
    np.testing.assert_allclose(weft.load(model, device="0").run({"x": numbers()})["y"], wanted, atol=1e-6)
    with pytest.raises(DeviceError, match=r"there is no OpenCL device '77'; hint: the devices: 0: "):
        weft.load(model, device="77")
    monkeypatch.setenv(opencl.DEVICE_VARIABLE, "first")
    with pytest.raises(DeviceError, match="there is no OpenCL device 'first'"):
        weft.load(model)


def test_a_model_for_the_cpu_takes_no_device() -> None:
    with pytest.raises(DeviceError, match="runs on a GPU, so device '0' has nothing to do"):
        weft.load(weft.compile(SOFTMAX, target="cpu"), device="0")


def test_a_core_is_no_device_for_it() -> None:
    with pytest.raises(DeviceError, match="device 'fsim' has nothing to do"):
        weft.load(compiled(SOFTMAX), device="fsim")


WITHOUT = """
import sys, numpy as np
{before}
import weft
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call
x = Var("x", TensorType((4,), "float32"))
main = Function((x,), call("nn.exp", x), Attrs({{"name": "main", "outputs": ("y",)}}))
try:
    weft.load(weft.compile(Module(main, "operators"), target="opencl"))
except weft.WeftError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("before", "drivers", "says"),
    [
        ("sys.modules['pyopencl'] = None", "", "needs the package pyopencl; hint: pip install 'weft[opencl]'"),
        ("", "/nonexistent", "no device with a driver for OpenCL; hint: install the driver of the GPU's vendor; for "
         "this machine's processor: apt-get install pocl-opencl-icd"),
    ],
    ids=["package", "driver"],
)  # fmt: skip
def test_what_is_missing_is_said(before: str, drivers: str, says: str) -> None:
    environment = {**os.environ, **({"OCL_ICD_VENDORS": drivers} if drivers else {})}
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(before=before)], capture_output=True, text=True,
                          env=environment, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("DeviceError ")
    assert says in done.stdout


def test_a_forked_process_is_refused() -> None:
    module = weft.load(compiled(SOFTMAX))
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        said = []
        for attempt in (lambda: module.run({"x": numbers()}), lambda: weft.load(compiled(SOFTMAX))):
            try:
                attempt()
                said.append("nothing")
            except DeviceError as error:
                said.append(error.message)
        theirs.send(said)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert ours.poll(60)
    said = ours.recv()
    process.join()
    assert "loaded before this process was forked" in said[0]
    assert "forked from one that used OpenCL" in said[1]


# What a driver refuses


def broken(change: Any) -> None:
    """Load a model of which ``change`` spoils the code."""
    program = compiled(SOFTMAX).steps[0].program  # type: ignore[union-attr]
    code = find_target("opencl").host_code(program, trusted=True)
    assert isinstance(code, GpuCode)
    GpuExecutor(program, change(code), opencl.open_opencl())


def test_text_that_a_driver_does_not_compile_is_an_error_of_the_device() -> None:
    with pytest.raises(DeviceError, match="refuses the kernels"):
        broken(lambda code: GpuCode("opencl", code.text + "what", code.calls))


def test_a_launch_that_fails_names_kernel_and_node() -> None:
    def without_functions(code: GpuCode) -> GpuCode:
        return GpuCode("opencl", "__kernel void other(void) {}", code.calls)

    with pytest.raises(DeviceError, match=r"kernel 'weft_[0-9a-f]+' of '.*softmax.*': preparing fails on "):
        broken(without_functions)
