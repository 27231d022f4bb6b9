"""Every cache finds in a second process what the first one made, and nothing that was made from other things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft.cache import made_entries
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call
from weft.compiler.model import HostProgram
from weft.compiler.targets.cpu import build as cpu_build
from weft.compiler.targets.cpu import emit_code
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import host_target
from weft.compiler.targets.gpu import build as gpu_build
from weft.compiler.targets.gpu.devices import DEVICES
from weft.compiler.targets.loops import kept_proofs
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import prepare
from weft.hw import synthesis
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.hw.mac_array_packed import Multipliers
from weft.sim import build as rtl_build
from weft.sim.waves import Waves
from weft.testbench import build as bench_build

from tests.test_content import changed

X = Var("x", TensorType((1, 4, 6, 6), "float32"))
WEIGHTS = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
BODY = call("nn.tanh", call("nn.conv2d", X, Constant(WEIGHTS), pads=(1,) * 4))
MODULE = Module(Function((X,), BODY, Attrs({"outputs": ("y",)})))

START = """
import json, sys
import numpy as np, weft
from weft.cache import made_entries
from tests.cache.test_hits import *
"""

CPU = """
model = weft.compile(MODULE, target="cpu", threads=2)
weft.load(model).run({"x": np.ones((1, 4, 6, 6), np.float32)})
"""

FILE = """
weft.save(weft.compile(MODULE, target="cpu"), sys.argv[1] + ".weft")
weft.load(sys.argv[1] + ".weft")
"""

GPU = """
from weft.compiler.targets.registry import find_target
for name in ("opencl", "cuda"):
    model = weft.compile(MODULE, target=name)
    find_target(name).host_code(model.steps[0].program, trusted=False)
"""

TIMING = """
from weft.sim import timing_library
quick = lambda command: rtl_build.run_compiler([flag.replace("-O3", "-O0") for flag in command])
timing_library.run_compiler = quick
timing_library.timing_library()
"""

TOOLS = """
with replaced_tools() as runs:
    rtl_build.build_library(TINY)
    rtl_build.build_library(PYNQ, Multipliers.PACKED, quick=True)
    for source in rtl_build.RUNTIME_SOURCES:
        rtl_build.runtime_object(source, ("-O2",), None)
    bench_build.build_bench(TINY, Waves.NONE)
    for target in synthesis.Target:
        synthesis.synthesise_verilog("few", VERILOG, target)
