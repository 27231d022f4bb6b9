"""What is left to the host: counted by hand for a small network, then cycles, energy, a share and a constraint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from weft.boards.board import all_boards
from weft.cli import app
from weft.cli.errors import run
from weft.cli.output import err
from weft.explore.measure import Measure, measure, measure_layers, open_network
from weft.explore.outcome import Outcome, core_mhz, cycles_of, design_of, host_cycles, host_of, with_measures
from weft.explore.parts import find_part
from weft.explore.processors import PROCESSORS, HostWork, processor_of
from weft.explore.space import Space

pytestmark = pytest.mark.usefixtures("groups_stay")

CHANNELS, SIZE, KERNEL = 16, 16, 7
PIXELS = CHANNELS * SIZE * SIZE
DENSE = PIXELS * CHANNELS
DEPTHWISE = PIXELS * KERNEL * KERNEL


def two_layers(path: Path, *, third: bool = False) -> Path:
    """A dense 1x1 convolution and a depthwise one, quantised: a core that is not square has no way to do the second
    where `groups_stay`.
    ``third``: then a dense one again."""
    random, nodes, constants = np.random.default_rng(0), [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    scale, zero = constant("s", np.float32(0.05)), constant("z", np.int8(0))

    def pair(x: str, name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [x, scale, zero], [f"{name}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", scale, zero], [name]))
        return name

    def conv(x: str, name: str, shape: tuple[int, ...], groups: int) -> str:
        weights = constant(f"{name}w", random.integers(-127, 128, shape).astype(np.int8))
        nodes.append(helper.make_node("DequantizeLinear", [weights, scale, zero], [f"{name}d"]))
        pads = [shape[2] // 2] * 4
        nodes.append(helper.make_node("Conv", [x, f"{name}d"], [name], group=groups, pads=pads))
        return name

    y = conv(pair("x", "a"), "b", (CHANNELS, CHANNELS, 1, 1), 1)
    y = conv(pair(y, "c"), "d", (CHANNELS, 1, KERNEL, KERNEL), CHANNELS)
    pair(conv(pair(y, "e"), "f", (CHANNELS, CHANNELS, 1, 1), 1) if third else y, "y")
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, CHANNELS, SIZE, SIZE]) for name in "xy"]
    graph = helper.make_graph(nodes, "two", kinds[:1], kinds[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def space_of(block_in: int = 8, **tables: Any) -> Space:
    core = {"block_in": [block_in], "block_out": [4], "inp_kib": [1], "wgt_kib": [1]}
    return Space.model_validate({"base": "tiny", "core": core, "compiler": {"chains": False}, **tables})


def point_of(space: Space) -> Outcome:
    (assignment,) = space.assignments()
    return design_of(space, assignment)


@pytest.mark.parametrize("judge", [measure, measure_layers])
def test_work_that_a_core_lacks_is_counted(judge: Any, tmp_path: Path) -> None:
    network = open_network(two_layers(tmp_path / "two.onnx"))
    narrow, square = (point_of(space_of(size)).design for size in (8, 4))
    assert narrow is not None
    assert square is not None
    left, done = judge(narrow, network), judge(square, network)
    assert (left.macs, left.host_macs) == (DENSE, DEPTHWISE)
    assert left.on_core == pytest.approx(DENSE / (DENSE + DEPTHWISE))
    assert (done.macs, done.host_macs, done.on_core) == (DENSE + DEPTHWISE, 0, 1.0)
    assert left.host_operations >= 2 * DEPTHWISE
    assert done.host_operations == 2 * PIXELS  # the input is quantised, the output dequantised
    assert done.host_bytes == 2 * (4 + 1) * PIXELS + 2 * (1 + 1) * PIXELS  # these two, and a change of layout each
    assert left.host_bytes > done.host_bytes
    assert Measure.from_values(left.to_values()) == left


def test_time_is_arithmetic_and_memory_in_turn() -> None:
    a9 = PROCESSORS["cortex-a9"]
    assert a9.cycles(HostWork(100, 260, 65)) == 260 / 2 + 65
    assert a9.seconds(HostWork(0, 0, 650)) == pytest.approx(1e-6)


def test_the_processor_is_that_of_the_board_or_the_one_that_is_asked_for() -> None:
    assert {board.processor for board in all_boards().values()} <= set(PROCESSORS)
    assert host_of(space_of()).name == "cortex-a9"
    assert host_of(space_of(constraints={"part": "xczu7ev"})).name == "cortex-a53"
    assert host_of(space_of(host={"processor": "cortex-a53", "mhz": 600})) == replace(PROCESSORS["cortex-a53"], mhz=600)
    assert processor_of(find_part("LFE5U-85F")).name == "cortex-a9"
    assert core_mhz(space_of(constraints={"part": "LFE5U-85F"}).constraints) == 100
    assert core_mhz(space_of(constraints={"part": "LFE5U-85F", "mhz": 60}).constraints) == 60


FOUND = Measure(1000, 2, 300, 500, 10, 1000, 1000, (), host_macs=100, host_operations=400, host_bytes=250)


def test_cycles_of_the_host_are_at_the_clock_of_the_core() -> None:
    space = space_of(
        constraints={"part": "LFE5U-85F"}, host={"mhz": 50, "operations_per_cycle": 4, "bytes_per_cycle": 1}
    )
    assert host_cycles(space, FOUND) == pytest.approx((100 + 250) * 2 / 2)  # 50 MHz beside 100, two images
    assert cycles_of(space, FOUND) == pytest.approx(500 + 350)
    figures = with_measures(space, point_of(space), {"a": FOUND}).figures
    assert figures["cycles"] == pytest.approx(850)
    assert figures["core_cycles"] == pytest.approx(500)
    assert figures["host_cycles"] == pytest.approx(350)
    assert figures["on_core"] == 0.75
    assert figures["throughput_per_area"] == pytest.approx(1e9 / 850 / (figures["LUT"] / 1e3))
    alone = with_measures(space, point_of(space), {"a": replace(FOUND, host_operations=0, host_bytes=0)}).figures
    assert alone["cycles"] == pytest.approx(500)
    assert alone["energy"] < figures["energy"]


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        ({"on_core": 0.8}, "a: 75.0% of the arithmetic on the core, less than 80.0%"),
        ({"on_core": 0.75}, ""),
        ({"cycles": 800}, "a: 850 cycles an image, more than 800"),
        ({"cycles": 900}, ""),
    ],
)
def test_constraints_know_the_host(constraints: dict[str, float], reason: str) -> None:
    host = {"mhz": 50, "operations_per_cycle": 4, "bytes_per_cycle": 1}
    space = space_of(constraints={"part": "LFE5U-85F", **constraints}, host=host)
    outcome = with_measures(space, point_of(space), {"a": FOUND})
    assert (outcome.status, outcome.reason) == ("refused" if reason else "measured", reason)


SPACE = """
base = "tiny"
[core]
block_in = [4, 8]
block_out = 4
inp_kib = 1
wgt_kib = 1
[compiler]
chains = false
[constraints]
on_core = 0.5
"""


def test_the_table_shows_the_host_and_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two_layers(tmp_path / "two.onnx")
    Path("space.toml").write_text(SPACE)
    assert run(app, ["explore", "space.toml", "--networks", "two.onnx", "--workers", "0", "--page", "p.html"], err) == 0
    captured = capsys.readouterr()
    assert "two: 24.6% of the arithmetic on the core, less than 50.0%" in captured.out
    assert "on the core" in captured.out
    assert "100.0%" in captured.out
    assert "an estimate for one core of a cortex-a9 at 650 MHz with 2 operations and 1 bytes a cycle" in captured.out
    assert "2 of 2 points, 1 measured; 1 refused; best" in captured.err
    assert "on_core" in Path("p.html").read_text()


def test_a_space_of_which_nothing_can_be_measured_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two_layers(tmp_path / "two.onnx")
    Path("space.toml").write_text('base = "tiny"\n[core]\nblock_in = 8\nblock_out = [4, 12]\ndepthwise = 1\n')
    assert run(app, ["explore", "space.toml", "--networks", "two.onnx", "--workers", "0"], err) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "none of 2 points could be measured; most often refused: " in line
