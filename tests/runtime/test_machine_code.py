"""Code in processes whose memory is spread out further than an instruction reaches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Constant, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.targets.cpu.build import build_program
from weft.compiler.targets.loops.prepare import prepare
from weft.runtime import machine_code
from weft.runtime.host import HostExecutor

X = Var("x", TensorType((64, 48), "float32"))
WEIGHTS = Constant(np.random.default_rng(0).normal(size=(48, 32)).astype(np.float32))
BODY = call("nn.softmax", call("nn.tanh", call("nn.matmul", X, WEIGHTS)), axis=1)
MODULE = Module(Function((X,), BODY, Attrs({"name": "main", "outputs": ("y",)})))
VALUE = np.random.default_rng(1).normal(size=(64, 48)).astype(np.float32)

SPREAD_OUT = """
import ctypes, sys
import numpy as np
import weft
from weft.runtime import machine_code
from tests.runtime.test_machine_code import MODULE, VALUE

model = weft.compile(MODULE, target="cpu")
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, GAP = 4096, 3 << 30

def reserved(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, without memory behind it

starts = [reserved(GAP) for _ in range(100)]
while reserved(PAGE) > starts[-1]:  # every other hole is filled
    pass
for start in starts:
    libc.munmap(start + GAP // 2, PAGE)
assert machine_code.far_apart()
np.save(sys.argv[1], weft.load(model).run(VALUE)["y"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is laid out as Linux does it")
def test_a_process_with_memory_far_apart_runs_kernels(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SPREAD_OUT, str(tmp_path / "y.npy")]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), evaluate(MODULE, {"x": VALUE})["y"], rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_both_loaders_give_the_same(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
    program = weft.compile(prepare(MODULE), target="cpu", threads=threads).steps[0].program
    found = []
    for apart in (False, True):
        monkeypatch.setattr(machine_code, "far_apart", lambda apart=apart: apart)
        executor = HostExecutor(program, build_program(program))
        for run in (executor.run, executor.run_timed):
            result = np.zeros((64, 32), np.float32)
            run([VALUE], [result])
            found.append(result)
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_only_memory_within_reach_is_for_the_quick_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(machine_code, "MAPS", maps)
    monkeypatch.setattr(machine_code.platform, "machine", lambda: "x86_64")
    program = "55de0e0a9000-55de49fbd000 rw-p 00000000 00:00 0    [heap]\n"
    stack = "7ffd8e653000-7ffd8e674000 rw-p 00000000 00:00 0       [stack]\n"
    near = "7fec28000000-7fec42b32000 r-xp 00000000 fe:00 1       /lib/a b.so\n"
    far = "7feb00000000-7feb00001000 rw-p 00000000 00:00 0\n"
    for text, apart in ((program + near + stack, False), (program + far + near + stack, True), (program, True)):
        maps.write_text(text)
        assert machine_code.far_apart() is apart
    maps.unlink()
    assert machine_code.far_apart()
    maps.write_text(program + near)
    monkeypatch.setattr(machine_code.platform, "machine", lambda: "aarch64")
    assert machine_code.far_apart()
