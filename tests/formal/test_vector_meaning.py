"""The meaning that proofs of the lanes hold the RTL against is that of the functional simulator."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator
from weft.hw.config import TINY
from weft.hw.isa import Vector, VectorOp
from weft.sim.loops import LoopLevel, LoopNest
from weft.sim.state import Memories
from weft.sim.vector import run_vector

from . import vector_meaning

COUNT = 32
"""Micro-ops, each of its own entries."""

EDGES = (0, 1, -1, 31, 32, -31, -32, 62, 63, 2**24 - 1, -(2**24), 2**31 - 1, -(2**31))


def entries(random: np.random.Generator) -> np.ndarray:
    """Contents of ``acc``, among them those at which an operation turns."""
    shape = (TINY.acc_depth, TINY.lanes)
    small, large = random.integers(-64, 64, shape), random.integers(-(2**31), 2**31, shape)
    mixed = np.where(random.random(shape) < 0.4, small, large)
    return np.where(random.random(shape) < 0.3, random.choice(EDGES, shape), mixed).astype(np.int32)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("op", list(VectorOp))
def test_a_lane_does_what_the_functional_simulator_does(op: VectorOp, zero: int) -> None:
    random = np.random.default_rng(op * 2 + zero)
    dst, b = 5 * COUNT, COUNT
    vector = Vector(
        op=op, zero=zero, levels=1, dst=dst, a=0, b=b, zero_point=-7, low=-100 - 3 * zero, high=90, left_shift=3 * zero
    )
    memories = Memories(TINY)
    memories.acc[...] = before = entries(random)
    nest = LoopNest((LoopLevel(extent=COUNT, dst_stride=1, a_stride=1, b_stride=3),))
    _, bad = run_vector(memories, nest, vector)
    assert bad is None

    shapes = {"a": 32, "b": 32, "multiplier": 32, "shift": 32, "old": 32, "product": 57}
    inputs = {name: Signal(signed(bits), name=name) for name, bits in shapes.items()}
    names = ("a", "b", "multiplier", "shift", "old")
    operands = vector_meaning.Operands(*(inputs[name] for name in names))
    limits = vector_meaning.Limits(vector.zero_point, vector.low, vector.high, vector.left_shift)
    m = Module()
    first, second = (Signal(signed(32), name=name) for name in ("first", "second"))
    result = Signal(signed(32))
    m.d.comb += [
        *(each.eq(factor) for each, factor in zip((first, second), vector_meaning.factors(op, operands), strict=True)),
        result.eq(vector_meaning.result(op, operands, inputs["product"], limits)),
    ]
    wrong = []

    async def look(context: object) -> None:
        for number in range(COUNT):
            for lane in range(TINY.lanes):
                at = b + 3 * number
                old = op.identity if zero and op.accumulates else before[dst + number, lane]
                held = (before[number, lane], *before[at : at + 3, lane], old)
                for name, value in zip(names, held, strict=True):
                    context.set(inputs[name], int(value))  # type: ignore[attr-defined]
                context.set(inputs["product"], context.get(first) * context.get(second))  # type: ignore[attr-defined]
                found = context.get(result)  # type: ignore[attr-defined]
                if found != memories.acc[dst + number, lane]:
                    wrong.append((held, found, memories.acc[dst + number, lane]))

    simulator = Simulator(m)
    simulator.add_testbench(look)
    simulator.run()
    assert not wrong