assert runs or not made_entries()
"""

VERILOG = """
module weft_core(input clk);
endmodule
"""


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        (CPU, {"cpu"}),
        (FILE, {"cpu", "proofs"}),
        (GPU, {"opencl", "ptx", "proofs"}),
        (TIMING, {"timing"}),
        (TOOLS, {"rtl", "verilator", "cocotb", "synthesis"}),
    ],
    ids=["cpu", "file", "gpu", "timing", "tools"],
)
def test_a_second_process_makes_nothing(script: str, kinds: set[str], tmp_path: Path) -> None:
    """With hashes of texts that differ, and other addresses."""
    made = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", f"{START}{script}\nprint(json.dumps(made_entries()))", str(tmp_path / "file")]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.append(json.loads(done.stdout.splitlines()[-1]))
    assert set(made[0]) == kinds
    assert made[1] == {}


class replaced_tools:  # noqa: N801
    """Runs of tools take no time in the block; what ran is listed."""

    def __enter__(self) -> list[str]:
        runs: list[str] = []
        self.patch = pytest.MonkeyPatch()

        def step(name: str, result: Any = None) -> Callable[..., Any]:
            def run(*arguments: Any, **_: Any) -> Any:
                runs.append(name)
                for each in arguments[-1:]:
                    if name == "compiler" and isinstance(each, list):
                        Path(each[-1]).write_bytes(b"object")
                return result

            return run

        def write(*arguments: Any, **_: Any) -> None:
            runs.append("library")
            next(each for each in reversed(arguments) if isinstance(each, Path)).write_bytes(b"library")

        def compile_library(sources: Any, library: Path, root: Any, *, quick: bool, waves: Any) -> None:
            write(library)

        for module in (rtl_build, bench_build):
            self.patch.setattr(module, "emit_verilog", lambda *shape, **options: f"module {shape}; endmodule")
            self.patch.setattr(module, "run_compiler", step("compiler"))
        self.patch.setattr(rtl_build, "run_verilator", step("verilator", []))
        self.patch.setattr(rtl_build, "compile_library", compile_library)
        self.patch.setattr(bench_build, "_run_verilator", step("verilator", []))
        self.patch.setattr(bench_build, "_compile", write)
        result = synthesis.Synthesis("few", synthesis.Target.XC7, (), None, 1.0)
        self.patch.setattr(synthesis, "_run_whole", step("synthesis", result))
        self.patch.setattr(synthesis, "_run_modules", step("synthesis", result))
        return runs

    def __exit__(self, *_: object) -> None:
        self.patch.undo()


@pytest.fixture
def tools() -> Iterator[list[str]]:
    with replaced_tools() as runs:
        yield runs


def misses(kind: str, *calls: Callable[[], Any]) -> list[int]:
    """Entries that each call makes."""
    counts = []
    for each in calls:
        before = made_entries().get(kind, 0)
        each()
        counts.append(made_entries().get(kind, 0) - before)
    return counts


def variants(record: Any) -> list[Any]:
    """The record with one field changed at a time."""
    return [replace(record, **{each.name: changed(getattr(record, each.name))}) for each in fields(record)]


def kernels() -> HostProgram:
    return link_host(prepare(MODULE), loop_target(host_target()), 1)


def code_variants(code: Any) -> list[Any]:
    return [
        replace(code, symbol="other"), replace(code, text=code.text + " "), replace(code, windows={"x": (1, 2)}),
        replace(code, nbytes=(1,)), replace(code, workspace_bytes=1), replace(code, parts=7),
    ]  # fmt: skip


def test_machine_code_belongs_to_all_that_shaped_it(monkeypatch: pytest.MonkeyPatch) -> None:
    code, host = kernels().kernels[0], host_target()
    monkeypatch.setattr(emit_code, "kernel_object", lambda *_: b"code")

    def load(code: Any = code, target: Any = host, threads: int = 1) -> Callable[[], Any]:
        return lambda: cpu_build._kernel_object(code, target, threads)

    others = [load(code=each) for each in code_variants(code) if (each.nbytes, each.parts) == (code.nbytes, code.parts)]
    others += [load(target=each) for each in variants(host)]
    others += [load(target=replace(host, fusion=each)) for each in variants(host.fusion)]
    others += [load(threads=2)]
    assert misses("cpu", load(), load()) == [1, 0]
    assert misses("cpu", *others) == [1] * len(others)
    assert misses("cpu", *others) == [0] * len(others)
    for name, value in (("llvm.llvm_version_info", (1, 2, 3)), ("llvmlite.__version__", "0"),
                        ("sources_digest", lambda: "other")):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(f"weft.compiler.targets.cpu.llvm.object_code.{name}", value)
            assert misses("cpu", load(), load()) == [1, 0]
    assert misses("cpu", load()) == [0]


def test_proofs_belong_to_all_that_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    code = kernels().kernels[0]
    monkeypatch.setattr(kept_proofs, "check_kernel", lambda *_: kept_proofs.CheckedKernel((), (), ()))

    def prove(code: Any = code, threads: int = 1, elements: Any = None) -> Callable[[], Any]:
        return lambda: kept_proofs._proved(code, threads, elements or {}, intrinsic_named)

    others = [prove(code=each) for each in code_variants(code)]
    others += [prove(threads=2), prove(elements={1: ()}), prove(elements={2: ()}), prove(elements={1: ((0, 3),)})]
    assert misses("proofs", prove(), prove()) == [1, 0]
    assert misses("proofs", *others) == [1] * len(others)
    assert misses("proofs", *others) == [0] * len(others)
    monkeypatch.setattr(kept_proofs, "sources_digest", lambda: "other")
    assert misses("proofs", prove()) == [1]


def test_code_for_gpus_belongs_to_all_that_shaped_it(monkeypatch: pytest.MonkeyPatch) -> None:
    code, device = kernels().kernels[0], DEVICES["sm_90"]
    monkeypatch.setattr(gpu_build, "parse", lambda *_: None)
    monkeypatch.setattr(gpu_build, "grids_of", lambda *_: ())
    monkeypatch.setattr(gpu_build, "ptx_text", lambda *_: "text")

    def ptx(code: Any = code, device: Any = device, aligned: tuple[int, ...] = (16,)) -> Callable[[], Any]:
        return lambda: gpu_build._ptx_kernel(code, device, aligned)

    def opencl(code: Any = code, device: Any = device) -> Callable[[], Any]:
        return lambda: gpu_build._kernel(code, device)

    for kind, load in (("ptx", ptx), ("opencl", opencl)):
        others = [load(code=each) for each in code_variants(code)]  # type: ignore[operator]
        others += [load(device=each) for each in variants(device)]  # type: ignore[operator]
        others += [ptx(aligned=(8,))] if kind == "ptx" else []
        assert misses(kind, load(), load()) == [1, 0]
        assert misses(kind, *others) == [1] * len(others)
        assert misses(kind, *others) == [0] * len(others)
    monkeypatch.setattr(gpu_build, "sources_digest", lambda: "other")
    assert misses("ptx", ptx()) + misses("opencl", opencl()) == [1, 1]


OTHER_CORES = [
    replace(TINY, inp_depth=1024), replace(TINY, queue_depth=32), replace(TINY, bus_bits=128),
    replace(TINY, wgt_depth=512), replace(TINY, out_depth=256), replace(TINY, block_in=8), PYNQ,
]  # fmt: skip


def test_simulators_belong_to_all_that_shaped_them(monkeypatch: pytest.MonkeyPatch, tools: list[str]) -> None:
    def build(config: CoreConfig = TINY, *multipliers: Multipliers, quick: bool = False) -> Callable[[], Any]:
        return lambda: rtl_build.build_library(config, *multipliers, quick=quick)

    assert misses("rtl", build(), build(), build(replace(TINY, name="other"))) == [2, 0, 0]  # library and its key
    others = [build(each) for each in OTHER_CORES] + [build(TINY, Multipliers.PACKED)]
    assert misses("rtl", *others, build(quick=True)) == [2] * (len(others) + 1)
    changes = {
        "compiler_version": lambda: "c++ 99",
        "verilator_version": lambda: "9",
        "compiler_flags": lambda: ("-g",),
    }
    for name, value in changes.items():
        rtl_build.source_digest.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(rtl_build, name, value)
            assert misses("rtl", build(), build()) == [2, 0]
        rtl_build.source_digest.cache_clear()
    assert misses("rtl", build()) == [0]


def test_benches_belong_to_all_that_shaped_them(monkeypatch: pytest.MonkeyPatch, tools: list[str]) -> None:
    def build(config: CoreConfig = TINY, waves: Waves = Waves.NONE) -> Callable[[], Any]:
        return lambda: bench_build.build_bench(config, waves)

    assert misses("cocotb", build(), build(), build(replace(TINY, name="other"))) == [1, 0, 0]
    others = [*(build(each) for each in OTHER_CORES), build(waves=Waves.VCD), build(waves=Waves.FST)]
    assert misses("cocotb", *others) == [1] * len(others)
    monkeypatch.setattr(bench_build, "compiler_version", lambda: "c++ 99")
    assert misses("cocotb", build(), build()) == [1, 0]


def test_synthesis_belongs_to_all_that_shaped_it(
    monkeypatch: pytest.MonkeyPatch, tools: list[str], tmp_path: Path
) -> None:
    cells = [tmp_path / "first.lib", tmp_path / "second.lib"]
    for number, path in enumerate(cells):
        path.write_text(f"library (l) {{ {number} }}")

    def run(
        verilog: str = VERILOG, target: synthesis.Target = synthesis.Target.ASIC, liberty: Path | None = None
    ) -> Callable[[], Any]:
        return lambda: synthesis.synthesise_verilog("few", verilog, target, liberty=liberty)

    others = [run(VERILOG + "\n"), run(target=synthesis.Target.XC7), *(run(liberty=path) for path in cells)]
    assert misses("synthesis", run(), run()) == [1, 0]
    assert misses("synthesis", *others) == [1] * len(others)
    assert misses("synthesis", *others) == [0] * len(others)
    monkeypatch.setattr(synthesis, "_versions", lambda _: ["yosys 99"])
    assert misses("synthesis", run()) == [1]
