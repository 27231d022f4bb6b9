"""The depthwise mode of the gemm engine: rows of outputs, shared columns, both modes in turn, what is refused."""

from __future__ import annotations

import os
from dataclasses import replace

from weft.hw.isa import Engine, Fault, Finish, Gemm, Instruction, Loop, Sync, encode, seal
from weft.testbench.bench import Bench, core_test
from weft.testbench.memory import Timing
from weft.testbench.runner import SETTINGS, Settings

CONFIG = Settings.from_json(os.environ[SETTINGS]).config
LACKS_MODE = not CONFIG.depthwise

ROW = Loop(engine=Engine.GEMM, level=0, extent=5, dst_stride=1, a_stride=1)
TAPS = Gemm(dst=0, src=0, wgt=0, levels=1, depthwise=1, row_pitch=7, column_pitch=1)


@core_test()
async def refuses_what_it_cannot_do(bench: Bench) -> None:
    """Rows in one bank; on a core without the mode, any of its bits."""
    if LACKS_MODE:
        plain = encode(bench.config, Gemm(dst=0, src=0, wgt=0))
        bad: Instruction | int = seal(bench.config, plain ^ 1 << 16 + 4 + 3 * bench.config.index_bits)
        fault = await bench.check_fault([Sync(engine=Engine.GEMM), bad, Finish()], precise=True)
        assert (fault.cause, fault.number) == (Fault.ILLEGAL, 1)
        return
    for pitch in (0, 2, 6):
        bad = replace(TAPS, row_pitch=pitch)
        fault = await bench.check_fault([ROW, replace(TAPS, dst=9), bad, Finish()], precise=True)
        assert (fault.cause, fault.engine, fault.number) == (Fault.ILLEGAL, Engine.GEMM, 2)


@core_test(skip=LACKS_MODE)
async def runs_rows_of_every_stride_and_dilation(bench: Bench) -> None:
    """Outputs that share two columns, one, or none with the one before; other taps for each; the same columns again."""
    rows = Loop(engine=Engine.GEMM, level=1, extent=3, dst_stride=5, a_stride=3)
    for column_pitch in (0, 1, 2):
        for a_stride in range(5):
            for b_stride in (0, 1):
                row = replace(ROW, a_stride=a_stride, b_stride=b_stride)
                taps = replace(TAPS, levels=2, column_pitch=column_pitch, row_pitch=1 + 2 * a_stride)
                await bench.check([row, rows, taps, replace(taps, dst=16, zero=1), Finish()])


@core_test(skip=LACKS_MODE)
async def runs_every_number_of_levels(bench: Bench) -> None:
    loops = [replace(ROW, level=level, extent=2, dst_stride=level % 3, a_stride=level + 1) for level in range(6)]
    gemms = [replace(TAPS, zero=zero, levels=levels, dst=levels, src=2) for levels in range(7) for zero in (0, 1)]
    await bench.check([*loops, *gemms, Finish()])


@core_test(skip=LACKS_MODE)
async def products_stand_before_and_behind_it(bench: Bench) -> None:
    """Both modes in turn, into the same accumulators."""
    product = Gemm(dst=2, src=4, wgt=1)
    await bench.check([ROW, product, TAPS, product, replace(TAPS, levels=0, dst=2), product, replace(product, levels=1),
                       replace(TAPS, zero=1), Finish()])  # fmt: skip


@core_test(skip=LACKS_MODE)
async def reaches_both_ends_of_its_scratchpads(bench: Bench) -> None:
    config = bench.config
    last = {"dst": config.acc_depth - 1, "src": config.inp_depth - 17, "wgt": config.wgt_depth - 1}
    await bench.check([replace(TAPS, levels=0), replace(TAPS, levels=0, **last), Finish()])


@core_test(skip=LACKS_MODE)
async def stops_exactly_at_a_tap_outside(bench: Bench) -> None:
    for inside in (0, 1, 4):
        bad = replace(TAPS, src=bench.config.inp_depth - 16 - inside)
        fault = await bench.check_fault([ROW, replace(TAPS, dst=9), bad, bad, Finish()], precise=True)
        assert (fault.cause, fault.engine, fault.number) == (Fault.INDEX, Engine.GEMM, 2)


@core_test(skip=LACKS_MODE)
async def any_sequence_of_indices_is_exact(bench: Bench) -> None:
    """Random instructions of both modes on few accumulators, which come at random times as the memory stutters."""
    for _ in range(60 if bench.long else 6):
        bench.memory.set_timing(Timing.random(bench.random))
        draw = bench.random.randrange
        program: list[Instruction] = []
        for _ in range(30):
            if draw(3) == 0:
                strides = {name: draw(3) for name in ("dst_stride", "a_stride", "b_stride")}
                program.append(Loop(engine=Engine.GEMM, level=draw(3), extent=draw(4) + 1, **strides))
            else:
                taps = {"depthwise": draw(2), "row_pitch": 2 * draw(5) + 1, "column_pitch": draw(3)}
                program.append(Gemm(zero=draw(2), levels=draw(4), dst=draw(4), src=draw(8), wgt=draw(8), **taps))
        await bench.check([*program, Finish()])
