"""``weft generate`` on a virtual board: tokens and cycles of the RTL, with the host's part here and on the board."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import numpy_helper, parser
from weft.boards.hosts import HOSTS_VARIABLE, KERNELS, Host, hosts_text
from weft.boards.virtual_files import VirtualBoard
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.compiler.model import HostStep

from tests.boards.virtual_boards import MakeBoard

REMEMBERING = """
<ir_version: 8, opset_import: ["" : 17]>
remembering (int64[1, 1] input_ids, int8[1, 15, 8] past_0) => (float[1, 1, 16] logits, int8[1, 1, 8] present_0)
<float s = {0.02}, float wide = {0.1}, int8 zero = {0}>
{
  row = Gather (table, input_ids)
  present_0 = QuantizeLinear (row, s, zero)
  all = Concat <axis = 1> (past_0, present_0)
  one = DequantizeLinear (present_0, s, zero)
  keys = DequantizeLinear (all, s, zero)
  turned = Transpose <perm = [0, 2, 1]> (keys)
  scores = MatMul (one, turned)
  scores8 = QuantizeLinear (scores, wide, zero)
  logits = DequantizeLinear (scores8, wide, zero)
}
"""
"""The best token is the place of the row that is most like the last one; the cache stays in the core's memory."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, random = parser.parse_model(REMEMBERING), np.random.default_rng(0)
    made.graph.initializer.append(numpy_helper.from_array(random.normal(0, 0.8, (16, 8)).astype(np.float32), "table"))
    folder = tmp_path_factory.mktemp("generate")
    onnx.save(made, folder / "model.onnx")
    compiled = weft.compile(folder / "model.onnx", "tiny")
    assert isinstance(compiled, weft.CompiledModel)
    assert any(isinstance(step, HostStep) and step.resident is not None for step in compiled.steps)
    weft.save(compiled, folder / "model.weft")
    return folder / "model.weft"


def test_tokens_and_cycles_are_those_of_the_rtl(
    model: Path, make_board: MakeBoard, forked: Callable[[VirtualBoard], Host], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    host = forked(make_board())
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(hosts_text([replace(host, name=name, kernels=name) for name in KERNELS]))
    monkeypatch.setenv(HOSTS_VARIABLE, str(hosts))
    words = ["generate", str(model), "-p", "\x03\x05", "-n", "4"]

    def printed(device: str) -> dict[str, object]:
        assert run(app, [*words, "--device", device, "--json"], err) == 0
        made: dict[str, object] = json.loads(capsys.readouterr().out)
        return {name: value for name, value in made.items() if "seconds" not in name}

    wanted = printed("rtl")
    tokens = wanted["tokens"]
    assert isinstance(tokens, list)
    assert len(set(tokens)) > 1
    for kernels in KERNELS:
        found = printed(f"pynq://{kernels}")
        assert found.pop("clock_mhz") == pytest.approx(100, abs=0.01)
        assert found.pop("tokens_a_second_of_the_core") == pytest.approx(wanted["tokens_a_second_of_the_core"], 1e-3)
        assert found == {name: wanted[name] for name in found}
    assert run(app, [*words, "--device", "pynq://host"], err) == 0
    assert "with the host's part and the link" in " ".join(capsys.readouterr().err.split())
