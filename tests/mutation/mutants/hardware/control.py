"""Faults in the core around its engines: queues, tokens, loops, registers, scratchpads."""

from __future__ import annotations

from ..mutant import Mutant

MUTANTS = (
    # Core
    Mutant(
        "done-before-bus-is-quiet", "hw/core.py", "handshake",
        "control.drained.eq(drained & ~bus_busy)", "control.drained.eq(drained)",
    ),
    Mutant("fault-not-latched", "hw/core.py", "fault not latched", "faulted.eq(1),", "faulted.eq(0),"),
    Mutant(
        "fault-of-highest-engine", "hw/core.py", "wrong engine in record",
        "for number, body in reversed([*((int(engine), engines[engine]) for engine in Engine), (FETCH, fetch)]):",
        "for number, body in [*((int(engine), engines[engine]) for engine in Engine), (FETCH, fetch)]:",
    ),
    Mutant(
        "watchdog-names-last-started", "hw/core.py", "wrong number in record",
        "self.number.eq(self.sending[engine])", "self.number.eq(running[engine])",
    ),
    Mutant(
        "watchdog-names-held", "hw/core.py", "wrong number in record",
        "== CycleClass.MEMORY):\n                m.d.sync += [self.engine.eq(engine), self.number.eq(running[engine])]",
        "== CycleClass.MEMORY):\n"
        "                m.d.sync += [self.engine.eq(engine), self.number.eq(self.holding[engine])]",
    ),
    Mutant(
        "watchdog-goes-on-between-runs", "hw/core.py", "watchdog not reset",
        "watchdog.progress.eq(progress | ~control.counting)", "watchdog.progress.eq(progress)",
    ),
    Mutant(
        "tokens-survive-a-run", "hw/core.py", "soft reset misses a register",
        "m.submodules.tokens = in_run(tokens)", "m.submodules.tokens = tokens",
    ),
    Mutant(
        "interrupt-stays", "hw/core.py", "interrupt not cleared",
        "m.d.sync += self.interrupt.eq(0)", "m.d.sync += self.interrupt.eq(self.interrupt)",
    ),
    Mutant(
        "interrupt-enable-ignored", "hw/core.py", "interrupt",
        "self.interrupt.eq(control.interrupt & registers.settings.interrupt_enable)",
        "self.interrupt.eq(control.interrupt)",
    ),
    Mutant(
        "beats-of-write-first", "hw/core.py", "counters swapped",
        "Cat(control.counting, read.beat, write.beat)", "Cat(control.counting, write.beat, read.beat)",
    ),
    Mutant(
        "idle-before-finish", "hw/core.py", "counter class",
        "(body.activity == CycleClass.INSTRUCTION) & nothing_comes", "body.activity == CycleClass.INSTRUCTION",
    ),
    Mutant(
        "start-after-fault", "hw/core.py", "state machine",
        "with m.If(self.start & ~faulted):", "with m.If(self.start):",
    ),
    Mutant(
        "unlocked-while-draining", "hw/core.py", "lock",
        "registers.locked.eq(control.running | bus_busy)", "registers.locked.eq(control.running)",
    ),
    # What all engines share
    Mutant(
        "engine-ignores-ledger", "hw/engine.py", "back-pressure ignored",
        "held & ~missing.any() & ledger.room & ~self.halt", "held & ~missing.any() & ~self.halt",
    ),
    Mutant(
        "engine-takes-while-it-waits", "hw/engine.py", "token taken twice",
        "self.take.eq(Mux(leave, header.wait, 0))", "self.take.eq(Mux(may_start, header.wait, 0))",
    ),
    Mutant(
        "engine-drops-a-send", "hw/engine.py", "dropped token",
        "pending & (self.send.ready | ~sending.data.send.any())", "pending",
    ),
    Mutant(
        "ledger-room-one-late", "hw/engine.py", "queue depth",
        "room.eq(used < IN_FLIGHT - 1)", "room.eq(used < IN_FLIGHT)",
    ),
    Mutant(
        "wait-for-the-highest", "hw/engine.py", "counter class",
        "for engine in reversed(Engine):  # the last", "for engine in Engine:  # the last",
    ),
    Mutant(
        "idle-with-an-instruction", "hw/engine.py", "state machine",
        "self.idle.eq(self.quiet & (self.halt | (~held & ledger.empty)))",
        "self.idle.eq(self.quiet & (self.halt | ledger.empty))",
    ),
    # Queue
    Mutant(
        "queue-overflows", "hw/layout_fifo.py", "back-pressure ignored",
        "self.input.ready.eq(queue.w_rdy)", "self.input.ready.eq(1)",
    ),
    Mutant(
        "queue-empty-too-early", "hw/layout_fifo.py", "empty flag",
        "self.empty.eq(queue.level == 0)", "self.empty.eq(~queue.r_rdy)",
    ),
    # Loops
    Mutant(
        "loop-once-more", "hw/loops.py", "loop bound",
        "self.ended.eq(self.left == 1)", "self.ended.eq(self.left == 0)",
    ),
    Mutant(
        "loop-strides-swapped", "hw/loops.py", "swapped strides",
        'loop[f"{name}_stride"]', 'loop[{"dst": "dst", "a": "b", "b": "a"}[name] + "_stride"]',
    ),
    Mutant(
        "loop-first-of-every-level", "hw/loops.py", "first-iteration flag",
        "level.used & level.reduces & ~level.at_zero", "level.used & ~level.at_zero",
    ),
    Mutant(
        "loop-end-waits-for-unused", "hw/loops.py", "loop bound",
        "self.ended.eq(self.single | ~used)", "self.ended.eq(self.single)",
    ),
    Mutant(
        "loop-ends-after-one-level", "hw/loops.py", "loop bound",
        "end.eq(_all((level.number >= self.levels)", "end.eq(_all((level.number >= 1)",
    ),
    # Skid buffer
    Mutant(
        "skid-loses-an-item", "hw/skid_buffer.py", "dropped item",
        "full.eq(self.output.valid & ~self.output.ready)", "full.eq(self.input.valid & ~self.output.ready)",
    ),
    Mutant(
        "skid-overwrites-what-waits", "hw/skid_buffer.py", "back-pressure ignored",
        "with m.If(~full):", "with m.If(1):",
    ),
    # Registers
    Mutant(
        "class-counter-address", "hw/register_file.py", "register offset",
        "self.class_number.eq(offset[3:7])", "self.class_number.eq(offset[2:6])",
    ),
    Mutant("register-strobe", "hw/register_file.py", "byte strobe", "Mux(strobe[byte], ", "Mux(strobe[0], "),
    Mutant(
        "class-counters-keep", "hw/register_file.py", "reset misses a register",
        "write.en.eq(counted | self.clear)", "write.en.eq(counted)",
    ),
    Mutant(
        "loop-set-while-a-nest-runs", "hw/loops.py", "wrong stage",
        "control.offered & loops.ready & is_loop", "control.offered & is_loop",
    ),
    Mutant(
        "run-stops-late", "hw/core.py", "stop line",
        "[self.counting.eq(0), self.stop.eq(1)]", "[self.counting.eq(0), self.stop.eq(~self.counting)]",
    ),
    Mutant(
        "fetch-reads-one-too-many", "hw/fetch.py", "off by one",
        "no_more.eq(self.number + 1 == self.count)", "no_more.eq(self.number == self.count)",
    ),
    Mutant(
        "register-locked-too-late", "hw/register_file.py", "lock",
        "with m.If(~self.locked):", "with m.If(1):",
    ),
    # Scratchpad
    Mutant(
        "scratchpad-mask", "hw/scratchpad.py", "write mask", "write.en.eq(self.write.mask)", "write.en.eq(~0)",
    ),
    # Tokens
    Mutant("token-depth", "hw/tokens.py", "queue depth", "count == depth)", "count == depth - 1)"),
    Mutant(
        "token-pair-swapped", "hw/tokens.py", "token pair swapped",
        "take = self.take[receiver][sender]", "take = self.take[sender][receiver]",
    ),
    Mutant(
        "token-sent-while-full", "hw/tokens.py", "handshake",
        "put.eq(send.valid & send.ready & send.payload[receiver])", "put.eq(send.valid & send.payload[receiver])",
    ),
    Mutant(
        "token-offered-twice", "hw/tokens.py", "token taken twice", "some.eq(count != 1)", "some.eq(1)",
    ),
    # The ends of widths: what needs a long run, a high address or a full counter to show
    Mutant(
        "start-ignores-writes-under-way", "hw/core.py", "state machine",
        "control.bus_busy.eq(bus_busy)", "control.bus_busy.eq(read.busy)",
    ),
    Mutant(
        "read-address-of-32-bits", "hw/read_dma.py", "width",
        "axi.araddr.eq(self.base + burst.word * config.bus_bytes)",
        "axi.araddr.eq((self.base + burst.word * config.bus_bytes)[:32])",
    ),
    Mutant(
        "write-address-of-32-bits", "hw/write_dma.py", "width",
        "axi.awaddr.eq(self.base + client.bursts.payload.word * config.bus_bytes)",
        "axi.awaddr.eq((self.base + client.bursts.payload.word * config.bus_bytes)[:32])",
    ),
    Mutant(
        "token-counter-one-bit-short", "hw/tokens.py", "width",
        "count = Signal(range(depth + 1)", "count = Signal(range(depth)",
    ),
    Mutant(
        "counters-of-32-bits", "hw/register_file.py", "width",
        "counters = [Signal(COUNTER_BITS, name=name)", "counters = [Signal(32, name=name)",
    ),
    Mutant(
        "class-counters-of-32-bits", "hw/register_file.py", "width",
        "Memory(shape=COUNTER_BITS, depth=16", "Memory(shape=32, depth=16",
    ),
    Mutant(
        "gemm-forwards-to-half-the-index", "hw/gemm.py", "wrong forward",
        "(stage.content.dst == fresh.dst)", "(stage.content.dst[:-1] == fresh.dst[:-1])",
    ),
    Mutant(
        "work-of-other-fields", "hw/decode.py", "bits of another field",
        "        position += width", "        position += width - 1",
        ("tests/sim/test_work.py",),
    ),
    Mutant(
        "numbers-by-way-of-amaranth", "hw/transfer_kinds.py", "import too many",
        "if TYPE_CHECKING:", "if not TYPE_CHECKING:", ("tests/test_on_demand.py",),
    ),
)  # fmt: skip
