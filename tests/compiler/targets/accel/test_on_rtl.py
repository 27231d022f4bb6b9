"""Compiled programs on the real core: the same memory as on the functional simulator, under an unsteady DRAM."""

from __future__ import annotations

import numpy as np
import pytest
from weft.hw.config import TINY
from weft.sim.dram import DramModel
from weft.sim.rtl import RtlSimulator

from .kernels import compile_function, program_of, run_on_fsim, write_model
from .test_kernels import KINDS, Case


@pytest.mark.parametrize("kind", KINDS)
def test_a_kernel_gives_the_same_integers_on_the_core(kind: str) -> None:
    function = Case(kind, TINY, channels=11, filters=10, size=(13, 9), strides=(2, 1), pads=(2, 1, 0, 1)).function()
    model = compile_function(function, TINY)
    random = np.random.default_rng(7)
    inputs = {param.name: random.integers(-128, 128, param.type.shape).astype(np.int8) for param in function.params}
    simulator = RtlSimulator(TINY, model.core.window_bytes, dram=DramModel(latency=30, jitter=20, seed=5, reorder=True))
    write_model(simulator, model, inputs)
    step = program_of(model)
    count = len(step.program) // TINY.instruction_bytes
    result = simulator.run(step.program_offset, count, window_bytes=model.core.window_bytes)
    assert result.fault is None, str(result.fault)
    for name, expected in run_on_fsim(model, inputs).items():
        slot = model.core.slots[name]
        found = simulator.dram[slot.offset : slot.offset + slot.nbytes].view(slot.dtype).reshape(slot.shape)
        np.testing.assert_array_equal(found, expected)
