"""The benchmarks of GPUs, where there is none: what is counted, and that the rest refuses politely."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.runtime.gpu.cuda_driver import DRIVER_VARIABLE

from .onnx.benchmark_modules import benchmark


def test_figures_of_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    code = benchmark("gpu_static").main(["digits", "--gpu", "sm_90", "--json", str(path), "--ptxas", ""])
    printed = capsys.readouterr().out
    missed = [line for line in printed.splitlines() if line.startswith("digits/")]
    assert code == (1 if missed else 0)
    assert f"{len(missed)} targets missed; without ptxas, spills are not known" in printed
    figures = json.loads(path.read_text())
    shares = [each["value"] for each in figures if each["figure"] == "mma share"]
    assert max(shares) > 0
    assert len(shares) == len([each for each in figures if each["figure"] == "sectors"])
    with pytest.raises(SystemExit):
        benchmark("gpu_static").main(["nonsense"])


def test_peers_need_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, "libnone.so")
    assert benchmark("gpu_peers").main(["products"]) == 2
    assert "nothing is measured: NVIDIA's driver cannot be used" in capsys.readouterr().err


def test_products_of_the_comparison_are_right() -> None:
    """Its own side runs in the interpreter."""
    peers = benchmark("gpu_peers")
    generator = np.random.default_rng(0)
    left, right = (generator.integers(-128, 128, shape).astype(np.int8) for shape in ((24, 64), (64, 40)))
    model = weft.compile(peers.product_module(left, right), target="cuda")
    assert isinstance(model, weft.CompiledModel)
    assert [layer.kind for layer in model.layers] == ["tensor cores"]
    seconds, (found,) = peers.ours(model, "emulated", [left.reshape(24, 64, 1, 1)])
    assert seconds() > 0
    np.testing.assert_array_equal(found.reshape(24, 40), left.astype(np.int32) @ right.astype(np.int32))
    peers.check("product", found, found.copy())
    with pytest.raises(SystemExit, match="product: the results differ"):
        peers.check("product", found, found + 1)
    times = peers.in_turns({"weft": lambda: 2e-6, "cuBLAS": lambda: 1e-6})
    ratio, row = peers.compared("product", times, "cuBLAS")
    assert ratio == pytest.approx(0.5)
    assert row == ("product", "2.0", "cuBLAS", "1.0", "0.50")
