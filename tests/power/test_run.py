"""``weft power`` from a model to its tables: a small core's RTL, its cells, and all cycles of two layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import weft
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.graph import parse
from weft.hw.config import CoreConfig

from .test_activity import CELLS, HEAD

SMALL = CoreConfig(
    name="small", block_in=2, block_out=2, inp_depth=64, wgt_depth=64, acc_depth=64, out_depth=64, queue_depth=4,
    acc_banks=1,
)  # fmt: skip

GRAPH = """fn @main(%x: int8[1, 2, 8, 8]) {
    %a = dequantise(%x, float32(0.05), int8(3))
    %b = nn.conv2d(%a, dequantise(int8[2, 2, 1, 1](1, -7, 100, 3), float32(0.01), int8(0)))
    %c = dequantise(quantise(%b, float32(0.3), int8(-100)), float32(0.3), int8(-100))
    return quantise(nn.max_pool(%c, kernel=(2, 2), strides=(2, 2)), float32(0.3), int8(-100))
}"""


def test_two_layers_on_a_small_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    liberty, model, folder = tmp_path / "few.lib", tmp_path / "two.weft", tmp_path / "power"
    liberty.write_text(f"{HEAD}{CELLS}}}\n")
    weft.save(weft.compile(parse(GRAPH), SMALL), model)
    arguments = ["power", str(model), "--liberty", str(liberty), "--output", str(folder), "--mhz", "50"]
    assert run(app, arguments, err) == 0
    text = capsys.readouterr().out
    found = json.loads((folder / "power.json").read_text())
    # What the cells would hold after each cycle is what the RTL holds then.
    assert found["compared"] > 1_000_000
    assert (found["wrong"], "the cells gave all" in text) == (0, True)
    convolution, pooling = found["layers"]
    assert [each["sampled"] - each["cycles"] for each in (convolution, pooling)] == [0, 0]
    assert pooling["pj_per_mac"] is None
    # All registers are clocked in each cycle; the array works in the convolution alone.
    assert convolution["nj_clock"] / convolution["cycles"] == pytest.approx(pooling["nj_clock"] / pooling["cycles"])
    assert convolution["nj_logic"] / convolution["cycles"] > 1.5 * pooling["nj_logic"] / pooling["cycles"]
    seconds = (convolution["cycles"] + pooling["cycles"]) / 50e6
    total = sum(each["mw"] for each in found["modules"])
    assert total * seconds * 1e6 == pytest.approx(convolution["nj"] + pooling["nj"])
    assert {"gemm", "vector", "load", "loadw", "store", "core itself"} <= {each["module"] for each in found["modules"]}
    assert all(each["mw_held"] <= each["mw_clock"] for each in found["modules"])
    assert "small" in (folder / "report.txt").read_text()
