"""A profile on a processor: time, traffic and arithmetic of each kernel, its bound, the picture and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.cli.profile_cpu import roof_here
from weft.compiler.graph import Attrs, Constant, Expr, Function, Module, TensorType, Tuple, Var, call
from weft.compiler.graph.scan import scan
from weft.compiler.targets.cpu.llvm.object_code import object_code
from weft.compiler.targets.cpu.llvm.peak import byte_text, float_text, sums_of
from weft.compiler.targets.cpu.processor import PRETENDED, executable_here, host_target
from weft.runtime.errors import DeviceError
from weft.runtime.machine_roof import MachineRoof, PeakCode
from weft.runtime.module import LoadedModule
from weft.runtime.plots import write_host_plot
from weft.runtime.profile_host import KernelProfile, profile_host

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
ROOF = MachineRoof("a processor", 1, 100.0, 400.0, ((1 << 14, 200.0), (1 << 20, 50.0), (1 << 26, 10.0)))


def kernels_of(body: Expr, *params: Var) -> tuple[KernelProfile, ...]:
    module = Module(Function(params, body, Attrs({"name": "main"})))
    loaded = weft.load(weft.compile(module, target="cpu"))
    assert isinstance(loaded, LoadedModule)
    inputs = {param.name: np.ones(param.type.shape, np.float32) for param in params}
    return profile_host(loaded, inputs, runs=2)


def test_traffic_and_arithmetic_are_those_of_the_kernel() -> None:
    x = Var("x", TensorType((32, 64), "float32"))
    weights = Constant(np.ones((48, 64), np.float32))
    product, *_ = kernels_of(call("nn.dense", x, weights), x)
    assert product.operations == 2 * 32 * 64 * 48
    assert product.nbytes == 4 * (32 * 64 + 64 * 48 + 32 * 48)
    assert product.launches == 1
    assert not product.on_bytes
    assert product.seconds > 0
    (added,) = kernels_of(call("nn.add", x, x), x)  # x is read once
    assert (added.operations, added.nbytes) == (32 * 64, 4 * 2 * 32 * 64)


def test_a_loop_counts_every_round() -> None:
    state, item = (Var(name, TensorType((8,), "float32")) for name in ("state", "item"))
    start, items = Var("start", TensorType((8,), "float32")), Var("items", TensorType((5, 8), "float32"))
    step = Function((state, item), Tuple((call("nn.add", state, item),)), Attrs({"name": "step"}))
    (last,) = scan(step, [start], [items], steps=5)
    (kernel,) = kernels_of(last, start, items)
    assert (kernel.launches, kernel.operations, kernel.nbytes) == (5, 5 * 8, 5 * 3 * 8 * 4)


def test_a_kernel_is_bound_by_what_takes_most_of_its_time() -> None:
    x = Var("x", TensorType((256, 256), "float32"))
    (kernel,) = kernels_of(call("nn.add", x, x), x)  # 65,536 operations, 524,288 bytes at 50 GB/s: 10.5 us
    assert kernel.memory_seconds(ROOF) == pytest.approx(524_288 / 50e9)
    bound = {seconds: replace(kernel, seconds=seconds).bound(ROOF) for seconds in (1e-6, 12e-6, 40e-6)}
    assert bound == {1e-6: "call", 12e-6: "memory", 40e-6: ""}
    busy = replace(kernel, operations=10_000_000, seconds=120e-6)
    assert busy.bound(ROOF) == "compute"
    assert replace(busy, on_bytes=True).bound(ROOF) == ""  # bytes could be four times as fast


@pytest.mark.parametrize("name", executable_here())
def test_the_roof_is_that_of_the_processors_own_products(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRETENDED, name)
    measured: list[tuple[str, int, PeakCode, PeakCode]] = []
    monkeypatch.setattr("weft.cli.profile_cpu.measured_roof", lambda *given: measured.append(given) or ROOF)
    assert roof_here(3) is ROOF
    ((processor, threads, floats, products),) = measured
    target = host_target()
    assert (processor, threads) == (target.cpu, 3)
    assert floats.content == object_code(float_text(target), target)
    assert products.content == object_code(byte_text(target), target)
    assert products.operations == 4 * floats.operations == 2 * target.vector_bytes * sums_of(target)


def test_the_roof_is_measured() -> None:
    roof = roof_here(1)
    assert min(roof.byte_gops, roof.float_gops) > 1
    assert [size for size, _ in roof.gbytes] == sorted(size for size, _ in roof.gbytes)
    assert min(rate for _, rate in roof.gbytes) > 0.1
    assert ROOF.bandwidth(1) == 200
    assert ROOF.bandwidth(1 << 15) == 50
    assert ROOF.bandwidth(1 << 40) == 10


def test_the_picture_has_both_formats_and_the_same_bytes_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    x = Var("x", TensorType((32, 64), "float32"))
    kernels = kernels_of(call("nn.tanh", x), x)
    first, second = (write_host_plot("one", kernels, ROOF, tmp_path, ("svg",))[0].read_bytes() for _ in range(2))
    assert first == second
    assert b"<svg" in first


def test_the_command_writes_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "profile"
    assert (
        run(app, ["profile", str(DIGITS), "--target", "cpu", "--threads", "2", "-o", str(folder), "--json"], err) == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((folder / "kernels.json").read_text())
    assert sum(record["share"] for record in document["kernels"]) == pytest.approx(1)
    assert any(record["operators"][:1] == ["conv2d"] and record["operations"] > 0 for record in document["kernels"])
    assert "conv1" in (folder / "report.txt").read_text()


def test_what_has_no_profile_on_a_processor_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with weft.load(weft.compile(DIGITS)) as module, pytest.raises(DeviceError, match="programs for a core"):
        profile_host(module, {})
    assert run(app, ["profile", str(DIGITS), "--target", "opencl"], err) == 1
    assert "there is no profile for target 'opencl'" in capsys.readouterr().err
