"""The register file behind AXI4-Lite: identity, settings, byte strobes, locks, the interrupt, back-pressure."""

from __future__ import annotations

import cocotb
from cocotb.triggers import ClockCycles, Combine
from weft.hw.config import ISA_VERSION
from weft.hw.cycle_class import CycleClass
from weft.hw.isa import Engine, Fault, Finish, Sync
from weft.hw.registers import MAGIC, Control, Register, Status, class_counter
from weft.testbench.bench import WATCHDOG_CYCLES, Bench, core_test
from weft.testbench.memory import Timing

SETTINGS = (
    Register.WINDOW_SIZE_LO,
    Register.PROGRAM_OFFSET,
    Register.WATCHDOG,
)
"""Registers that keep 32 bits as they are written."""


@core_test()
async def core_says_who_it_is(bench: Bench) -> None:
    config = bench.config
    assert await bench.read_register(Register.MAGIC) == MAGIC
    assert await bench.read_register(Register.VERSION) == ISA_VERSION
    halves = [await bench.read_register(register) for register in (Register.HASH_LO, Register.HASH_HI)]
    assert halves[0] | halves[1] << 32 == config.hash64
    assert await bench.read_register(Register.STATUS) == Status.IDLE
    for unknown in (0x01C, 0x02C, 0x080, 0xFFC):
        await bench.write_register(unknown, 0xFFFF_FFFF)
        assert await bench.read_register(unknown) == 0


@core_test()
async def settings_keep_what_is_written_byte_by_byte(bench: Bench) -> None:
    """Writes of 1 to 4 bytes at any place in the word, under back-pressure on all five channels."""
    for stall in (0.0, 0.3, 0.8):
        bench.stall_registers(stall)
        for register in SETTINGS:
            value = bytearray(bench.random.randbytes(4))
            await bench.registers.write(register, bytes(value))
            for _ in range(6):
                start = bench.random.randrange(4)
                part = bench.random.randbytes(bench.random.randint(1, 4 - start))
                await bench.registers.write(register + start, part)
                value[start : start + len(part)] = part
                assert (await bench.registers.read(register, 4)).data == value


@core_test()
async def reads_and_writes_go_on_side_by_side(bench: Bench) -> None:
    """Many of both at once: none is lost, and each read gets the answer to its own address."""
    bench.stall_registers(0.4)
    answers: dict[int, int] = {}

    async def write(register: int, value: int) -> None:
        await bench.write_register(register, value)

    async def read(register: int) -> None:
        answers[register] = await bench.read_register(register)

    values = {register: bench.random.getrandbits(32) for register in SETTINGS}
    jobs = [cocotb.start_soon(write(register, value)) for register, value in values.items()]
    jobs += [cocotb.start_soon(read(register)) for register in (Register.MAGIC, Register.VERSION, Register.CYCLES_LO)]
    await Combine(*jobs)
    assert answers == {Register.MAGIC: MAGIC, Register.VERSION: ISA_VERSION, Register.CYCLES_LO: 0}
    for register, value in values.items():
        assert await bench.read_register(register) == value


@core_test()
async def window_base_is_a_multiple_of_a_page(bench: Bench) -> None:
    await bench.write_register(Register.WINDOW_BASE_LO, 0x1234_5678)
    assert await bench.read_register(Register.WINDOW_BASE_LO) == 0x1234_5000


@core_test()
async def settings_are_locked_while_the_core_runs(bench: Bench) -> None:
    program = [Sync(engine=Engine.GEMM, wait=1 << Engine.LOAD), Finish()]
    await bench.start_program(program, watchdog=0)
    before = {register: await bench.read_register(register) for register in (*SETTINGS, Register.PROGRAM_COUNT)}
    for register, value in before.items():
        await bench.write_register(register, ~value & 0xFFFF_FFFF)
        assert await bench.read_register(register) == value
    assert Status.RUNNING in Status(await bench.read_register(Register.STATUS))
    await bench.write_register(Register.CONTROL, Control.RESET)
    await bench.drain()
    await bench.check([Finish()])


@core_test()
async def reset_stops_a_run_at_any_moment(bench: Bench) -> None:
    """Bursts under way are completed, as the bus demands; the next program runs."""
    for _ in range(40 if bench.long else 8):
        bench.memory.set_timing(Timing.random(bench.random))
        await bench.start_program([*(Sync(engine=Engine.STORE) for _ in range(60)), Finish()])
        await ClockCycles(bench.dut.clk, bench.random.randrange(200))
        await bench.write_register(Register.CONTROL, Control.RESET)
        await bench.drain()
        assert await bench.read_register(Register.STATUS) == Status.IDLE
        await bench.check([Sync(engine=Engine.STORE), Finish()])


@core_test()
async def interrupt_tells_the_end_once_enabled(bench: Bench) -> None:
    async def line() -> bool:
        await ClockCycles(bench.dut.clk, 3)
        return bool(bench.dut.interrupt.value)

    await bench.check([Finish()])
    assert not await line()
    await bench.write_register(Register.INTERRUPT_ENABLE, 0)
    await bench.write_register(Register.CONTROL, Control.START)
    await ClockCycles(bench.dut.clk, 200)
    assert not await line()
    assert await bench.read_register(Register.STATUS) == Status.IDLE | Status.DONE | Status.INTERRUPT
    await bench.write_register(Register.INTERRUPT_ENABLE, 1)
    assert await line()
    await bench.write_register(Register.CONTROL, Control.CLEAR_INTERRUPT)
    assert not await line()


@core_test()
async def every_cycle_of_a_run_is_in_one_class(bench: Bench) -> None:
    """The class counters of each engine sum to the cycles of the run."""
    result = await bench.check([*(Sync(engine=engine) for engine in Engine), Finish()])
    for engine in Engine:
        counts = [await bench.read_register(class_counter(engine, kind)) for kind in CycleClass]
        assert sum(counts) == result.cycles


@core_test()
async def watchdog_can_be_off(bench: Bench) -> None:
    """With 0 a core that waits for ever does so; with a limit it says who waits."""
    stuck = [Sync(engine=Engine.VECTOR, wait=1 << Engine.GEMM), Finish()]
    await bench.start_program(stuck, watchdog=0)
    await ClockCycles(bench.dut.clk, 2 * WATCHDOG_CYCLES)
    assert Status.RUNNING in Status(await bench.read_register(Register.STATUS))
    await bench.write_register(Register.CONTROL, Control.RESET)
    fault = await bench.check_fault(stuck, watchdog=50)
    assert (fault.cause, fault.engine) == (Fault.WATCHDOG, Engine.VECTOR)
