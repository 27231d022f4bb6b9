"""Faults in the core: typical mistakes in RTL."""

from __future__ import annotations

from .mutant import Mutant

GEMM_TESTS = ("tests/hw/test_gemm.py",)
ARRAY_TESTS = ("tests/hw/test_mac_array.py",)
INP_TESTS = ("tests/hw/test_inp_memory.py",)

MUTANTS = (
    # Accumulator memory
    Mutant(
        "acc-bank-of-low-bits", "hw/acc_memory.py", "bank select",
        "return index[bank_index_bits:]", "return index[: len(index) - bank_index_bits]",
    ),
    Mutant(
        "acc-read-priority", "hw/acc_memory.py", "arbitration",
        "for port in reversed(readers):", "for port in readers:",
    ),
    Mutant(
        "acc-write-priority", "hw/acc_memory.py", "arbitration",
        "for position, port in reversed(list(enumerate(writers))):", "for position, port in enumerate(writers):",
    ),
    Mutant(
        "acc-always-ready", "hw/acc_memory.py", "back-pressure ignored",
        "m.d.comb += blocked.eq(1)", "m.d.comb += blocked.eq(0)",
    ),
    Mutant(
        "acc-answer-one-early", "hw/acc_memory.py", "pipeline stage missing",
        "m.d.sync += answering.eq(asked)", "m.d.comb += answering.eq(asked)",
    ),
    # Bursts
    Mutant(
        "burst-not-aligned", "hw/bursts.py", "burst over 4 KiB",
        "row_ends.eq(word[log2:] == final[log2:])", "row_ends.eq((final - word)[log2:] == 0)",
    ),
    Mutant(
        "burst-length-plus-one", "hw/bursts.py", "length + 1",
        "(end - word[:log2])[:log2]", "(end - word[:log2] + 1)[:log2]",
    ),
    Mutant(
        "burst-of-any-length", "hw/bursts.py", "field ignored",
        "min(config.burst_beats, PAGE_BYTES // config.bus_bytes)", "min(64, PAGE_BYTES // config.bus_bytes)",
    ),
    Mutant(
        "burst-twice-as-long", "hw/bursts.py", "burst too long",
        "longest_burst(config)).bit_length() - 1", "longest_burst(config)).bit_length()",
    ),
    Mutant("burst-last-of-each-row", "hw/bursts.py", "last flag", "row_ends & last_row", "row_ends"),
    Mutant(
        "burst-row-end-stays", "hw/bursts.py", "address",
        "row_final.eq(row_final + row_bytes)", "row_final.eq(row_first + row_bytes)",
    ),
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
        "== CycleClass.MEMORY):\n                m.d.comb += [self.engine.eq(engine), self.number.eq(running[engine])]",
        "== CycleClass.MEMORY):\n"
        "                m.d.comb += [self.engine.eq(engine), self.number.eq(self.holding[engine])]",
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
    # Fetch
    Mutant(
        "fetch-burst-of-any-length", "hw/fetch.py", "field ignored",
        "return min(MOST_BURST_BEATS, longest_burst(config))", "return MOST_BURST_BEATS",
    ),
    Mutant(
        "fetch-one-byte-more", "hw/fetch.py", "off by one in an address",
        "transfer.final.eq(end - 1)", "transfer.final.eq(end)",
    ),
    Mutant(
        "fetch-window-exclusive", "hw/fetch.py", "window limit off by one",
        "m.Elif(end > self.window_size)", "m.Elif(end >= self.window_size)",
    ),
    Mutant(
        "fetch-error-lost", "hw/fetch.py", "bus error lost",
        "error.eq(words.payload.error),\n            instructions.valid.eq(words.valid & last)",
        "error.eq(0),\n            instructions.valid.eq(words.valid & last)",
    ),
    Mutant(
        "fetch-damaged-passes", "hw/fetch.py", "check ignored", "with m.Elif(is_damaged(parities)):", "with m.Elif(0):",
    ),
    Mutant(
        "fetch-own-send-passes", "hw/fetch.py", "illegal instruction passes",
        "(tokens & own[:ENGINES]).any()", "(header.wait & own[:ENGINES]).any()",
    ),
    # Gemm
    Mutant(
        "gemm-three-forwards", "hw/gemm.py", "missing forward", "in stages[:FORWARDS])", "in stages[: FORWARDS - 1])",
    ),
    Mutant(
        "gemm-forward-too-new", "hw/gemm.py", "wrong forward", "old.eq(results[1])", "old.eq(results[0])",
    ),
    Mutant(
        "gemm-always-from-zero", "hw/gemm.py", "first-iteration zero flag",
        "from_zero = zero & micro_op.first", "from_zero = zero",
    ),
    Mutant(
        "gemm-operands-swapped", "hw/gemm.py", "swapped operands",
        'columns.base if columns else gemm.src, "b": gemm.wgt', 'gemm.wgt, "b": columns.base if columns else gemm.src',
    ),
    Mutant(
        "gemm-retires-one-early", "hw/gemm.py", "handshake",
        "control.retire.eq(stages[-1].valid & stages[-1].content.end)",
        "control.retire.eq(stages[-2].valid & stages[-2].content.end)",
    ),
    Mutant(
        "gemm-wgt-bound", "hw/gemm.py", "bound off by a bit",
        "micro_op.b[ceil_log2(config.wgt_depth) :].any()", "micro_op.b[ceil_log2(config.wgt_depth) + 1 :].any()",
    ),
    # Depthwise mode of the array
    Mutant(
        "depthwise-every-wave-writes", "hw/gemm.py", "result too early",
        "issue.eq(wave & last)", "issue.eq(wave)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-stride-two-shares-two", "hw/gemm.py", "column forgotten",
        "2, stride.a == step << 1)", "2, (stride.a == step << 1) << 1)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-other-taps-share", "hw/gemm.py", "sums of other taps",
        "Mux(stride.b != 0, 0, ", "Mux(0, 0, ", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-row-goes-on-from-the-last", "hw/gemm.py", "not restarted",
        "Mux(loops.inner_goes_on, known, 0)", "known", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-far-entry-wraps", "hw/gemm.py", "carry lost",
        "entry[config.index_bits :].any()", "entry[config.index_bits]", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-even-pitch-runs", "hw/gemm.py", "field not checked",
        "self.illegal = gemm.depthwise & ~gemm.row_pitch[0]", "self.illegal = gemm.depthwise & 0", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-pitch-of-the-next", "hw/gemm.py", "pipeline stage missing",
        "self.read_inp.pitch.eq(pitch)", "self.read_inp.pitch.eq(columns.row_pitch)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-mode-of-the-next", "hw/gemm.py", "pipeline stage missing",
        "array.depthwise.eq(depthwise[-1])", "array.depthwise.eq(depthwise[-2])", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-goes-on-at-every-level", "hw/loops.py", "wrong level",
        "self.inner_goes_on.eq(valid & ~levels[0].ended)", "self.inner_goes_on.eq(valid & ~end)", GEMM_TESTS,
    ),
    Mutant(
        "depthwise-taps-transposed", "hw/mac_array.py", "swapped indices",
        "[TAP_ROW_OUTPUTS * row + column][channel]", "[TAP_ROW_OUTPUTS * column + row][channel]", ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-product-enters-the-filter", "hw/mac_array.py", "register loads too often",
        '[partial], taps[stage], f"', '[partial], valid, f"', ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-product-of-a-row-above", "hw/mac_array.py", "multiplexer",
        "Mux(self.depthwise, self.above[row], self.inp)", "self.above[row]", ARRAY_TESTS,
    ),
    Mutant(
        "depthwise-sum-of-the-wave-behind", "hw/mac_array.py", "pipeline stage missing",
        "[Mux(taps[stage], partial, values[0])]", "[Mux(taps[stage - 1], partial, values[0])]", ARRAY_TESTS,
    ),
    Mutant(
        "inp-rows-of-one-bank", "hw/inp_memory.py", "bank select",
        "_bank_of(places[1]) == number, places", "_bank_of(places[0]) == number, places", INP_TESTS,
    ),
    Mutant(
        "inp-write-to-all-banks", "hw/inp_memory.py", "bank select",
        "write.enable & (_bank_of(write.index) == number)", "write.enable", INP_TESTS,
    ),
    Mutant(
        "inp-middle-row-two-pitches-up", "hw/inp_memory.py", "address",
        "places[1].eq(read.index - read.pitch)", "places[1].eq(read.index - (read.pitch << 1))", INP_TESTS,
    ),
    Mutant(
        "inp-answer-one-early", "hw/inp_memory.py", "pipeline stage missing",
        "m.d.sync += asked.eq(_bank_of(place))", "m.d.comb += asked.eq(_bank_of(place))", INP_TESTS,
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
    # Load
    Mutant(
        "load-fault-names-newest", "hw/load.py", "wrong number in record",
        "control.failure.number.eq(Mux(writer.failed, writer.number, number))",
        "control.failure.number.eq(number)",
    ),
    Mutant(
        "load-merges-padded-rows", "hw/load.py", "padding ignored",
        "(pads[0] | pads[1] | pads[2] | pads[3])", "(pads[0] | pads[1] | pads[2])",
    ),
    Mutant(
        "load-rows-without-data-vanish", "hw/load.py", "corner case",
        "Mux(plan.moves, load.pad_top, load.pad_top + load.rows)", "load.pad_top",
    ),
    Mutant(
        "load-pad-unsigned", "hw/load_writer.py", "wrong sign",
        "pad_lane = self.pad_value.as_signed()", "pad_lane = self.pad_value",
    ),
    Mutant(
        "load-pad-value-ignored", "hw/load_writer.py", "pad value ignored",
        "self.pad_value.replicate(len(own_word) // 8)", "Const(0, len(own_word))",
    ),
    Mutant(
        "load-widens-unsigned", "hw/load_writer.py", "widening unsigned",
        "word.word_select(lane, 8).as_signed()", "word.word_select(lane, 8)",
    ),
    Mutant(
        "load-position-stays", "hw/load_writer.py", "address",
        "(load.position + load.step) & last_place", "load.position & last_place",
    ),
    Mutant(
        "load-widened-mask", "hw/load_writer.py", "write mask",
        "Const(0b1111, width) << (self.part << 2)", "Const(0b1111, width) << (self.part << 1)",
    ),
    Mutant(
        "load-error-while-padding", "hw/load_writer.py", "fault condition",
        "self.failed.eq(running & ~is_padding & self.words.valid", "self.failed.eq(running & self.words.valid",
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
    # Array
    Mutant(
        "mac-unsigned", "hw/mac_array.py", "wrong sign",
        "element = Signal(signed(8), name=name)", "element = Signal(8, name=name)",
    ),
    Mutant(
        "mac-packed-borrows", "hw/mac_array_packed.py", "constant missing", "(value + OFFSET)[", "(value)[",
    ),
    # Reading
    Mutant(
        "burst-waits-and-is-overwritten", "hw/bursts.py", "back-pressure ignored",
        "accept.eq(~burst_valid | skid.input.ready)", "accept.eq(1)",
    ),
    Mutant(
        "read-credit-lost", "hw/read_dma.py", "credit", "Mux(taken, room - beats_minus_1, ",
        "Mux(taken, room - beats_minus_1 - 1, ",
    ),
    Mutant(
        "read-refusal-of-a-later-word", "hw/read_dma.py", "response",
        "ahead.eq(Mux(taken, buffer.level - 1, buffer.level))", "ahead.eq(buffer.level)",
    ),
    Mutant(
        "read-refusal-of-the-only-word-lost", "hw/read_dma.py", "response",
        "Mux(taken, buffer.level == 1, buffer.level == 0)", "Mux(taken, 0, 0)",
    ),
    Mutant(
        "read-refusal-forgotten", "hw/read_dma.py", "response", "with m.If(~refused):", "with m.If(1):",
    ),
    Mutant(
        "read-one-burst-more", "hw/read_dma.py", "queue depth",
        "outstanding != config.read_outstanding)", "outstanding <= config.read_outstanding)",
    ),
    Mutant("read-id", "hw/read_dma.py", "read ID", "axi.arid.eq(grant)", "axi.arid.eq(last_granted)"),
    Mutant("read-error-bit", "hw/read_dma.py", "response", "axi.rresp[1]", "axi.rresp[0]"),
    Mutant(
        "read-fixed-priority", "hw/read_dma.py", "arbitration",
        "(last + step) % len(ReadClient)", "step % len(ReadClient)",
    ),
    Mutant(
        "read-two-at-once", "hw/read_dma.py", "arbitration", "may_begin & ~before", "may_begin",
    ),
    Mutant("read-after-stop", "hw/read_dma.py", "stop ignored", "may_begin.eq(~self.stop & (", "may_begin.eq(("),
    # Registers
    Mutant(
        "class-counter-address", "hw/register_file.py", "register offset",
        "self.class_number.eq(offset[3:7])", "self.class_number.eq(offset[2:6])",
    ),
    Mutant("register-strobe", "hw/register_file.py", "byte strobe", "Mux(strobe[byte], ", "Mux(strobe[0], "),
    Mutant(
        "class-counters-keep", "hw/register_file.py", "reset misses a register",
        "write.en.eq(self.count | self.clear)", "write.en.eq(self.count)",
    ),
    Mutant(
        "register-locked-too-late", "hw/register_file.py", "lock",
        "with m.If(~self.locked):", "with m.If(1):",
    ),
    # Scratchpad
    Mutant(
        "scratchpad-mask", "hw/scratchpad.py", "write mask", "write.en.eq(self.write.mask)", "write.en.eq(~0)",
    ),
    # Store
    Mutant(
        "store-strobes-whole-words", "hw/store.py", "byte strobe",
        "filled.eq(before | (1 << place))", "filled.eq((1 << count) - 1)",
    ),
    Mutant(
        "store-empty-takes-an-answer", "hw/store.py", "dropped token",
        "ended + ends - (retire & oldest.moves)", "ended + ends - retire",
    ),
    Mutant(
        "store-reads-too-far-ahead", "hw/store.py", "back-pressure ignored",
        "reading & (ahead != ENTRIES_AHEAD)", "reading",
    ),
    Mutant(
        "store-row-end-not-flushed", "hw/store.py", "last beat",
        "complete.eq(last | (place == count - 1))", "complete.eq(place == count - 1)",
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
    # Transfer plan
    Mutant(
        "plan-window-exclusive", "hw/transfer_plan.py", "window limit",
        "end > self.window_size", "end >= self.window_size",
    ),
    Mutant(
        "plan-index-inclusive", "hw/transfer_plan.py", "bound",
        "by_kind(kind.depth for kind", "by_kind(kind.depth + 1 for kind",
    ),
    Mutant(
        "plan-span-one-row-more", "hw/transfer_plan.py", "off by one",
        "factor_a.eq(request.rows - 1)", "factor_a.eq(request.rows)",
    ),
    Mutant(
        "plan-cause-order", "hw/transfer_plan.py", "fault cause",
        "Mux(work.bad_index, Fault.INDEX, Mux(work.misaligned, Fault.ALIGNMENT, Fault.WINDOW))",
        "Mux(work.misaligned, Fault.ALIGNMENT, Mux(work.bad_index, Fault.INDEX, Fault.WINDOW))",
    ),
    # Vector
    Mutant(
        "vector-b-wraps", "hw/vector.py", "bound",
        "Cat(vector.b[: config.index_bits], beyond)", "vector.b[: config.index_bits]",
    ),
    Mutant(
        "vector-illegal-op-runs", "hw/vector.py", "illegal instruction passes",
        "illegal=~targets.bit_select(vector.target, 1) | ", "illegal=",
    ),
    Mutant(
        "vector-task-of-the-next", "hw/vector.py", "state machine",
        "fetch.task.eq(skid.output.payload.task)", "fetch.task.eq(task)",
    ),
    Mutant(
        "vector-refuses-too-early", "hw/vector.py", "fault order",
        "drained=~fetch.occupied & ~loops.micro_ops.valid", "drained=~fetch.occupied",
    ),
    Mutant(
        "vector-asks-too-early", "hw/vector_fetch.py", "missing hazard check",
        "d.asks.eq(inside & old & ~goes_on & ~found_d)", "d.asks.eq(inside & old & ~goes_on)",
    ),
    Mutant(
        "vector-newest-not-found", "hw/vector_results.py", "missing hazard check",
        "found.eq((self.issue & is_newest) | older.any())", "found.eq(older.any())",
    ),
    Mutant(
        "vector-last-parameter-not-found", "hw/vector_results.py", "missing hazard check",
        '"b1": 1, "b2": 2, ', '"b1": 1, "b2": 1, ',
    ),
    Mutant(
        "vector-older-parameters-not-found", "hw/vector_results.py", "missing hazard check",
        "indices[distance][number].eq(newest[distance])", "indices[distance][number].eq(newest[0])",
    ),
    Mutant(
        "vector-parameter-hazard", "hw/vector_fetch.py", "missing hazard check",
        "others[0] | others[1], 0)", "others[0], 0)",
    ),
    Mutant(
        "vector-stale-operand", "hw/vector_fetch.py", "missing forward",
        "same_a = ~micro_op.begin & ~a.overwritten", "same_a = ~micro_op.begin",
    ),
    Mutant(
        "vector-chains-across-instructions", "hw/vector_fetch.py", "state machine",
        "goes_on = ~micro_op.begin & (micro_op.dst == held.dst)", "goes_on = micro_op.dst == held.dst",
    ),
    Mutant(
        "vector-rounding-missing", "hw/vector_lanes.py", "rounding add missing",
        "addend = Cat(Const(1, 1), ", "addend = Cat(Const(0, 1), ",
    ),
    Mutant(
        "vector-ties-away-from-zero", "hw/vector_lanes.py", "tie rule",
        "addend = Cat(Const(1, 1), ", "addend = Cat(~saturated_9[-1], ",
    ),
    Mutant(
        "vector-saturates-one-high", "hw/vector_lanes.py", "saturation bound",
        "saturated = Mux(wide[-1], -limit, limit - 1)", "saturated = Mux(wide[-1], -limit, limit)",
    ),
    Mutant(
        "vector-clamps-low-last", "hw/vector_lanes.py", "clamp order",
        "Mux(self.content.low > self.content.high, self.content.high, self.content.low)", "self.content.low",
    ),
    Mutant(
        "vector-shift-wraps", "hw/vector_lanes.py", "shift amount",
        "right_amount = Mux(b[5:31].any(), 31, b[:5])", "right_amount = b[:5]",
    ),
    Mutant(
        "vector-high-part-unsigned", "hw/vector_lanes.py", "wrong sign",
        "self.x[4][LOW_BITS:].as_signed() * self.factor_4", "self.x[4][LOW_BITS:] * self.factor_4",
    ),
    Mutant(
        "vector-max-from-int8", "hw/vector_lanes.py", "max pooling initial value",
        "Const(op.identity, signed(32))", "Const(op.identity >> 24, signed(32))",
    ),
    Mutant(
        "vector-results-overflow", "hw/vector_results.py", "queue depth",
        "self.room.eq(count < SLOTS - 1)", "self.room.eq(count <= SLOTS)",
    ),
    Mutant(
        "vector-write-without-ready", "hw/vector_results.py", "back-pressure ignored",
        "written.eq(offered & (~destination.to_acc | self.write_acc.ready))", "written.eq(offered)",
    ),
    Mutant(
        "vector-inp-waits-for-acc", "hw/vector_results.py", "back-pressure of another port",
        "written.eq(offered & (~destination.to_acc | self.write_acc.ready))",
        "written.eq(offered & (~(destination.to_acc | destination.to_inp) | self.write_acc.ready))",
    ),
    Mutant(
        "vector-inp-counts-as-acc", "hw/vector_results.py", "hazard where there is none",
        "& slot.to_acc & (index == query)", "& (slot.to_acc | slot.to_inp) & (index == query)",
    ),
    Mutant(
        "vector-writes-out-as-well", "hw/vector_results.py", "write enable",
        "self.write_out.enable.eq(offered & ~destination.to_acc & ~destination.to_inp)",
        "self.write_out.enable.eq(offered & ~destination.to_acc)",
    ),
    Mutant(
        "vector-inp-as-deep-as-out", "hw/vector_fetch.py", "bound",
        "beyond_inp, beyond_out = micro_op.dst[inp_bits:]", "beyond_inp, beyond_out = micro_op.dst[out_bits:]",
    ),
    Mutant(
        "vector-inp-overwrites-operand", "hw/vector_fetch.py", "hazard where there is none",
        "a.overwritten.eq(task.to_acc & ", "a.overwritten.eq((task.to_acc | task.to_inp) & ",
    ),
    Mutant(
        "vector-target-without-meaning", "hw/vector.py", "check missing",
        "illegal=~targets.bit_select(vector.target, 1) | ", "illegal=~targets.any() | ",
    ),
    # The port of inp
    Mutant(
        "load-does-not-wait-at-inp", "hw/shared_write.py", "back-pressure ignored",
        "second.ready.eq(~first.enable)", "second.ready.eq(1)",
    ),
    Mutant(
        "vector-loses-to-load-at-inp", "hw/shared_write.py", "priority",
        "port.data.eq(Mux(first.enable, first.data, second.data))",
        "port.data.eq(Mux(second.enable, second.data, first.data))",
    ),
    Mutant(
        "mask-of-load-at-inp", "hw/shared_write.py", "write mask",
        "port.mask.eq(Mux(first.enable, first.mask, second.mask))", "port.mask.eq(second.mask)",
    ),
    # Writing
    Mutant(
        "write-begins-one-word-early", "hw/write_dma.py", "handshake", "(beats_minus_1 < gathered)",
        "(beats_minus_1 <= gathered)",
    ),
    Mutant(
        "write-answer-always-last", "hw/write_dma.py", "last flag",
        "client.acknowledgement.last.eq(unanswered.r_data)", "client.acknowledgement.last.eq(1)",
    ),
    Mutant(
        "write-keeps-dropped-words", "hw/write_dma.py", "soft reset misses a register",
        "drop.eq(self.stop & ~self.busy)", "drop.eq(0)",
    ),
    Mutant(
        "write-last-beat", "hw/write_dma.py", "last beat",
        "axi.wlast.eq(last_word)", "axi.wlast.eq(beat_number == 0)",
    ),
    Mutant(
        "write-limit-ignored", "hw/write_dma.py", "queue depth",
        "                & lengths.w_rdy\n                & unanswered.w_rdy\n", "                & lengths.w_rdy\n",
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
)  # fmt: skip
