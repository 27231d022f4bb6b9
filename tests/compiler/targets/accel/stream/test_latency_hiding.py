"""How latencies are hidden changes when things happen, never what is computed; each step of it is worth cycles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import weft
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.link.compile_kernel import append
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Tiling
from weft.compiler.targets.accel.stream.scratchpads import Ring
from weft.compiler.targets.accel.walk.emit import Emitter
from weft.compiler.targets.accel.walk.emit_nest import DramBuffer
from weft.hw.config import TINY
from weft.hw.isa import Load, Scratchpad
from weft.hw.memories import Memory
from weft.sim.dram import DramModel
from weft.sim.timing import predict

from ..chains import apart
from ..kernels import compile_function, program_of, run_on_fsim
from ..passes.test_chain import BLOCK, ROOMY
from ..test_kernels import Case

LAYER = Case("conv", TINY, channels=24, filters=40, size=(12, 12)).function()
STEPS = (("none", 1), ("vthreads", 1), ("vthreads", 2), ("rings", 2))
"""From the slowest to the default."""


def compiled(hiding: str, vthreads: int) -> CompiledModel:
    return compile_function(LAYER, TINY, vthreads, hiding=hiding)


def test_all_give_the_same_integers_and_each_is_faster_than_the_one_before() -> None:
    random = np.random.default_rng(3)
    inputs = {each.name: random.integers(-128, 128, each.type.shape).astype(np.int8) for each in LAYER.params}
    models = [compiled(*step) for step in STEPS]
    first, *others = [run_on_fsim(model, inputs) for model in models]
    for found in others:
        for name, wanted in first.items():
            np.testing.assert_array_equal(found[name], wanted)
    cycles = [predict(TINY, program_of(model).program, DramModel()).cycles for model in models]
    assert all(after < before for before, after in pairwise(cycles)), cycles


def overlapping(model: CompiledModel) -> int:
    """Instructions that start before all earlier ones of other engines have retired."""
    trace = predict(TINY, program_of(model).program, DramModel(), trace=True).trace
    assert trace is not None
    lives = sorted(trace.events.tolist(), key=lambda life: life[2])  # (engine, number, start, retire)
    retired: dict[int, int] = {}
    found = 0
    for engine, _, start, retire in lives:
        found += any(start < last for other, last in retired.items() if other != engine)
        retired[engine] = max(retire, retired.get(engine, 0))
    return found


def test_engines_work_one_after_another_without_it() -> None:
    assert overlapping(compiled("none", 1)) == 0
    assert overlapping(compiled("rings", 2)) > 0


def test_a_scratchpad_that_is_no_ring_hands_out_the_same_entries_again() -> None:
    ring = Ring(Memory.INP, 16, turns=False)
    starts = []
    for _ in range(3):
        starts.append(ring.take(6, "tile"))
        ring.copy().release(starts[-1])
        ring.release(starts[-1])
    assert starts == [0, 0, 0]


def test_threads_share_weights_only_where_there_are_rings() -> None:
    """With two copies at fixed places one is loaded while the other is used; a single one would be waited for."""
    layer = Case("conv", TINY, channels=24, filters=8, size=(4, 4), kernel=(1, 1), pads=(0, 0, 0, 0))
    kernel = lower_function(layer.function())
    loaded = []
    for rings in (True, False):
        emitter = Emitter(TINY, rings=rings)
        dram = {tensor.name: DramBuffer(0) for tensor in (*kernel.inputs, kernel.output)}
        append(emitter, [(kernel, dram, Tiling(2, 1, 4, 2, "cyx", 1, 1, 2))], 0, None)
        loads = [each.instruction for each in emitter.issues if isinstance(each.instruction, Load)]
        loaded.append(sum(each.rows * each.columns for each in loads if each.scratchpad is Scratchpad.WGT))
    assert loaded[1] == 2 * loaded[0]


def test_chains_can_be_left_out() -> None:
    module = apart(BLOCK, ROOMY)
    assert [len(weft.compile(module, ROOMY, chains=chains).layers) for chains in (True, False)] == [1, 3]
