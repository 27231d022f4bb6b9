"""The core: engines, queues, tokens, scratchpads, DMA and registers wired together, and what runs them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .acc_memory import AccMemory
from .axi import MasterSignature, RegisterSlaveSignature
from .bus import OFFSET_BITS, PAGE_BYTES, ReadClient
from .config import CoreConfig
from .cycle_class import FIRST_TOKEN_CLASS, CycleClass
from .fetch import Fetch
from .gemm import GemmEngine
from .inp_memory import InpMemory
from .interfaces import ENGINES, EventSignature, chunk_bits, command_layout
from .isa import ENGINE_BITS, ENGINE_NAMES, FETCH, Engine, Fault
from .layout_fifo import LayoutFifo
from .load import LoadEngine
from .memories import SCRATCHPADS, Memory
from .pipelines import CLEAR_CYCLES, NUMBER_BITS
from .read_dma import ReadMaster
from .register_file import CycleCounters, RegisterFile
from .registers import Status
from .scratchpad import Scratchpad
from .shared_write import SharedWrite
from .store import StoreEngine
from .tokens import TokenMatrix
from .vector import VectorEngine
from .write_dma import WriteMaster

SCRATCHPAD_PORTS = (
    (Engine.VECTOR, "write_inp", Memory.INP, "write"),  # if the core's results may go there
    (Engine.LOAD, "own", Memory.INP, "write"),
    (Engine.LOADW, "own", Memory.WGT, "write"),
    (Engine.GEMM, "read_inp", Memory.INP, "read"),
    (Engine.GEMM, "read_wgt", Memory.WGT, "read"),
    (Engine.VECTOR, "write_out", Memory.OUT, "write"),
    (Engine.STORE, "out", Memory.OUT, "read"),
    (Engine.GEMM, "read_acc", Memory.ACC, "gemm_read"),
    (Engine.GEMM, "write_acc", Memory.ACC, "gemm_write"),
    (Engine.VECTOR, "read_a", Memory.ACC, "vector_a"),
    (Engine.VECTOR, "read_b", Memory.ACC, "vector_b"),
    (Engine.VECTOR, "read_d", Memory.ACC, "vector_d"),
    (Engine.VECTOR, "write_acc", Memory.ACC, "vector_write"),
    (Engine.LOAD, "acc", Memory.ACC, "load_write"),
    (Engine.LOADW, "acc", Memory.ACC, "loadw_write"),
)
"""Which port of which engine is wired to which port of a scratchpad; of two, the first goes first."""


def scratchpad_ports(config: CoreConfig) -> list[tuple[Engine, str, Memory, str]]:
    """The rows of :data:`SCRATCHPAD_PORTS` that a core has."""
    vector_writes_inp = (Engine.VECTOR, Memory.INP)
    return [row for row in SCRATCHPAD_PORTS if config.inp_takes_results or (row[0], row[2]) != vector_writes_inp]


def memory_paths(config: CoreConfig, memory: Memory) -> list[tuple[str, ...]]:
    """Where in the core's hierarchy the memories of a scratchpad are, as ``("acc", "bank_0", "memory")``; what each of
    them holds is in :func:`memory_parts`."""
    if memory is Memory.TAB:
        return [("vector", "results", "tables", f"lane_{lane}") for lane in range(config.lanes)]
    if memory is Memory.ACC or config.banks(memory) > 1:
        return [(memory, f"bank_{bank}", "memory") for bank in range(config.banks(memory))]
    return [(memory, "memory")]


def memory_parts(config: CoreConfig, memory: Memory) -> list[tuple[slice, slice]]:
    """Which entries, and which elements of them, are in each memory of :func:`memory_paths`: a bank has whole entries,
    a lane its element of each."""
    if memory is Memory.TAB:
        return [(slice(None), slice(lane, lane + 1)) for lane in range(config.lanes)]
    return [(config.bank_entries(memory, bank), slice(None)) for bank in range(config.banks(memory))]


SCRATCHPAD_CELLS = tuple(
    cell
    for memory in SCRATCHPADS
    for cell in {Memory.ACC: ("acc.bank_*",), Memory.INP: ("inp", "inp.bank_*")}.get(memory, (str(memory),))
)
"""Patterns of the cells that hold the scratchpads' memories: ``inp`` has banks on some cores."""


