"""The gemm engine: loops, starts from zero, accumulators used again at once, ends of the scratchpads, bad indices."""

from __future__ import annotations

from dataclasses import replace

from weft.hw.config import LOOP_LEVELS
from weft.hw.isa import Engine, Fault, Finish, Gemm, Instruction, Loop, Sync
from weft.testbench.bench import Bench, core_test
from weft.testbench.memory import Timing

LOOP = Loop(engine=Engine.GEMM, level=0, extent=1)


@core_test()
async def runs_every_number_of_levels(bench: Bench) -> None:
    """Six nested loops, used up to each level, with and without a start from zero."""
    loops = [
        Loop(engine=Engine.GEMM, level=level, extent=2, dst_stride=level % 3, a_stride=level, b_stride=2 * level)
        for level in range(LOOP_LEVELS)
    ]
    gemms = [
        Gemm(zero=zero, levels=levels, dst=levels, src=3, wgt=5) for levels in range(LOOP_LEVELS + 1) for zero in (0, 1)
    ]
    await bench.check([*loops, *gemms, Finish()])


@core_test()
async def accumulates_into_an_entry_used_a_few_products_before(bench: Bench) -> None:
    """The same accumulator comes again after 1 to 9 products: its value is forwarded, or has been written."""
    for period in range(1, 10):
        program: list[Instruction] = [
            replace(LOOP, level=0, extent=period, dst_stride=1, a_stride=1),
            replace(LOOP, level=1, extent=4, b_stride=1),
            Gemm(levels=2, dst=9, src=0, wgt=0),
            Gemm(zero=1, levels=2, dst=9, src=7, wgt=1),
            Gemm(dst=9, src=1, wgt=1),  # and across instructions
            Gemm(dst=9 + period - 1, src=1, wgt=1),
        ]
        await bench.check([*program, Finish()])


@core_test()
async def any_sequence_of_indices_is_exact(bench: Bench) -> None:
    """Random instructions on few accumulators, which come at random times as the memory stutters."""
    for _ in range(60 if bench.long else 6):
        bench.memory.set_timing(Timing.random(bench.random))
        draw = bench.random.randrange
        program: list[Instruction] = []
        for _ in range(30):
            if draw(3) == 0:
                strides = {name: draw(3) for name in ("dst_stride", "a_stride", "b_stride")}
                program.append(Loop(engine=Engine.GEMM, level=draw(3), extent=draw(4) + 1, **strides))
            else:
                program.append(Gemm(zero=draw(2), levels=draw(4), dst=draw(4), src=draw(8), wgt=draw(8)))
        await bench.check([*program, Finish()])


@core_test()
async def reaches_both_ends_of_its_scratchpads(bench: Bench) -> None:
    config = bench.config
    last = {"dst": config.acc_depth - 1, "src": config.inp_depth - 1, "wgt": config.wgt_depth - 1}
    await bench.check([Gemm(dst=0, src=0, wgt=0), Gemm(**last), Gemm(zero=1, **last), Finish()])


@core_test()
async def stops_exactly_at_a_bad_index(bench: Bench) -> None:
    """Products before the bad one count, that one and all after it do not."""
    config = bench.config
    depths = {"dst": config.acc_depth, "src": config.inp_depth, "wgt": config.wgt_depth}
    loop = replace(LOOP, extent=4, dst_stride=1, a_stride=1, b_stride=1)
    for operand, depth in depths.items():
        for inside in (0, 1, 3):
            place = {"dst": 0, "src": 0, "wgt": 0, operand: depth - inside}
            if place[operand] >= 1 << config.index_bits:
                continue  # the field does not hold it
            bad = Gemm(levels=1, **place)
            fault = await bench.check_fault([loop, Gemm(dst=1, src=1, wgt=1), bad, bad, Finish()], precise=True)
            assert (fault.cause, fault.engine, fault.number) == (Fault.INDEX, Engine.GEMM, 2)


@core_test()
async def refuses_loops_that_do_not_exist(bench: Bench) -> None:
    for bad in (replace(LOOP, extent=0), replace(LOOP, level=LOOP_LEVELS), Gemm(levels=7, dst=0, src=0, wgt=0)):
        fault = await bench.check_fault([Sync(engine=Engine.GEMM), bad, Finish()], precise=True)
        assert (fault.cause, fault.engine, fault.number) == (Fault.ILLEGAL, Engine.GEMM, 1)
