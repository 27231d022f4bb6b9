"""The interrupt pin of the whole core: what raises it, what lowers it, and that it is silent unless enabled."""

from __future__ import annotations

from typing import Any

from amaranth.sim import Simulator
from weft.hw.config import TINY
from weft.hw.core import Core
from weft.hw.registers import Control, Register, Status

from .test_registers import Host


def test_pin_follows_end_and_enable() -> None:
    core = Core(TINY)

    async def bench(ctx: Any) -> None:
        host = Host(ctx, core.s_axil)

        async def run_nothing() -> None:
            """A program without instructions faults without touching memory."""
            await host.write(Register.CONTROL, Control.START)
            for _ in range(20):
                if Status.INTERRUPT in Status(await host.read(Register.STATUS)):
                    return
            raise AssertionError("the program does not end")

        await run_nothing()
        assert not ctx.get(core.interrupt), "not enabled"
        await host.write(Register.INTERRUPT_ENABLE, 1)
        assert ctx.get(core.interrupt)
        await host.write(Register.CONTROL, Control.CLEAR_INTERRUPT)
        await ctx.tick()
        assert not ctx.get(core.interrupt)
        assert Status(await host.read(Register.STATUS)) == Status.IDLE | Status.FAULT
        await host.write(Register.CONTROL, Control.RESET)
        await run_nothing()
        assert ctx.get(core.interrupt)
        await host.write(Register.CONTROL, Control.RESET)
        await ctx.tick()
        assert not ctx.get(core.interrupt)

    simulator = Simulator(core)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
