"""Cores whose matrices are smaller than the unit of DRAM addresses, as with many images at a time: those of constant
weights lie apart, so that a load may begin at any of them."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.targets.accel.link.function_program import function_program
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.operators.packed_layout import Blocks, matrix_pitch, spread_matrices
from weft.compiler.targets.accel.schedule.schedule import schedule_kernel
from weft.compiler.targets.accel.schedule.tiling import Problem, smallest_tiling
from weft.compiler.targets.errors import CompileError
from weft.hw.config import NAMED, CoreConfig
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from tests.compiler.targets.accel.kernels import Build
from tests.compiler.targets.accel.quantised_layers import compiled, layer, quantised, variable

CORES = [
    CoreConfig(batch=4, block_in=2, block_out=2), CoreConfig(batch=8, block_in=2, block_out=4),
    CoreConfig(batch=8, block_in=2, block_out=2, wgt_depth=32, acc_depth=64),
]  # fmt: skip


def on_core(model: weft.CompiledModel) -> list[str]:
    return [each.kind for each in model.layers if each.device == "core"]


def test_matrices_are_as_far_apart_as_addresses() -> None:
    for core in (*CORES, *NAMED.values()):
        assert matrix_pitch(Blocks.of(core)) == max(1, core.granule_bytes // core.wgt_bytes)
    spread = spread_matrices(np.arange(1, 9, dtype=np.int8).reshape(2, 2, 2), 2)
    assert spread.ravel().tolist() == [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0]


@pytest.mark.parametrize("core", CORES, ids=lambda core: f"{core.batch}x{core.block_in}x{core.block_out}")
def test_layers_equal_the_contract(core: CoreConfig) -> None:
    """Weights that are loaded in several pieces, of groups (where most matrices are zeros and stay away), and of
    channels of their own."""
    x = variable(5, 12, 6, 7)
    value = layer(layer(quantised(x), 20, kernel=3, pads=1), 20, kernel=3, groups=5)
    model = compiled(x, layer(layer(value, 20, kernel=3, groups=20, pads=1), 1), core)
    assert on_core(model)[0] == "conv2d"
    assert all(each.device == "core" for each in model.layers if each.macs)


def test_the_rtl_computes_the_same_in_the_predicted_cycles() -> None:
    core = CORES[0]
    x = variable(4, 6, 4, 4)
    model = compiled(x, layer(layer(quantised(x), 8, kernel=3, pads=1), 1), core)
    values = {"x": np.random.default_rng(1).normal(0, 3, x.type.shape).astype(np.float32)}
    dram = DramModel(latency=30)
    rtl = weft.load(model, weft.RtlDevice(core, dram=dram))
    np.testing.assert_array_equal(rtl.run(values)["y"], weft.load(model, "fsim").run(values)["y"])
    assert rtl.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, dram))


def test_a_function_whose_matrices_lie_dense_says_which_core_takes_it() -> None:
    """Of a schedule that a user builds, the data lie as they are given."""
    core = CORES[0]
    build = Build(core)
    value = build.conv(build.input(1, 3, 1, 1), 3, 1, (1, 1))
    kernel = lower_function(build.function(build.requantise(value, 1, 1000)))
    func = schedule_kernel(kernel, core, smallest_tiling(Problem(core, kernel, 1))).func
    with pytest.raises(
        CompileError, match=r"is no multiple of 8 bytes; hint: choose a core whose batch is at most its"
    ):
        function_program(func, core)
