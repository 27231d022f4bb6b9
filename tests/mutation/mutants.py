"""The faults: typical mistakes in RTL, each one line of one module of the core, and none of them equivalent to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands exactly once in ``hw/<module>.py``, becomes ``new``."""

    name: str
    module: str
    kind: str
    old: str
    new: str


MUTANTS = (
    # Accumulator memory
    Mutant(
        "acc-bank-of-low-bits", "acc_memory", "bank select",
        "return index[bank_index_bits:]", "return index[: len(index) - bank_index_bits]",
    ),
    Mutant(
        "acc-read-priority", "acc_memory", "arbitration", "for port in reversed(readers):", "for port in readers:",
    ),
    Mutant(
        "acc-write-priority", "acc_memory", "arbitration",
        "for position, port in reversed(list(enumerate(writers))):", "for position, port in enumerate(writers):",
    ),
    Mutant(
        "acc-always-ready", "acc_memory", "back-pressure ignored",
        "m.d.comb += blocked.eq(1)", "m.d.comb += blocked.eq(0)",
    ),
    Mutant(
        "acc-answer-one-early", "acc_memory", "pipeline stage missing",
        "m.d.sync += answering.eq(asked)", "m.d.comb += answering.eq(asked)",
    ),
    # Bursts
    Mutant(
        "burst-not-aligned", "bursts", "burst over 4 KiB",
        "row_ends.eq(word[log2:] == final[log2:])", "row_ends.eq((final - word)[log2:] == 0)",
    ),
    Mutant(
        "burst-length-plus-one", "bursts", "length + 1",
        "(end - word[:log2])[:log2]", "(end - word[:log2] + 1)[:log2]",
    ),
    Mutant("burst-last-of-each-row", "bursts", "last flag", "row_ends & last_row", "row_ends"),
    Mutant(
        "burst-row-end-stays", "bursts", "address",
        "row_final.eq(row_final + row_bytes)", "row_final.eq(row_first + row_bytes)",
    ),
    # Core
    Mutant(
        "done-before-bus-is-quiet", "core", "handshake",
        "control.drained.eq(drained & ~bus_busy)", "control.drained.eq(drained)",
    ),
    Mutant("fault-not-latched", "core", "fault not latched", "faulted.eq(1),", "faulted.eq(0),"),
    Mutant(
        "fault-of-highest-engine", "core", "wrong engine in record",
        "for number, body in reversed([*((int(engine), engines[engine]) for engine in Engine), (FETCH, fetch)]):",
        "for number, body in [*((int(engine), engines[engine]) for engine in Engine), (FETCH, fetch)]:",
    ),
    Mutant(
        "watchdog-names-last-started", "core", "wrong number in record",
        "self.number.eq(self.sending[engine])", "self.number.eq(running[engine])",
    ),
    Mutant(
        "watchdog-names-held", "core", "wrong number in record",
        "== CycleClass.MEMORY):\n                m.d.comb += [self.engine.eq(engine), self.number.eq(running[engine])]",
        "== CycleClass.MEMORY):\n"
        "                m.d.comb += [self.engine.eq(engine), self.number.eq(self.holding[engine])]",
    ),
    Mutant(
        "watchdog-goes-on-between-runs", "core", "watchdog not reset",
        "watchdog.progress.eq(progress | ~control.counting)", "watchdog.progress.eq(progress)",
    ),
    Mutant(
        "tokens-survive-a-run", "core", "soft reset misses a register",
        "m.submodules.tokens = in_run(tokens)", "m.submodules.tokens = tokens",
    ),
    Mutant(
        "interrupt-stays", "core", "interrupt not cleared",
        "m.d.sync += self.interrupt.eq(0)", "m.d.sync += self.interrupt.eq(self.interrupt)",
    ),
    Mutant(
        "interrupt-enable-ignored", "core", "interrupt",
        "self.interrupt.eq(control.interrupt & registers.settings.interrupt_enable)",
        "self.interrupt.eq(control.interrupt)",
    ),
    Mutant(
        "beats-of-write-first", "core", "counters swapped",
        "Cat(control.counting, read.beat, write.beat)", "Cat(control.counting, write.beat, read.beat)",
    ),
    Mutant(
        "idle-before-finish", "core", "counter class",
        "(body.activity == CycleClass.INSTRUCTION) & nothing_comes", "body.activity == CycleClass.INSTRUCTION",
    ),
    Mutant(
        "start-after-fault", "core", "state machine", "with m.If(self.start & ~faulted):", "with m.If(self.start):",
    ),
    Mutant(
        "unlocked-while-draining", "core", "lock",
        "registers.locked.eq(control.running | bus_busy)", "registers.locked.eq(control.running)",
    ),
    # What all engines share
    Mutant(
        "engine-ignores-ledger", "engine", "back-pressure ignored",
        "held & ~missing.any() & ledger.room & ~self.halt", "held & ~missing.any() & ~self.halt",
    ),
    Mutant(
        "engine-takes-while-it-waits", "engine", "token taken twice",
        "self.take.eq(Mux(leave, header.wait, 0))", "self.take.eq(Mux(may_start, header.wait, 0))",
    ),
    Mutant(
        "engine-drops-a-send", "engine", "dropped token",
        "pending & (self.send.ready | ~sending.data.send.any())", "pending",
    ),
    Mutant(
        "ledger-room-one-late", "engine", "queue depth",
        "room.eq(used < IN_FLIGHT - 1)", "room.eq(used < IN_FLIGHT)",
    ),
    Mutant(
        "wait-for-the-highest", "engine", "counter class",
        "for engine in reversed(Engine):  # the last", "for engine in Engine:  # the last",
    ),
    Mutant(
        "idle-with-an-instruction", "engine", "state machine",
        "self.idle.eq(self.quiet & (self.halt | (~held & ledger.empty)))",
        "self.idle.eq(self.quiet & (self.halt | ledger.empty))",
    ),
    # Fetch
    Mutant(
        "fetch-one-byte-more", "fetch", "off by one in an address",
        "transfer.final.eq(end - 1)", "transfer.final.eq(end)",
    ),
    Mutant(
        "fetch-window-exclusive", "fetch", "window limit off by one",
        "m.Elif(end > self.window_size)", "m.Elif(end >= self.window_size)",
    ),
    Mutant(
        "fetch-error-of-last-word", "fetch", "bus error lost",
        "instructions.payload.error.eq(error | words.payload.error)",
        "instructions.payload.error.eq(words.payload.error)",
    ),
    Mutant(
        "fetch-damaged-passes", "fetch", "check ignored", "with m.Elif(is_damaged(parities)):", "with m.Elif(0):",
    ),
    Mutant(
        "fetch-own-send-passes", "fetch", "illegal instruction passes",
        "(tokens & own[:ENGINES]).any()", "(header.wait & own[:ENGINES]).any()",
    ),
    # Gemm
    Mutant(
        "gemm-three-forwards", "gemm", "missing forward", "in stages[:FORWARDS])", "in stages[: FORWARDS - 1])",
    ),
    Mutant(
        "gemm-forward-too-new", "gemm", "wrong forward", "old.eq(results[1])", "old.eq(results[0])",
    ),
    Mutant(
        "gemm-always-from-zero", "gemm", "first-iteration zero flag",
        "from_zero = zero & micro_op.first", "from_zero = zero",
    ),
    Mutant(
        "gemm-operands-swapped", "gemm", "swapped operands",
        '"a": gemm.src, "b": gemm.wgt', '"a": gemm.wgt, "b": gemm.src',
    ),
    Mutant(
        "gemm-retires-one-early", "gemm", "handshake",
        "control.retire.eq(stages[-1].valid & stages[-1].content.end)",
        "control.retire.eq(stages[-2].valid & stages[-2].content.end)",
    ),
    Mutant(
        "gemm-wgt-bound", "gemm", "bound off by a bit",
        "micro_op.b[ceil_log2(config.wgt_depth) :].any()", "micro_op.b[ceil_log2(config.wgt_depth) + 1 :].any()",
    ),
    # Queue
    Mutant(
        "queue-overflows", "layout_fifo", "back-pressure ignored",
        "self.input.ready.eq(queue.w_rdy)", "self.input.ready.eq(1)",
    ),
    Mutant(
        "queue-empty-too-early", "layout_fifo", "empty flag",
        "self.empty.eq(queue.level == 0)", "self.empty.eq(~queue.r_rdy)",
    ),
    # Load
    Mutant(
        "load-fault-names-newest", "load", "wrong number in record",
        "control.failure.number.eq(Mux(writer.failed, writer.number, number))",
        "control.failure.number.eq(number)",
    ),
    Mutant(
        "load-merges-padded-rows", "load", "padding ignored",
        "(pads[0] | pads[1] | pads[2] | pads[3])", "(pads[0] | pads[1] | pads[2])",
    ),
    Mutant(
        "load-rows-without-data-vanish", "load", "corner case",
        "Mux(plan.moves, load.pad_top, load.pad_top + load.rows)", "load.pad_top",
    ),
    Mutant(
        "load-pad-unsigned", "load_writer", "wrong sign",
        "pad_lane = self.pad_value.as_signed()", "pad_lane = self.pad_value",
    ),
    Mutant(
        "load-pad-value-ignored", "load_writer", "pad value ignored",
        "self.pad_value.replicate(len(own_word) // 8)", "Const(0, len(own_word))",
    ),
    Mutant(
        "load-widens-unsigned", "load_writer", "widening unsigned",
        "word.word_select(lane, 8).as_signed()", "word.word_select(lane, 8)",
    ),
    Mutant(
        "load-position-stays", "load_writer", "address",
        "(load.position + load.step) & last_place", "load.position & last_place",
    ),
    Mutant(
        "load-widened-mask", "load_writer", "write mask",
        "Const(0b1111, width) << (self.part << 2)", "Const(0b1111, width) << (self.part << 1)",
    ),
    Mutant(
        "load-error-while-padding", "load_writer", "fault condition",
        "self.failed.eq(running & ~is_padding & self.words.valid", "self.failed.eq(running & self.words.valid",
    ),
    # Loops
    Mutant(
        "loop-once-more", "loops", "loop bound", "self.ended.eq(self.left == 1)", "self.ended.eq(self.left == 0)",
    ),
    Mutant(
        "loop-strides-swapped", "loops", "swapped strides",
        'loop[f"{name}_stride"]', 'loop[{"dst": "dst", "a": "b", "b": "a"}[name] + "_stride"]',
    ),
    Mutant(
        "loop-first-of-every-level", "loops", "first-iteration flag",
        "level.used & level.reduces & ~level.at_zero", "level.used & ~level.at_zero",
    ),
    Mutant(
        "loop-end-waits-for-unused", "loops", "loop bound",
        "self.ended.eq(self.single | ~used)", "self.ended.eq(self.single)",
    ),
    Mutant(
        "loop-ends-after-one-level", "loops", "loop bound",
        "end.eq(_all((level.number >= self.levels)", "end.eq(_all((level.number >= 1)",
    ),
    # Skid buffer
    Mutant(
        "skid-loses-an-item", "skid_buffer", "dropped item",
        "full.eq(self.output.valid & ~self.output.ready)", "full.eq(self.input.valid & ~self.output.ready)",
    ),
    Mutant(
        "skid-overwrites-what-waits", "skid_buffer", "back-pressure ignored", "with m.If(~full):", "with m.If(1):",
    ),
    # Array
    Mutant(
        "mac-unsigned", "mac_array", "wrong sign",
        "element = Signal(signed(8), name=name)", "element = Signal(8, name=name)",
    ),
    Mutant(
        "mac-packed-borrows", "mac_array_packed", "constant missing", "(value + OFFSET)[", "(value)[",
    ),
    # Reading
    Mutant(
        "read-credit-lost", "read_dma", "credit", "room.eq(room - beats + taken)", "room.eq(room - beats)",
    ),
    Mutant(
        "read-one-burst-more", "read_dma", "queue depth",
        "outstanding != config.read_outstanding)", "outstanding <= config.read_outstanding)",
    ),
    Mutant("read-id", "read_dma", "read ID", "axi.arid.eq(grant)", "axi.arid.eq(last_granted)"),
    Mutant("read-error-bit", "read_dma", "response", "axi.rresp[1]", "axi.rresp[0]"),
    Mutant(
        "read-fixed-priority", "read_dma", "arbitration", "(last + step) % len(ReadClient)", "step % len(ReadClient)",
    ),
    Mutant(
        "read-two-at-once", "read_dma", "arbitration", "may_begin & ~before", "may_begin",
    ),
    Mutant("read-after-stop", "read_dma", "stop ignored", "may_begin.eq(~self.stop & (", "may_begin.eq(("),
    # Registers
    Mutant(
        "class-counter-address", "register_file", "register offset",
        "self.class_number.eq(offset[3:7])", "self.class_number.eq(offset[2:6])",
    ),
    Mutant("register-strobe", "register_file", "byte strobe", "Mux(strobe[byte], ", "Mux(strobe[0], "),
    Mutant(
        "class-counters-keep", "register_file", "reset misses a register",
        "write.en.eq(self.count | self.clear)", "write.en.eq(self.count)",
    ),
    Mutant(
        "register-locked-too-late", "register_file", "lock",
        "with m.If(~self.locked):", "with m.If(1):",
    ),
    # Scratchpad
    Mutant(
        "scratchpad-mask", "scratchpad", "write mask", "write.en.eq(self.write.mask)", "write.en.eq(~0)",
    ),
    # Store
    Mutant(
        "store-strobes-whole-words", "store", "byte strobe",
        "filled.eq(before | (1 << place))", "filled.eq((1 << count) - 1)",
    ),
    Mutant(
        "store-empty-takes-an-answer", "store", "dropped token",
        "ended + ends - (retire & oldest.moves)", "ended + ends - retire",
    ),
    Mutant(
        "store-reads-too-far-ahead", "store", "back-pressure ignored",
        "reading & (ahead != ENTRIES_AHEAD)", "reading",
    ),
    Mutant(
        "store-row-end-not-flushed", "store", "last beat",
        "complete.eq(last | (place == count - 1))", "complete.eq(place == count - 1)",
    ),
    # Tokens
    Mutant("token-depth", "tokens", "queue depth", "count == depth)", "count == depth - 1)"),
    Mutant(
        "token-pair-swapped", "tokens", "token pair swapped",
        "take = self.take[receiver][sender]", "take = self.take[sender][receiver]",
    ),
    Mutant(
        "token-sent-while-full", "tokens", "handshake",
        "put.eq(send.valid & send.ready & send.payload[receiver])", "put.eq(send.valid & send.payload[receiver])",
    ),
    Mutant(
        "token-offered-twice", "tokens", "token taken twice", "some.eq(count != 1)", "some.eq(1)",
    ),
    # Transfer plan
    Mutant(
        "plan-window-exclusive", "transfer_plan", "window limit",
        "end > self.window_size", "end >= self.window_size",
    ),
    Mutant(
        "plan-index-inclusive", "transfer_plan", "bound",
        "by_kind(kind.depth for kind", "by_kind(kind.depth + 1 for kind",
    ),
    Mutant(
        "plan-span-one-row-more", "transfer_plan", "off by one",
        "factor_a.eq(request.rows - 1)", "factor_a.eq(request.rows)",
    ),
    Mutant(
        "plan-cause-order", "transfer_plan", "fault cause",
        "Mux(work.bad_index, Fault.INDEX, Mux(work.misaligned, Fault.ALIGNMENT, Fault.WINDOW))",
        "Mux(work.misaligned, Fault.ALIGNMENT, Mux(work.bad_index, Fault.INDEX, Fault.WINDOW))",
    ),
    # Vector
    Mutant(
        "vector-b-wraps", "vector", "bound",
        "Cat(vector.b[: config.index_bits], beyond)", "vector.b[: config.index_bits]",
    ),
    Mutant(
        "vector-illegal-op-runs", "vector", "illegal instruction passes",
        "illegal=~exists | (accumulates", "illegal=(accumulates",
    ),
    Mutant(
        "vector-task-of-the-next", "vector", "state machine",
        "fetch.task.eq(skid.output.payload.task)", "fetch.task.eq(task)",
    ),
    Mutant(
        "vector-refuses-too-early", "vector", "fault order",
        "drained=~fetch.occupied & ~loops.micro_ops.valid", "drained=~fetch.occupied",
    ),
    Mutant(
        "vector-asks-too-early", "vector_fetch", "missing hazard check",
        "d.asks.eq(inside & old & ~goes_on & ~found_d)", "d.asks.eq(inside & old & ~goes_on)",
    ),
    Mutant(
        "vector-newest-not-found", "vector_results", "missing hazard check",
        "found.eq((self.issue & newest) | older.any())", "found.eq(older.any())",
    ),
    Mutant(
        "vector-parameter-hazard", "vector_fetch", "missing hazard check",
        "others[0] | others[1], 0)", "others[0], 0)",
    ),
    Mutant(
        "vector-stale-operand", "vector_fetch", "missing forward",
        "same_a = ~micro_op.begin & ~a.overwritten", "same_a = ~micro_op.begin",
    ),
    Mutant(
        "vector-chains-across-instructions", "vector_fetch", "state machine",
        "goes_on = ~micro_op.begin & (micro_op.dst == held.dst)", "goes_on = micro_op.dst == held.dst",
    ),
    Mutant(
        "vector-rounding-missing", "vector_lanes", "rounding add missing",
        "addend = Cat(Const(1, 1), ", "addend = Cat(Const(0, 1), ",
    ),
    Mutant(
        "vector-ties-away-from-zero", "vector_lanes", "tie rule",
        "addend = Cat(Const(1, 1), ", "addend = Cat(~saturated_9[-1], ",
    ),
    Mutant(
        "vector-saturates-one-high", "vector_lanes", "saturation bound",
        "saturated = Mux(wide[-1], -limit, limit - 1)", "saturated = Mux(wide[-1], -limit, limit)",
    ),
    Mutant(
        "vector-clamps-low-last", "vector_lanes", "clamp order",
        "Mux(self.content.low > self.content.high, self.content.high, self.content.low)", "self.content.low",
    ),
    Mutant(
        "vector-shift-wraps", "vector_lanes", "shift amount",
        "right_amount = Mux(b[5:31].any(), 31, b[:5])", "right_amount = b[:5]",
    ),
    Mutant(
        "vector-high-part-unsigned", "vector_lanes", "wrong sign",
        "self.x[4][LOW_BITS:].as_signed() * self.factor_4", "self.x[4][LOW_BITS:] * self.factor_4",
    ),
    Mutant(
        "vector-max-from-int8", "vector_lanes", "max pooling initial value",
        "Const(op.identity, signed(32))", "Const(op.identity >> 24, signed(32))",
    ),
    Mutant(
        "vector-results-overflow", "vector_results", "queue depth",
        "self.room.eq(count < SLOTS - 1)", "self.room.eq(count <= SLOTS)",
    ),
    Mutant(
        "vector-write-without-ready", "vector_results", "back-pressure ignored",
        "written.eq(offered & (destination.to_out | self.write_acc.ready))", "written.eq(offered)",
    ),
    # Writing
    Mutant(
        "write-begins-one-word-early", "write_dma", "handshake", "(beats <= gathered)", "(beats - 1 <= gathered)",
    ),
    Mutant(
        "write-answer-always-last", "write_dma", "last flag",
        "client.acknowledgement.last.eq(unanswered.r_data)", "client.acknowledgement.last.eq(1)",
    ),
    Mutant(
        "write-keeps-dropped-words", "write_dma", "soft reset misses a register",
        "drop.eq(self.stop & ~self.busy)", "drop.eq(0)",
    ),
    Mutant("write-last-beat", "write_dma", "last beat", "axi.wlast.eq(last_word)", "axi.wlast.eq(beat_number == 0)"),
    Mutant(
        "write-limit-ignored", "write_dma", "queue depth",
        "                & lengths.w_rdy\n                & unanswered.w_rdy\n", "                & lengths.w_rdy\n",
    ),
)  # fmt: skip
