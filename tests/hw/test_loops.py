"""The index generator against the same loops in NumPy."""

from __future__ import annotations

from typing import Any

from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.hw.config import LOOP_LEVELS, CoreConfig
from weft.hw.isa import Engine, Loop, Opcode, encode, instruction_layout
from weft.hw.loops import INDICES, LoopNest
from weft.sim import loops as meaning

CONFIG = CoreConfig(inp_depth=64, wgt_depth=64, acc_depth=64, out_depth=64)
strides = st.integers(0, CONFIG.acc_depth - 1)
loops = st.builds(
    Loop,
    engine=st.just(Engine.GEMM),
    level=st.integers(0, LOOP_LEVELS - 1),
    extent=st.sampled_from((1, 1, 2, 3, 5)),
    dst_stride=st.one_of(st.just(0), strides),
    a_stride=strides,
    b_stride=strides,
)
nests = st.tuples(st.integers(0, LOOP_LEVELS), *(strides,) * 3)


def generate(
    steps: list[Loop | tuple[int, ...]], pauses: int, cycles_limit: int
) -> tuple[list[list[tuple[int, ...]]], int]:
    """Micro-ops of each nest, and the cycles it took; bit ``cycle % 16`` of ``pauses`` makes the consumer pause."""
    loop_nest = LoopNest(CONFIG)
    produced: list[list[tuple[int, ...]]] = []
    cycles = 0

    async def bench(ctx: Any) -> None:
        nonlocal cycles
        layout = instruction_layout(CONFIG, Opcode.LOOP)
        left = list(steps)
        micro_op = loop_nest.micro_ops.payload
        while left or ctx.get(loop_nest.micro_ops.valid):
            ctx.set(loop_nest.micro_ops.ready, not pauses >> cycles % 16 & 1)
            step = left[0] if left else None
            ctx.set(loop_nest.set, 0)
            ctx.set(loop_nest.start, 0)
            ready = ctx.get(loop_nest.ready)
            if isinstance(step, Loop):
                ctx.set(loop_nest.loop, layout.from_bits(encode(CONFIG, step)))
                ctx.set(loop_nest.set, ready)
            elif step is not None:
                ctx.set(loop_nest.levels, step[0])
                for name, base in zip(INDICES, step[1:], strict=True):
                    ctx.set(loop_nest.base[name], base)
                ctx.set(loop_nest.start, ready)
            if ctx.get(loop_nest.micro_ops.valid) and ctx.get(loop_nest.micro_ops.ready):
                if ctx.get(micro_op.begin):
                    produced.append([])
                produced[-1].append(tuple(ctx.get(micro_op[name]) for name in (*INDICES, "first", "end")))
            if ready and left:
                left.pop(0)
            await ctx.tick()
            cycles += 1
            assert cycles <= cycles_limit, "the loops do not end"

    simulator = Simulator(loop_nest)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return produced, cycles


def expected(steps: list[Loop | tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    registers = [meaning.LoopLevel() for _ in range(LOOP_LEVELS)]
    nests: list[list[tuple[int, ...]]] = []
    for step in steps:
        if isinstance(step, Loop):
            registers[step.level] = meaning.LoopLevel(step.extent, step.dst_stride, step.a_stride, step.b_stride)
            continue
        nest = meaning.LoopNest(tuple(reversed(registers[: step[0]])))
        offsets = nest.part(0, nest.count)
        values = (offset + base for offset, base in zip(offsets[:3], step[1:], strict=True))
        micro_ops = [tuple(int(value) for value in row) for row in zip(*values, offsets[3], strict=True)]
        nests.append([(*micro_op, int(place == nest.count - 1)) for place, micro_op in enumerate(micro_ops)])
    return nests


@settings(max_examples=60)
@given(st.lists(st.one_of(loops, loops, nests), min_size=1, max_size=12), st.one_of(st.just(0), st.integers(0, 2**15)))
def test_micro_ops_follow_the_loops(steps: list[Loop | tuple[int, ...]], pauses: int) -> None:
    wanted = expected(steps)
    cycles_limit = 16 * (sum(map(len, wanted)) + len(steps) + 1)  # the consumer takes one of 16 at least
    produced, cycles = generate(steps, pauses, cycles_limit)
    for nest, (actual, micro_ops) in enumerate(zip(produced, wanted, strict=True)):
        assert len(actual) == len(micro_ops), f"nest {nest}"
        outside: set[str] = set()
        for place, (have, want) in enumerate(zip(actual, micro_ops, strict=True)):
            for name, value, index in zip(INDICES, have[:3], want[:3], strict=True):
                # Exact up to the first index outside, which shows as one; what comes after a fault does not count.
                if name not in outside:
                    assert value == index, f"nest {nest}, micro-op {place}: {name}"
                if index >= CONFIG.acc_depth:
                    outside.add(name)
            assert have[3:] == want[3:], f"nest {nest}, micro-op {place}: first, end"
    if not pauses:
        # One cycle each for LOOPs and micro-ops, one to fill the generator where it had run empty.
        starts = sum(not isinstance(step, Loop) for step in steps)
        assert cycles <= sum(map(len, wanted)) + len(steps) - starts + min(starts, 1 + len(steps) - starts)


def test_levels_that_are_not_used_do_not_count() -> None:
    steps = [
        Loop(engine=Engine.GEMM, level=0, extent=3, dst_stride=1, a_stride=2),
        Loop(engine=Engine.GEMM, level=2, extent=5, dst_stride=7, b_stride=1),
        (1, 3, 4, 5),
        (0, 6, 7, 8),
        (3, 0, 1, 2),
        (2, 9, 9, 9),
    ]
    produced, _ = generate(steps, 0, cycles_limit=60)
    assert produced == expected(steps)


def test_after_reset_all_six_levels_are_one_micro_op() -> None:
    produced, _ = generate([(LOOP_LEVELS, 3, 4, 5)], 0, cycles_limit=10)
    assert produced == [[(3, 4, 5, 1, 1)]]
