"""The board's part on the board's own instruction sets, under QEMU: Debian's Python and NumPy for 32 and 64 bits.

Server, link, driver and kernels are emulated; pynq is the real one in a native process, which has the RTL. All are
long: starting NumPy under QEMU takes seconds, and the first time fetches packages.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import weft
from weft.boards.debian_python import EMULATED, debian_python, emulation_missing
from weft.boards.device import PynqDevice
from weft.boards.emulated_board import emulated_board
from weft.boards.link.plan import plan_text
from weft.boards.zipapp import zipapp
from weft.compiler.graph import Constant, TensorType, Var, call
from weft.compiler.model import CompiledModel, NumpyStep
from weft.compiler.operators.random_graphs import random_graph
from weft.hw.config import TINY
from weft.runtime.errors import CoreFaultError
from weft.runtime.module import Array

from tests.boards.virtual_boards import MODEL, MakeBoard
from tests.boards.whole_models import arrays_of, item_bytes, module_of, packed
from tests.compiler.targets.cpu.cross import skip_without
from tests.compiler.targets.cpu.programs import compiled, program_of

pytestmark = pytest.mark.long

PROCESSORS = {"armv7l": "armv7a", "aarch64": "aarch64"}
BOARD_OF = {"armv7l": "pynq-z2", "aarch64": "ultra96-v2"}


@pytest.fixture(params=EMULATED)
def machine(request: pytest.FixtureRequest) -> str:
    skip_without(PROCESSORS[request.param])
    if missing := emulation_missing(request.param):
        pytest.skip(missing)
    return str(request.param)


def test_digits_with_all_but_the_logic_on_the_processor_of_the_board(
    machine: str, make_board: MakeBoard, digits: CompiledModel, image: Array
) -> None:
    expected = weft.load(digits, "rtl")
    batch = np.stack([image, image * 2])
    logits = np.stack([expected.run(item)["logits"] for item in batch])
    with emulated_board(make_board(BOARD_OF[machine]), machine, print) as host:
        device = PynqDevice(TINY, host=replace(host, kernels="board", watchdog=5000))
        module = weft.load(digits, device)
        assert device.board.link(TINY, print).peer.machine == machine
        np.testing.assert_array_equal(module.run_batch(batch)["logits"], logits)
        assert module.cycles == expected.cycles
        assert module.device.counters() == expected.device.counters()
        kept = module.run(batch[0], keep=True)  # the host does its part itself
        np.testing.assert_array_equal(kept["logits"], logits[0])
        assert device.clock_mhz == pytest.approx(100, abs=0.01)
        step = digits.programs[0]
        device.write(step.program_offset, np.zeros(step.program.size, np.uint8))
        with pytest.raises(CoreFaultError, match="device 'pynq'"):
            module.run(batch[0])
        np.testing.assert_array_equal(module.run(batch[1])["logits"], logits[1])
        module.close()


SCRIPT = """
import json, sys, pathlib
sys.path.insert(0, sys.argv[1])
from weft_link.model import BoardModel, load_library
from weft_link.plan import read_plan
folder = pathlib.Path(sys.argv[2])
for number, (libraries, count) in enumerate(json.loads((folder / "runs.json").read_text())):
    constants = (folder / f"{number}.constants").read_bytes()
    plan = read_plan((folder / f"{number}.plan").read_bytes(), libraries, len(constants), 0)
    loaded = [load_library(folder / f"{number}.{each}.so") for each in range(libraries)]
    model = BoardModel(plan, loaded, constants, None)
    model.feed(0, (folder / f"{number}.inputs").read_bytes())
    model.run(None, count, seconds=1, watchdog=0)
    (folder / f"{number}.outputs").write_bytes(model.outputs)
