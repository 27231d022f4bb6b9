"""Watches the core's queues, tokens and engines in a test and turns what it sees into coverage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import cocotb
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, First, RisingEdge, ValueChange

from ..hw.config import CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.decode import decode
from ..hw.errors import InstructionError
from ..hw.isa import ENGINE_NAMES, Engine, Fault, Finish, Instruction, Opcode
from ..sim.result import FaultRecord
from .coverage import Coverage
from .points import (
    PORT_OF_INP,
    core_points,
    depthwise_points,
    fault_point,
    flags_of,
    operand_distances,
    order_relations,
    scratchpad_ends,
    stall_name,
)

BUSY: int = CycleClass.BUSY.value


class Observer:
    """Coverage of one test. ``started``: instructions of the program that have started, and what was before each."""

    def __init__(self, dut: Any, config: CoreConfig) -> None:
        self.config = config
        self.coverage = Coverage(core_points(config))
        self.started: list[tuple[int, str]] = []  # number, stall
        self._program: list[Instruction] = []
        for engine in Engine:
            name = ENGINE_NAMES[engine]
            cocotb.start_soon(self._follow_engine(dut, name))
            queue = getattr(dut, f"{name}_queue")
            cocotb.start_soon(self._count(FallingEdge(queue.input__ready), "queue", f"{name} queue: full"))
            cocotb.start_soon(self._count(RisingEdge(queue.empty), "queue", f"{name} queue: empty again"))
        for name in ("load", "loadw", "fetch"):
            room = getattr(dut, name).buffer.room
            cocotb.start_soon(self._follow_room(room, f"{name} read buffer", int(room.value)))
        cocotb.start_soon(self._count(FallingEdge(dut.write.words.w_rdy), "queue", "write buffer: full"))
        cocotb.start_soon(self._count(FallingEdge(dut.write.words.r_rdy), "queue", "write buffer: empty again"))
        if config.inp_takes_results:
            cocotb.start_soon(self._follow_port_of_inp(dut.inp_write))
        # Yosys adds a number to the name, which a signal of the core has already; some simulators list that, too.
        tokens = next(
            child
            for child in dut
            if isinstance(child, HierarchyObject) and child._name.lstrip("\\").startswith("tokens")
        )
        for sender, receiver in product(Engine, Engine):
            if sender != receiver:
                pair = (ENGINE_NAMES[sender], ENGINE_NAMES[receiver])
                counter = getattr(tokens, f"{pair[0]}_to_{pair[1]}")
                cocotb.start_soon(self._follow_tokens(counter, f"{pair[0]} to {pair[1]}"))

    def begin(self, program: Sequence[Instruction | int]) -> None:
        """A program starts."""
        self.started.clear()
        self._program = []
        for part in program:
            try:
                # Nothing that stands after a word without meaning is executed.
                self._program.append(decode(self.config, part) if isinstance(part, int) else part)
            except InstructionError:
                break

    def end(self, fault: FaultRecord | None) -> None:
        """The program has ended."""
        if fault is not None:
            if fault.cause is not Fault.NONE:
                self.coverage.hit("fault", fault_point(fault.cause, fault.engine))
            return
        program = [part for part in self._program if not isinstance(part, Finish)]
        ends = scratchpad_ends(self.config, program)
        distances = operand_distances(program)
        relations = order_relations(self.config, program)
        columns = depthwise_points(program)
        for number, stall in self.started:
            instruction = program[number]
            for point in flags_of(self.config, instruction):
                self.coverage.hit("instruction x flags", point)
            for point in ends[number]:
                self.coverage.hit("ends of scratchpads", point)
            for point in distances[number]:
                self.coverage.hit("operand x distance", point)
            for point in columns[number]:
                self.coverage.hit("depthwise", point)
            if (relation := relations[number]) is not None:
                name = ENGINE_NAMES[instruction.engine]
                self.coverage.hit("relation x stall", f"{name}: {relation}, {stall}")
        self.coverage.hit("instruction x flags", Opcode.FINISH.name)

    async def _follow_engine(self, dut: Any, name: str) -> None:
        """Note each start with the engine's class in the cycle before."""
        valid, number = getattr(dut, f"trace_{name}_started_valid"), getattr(dut, f"trace_{name}_started_number")
        activity = getattr(dut, f"trace_{name}_activity")
        before = [int(activity.value)]

        async def follow_activity() -> None:
            change, edge = ValueChange(activity), RisingEdge(dut.clk)
            while True:
                await change
                now = int(activity.value)
                await edge  # the class before a start is that of the cycle before
                before[0] = now

        cocotb.start_soon(follow_activity())
        edge, rises = RisingEdge(dut.clk), RisingEdge(valid)
        while True:
            if not valid.value:
                await rises
            stall = before[0]
            await edge
            while valid.value:
                self.started.append((int(number.value), stall_name(stall)))
                await edge
                stall = BUSY  # the cycle before had a start

    async def _count(self, trigger: Any, group: str, point: str) -> None:
        while True:
            await trigger
            self.coverage.hit(group, point)

    async def _follow_port_of_inp(self, port: Any) -> None:
        vector, load = port.first__enable, port.second__enable
        vector_comes, load_comes = RisingEdge(vector), RisingEdge(load)
        while True:
            await First(vector_comes, load_comes)
            if vector.value and load.value:
                self.coverage.hit("shared ports", PORT_OF_INP)

    async def _follow_room(self, room: Any, name: str, size: int) -> None:
        change = ValueChange(room)
        while True:
            await change
            left = int(room.value)
            if left in (0, size):
                self.coverage.hit("queue", f"{name}: {'empty again' if left else 'full'}")

    async def _follow_tokens(self, counter: Any, pair: str) -> None:
        change = ValueChange(counter)
        before = int(counter.value)
        while True:
            await change
            value = int(counter.value)
            self.coverage.hit("tokens", f"{pair}: {'sent' if value > before else 'taken'}")
            if value == self.config.token_depth:
                self.coverage.hit("tokens", f"{pair}: counter full")
            before = value
