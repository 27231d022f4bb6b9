"""Tokens: every pair of engines, counters that are full, waits for several, deadlocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from weft.hw.isa import Engine, Fault, Finish, Load, Scratchpad, Sync
from weft.testbench.bench import Bench, core_test
from weft.testbench.memory import Timing


def pairs() -> Iterator[tuple[Engine, Engine]]:
    """Every sender and receiver."""
    return ((sender, receiver) for sender, receiver in product(Engine, Engine) if sender != receiver)


@core_test()
async def every_pair_exchanges_tokens(bench: Bench) -> None:
    """Back and forth, so that an engine that went on without its token would take one that is not for it."""
    for sender, receiver in pairs():
        program = []
        for _ in range(5):
            program += [
                Sync(engine=sender, send=1 << receiver),
                Sync(engine=receiver, wait=1 << sender, send=1 << sender),
                Sync(engine=sender, wait=1 << receiver),
            ]
        await bench.check([*program, Finish()])


@core_test()
async def sender_waits_while_the_counter_is_full(bench: Bench) -> None:
    """More tokens than a counter holds, before the receiver takes the first."""
    count = bench.config.token_depth + 3
    for sender, receiver in pairs():
        sends = [Sync(engine=sender, send=1 << receiver) for _ in range(count)]
        takes = [Sync(engine=receiver, wait=1 << sender) for _ in range(count)]
        await bench.check([*sends, *takes, Finish()])


@core_test()
async def waits_for_all_and_sends_to_all(bench: Bench) -> None:
    """One engine starts the others and goes on when all have answered."""
    for center in Engine:
        others = sum(1 << engine for engine in Engine if engine != center)
        program = [Sync(engine=center, send=others)]
        program += [Sync(engine=engine, wait=1 << center, send=1 << center) for engine in Engine if engine != center]
        await bench.check([*program, Sync(engine=center, wait=others), Finish()])


@core_test()
async def token_comes_after_the_data(bench: Bench) -> None:
    """Random instructions that depend on each other only through tokens are checked by the whole core's tests;
    here a slow load tells its token before a fast one that was started later."""
    bench.memory.set_timing(Timing(latency=(1, 90), reorder=True))
    for _ in range(5):
        program = [
            Load(scratchpad=Scratchpad.INP, index=0, offset=0, rows=1, columns=32, send=1 << Engine.GEMM),
            Load(engine=Engine.LOADW, scratchpad=Scratchpad.WGT, index=0, offset=0, rows=1, columns=8, send=4),
            Sync(engine=Engine.GEMM, wait=1 << Engine.LOAD | 1 << Engine.LOADW),
        ]
        await bench.check([*program, Finish()])


@core_test()
async def deadlock_is_reported(bench: Bench) -> None:
    """Each engine waits for a token that never comes, or has one to send for which there is never room."""
    for receiver in Engine:
        sender = Engine((receiver + 1) % len(Engine))
        fault = await bench.check_fault([Sync(engine=receiver, wait=1 << sender), Finish()], watchdog=100)
        assert (fault.cause, fault.engine, fault.number) == (Fault.WATCHDOG, receiver, 0)
        sends = [Sync(engine=sender, send=1 << receiver) for _ in range(bench.config.token_depth + 1)]
        result = await bench.run([*sends, Finish()], watchdog=100)
        assert result.fault is not None
        assert (result.fault.cause, result.fault.engine) == (Fault.WATCHDOG, sender)