"""


def run_emulated(
    models: Sequence[tuple[CompiledModel, Mapping[str, Array]]], machine: str, folder: Path
) -> list[dict[str, Array]]:
    """The outputs of models without a part for the core, one run of each, in one process under QEMU."""
    counts = []
    for number, (model, inputs) in enumerate(models):
        made = packed(model, machine)
        counts.append((len(made.libraries), 1))
        for each, content in enumerate(made.libraries):
            (folder / f"{number}.{each}.so").write_bytes(content)
        (folder / f"{number}.constants").write_bytes(made.constants)
        (folder / f"{number}.plan").write_bytes(plan_text(made.plan))
        (folder / f"{number}.inputs").write_bytes(item_bytes(model, inputs))
    (folder / "runs.json").write_text(json.dumps(counts))
    (folder / "link.zip").write_bytes(zipapp())
    python = EMULATED[machine].command(debian_python(machine, print))
    command = [*python, "-c", SCRIPT, str(folder / "link.zip"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        arrays_of(model.outputs, (folder / f"{number}.outputs").read_bytes())
        for number, (model, _) in enumerate(models)
    ]


def test_random_graphs_agree_with_this_machine(machine: str, tmp_path: Path) -> None:
    """Integers to the bit; floats of functions and sums but for rounding."""
    chosen: list[tuple[CompiledModel, Mapping[str, Array]]] = []
    for seed in range(60):
        graph = random_graph(seed, 6)
        model = compiled(graph.module)
        if not any(isinstance(step, NumpyStep) for step in program_of(model).steps):
            chosen.append((model, graph.inputs))
    assert len(chosen) > 20
    integers = 0
    for (model, inputs), found in zip(chosen, run_emulated(chosen, machine, tmp_path), strict=True):
        for name, array in weft.load(model).run(inputs).items():
            if array.dtype.kind in "iub":
                integers += array.size
                np.testing.assert_array_equal(found[name], array, err_msg=name)
            else:
                close = 1e-2 if array.dtype.itemsize == 2 else 1e-5
                wide = [each.astype(np.float64) for each in (found[name], array)]
                largest = float(np.abs(wide[1]).max(initial=1.0))
                np.testing.assert_allclose(*wide, rtol=0, atol=close * largest, err_msg=name)
    assert integers > 1000


def test_threads_share_the_work(machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the threads is right there as well: every kernel is shared, however small."""
    monkeypatch.setattr("weft.compiler.targets.cpu.kernels.WORK_WORTH_THREADS", 0)
    models = []
    for seed in range(8):
        graph = random_graph(seed, 6)
        model = compiled(graph.module, threads=3)
        if not any(isinstance(step, NumpyStep) for step in program_of(model).steps):
            models.append((model, graph.inputs))
    digits = compiled(MODEL, threads=3)
    models.append((digits, {"image": np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)}))
    assert len(models) > 3
    for (model, inputs), found in zip(models, run_emulated(models, machine, tmp_path), strict=True):
        for name, array in weft.load(model).run(inputs).items():
            if array.dtype.kind in "iub":
                np.testing.assert_array_equal(found[name], array, err_msg=name)
            else:
                wide = [each.astype(np.float64) for each in (found[name], array)]
                np.testing.assert_allclose(*wide, rtol=1e-2, atol=1e-2, err_msg=name)


def test_quantised_models_and_single_float_operations_are_the_host_s_to_the_bit(machine: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    digits = compiled(MODEL)
    values = generator.integers(0, 2**32, 5000, np.uint32).view(np.float32)
    values = np.where(np.isfinite(values), values, np.float32(1e-42))
    x = Var("x", TensorType(values.shape, "float32"))
    scaled = call("nn.multiply", x, Constant(np.float32(1 / 3)))
    plain = compiled(module_of(scaled, call("nn.divide", x, Constant(np.float32(0.1))), params=(x,)))
    models: list[tuple[CompiledModel, Mapping[str, Array]]] = [
        (digits, {"image": generator.random((1, 1, 8, 8)).astype(np.float32)}),
        (plain, {"x": values}),
    ]
    for (model, inputs), found in zip(models, run_emulated(models, machine, tmp_path), strict=True):
        with np.errstate(all="ignore"):
            expected = weft.load(model).run(inputs)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), name
