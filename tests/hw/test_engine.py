"""The control that all engines share: tokens, order of sends, refusals and accounting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from weft.hw.config import TINY
from weft.hw.cycle_class import CycleClass
from weft.hw.engine import EngineControl
from weft.hw.isa import Engine, Fault, Instruction, Opcode, Store, Sync, encode

GEMM, VECTOR, STORE = 1 << Engine.GEMM, 1 << Engine.VECTOR, 1 << Engine.STORE


@dataclass
class Body:
    """Stands for an engine's body: takes an instruction when ``ready``, ends it ``latency`` cycles later, in order."""

    latency: Callable[[], int] = lambda: 3
    ready: Callable[[], bool] = lambda: True
    refuses: frozenset[int] = frozenset()
    ends: list[int] = field(default_factory=list)  # cycles in which instructions under way end


@dataclass
class Log:
    started: list[int] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)  # (cycle, mask)
    sent: list[tuple[int, int]] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    fault: tuple[Fault, int] | None = None
    idle: bool = False


def operate(
    program: list[Instruction],
    body: Body,
    *,
    tokens: Callable[[int], int] = lambda cycle: 31,
    send_ready: Callable[[int], bool] = lambda cycle: True,
    cycles: int = 100,
) -> Log:
    control = EngineControl(TINY)
    log = Log()

    async def bench(ctx: Any) -> None:
        position = 0
        for cycle in range(cycles):
            offered = position < len(program)
            ctx.set(control.commands.valid, offered)
            if offered:
                ctx.set(control.commands.payload.number, position)
                ctx.set(control.commands.payload.word, encode(TINY, program[position]))
            ctx.set(control.tokens, tokens(cycle))
            ctx.set(control.send.ready, send_ready(cycle))
            ctx.set(control.work.ready, body.ready())
            ctx.set(control.illegal, ctx.get(control.work.payload.number) in body.refuses)
            ending = bool(body.ends) and body.ends[0] <= cycle
            ctx.set(control.retire, ending)
            if ending:
                body.ends.pop(0)
            ctx.set(control.quiet, not body.ends)
            if ctx.get(control.work.valid) and ctx.get(control.work.ready):
                log.started.append(ctx.get(control.work.payload.number))
                body.ends.append(max([cycle + body.latency(), *(end + 1 for end in body.ends)]))
            if take := ctx.get(control.take):
                assert take & ~tokens(cycle) == 0
                log.taken.append((cycle, take))
            if ctx.get(control.send.valid) and send_ready(cycle):
                log.sent.append((cycle, ctx.get(control.send.payload)))
            if ctx.get(control.retired.valid):
                log.retired.append(ctx.get(control.retired.number))
            if ctx.get(control.fault.valid):
                log.fault = (Fault(ctx.get(control.fault.cause)), ctx.get(control.fault.number))
            if ctx.get(control.idle) and log.fault is None:
                assert len(log.retired) == position, "idle while an instruction is in the engine"
            log.classes.append(CycleClass(ctx.get(control.activity)).name)
            position += bool(offered and ctx.get(control.commands.ready))
            await ctx.tick()
        log.idle = bool(ctx.get(control.idle))

    simulator = Simulator(control)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return log


def work(wait: int = 0, send: int = 0) -> Store:
    return Store(index=0, offset=0, rows=1, columns=1, wait=wait, send=send)


def test_all_tokens_are_taken_at_once() -> None:
    log = operate([work(wait=GEMM | VECTOR)], Body(), tokens=lambda cycle: (GEMM if cycle > 9 else 0) | VECTOR)
    assert log.taken == [(10, GEMM | VECTOR)]
    assert log.started == [0]


def test_the_wait_is_for_the_lowest_missing_token() -> None:
    log = operate([work(wait=GEMM | VECTOR)], Body(), tokens=lambda cycle: GEMM * (cycle > 9) | VECTOR * (cycle > 15))
    assert log.classes.count("TOKEN_GEMM") == 9
    assert log.classes.count("TOKEN_VECTOR") == 6


@pytest.mark.parametrize("seed", range(12))
def test_sends_come_in_order_after_their_instruction_and_none_is_lost(seed: int) -> None:
    random = np.random.default_rng(seed)
    program: list[Instruction] = []
    for _ in range(60):
        send = int(random.choice([0, GEMM, VECTOR, GEMM | VECTOR]))
        wait = int(random.choice([0, 0, GEMM, VECTOR]))
        program.append(
            Sync(engine=Engine.STORE, wait=wait, send=send) if random.random() < 0.3 else work(wait=wait, send=send)
        )
    body = Body(latency=lambda: int(random.integers(1, 12)), ready=lambda: bool(random.random() < 0.8))
    offered = [int(random.integers(32)) for _ in range(1500)]
    accepted = [bool(random.random() < 0.4) for _ in range(1500)]
    log = operate(
        program, body, tokens=lambda cycle: offered[cycle], send_ready=lambda cycle: accepted[cycle], cycles=1500
    )
    assert [mask for _, mask in log.sent] == [instruction.send for instruction in program if instruction.send]
    assert [mask for _, mask in log.taken] == [instruction.wait for instruction in program if instruction.wait]
    assert log.retired == list(range(60))
    assert log.started == [n for n, instruction in enumerate(program) if instruction.opcode is Opcode.STORE]
    assert log.idle


def test_a_full_token_counter_holds_the_engine_up_without_losing_a_send() -> None:
    log = operate([work(send=GEMM)] * 40, Body(), send_ready=lambda cycle: cycle >= 60, cycles=160)
    assert log.classes.count("SEND") > 20
    assert [mask for _, mask in log.sent] == [GEMM] * 40
    assert log.sent[0][0] == 60


def test_a_refused_instruction_stops_the_engine_after_those_before_it() -> None:
    log = operate([work(send=GEMM), work(wait=VECTOR), work()], Body(refuses=frozenset({1})))
    assert log.fault == (Fault.ILLEGAL, 1)
    assert log.started == [0]
    assert log.taken == []
    assert [mask for _, mask in log.sent] == [GEMM]
    assert log.idle


def test_a_refusal_waits_for_its_tokens() -> None:
    log = operate([work(wait=GEMM)], Body(refuses=frozenset({0})), tokens=lambda cycle: 0)
    assert log.fault is None


def test_an_empty_engine_waits_for_instructions() -> None:
    log = operate([], Body(), cycles=5)
    assert log.classes == ["IDLE"] + ["INSTRUCTION"] * 4