def system_members(config: CoreConfig, *, tells_running: bool, in_relay: bool) -> dict[str, wiring.Member]:
    """The ports of a core that only some systems need; see :class:`Core`."""
    relay = {
        "start": In(1),
        "shift": In(page_bits(config)),
        "in_turn": In(1),
        "turn_offset": In(OFFSET_BITS),
        "turn_count": In(NUMBER_BITS),
        "status": Out(len(Status)),
    }
    return ({"running": Out(1)} if tells_running else {}) | (relay if in_relay else {})


def page_bits(config: CoreConfig) -> int:
    """Width of the number of a page of 4 KiB of the memory."""
    return config.address_bits - (PAGE_BYTES.bit_length() - 1)


class TraceSignature(wiring.Signature):
    """What an engine does, for traces: events, and the class of each cycle."""

    def __init__(self) -> None:
        events = Out(EventSignature())
        super().__init__({"started": events, "retired": events, "activity": Out(CycleClass)})


class Core(wiring.Component):
    """A whole accelerator core.

    m_axi
        Memory: reads and writes are independent of each other.
    s_axil
        Registers (:class:`~weft.hw.registers.Register`).
    interrupt
        High from the end of a program (or its fault) until cleared, where enabled.
    trace
        For each engine its events and activity; for simulation and debugging, may stay unconnected.
    running
        With ``tells_running``: a program runs, and its cycles are counted.
    start, shift, in_turn, turn_offset, turn_count, status
        With ``in_relay``: a start as that by CONTROL; by how many pages of 4 KiB the window begins behind its base, and
        whether the program is this one instead of that of the registers, from the start to the end; the bits of STATUS.

    The contents of the scratchpads are in memories of the hierarchy that :func:`memory_paths` names.
    """

    def __init__(self, config: CoreConfig, *, tells_running: bool = False, in_relay: bool = False) -> None:
        self.config = config
        self._tells_running = tells_running
        self._in_relay = in_relay
        engines = {engine.name.lower(): Out(TraceSignature()) for engine in Engine}
        super().__init__(
            {
                "m_axi": Out(MasterSignature(config)),
                "s_axil": Out(RegisterSlaveSignature()),
                "interrupt": Out(1),
                "trace": Out(wiring.Signature(engines)),
                **system_members(config, tells_running=tells_running, in_relay=in_relay),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        clear = Signal()
        in_run = ResetInserter(clear)
        m.submodules.registers = registers = RegisterFile(config)
        m.submodules.read = read = ReadMaster(config)
        m.submodules.write = write = WriteMaster(config)
        fetch = Fetch(config)
        tokens = TokenMatrix(config)
        engines: dict[Engine, Any] = {
            Engine.LOAD: LoadEngine(config, Engine.LOAD),
            Engine.LOADW: LoadEngine(config, Engine.LOADW),
            Engine.GEMM: GemmEngine(config),
            Engine.VECTOR: VectorEngine(config),
            Engine.STORE: StoreEngine(config),
        }
        queues = {engine: LayoutFifo(command_layout(config), config.queue_depth) for engine in Engine}
        m.submodules.fetch = in_run(fetch)
        m.submodules.tokens = in_run(tokens)
        for engine in Engine:
            m.submodules[ENGINE_NAMES[engine]] = in_run(engines[engine])
            m.submodules[f"{ENGINE_NAMES[engine]}_queue"] = in_run(queues[engine])

        self._connect_bus(m, registers, read, write, fetch, engines)
        self._connect_scratchpads(m, engines)
        for engine in Engine:
            connect(m, fetch.commands[engine], queues[engine].input)
            connect(m, queues[engine].output, engines[engine].commands)
            connect(m, engines[engine].send, tokens.send[engine])
            m.d.comb += [
                engines[engine].tokens.eq(tokens.available[engine]),
                tokens.take[engine].eq(engines[engine].take),
            ]

        m.submodules.control = control = RunControl()
        m.submodules.watchdog = watchdog = Watchdog()
        m.submodules.classes = classes = CycleCounters()
        bus_busy = Signal()
        drained = Signal()
        m.d.comb += [
            bus_busy.eq(read.busy | write.busy),
            clear.eq(control.clear),
            control.start.eq(registers.start | self.start if self._in_relay else registers.start),
            control.reset.eq(registers.reset),
            control.clear_interrupt.eq(registers.clear_interrupt),
            control.bus_busy.eq(bus_busy),
            control.drained.eq(drained & ~bus_busy),
            fetch.start.eq(control.begin),
            fetch.stop.eq(control.stop),
            read.stop.eq(control.stop),
            write.stop.eq(control.stop),
            *(engines[engine].stop.eq(control.stop) for engine in Engine),
            registers.locked.eq(control.running | bus_busy),
            registers.status.eq(control.status),
            registers.fault_cause.eq(control.fault_cause),
            registers.fault_engine.eq(control.fault_engine),
            registers.fault_number.eq(control.fault_number),
            registers.clear_counters.eq(control.clear),
            registers.count.eq(Cat(control.counting, read.beat, write.beat)),
            self.interrupt.eq(control.interrupt & registers.settings.interrupt_enable),
            classes.clear.eq(control.clear),
            classes.count.eq(control.counting),
            classes.engine.eq(registers.class_engine),
            classes.number.eq(registers.class_number),
            registers.class_count.eq(classes.value),
        ]
        if self._tells_running:
            m.d.comb += self.running.eq(control.counting)
        if self._in_relay:
            m.d.comb += self.status.eq(control.status)
        m.d.sync += drained.eq(
            fetch.finished & Cat(engines[engine].idle & queues[engine].empty for engine in Engine).all()
        )
        self._connect_faults(m, control, watchdog, registers, fetch, engines)
        for engine in Engine:
            self._connect_trace(m, engine, engines[engine], queues[engine], fetch, control, classes)
        return m

    def _connect_bus(
        self,
        m: Module,
        registers: RegisterFile,
        read: ReadMaster,
        write: WriteMaster,
        fetch: Fetch,
        engines: dict[Engine, Any],
    ) -> None:
        connect(m, flipped(self.s_axil), registers.bus)
        base: Value = registers.settings.window_base
        if self._in_relay:
            # Long before the first burst: a start takes longer than this register.
            shifted = Signal(len(base))
            m.d.sync += shifted.eq(base + (self.shift << PAGE_BYTES.bit_length() - 1))
            base = shifted
        for master in (read, write):
            for name, member in master.axi.signature.members.items():
                inside, outside = getattr(master.axi, name), getattr(self.m_axi, name)
                m.d.comb += outside.eq(inside) if member.flow is Out else inside.eq(outside)
            m.d.comb += master.base.eq(base)
        connect(m, fetch.client, read.clients[ReadClient.FETCH])
        connect(m, engines[Engine.LOAD].client, read.clients[ReadClient.LOAD])
        connect(m, engines[Engine.LOADW].client, read.clients[ReadClient.LOADW])
        connect(m, engines[Engine.STORE].client, write.client)
        settings = registers.settings
        offset, count = settings.program_offset, settings.program_count
        if self._in_relay:
            offset, count = Mux(self.in_turn, self.turn_offset, offset), Mux(self.in_turn, self.turn_count, count)
        m.d.comb += [fetch.offset.eq(offset), fetch.count.eq(count)]
        for reader in (fetch, engines[Engine.LOAD], engines[Engine.LOADW], engines[Engine.STORE]):
            m.d.comb += reader.window_size.eq(settings.window_size)

    def _connect_scratchpads(self, m: Module, engines: dict[Engine, Any]) -> None:
        config = self.config
        memories: dict[Memory, Any] = {Memory.ACC: AccMemory(config)}
        for memory in (Memory.INP, Memory.WGT, Memory.OUT):
            entry_bytes = config.entry_bytes(memory)
            chunk = 8 * entry_bytes if memory is Memory.OUT else chunk_bits(config, entry_bytes)
            if config.banks(memory) > 1:
                memories[memory] = InpMemory(config)
            else:
                memories[memory] = Scratchpad(config.depth(memory), 8 * entry_bytes, chunk)
            m.submodules[memory] = memories[memory]
        m.submodules[Memory.ACC] = memories[Memory.ACC]
        users: dict[tuple[Memory, str], list[Any]] = {}
        for engine, engine_port, memory, memory_port in scratchpad_ports(config):
            users.setdefault((memory, memory_port), []).append(getattr(engines[engine], engine_port))
        for (memory, name), (user, *second) in users.items():
            port = getattr(memories[memory], name)
            if not second:
                connect(m, user, port)
                continue
            m.submodules[f"{memory}_{name}"] = shared = SharedWrite(
                len(port.index), len(port.data), len(port.data) // len(port.mask)
            )
            connect(m, user, shared.first)
            connect(m, *second, shared.second)
            connect(m, shared.port, port)

    def _connect_faults(
        self,
        m: Module,
        control: RunControl,
        watchdog: Watchdog,
        registers: RegisterFile,
        fetch: Fetch,
        engines: dict[Engine, Any],
    ) -> None:
        """The lowest engine's fault of this cycle; then fetch's; then the watchdog's."""
        fetch_progress = Signal()  # one cycle late, as that of the engines
        m.d.sync += fetch_progress.eq(fetch.progress)
        progress = Cat(engines[engine].progress for engine in Engine).any() | fetch_progress
        m.d.comb += [
            watchdog.limit.eq(registers.settings.watchdog),
            watchdog.progress.eq(progress | ~control.counting),
            watchdog.fetch_number.eq(fetch.number),
        ]
        for engine in Engine:
            body = engines[engine]
            m.d.comb += [
                watchdog.activity[engine].eq(body.activity),
                watchdog.holding[engine].eq(body.holding),
                watchdog.started[engine].valid.eq(body.started.valid),
                watchdog.started[engine].number.eq(body.started.number),
                watchdog.sending[engine].eq(body.sending),
            ]
        with m.If(watchdog.expired):
            m.d.comb += [
                control.fault.eq(1),
                control.new_cause.eq(Fault.WATCHDOG),
                control.new_engine.eq(watchdog.engine),
                control.new_number.eq(watchdog.number),
            ]
        for number, body in reversed([*((int(engine), engines[engine]) for engine in Engine), (FETCH, fetch)]):
            with m.If(body.fault.valid):
                m.d.comb += [
                    control.fault.eq(1),
                    control.new_cause.eq(body.fault.cause),
                    control.new_engine.eq(number),
                    control.new_number.eq(body.fault.number),
                ]

    def _connect_trace(
        self,
        m: Module,
        engine: Engine,
        body: Any,
        queue: LayoutFifo,
        fetch: Fetch,
        control: RunControl,
        classes: CycleCounters,
    ) -> None:
        trace = getattr(self.trace, ENGINE_NAMES[engine])
        nothing_comes = Signal(name=f"{ENGINE_NAMES[engine]}_gets_no_more")
        idle = Signal(name=f"{ENGINE_NAMES[engine]}_idle")
        m.d.sync += nothing_comes.eq(fetch.finished & queue.empty)
        m.d.comb += [
            trace.started.valid.eq(body.started.valid),
            trace.started.number.eq(body.started.number),
            trace.retired.valid.eq(body.retired.valid),
            trace.retired.number.eq(body.retired.number),
            idle.eq(~control.counting | ((body.activity == CycleClass.INSTRUCTION) & nothing_comes)),
            trace.activity.eq(Mux(idle, CycleClass.IDLE, body.activity)),
            classes.activity[engine].eq(trace.activity),
        ]


class RunControl(wiring.Component):
    """Starts, ends and resets runs, and keeps the record of the first fault.

    drained
        FINISH has been reached, every engine is idle and the bus is quiet.
    fault, new_cause, new_engine, new_number
        A fault in this cycle.
    clear
        Engines in reset, counters being cleared; lasts ``CLEAR_CYCLES``.
    begin
        The program begins; the cycle after ``clear``.
    counting
        The program runs.
    stop
        No new instruction, micro-op or burst: it does not run. A register, as ``counting`` is: all engines look at it.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "reset": In(1),
                "clear_interrupt": In(1),
                "bus_busy": In(1),
                "drained": In(1),
                "fault": In(1),
                "new_cause": In(Fault),
                "new_engine": In(ENGINE_BITS),
                "new_number": In(NUMBER_BITS),
                "clear": Out(1),
                "begin": Out(1),
                "counting": Out(1),
                "running": Out(1),
                "stop": Out(1, init=1),
                "status": Out(len(Status)),
                "interrupt": Out(1),
                "fault_cause": Out(Fault),
                "fault_engine": Out(ENGINE_BITS),
                "fault_number": Out(NUMBER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done, faulted, pending = Signal(), Signal(), Signal()
        # Which fault is the first is chosen late in the cycle: it stands in the record a cycle after the run has ended.
        cause, engine, number = Signal(Fault), Signal(ENGINE_BITS), Signal(NUMBER_BITS)
        ended_by_fault = Signal()
        m.d.sync += [
            cause.eq(self.new_cause),
            engine.eq(self.new_engine),
            number.eq(self.new_number),
            ended_by_fault.eq(0),
        ]
        with m.If(ended_by_fault):
            m.d.sync += [self.fault_cause.eq(cause), self.fault_engine.eq(engine), self.fault_number.eq(number)]
        clearing = Signal(range(CLEAR_CYCLES))
        with m.If(self.clear_interrupt):
            m.d.sync += self.interrupt.eq(0)
        with m.FSM(name="run") as fsm:
            m.d.comb += [
                self.clear.eq(fsm.ongoing("CLEAR")),
                self.running.eq(pending | ~fsm.ongoing("IDLE")),
            ]
            with m.State("IDLE"):
                with m.If(self.start & ~faulted):
                    m.d.sync += [pending.eq(1), done.eq(0)]
                with m.If(pending & ~self.bus_busy & ~self.reset):
                    m.d.sync += [pending.eq(0), clearing.eq(0)]
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.sync += [clearing.eq(clearing + 1), self.begin.eq(clearing == CLEAR_CYCLES - 1)]
                with m.If(self.reset):
                    m.next = "IDLE"
                with m.Elif(clearing == CLEAR_CYCLES - 1):
                    m.d.sync += [self.counting.eq(1), self.stop.eq(0)]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += self.begin.eq(0)
                with m.If(self.reset | self.fault | self.drained):
                    m.d.sync += [self.counting.eq(0), self.stop.eq(1)]
                with m.If(self.reset):
                    m.next = "IDLE"
                with m.Elif(self.fault):
                    m.d.sync += [faulted.eq(1), ended_by_fault.eq(1), self.interrupt.eq(1)]
                    m.next = "IDLE"
                with m.Elif(self.drained):
                    m.d.sync += [done.eq(1), self.interrupt.eq(1)]
                    m.next = "IDLE"
        with m.If(self.reset):
            m.d.sync += [
                pending.eq(0),
                done.eq(0),
                faulted.eq(0),
                self.begin.eq(0),
                self.interrupt.eq(0),
                self.fault_cause.eq(Fault.NONE),
                self.fault_engine.eq(0),
                self.fault_number.eq(0),
            ]
        bits = {
            Status.IDLE: ~self.running,
            Status.RUNNING: self.running,
            Status.DONE: done,
            Status.FAULT: faulted,
            Status.INTERRUPT: self.interrupt,
            Status.BUS_BUSY: self.bus_busy,
        }
        m.d.comb += [self.status[bit.bit_length() - 1].eq(value) for bit, value in bits.items()]
        return m


class Watchdog(wiring.Component):
    """Expires after ``limit`` cycles without ``progress`` (never if 0) and tells who waits.

    That is the lowest engine that waits for a token or for memory, with the instruction that it holds or the last that
    it started; where there is none, the lowest that waits to send a token, with the instruction whose token it is;
    where there is none either, fetch.
    """

    def __init__(self) -> None:
        event = wiring.Signature({"valid": Out(1), "number": Out(NUMBER_BITS)})
        super().__init__(
            {
                "limit": In(32),
                "progress": In(1),
                "activity": In(CycleClass).array(ENGINES),
                "holding": In(NUMBER_BITS).array(ENGINES),
                "started": In(event).array(ENGINES),
                "sending": In(NUMBER_BITS).array(ENGINES),
                "fetch_number": In(NUMBER_BITS),
                "expired": Out(1),
                "engine": Out(ENGINE_BITS),
                "number": Out(NUMBER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waited = Signal(32)
        with m.If(self.progress):
            m.d.sync += waited.eq(0)
        with m.Else():
            m.d.sync += waited.eq(waited + 1)
        m.d.sync += self.expired.eq(~self.progress & (waited == self.limit) & (self.limit != 0))

        running = [Signal(NUMBER_BITS, name=f"running_{ENGINE_NAMES[engine]}") for engine in Engine]
        m.d.sync += [self.engine.eq(FETCH), self.number.eq(self.fetch_number)]
        for engine in Engine:
            with m.If(self.started[engine].valid):
                m.d.sync += running[engine].eq(self.started[engine].number)
        for engine in reversed(Engine):
            with m.If(self.activity[engine] == CycleClass.SEND):
                m.d.sync += [self.engine.eq(engine), self.number.eq(self.sending[engine])]
        for engine in reversed(Engine):
            activity = self.activity[engine]
            with m.If(activity >= FIRST_TOKEN_CLASS):
                m.d.sync += [self.engine.eq(engine), self.number.eq(self.holding[engine])]
            with m.Elif(activity == CycleClass.MEMORY):
                m.d.sync += [self.engine.eq(engine), self.number.eq(running[engine])]
        return m
