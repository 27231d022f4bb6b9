"""The meaning that proofs of the lanes hold the RTL against is that of the functional simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator
from weft.hw.config import TINY, CoreConfig
from weft.hw.isa import Vector, VectorOp
from weft.sim.loops import LoopLevel, LoopNest
from weft.sim.state import Memories
from weft.sim.vector import run_vector

from . import vector_meaning

ROUNDED_CORES = [replace(TINY, rounding=rounding) for rounding in vector_meaning.ROUNDED]

COUNT = 32
"""Micro-ops, each of its own entries."""

EDGES = (0, 1, -1, 31, 32, -31, -32, 62, 63, 2**24 - 1, -(2**24), 2**31 - 1, -(2**31))


def entries(random: np.random.Generator) -> np.ndarray:
    """Contents of ``acc``, among them those at which an operation turns."""
    shape = (TINY.acc_depth, TINY.lanes)
    small, large = random.integers(-64, 64, shape), random.integers(-(2**31), 2**31, shape)
    mixed = np.where(random.random(shape) < 0.4, small, large)
    return np.where(random.random(shape) < 0.3, random.choice(EDGES, shape), mixed).astype(np.int32)


def between_limits(acc: np.ndarray, b: int, random: np.random.Generator) -> None:
    """Operands of micro-ops whose result no limit hides: of every second one the product is small, so that many leave
    exactly a half; of the others it is large."""
    shape = (COUNT // 2, TINY.lanes)
    a, bias, multiplier, shift = (acc[start::step][:COUNT] for start, step in ((0, 1), (b, 3), (b + 1, 3), (b + 2, 3)))
    for values, small, large in (
        (a, 64, 2**30), (bias, 8, 2**30), (multiplier, 8, 2**24), (shift, 4, 6),
    ):  # fmt: skip
        values[::2], values[1::2] = random.integers(-small, small, shape), random.integers(-large, large, shape)
    shift[::2], shift[1::2] = shift[::2] + 4, shift[1::2] + 48


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("op", list(VectorOp))
def test_a_lane_does_what_the_functional_simulator_does(op: VectorOp, zero: int) -> None:
    compare(TINY, op, zero, rounding=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("config", ROUNDED_CORES, ids=lambda config: config.rounding)
def test_a_lane_rounds_as_the_functional_simulator_does(config: CoreConfig, seed: int) -> None:
    compare(config, VectorOp.REQUANTISE, seed, rounding=1)


def compare(config: CoreConfig, op: VectorOp, zero: int, rounding: int) -> None:
    """Micro-ops of an operation on random entries, in the functional simulator and by the meaning of proofs."""
    random = np.random.default_rng(op * 2 + zero)
    limits = {"zero_point": -7, "low": -100 - 3 * zero, "high": 90, "left_shift": 3 * zero, "rounding": rounding}
    dst, b = 5 * COUNT, COUNT
    vector = Vector(op=op, zero=zero & 1, levels=1, dst=dst, a=0, b=b, **limits)
    memories = Memories(config)
    before = entries(random)
    if rounding:
        between_limits(before, b, random)
    memories.acc[...] = before
    nest = LoopNest((LoopLevel(extent=COUNT, dst_stride=1, a_stride=1, b_stride=3),))
    _, bad = run_vector(memories, nest, vector)
    assert bad is None

    shapes = {"a": 32, "b": 32, "multiplier": 32, "shift": 32, "old": 32, "product": 64}
    inputs = {name: Signal(signed(bits), name=name) for name, bits in shapes.items()}
    names = ("a", "b", "multiplier", "shift", "old")
    operands = vector_meaning.Operands(*(inputs[name] for name in names))
    meaning = partial(vector_meaning.result, op, operands, limits=vector_meaning.Limits(**limits))
    factors = vector_meaning.factors(op, operands, config.rounding)
    m = Module()
    first, second = (Signal(signed(32), name=name) for name in ("first", "second"))
    result = Signal(signed(32))
    m.d.comb += [
        *(each.eq(factor) for each, factor in zip((first, second), factors, strict=True)),
        result.eq(meaning(inputs["product"], rounding=config.rounding)),
    ]
    wrong = []

    async def look(context: object) -> None:
        for number in range(COUNT):
            for lane in range(config.lanes):
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
    assert not wrong, [[int(x) for x in h] + [int(f), int(g)] for h, f, g in wrong]
