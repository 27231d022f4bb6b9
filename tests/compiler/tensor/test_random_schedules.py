"""Whatever primitives are applied in whatever order, the program computes the same integers, or the step is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t

from . import brute_force
from .programs import PROGRAMS

SCOPES = ["global", "near"]
# Those that move stages come more often: they meet the most conditions.
MOVES = ["compute_at", "compute_at", "compute_at", "reverse_compute_at", "reverse_compute_at"]
LOOPS = ["split", "split", "split_shifted", "tile", "fuse", "reorder", "mark"]
STAGES = ["cache_read", "cache_write", "compute_inline", "decompose", "rfactor", "inplace"]
STORAGE = ["scope", "storage_align", "double_buffer", "roll"]
PRIMITIVES = [*MOVES, *LOOPS, *STAGES, *STORAGE]


def random_step(schedule: t.Schedule, data: st.DataObject) -> None:
    """Draw one primitive with arguments that exist, and apply it. Half of the draws are refused."""
    blocks = schedule.blocks()
    block = data.draw(st.sampled_from(blocks), "block")
    other = data.draw(st.sampled_from(blocks), "other block")
    loops = schedule.get_loops(block)
    # compute_at must name a loop of another block; so most draws do.
    targets = schedule.get_loops(other) or loops
    buffers = [buffer.name for buffer in schedule.buffers()]
    kind = data.draw(st.sampled_from(PRIMITIVES), "primitive")
    loop = data.draw(st.sampled_from(loops), "loop")
    target = data.draw(st.sampled_from(targets), "target")
    match kind:
        case "split":
            schedule.split(loop, data.draw(st.integers(1, 5), "factor"))
        case "split_shifted":
            schedule.split_shifted(loop, data.draw(st.integers(1, 5), "factor"))
        case "tile":
            position = loops.index(loop)
            order = loops[position : position + data.draw(st.integers(1, 3), "count")]
            schedule.tile(order, data.draw(st.lists(st.integers(1, 4), min_size=len(order), max_size=len(order))))
        case "rfactor":
            schedule.rfactor(block, loop, data.draw(st.integers(0, 3), "axis"))
        case "storage_align":
            factor = data.draw(st.integers(1, 8), "factor")
            offset = data.draw(st.integers(0, factor - 1), "offset")
            schedule.storage_align(
                data.draw(st.sampled_from(buffers), "buffer"), data.draw(st.integers(0, 2), "axis"), factor, offset
            )
        case "double_buffer":
            schedule.double_buffer(data.draw(st.sampled_from(buffers), "buffer"))
        case "roll":
            schedule.roll(block, target, data.draw(st.integers(0, 2), "axis"))
        case "fuse":
            position = loops.index(loop)
            schedule.fuse(loop, loops[min(position + 1, len(loops) - 1)])
        case "reorder":
            schedule.reorder(*data.draw(st.permutations(loops), "order")[: data.draw(st.integers(1, 5), "count")])
        case "cache_read":
            buffer = data.draw(st.sampled_from(buffers), "buffer")
            schedule.cache_read(block, buffer, data.draw(st.sampled_from(SCOPES)))
        case "cache_write":
            schedule.cache_write(block, data.draw(st.sampled_from(SCOPES)))
        case "compute_at":
            schedule.compute_at(block, target, data.draw(st.integers(0, 2), "whole"))
        case "reverse_compute_at":
            schedule.reverse_compute_at(block, target)
        case "compute_inline":
            schedule.compute_inline(block)
        case "decompose":
            schedule.decompose_reduction(block, loop)
        case "inplace":
            schedule.inplace(block, other)
        case "mark":
            getattr(schedule, data.draw(st.sampled_from(["unroll", "parallel", "vthread", "vectorize"])))(loop)
        case "scope":
            schedule.set_scope(data.draw(st.sampled_from(buffers), "buffer"), "near")


@pytest.mark.parametrize("program", PROGRAMS)
@given(data=st.data(), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_any_schedule_keeps_the_meaning(program: str, data: st.DataObject, seed: int) -> None:
    schedule = PROGRAMS[program]()
    random = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for buffer in schedule.func.params:
        if buffer.name not in schedule.blocks():
            limits = np.iinfo(t.NUMPY_TYPES[buffer.dtype])
            arrays[buffer.name] = random.integers(limits.min, limits.max, buffer.shape).astype(limits.dtype)
    t.check_legal(schedule.func, t.COMPUTED)
    expected = t.interpret(schedule.func, arrays)
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        try:
            random_step(schedule, data)
        except t.ScheduleError:
            continue
        t.check_legal(schedule.func, t.SCHEDULED)
        found = t.interpret(schedule.func, arrays)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=f"{schedule.trace[-1]}\n{schedule}")
    lockstep = brute_force.run(schedule.func, arrays)
    for name, array in expected.items():
        np.testing.assert_array_equal(lockstep[name], array, err_msg=f"loops at once\n{schedule}")
    assert t.parse(t.function_text(schedule.func)) == schedule.func
    again = t.replay(PROGRAMS[program](), t.trace_from_json(t.trace_to_json(schedule.trace)))
    assert again.func == schedule.func
