"""Bench for the gemm and vector engines: an engine between real memories, and the state it must end in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from weft.hw.acc_memory import AccMemory
from weft.hw.config import LOOP_LEVELS, CoreConfig
from weft.hw.core import memory_parts
from weft.hw.cycle_class import CycleClass
from weft.hw.gemm import GemmEngine
from weft.hw.inp_memory import InpMemory
from weft.hw.isa import Fault, Gemm, Instruction, Loop, Vector, encode_unchecked
from weft.hw.memories import Memory
from weft.hw.scratchpad import Scratchpad
from weft.hw.vector import VectorEngine
from weft.hw.vector_results import narrow_write_ports
from weft.sim.gemm import run_gemm
from weft.sim.loops import LoopLevel, LoopNest
from weft.sim.state import Memories
from weft.sim.vector import run_vector

WRITTEN = (Memory.INP, Memory.ACC, Memory.OUT, Memory.TAB)
"""What the engines write."""


def written(config: CoreConfig) -> list[Memory]:
    """What the engines of a core write."""
    return [memory for memory in WRITTEN if memory in config.scratchpads]


@dataclass
class Observed:
    """What a bench saw while the engine ran."""

    memories: Memories
    fault: tuple[Fault, int] | None = None
    started: list[tuple[int, int]] = field(default_factory=list)  # (cycle, instruction number)
    retired: list[tuple[int, int]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    cycles: int = 0
    writes: list[int] = field(default_factory=list)  # cycles with a write

    @property
    def span(self) -> int:
        """Cycles from the first start to the last write."""
        return self.writes[-1] - self.started[0][0]


def random_memories(config: CoreConfig, seed: int) -> Memories:
    """Scratchpads full of random bits."""
    random = np.random.default_rng(seed)
    memories = Memories(config)
    for name in config.scratchpads:
        array = memories.array(name)
        limits = np.iinfo(array.dtype)
        array[...] = random.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    return memories


def copy_memories(memories: Memories) -> Memories:
    copy = Memories(memories.config)
    for name in memories.config.scratchpads:
        copy.array(name)[...] = memories.array(name)
    return copy


def reference(memories: Memories, program: Sequence[Instruction]) -> tuple[Fault, int] | None:
    """Run the program on ``memories`` by its meaning; the fault and its instruction, if any."""
    loops = [LoopLevel() for _ in range(LOOP_LEVELS)]
    for number, instruction in enumerate(program):
        match instruction:
            case Loop():
                loops[instruction.level] = LoopLevel(
                    instruction.extent, instruction.dst_stride, instruction.a_stride, instruction.b_stride
                )
                continue
            case Gemm():
                nest = LoopNest(tuple(reversed(loops[: instruction.levels])))
                _, bad = run_gemm(memories, nest, instruction)
            case Vector():
                nest = LoopNest(tuple(reversed(loops[: instruction.levels])))
                _, bad = run_vector(memories, nest, instruction)
            case _:
                continue
        if bad is not None:
            return Fault.INDEX, number
    return None


class Bench:
    """A gemm or vector engine with memories; built once for a configuration, run many times."""

    def __init__(self, config: CoreConfig, kind: type[GemmEngine] | type[VectorEngine]) -> None:
        self.config = config
        self.engine = engine = kind(config)
        self.acc = acc = AccMemory(config)
        m = Module()
        m.submodules.engine = engine
        m.submodules.acc = acc
        self.pads: dict[Memory, Scratchpad | InpMemory] = {}
        if isinstance(engine, GemmEngine):
            for name in (Memory.INP, Memory.WGT):
                bits = 8 * config.entry_bytes(name)
                banked = config.banks(name) > 1
                pad = InpMemory(config) if banked else Scratchpad(config.depth(name), bits, bits)
                m.submodules[name] = self.pads[name] = pad
                wiring.connect(m, getattr(engine, f"read_{name}"), pad.read)
            wiring.connect(m, engine.read_acc, acc.gemm_read)
            wiring.connect(m, engine.write_acc, acc.gemm_write)
        else:
            bits = 8 * config.out_bytes
            for name in narrow_write_ports(config):
                memory = Memory(name.removeprefix("write_"))
                pad = Scratchpad(config.depth(memory), bits, bits // len(getattr(engine, name).mask))
                m.submodules[memory] = self.pads[memory] = pad
                wiring.connect(m, getattr(engine, name), pad.write)
            for name in ("a", "b", "d"):
                wiring.connect(m, getattr(engine, f"read_{name}"), getattr(acc, f"vector_{name}"))
            wiring.connect(m, engine.write_acc, acc.vector_write)
        self.simulator = Simulator(m)
        self.simulator.add_clock(1e-6)
        self.observed: Observed
        self.job: Any = None
        self.used = False

    def run(
        self,
        memories: Memories,
        program: Sequence[Instruction],
        *,
        seed: int | None = None,
        disturb: float = 0,
        stop_at: int | None = None,
        cycles_limit: int = 20000,
    ) -> Observed:
        """Run the program to its end; with a ``seed``, instructions, tokens and room for tokens come at random times.

        With ``disturb``, another reader and writer take random accumulator banks from a vector engine, in that share of
        the cycles (their writes have an empty mask). ``stop_at``: the core stops in that cycle.
        """
        self.observed = Observed(copy_memories(memories))
        self.job = (program, seed, disturb, stop_at, cycles_limit)
        if self.used:
            self.simulator.reset()
        else:
            self.simulator.add_testbench(self._testbench)
        self.used = True
        self.simulator.run()
        return self.observed

    def _banks(self, name: Memory) -> list[tuple[Any, tuple[slice, slice]]]:
        """Simulated memories behind a scratchpad, with the entries, and the elements of them, that each one holds."""
        parts = memory_parts(self.config, name)
        if name is Memory.TAB:
            if not isinstance(self.engine, VectorEngine) or self.engine.results.tables is None:
                return []
            return [(lane.data, part) for lane, part in zip(self.engine.results.tables.memories, parts, strict=True)]
        if name is not Memory.ACC and name not in self.pads:
            return []
        pad = self.acc if name is Memory.ACC else self.pads[name]
        banks = [pad] if isinstance(pad, Scratchpad) else pad.banks
        return [(bank.memory.data, part) for bank, part in zip(banks, parts, strict=True)]

    async def _testbench(self, ctx: Any) -> None:
        program, seed, disturb, stop_at, cycles_limit = self.job
        observed, engine, config = self.observed, self.engine, self.config
        random = np.random.default_rng(seed)
        for name in config.scratchpads:
            for memory, entries in self._banks(name):
                for index, entry in enumerate(observed.memories.array(name)[entries]):
                    ctx.set(memory[index], int.from_bytes(entry.tobytes(), "little"))
        queue = [encode_unchecked(config, instruction) for instruction in program]
        position = 0
        for cycle in range(cycles_limit):
            relaxed = seed is None
            stopped = stop_at is not None and cycle >= stop_at
            ctx.set(engine.stop, stopped)
            offered = position < len(queue) and (relaxed or random.random() < 0.7)
            ctx.set(engine.commands.valid, offered)
            if offered:
                ctx.set(engine.commands.payload.number, position)
                ctx.set(engine.commands.payload.word, queue[position])
            ctx.set(engine.tokens, 0x1F if relaxed else int(random.integers(0, 32) | random.integers(0, 32)))
            ctx.set(engine.send.ready, relaxed or random.random() < 0.6)
            if disturb:
                ctx.set(self.acc.gemm_read.enable, random.random() < disturb)
                ctx.set(self.acc.gemm_read.index, int(random.integers(config.acc_depth)))
                ctx.set(self.acc.gemm_write.enable, random.random() < disturb)
                ctx.set(self.acc.gemm_write.mask, 0)
                ctx.set(self.acc.gemm_write.index, int(random.integers(config.acc_depth)))
            self._observe(ctx, cycle)
            accepted = offered and ctx.get(engine.commands.ready)
            if position == len(queue) and ctx.get(engine.idle) and cycle > 3:
                break
            if ctx.get(engine.idle) and (observed.fault is not None or stopped):
                break
            await ctx.tick()
            position += bool(accepted)
        else:
            raise AssertionError(f"the engine is not idle after {cycles_limit} cycles: {observed}")
        observed.cycles = cycle
        for name in written(config):
            array = observed.memories.array(name)
            for memory, entries in self._banks(name):
                part = array[entries]
                for index in range(len(part)):
                    raw = int(ctx.get(memory[index])).to_bytes(part.shape[1] * part.itemsize, "little")
                    part[index] = np.frombuffer(raw, part.dtype)

    def _observe(self, ctx: Any, cycle: int) -> None:
        observed, engine = self.observed, self.engine
        for events, log in ((engine.started, observed.started), (engine.retired, observed.retired)):
            if ctx.get(events.valid):
                log.append((cycle, ctx.get(events.number)))
        if ctx.get(engine.send.valid) and ctx.get(engine.send.ready):
            observed.sent.append(ctx.get(engine.send.payload))
        if ctx.get(engine.fault.valid) and observed.fault is None:
            observed.fault = (Fault(ctx.get(engine.fault.cause)), ctx.get(engine.fault.number))
        name = CycleClass(ctx.get(engine.activity)).name
        observed.classes[name] = observed.classes.get(name, 0) + 1
        ports = [engine.write_acc]
        if isinstance(engine, VectorEngine):
            ports += [getattr(engine, name) for name in narrow_write_ports(self.config)]
            if (tables := engine.results.tables) is not None and ctx.get(tables.enable & tables.write):
                observed.writes.append(cycle)  # perhaps in the cycle in which a port is written as well
        if any(ctx.get(port.enable) and ctx.get(port.ready) for port in ports):
            observed.writes.append(cycle)


def last_writes(program: Sequence[Instruction]) -> dict[int, int]:
    """For each instruction with micro-ops, how many writes there are up to its last one: a micro-op makes one."""
    extents = [1] * LOOP_LEVELS
    writes, result = 0, {}
    for number, instruction in enumerate(program):
        match instruction:
            case Loop():
                extents[instruction.level] = instruction.extent
            case Gemm() | Vector():
                writes += prod(extents[: instruction.levels])
                result[number] = writes
    return result


def check(
    bench: Bench, memories: Memories, program: Sequence[Instruction], *, seed: int | None = None, disturb: float = 0
) -> Observed:
    """Run the program on the engine and by its meaning: same memories, fault, sends and order of instructions."""
    expected = copy_memories(memories)
    fault = reference(expected, program)
    observed = bench.run(memories, program, seed=seed, disturb=disturb)
    assert observed.fault == fault
    assert_same(observed.memories, expected)
    if fault is None:
        assert observed.sent == [instruction.send for instruction in program if instruction.send]
        for log in (observed.started, observed.retired):
            assert [number for _, number in log] == list(range(len(program)))
        ends = last_writes(program)
        for cycle, number in observed.retired:  # reported in the cycle after
            assert number not in ends or cycle > observed.writes[ends[number] - 1], "retired before its last write"
    assert sum(observed.classes.values()) == observed.cycles + 1
    return observed


def assert_same(observed: Memories, expected: Memories) -> None:
    for name in written(observed.config):
        actual: npt.NDArray[Any] = observed.array(name)
        np.testing.assert_array_equal(actual, expected.array(name), err_msg=f"scratchpad {name}")
