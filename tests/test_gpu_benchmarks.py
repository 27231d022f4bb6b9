"""The benchmarks of GPUs, where there is none: what is counted, and that the rest refuses politely."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.runtime.gpu.cuda_driver import DRIVER_VARIABLE

from benchmarks.gpu import peers as gpu_peers
from benchmarks.gpu import static as gpu_static
from benchmarks.gpu import tiles as gpu_tiles
from benchmarks.gpu import triton_code as gpu_triton
from benchmarks.gpu import work as gpu_work


def test_figures_of_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    code = gpu_static.main(["digits", "--gpu", "sm_90", "--json", str(path), "--ptxas", ""])
    printed = capsys.readouterr().out
    missed = [line for line in printed.splitlines() if line.startswith("digits/")]
    assert code == (1 if missed else 0)
    assert f"{len(missed)} targets missed; without ptxas, spills are not known" in printed
    figures = json.loads(path.read_text())
    shares = [each["value"] for each in figures if each["figure"] == "mma share"]
    assert max(shares) > 0
    assert len(shares) == len([each for each in figures if each["figure"] == "sectors"])
    with pytest.raises(SystemExit):
        gpu_static.main(["nonsense"])


def test_peers_need_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, "libnone.so")
    assert gpu_peers.main(["products"]) == 2
    assert "nothing is measured: NVIDIA's driver cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_products_of_the_comparison_are_right(dtype: str) -> None:
    """Its own side runs in the interpreter."""
    left, right = gpu_work.random(dtype, 24, 64), gpu_work.random(dtype, 64, 40)
    model = weft.compile(gpu_work.product_module(left, right), target="cuda")
    assert isinstance(model, weft.CompiledModel)
    seconds, (found,) = gpu_peers.ours(model, "emulated", [left.reshape(model.inputs[0].shape)], 2)
    assert seconds() > 0
    wide = np.int32 if dtype == "int8" else np.float64
    wanted = (left.astype(wide) @ right.astype(wide)).astype(found.dtype)
    found = found.reshape(24, 40)
    assert not gpu_peers.difference(found, wanted, 1e-5)
    assert gpu_peers.difference(found, wanted + 1, 1e-5)
    assert gpu_peers.difference(found[1:], wanted, 1e-5) == "shape (23, 40) for (24, 40)"
    times = gpu_peers.in_turns({"weft": lambda: 2e-6, "cuBLAS": lambda: 1e-6})
    assert gpu_peers.ratio_to(times, "cuBLAS") == pytest.approx(0.5)


def test_all_work_of_the_comparison_is_compiled() -> None:
    titles = set()
    for each in (*gpu_work.products(), *gpu_work.convolutions(), *gpu_work.memory_bound(), gpu_work.small_sum()):
        model = weft.compile(each.module, target="cuda", gpu="sm_90", strict=True, tf32=each.tf32)
        assert [array.size for array in each.inputs] == [int(np.prod(spec.shape)) for spec in model.inputs]
        titles.add(each.title)
    assert len(titles) == 5 * len(gpu_work.PRODUCTS) + 3 * len(gpu_work.CONVOLUTIONS) + 8


def test_counts_beside_those_of_triton(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads(gpu_triton.COUNTS.read_text())["kernels"]
    assert list(recorded) == [work.name for work in gpu_triton.WORKS]
    path = tmp_path / "counts.json"
    assert gpu_triton.main(["layer norm", "--json", str(path)]) == 0
    assert "0 targets missed" in capsys.readouterr().out
    found = {each["figure"]: each for each in json.loads(path.read_text())}
    assert found["instructions"]["reference"] == recorded["layer norm float32 256x768"]["instructions"]
    assert gpu_triton.main(["relu of a sum"]) == 1
    with pytest.raises(SystemExit):
        gpu_triton.main(["nonsense"])


def test_work_of_the_comparison_with_triton_is_what_it_says() -> None:
    for work in gpu_triton.WORKS:
        if work.kind != "product":  # `gpu_work` has these
            model = weft.compile(work.model(), target="cpu")
            names = [each.name for each in model.inputs]
            (found,) = weft.load(model).run(dict(zip(names, work.inputs(), strict=True))).values()
            tolerance = {"rtol": 1e-4, "atol": 1e-5} if work.dtype == "float32" else {"rtol": 2e-3, "atol": 2e-3}
            np.testing.assert_allclose(found, work.result(), **tolerance)


def test_tiles_need_nvidias_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    with pytest.raises(SystemExit, match="pip install nvidia-matmul-heuristics"):
        gpu_tiles.main([])
