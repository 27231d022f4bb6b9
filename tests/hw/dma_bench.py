"""Bench for the load and store engines: the engine, its DMA master, a random AXI memory and a scratchpad in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from weft.hw.bus import ReadClient
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine, Fault, Instruction, Load, Store, encode_unchecked
from weft.hw.load import LoadEngine
from weft.hw.memories import SCRATCHPADS, Memory
from weft.hw.read_dma import ReadMaster
from weft.hw.store import StoreEngine
from weft.hw.transfer_kinds import LoadTargets
from weft.hw.write_dma import WriteMaster
from weft.sim.dma import run_load, run_store, transfer_of, transfer_problem
from weft.sim.state import Memories

from .axi_memory import AxiMemory

WINDOW_BASE = 0x4000_0000


@dataclass
class Observed:
    """What a bench saw while the engine ran."""

    memories: Memories
    dram: AxiMemory
    fault: tuple[Fault, int] | None = None
    retired: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)  # beats written and acknowledged, at each retirement
    sent: list[int] = field(default_factory=list)
    write_cycles: list[int] = field(default_factory=list)
    cycles: int = 0


def random_memories(config: CoreConfig, seed: int) -> Memories:
    """Scratchpads full of random bits."""
    random = np.random.default_rng(seed)
    memories = Memories(config)
    for name in SCRATCHPADS:
        array = memories.array(name)
        limits = np.iinfo(array.dtype)
        array[...] = random.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    return memories


def reference(
    memories: Memories, dram: bytearray, program: Sequence[Instruction], window_size: int
) -> tuple[Fault, int] | None:
    """Run the program on ``memories`` and ``dram`` by its meaning; the fault and its instruction, if any."""
    view = np.frombuffer(dram, np.uint8)
    for number, instruction in enumerate(program):
        if not isinstance(instruction, Load | Store):
            continue
        transfer = transfer_of(memories.config, instruction)
        if problem := transfer_problem(memories.config, transfer, window_size):
            return problem[0], number
        if isinstance(instruction, Load):
            run_load(memories, view, 0, instruction, transfer)
        elif transfer.bytes:
            run_store(memories, view, 0, transfer)
    return None


class DmaBench:
    """A load or store engine with its master; built once for a configuration, run many times."""

    def __init__(self, config: CoreConfig, engine: Engine) -> None:
        self.config = config
        m = Module()
        self.engine: Any
        self.master: Any
        if engine is Engine.STORE:
            self.engine, self.master = StoreEngine(config), WriteMaster(config)
            wiring.connect(m, self.engine.client, self.master.client)
        else:
            self.engine, self.master = LoadEngine(config, engine), ReadMaster(config)
            wiring.connect(m, self.engine.client, self.master.clients[ReadClient[engine.name]])
        m.submodules.engine = self.engine
        m.submodules.master = self.master
        self.kind = engine
        self.simulator = Simulator(m)
        self.simulator.add_clock(1e-6)
        self.simulator.add_testbench(self._testbench)
        self.simulator.add_testbench(self._scratchpad, background=True)
        self.simulator.add_testbench(self._serve, background=True)
        self.used = False
        self.job: Any = None
        self.observed: Observed

    def run(
        self,
        memories: Memories,
        dram: AxiMemory,
        program: Sequence[Instruction],
        *,
        window_size: int,
        seed: int | None = None,
        cycles_limit: int = 15000,
    ) -> Observed:
        """Run the program to its end; with a ``seed``, instructions and write grants come at random times."""
        self.observed = Observed(memories, dram)
        self.job = (program, window_size, seed, cycles_limit)
        if self.used:  # a reset before the first run would leave coroutines that nobody awaits
            self.simulator.reset()
        self.used = True
        self.simulator.run()
        return self.observed

    async def _serve(self, ctx: Any) -> None:
        serve = self.observed.dram.serve_writes if self.kind is Engine.STORE else self.observed.dram.serve_reads
        await serve(ctx, self.master.axi)

    async def _scratchpad(self, ctx: Any) -> None:
        observed = self.observed
        random = Random(self.job[2])
        if self.kind is Engine.STORE:
            in_flight: list[int | None] = [None]
            while True:
                _, _, enable, index = await ctx.tick().sample(self.engine.out.enable, self.engine.out.index)
                arrived = in_flight.pop(0)
                if arrived is not None:
                    ctx.set(self.engine.out.data, int.from_bytes(observed.memories.out[arrived].tobytes(), "little"))
                in_flight.append(index if enable else None)
        ports = {"own": LoadTargets.of(self.kind).own, "acc": Memory.ACC}
        cycle = 0
        while True:
            ctx.set(self.engine.own.ready, 1)
            ctx.set(self.engine.acc.ready, self.job[2] is None or random.random() < 0.7)
            sampled = []
            for port in ports:
                pads = getattr(self.engine, port)
                sampled += [pads.enable, pads.ready, pads.index, pads.data, pads.mask]
            _, _, *values = await ctx.tick().sample(*sampled)
            cycle += 1
            for place, (port, name) in enumerate(ports.items()):
                enable, ready, index, data, mask = values[5 * place : 5 * place + 5]
                if not enable or not ready:
                    continue
                entry = observed.memories.array(name)[index].view(np.uint8)
                raw = np.frombuffer(int(data).to_bytes(len(entry), "little"), np.uint8)
                chunks = len(getattr(self.engine, port).mask)
                written = np.repeat([bool(mask >> chunk & 1) for chunk in range(chunks)], len(entry) // chunks)
                entry[written] = raw[written]
                observed.write_cycles.append(cycle)

    async def _testbench(self, ctx: Any) -> None:
        program, window_size, seed, cycles_limit = self.job
        observed, engine = self.observed, self.engine
        random = Random(seed)
        queue = [encode_unchecked(self.config, instruction) for instruction in program]
        position = 0
        ctx.set(engine.window_size, window_size)
        ctx.set(self.master.base, WINDOW_BASE)
        ctx.set(engine.tokens, 0x1F)
        for cycle in range(cycles_limit):
            offered = position < len(queue) and (seed is None or random.random() < 0.7)
            ctx.set(engine.commands.valid, offered)
            if offered:
                ctx.set(engine.commands.payload.number, position)
                ctx.set(engine.commands.payload.word, queue[position])
            ctx.set(engine.send.ready, seed is None or random.random() < 0.6)
            if ctx.get(engine.send.valid) and ctx.get(engine.send.ready):
                observed.sent.append(ctx.get(engine.send.payload))
            if ctx.get(engine.retired.valid):
                observed.retired.append(ctx.get(engine.retired.number))
                observed.answered.append(observed.dram.answered_beats)
            if ctx.get(engine.fault.valid) and observed.fault is None:
                observed.fault = (Fault(ctx.get(engine.fault.cause)), ctx.get(engine.fault.number))
            accepted = offered and ctx.get(engine.commands.ready)
            finished = position == len(queue) and ctx.get(engine.idle)
            if (finished or observed.fault is not None) and not ctx.get(self.master.busy) and cycle > 3:
                break
            await ctx.tick()
            position += bool(accepted)
        else:
            raise AssertionError(f"the engine is not idle after {cycles_limit} cycles: {observed}")
        await ctx.tick()
        observed.cycles = cycle
