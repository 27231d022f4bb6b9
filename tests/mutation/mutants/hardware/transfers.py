"""Faults in what moves data: fetch, load, store, the bus masters and their bursts."""

from __future__ import annotations

from ..mutant import Mutant

MUTANTS = (
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
        "burst-of-any-length", "hw/bus.py", "field ignored",
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
    # Fetch
    Mutant(
        "fetch-burst-of-any-length", "hw/bus.py", "field ignored",
        "return min(MOST_FETCH_BEATS, longest_burst(config))", "return MOST_FETCH_BEATS",
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
        "wide_pad.eq(part.pad_value.as_signed())", "wide_pad.eq(part.pad_value)",
    ),
    Mutant(
        "load-pad-value-ignored", "hw/load_writer.py", "pad value ignored",
        "part.pad_value.replicate(len(own_word) // 8)", "Const(0, len(own_word))",
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
        "Const(0b1111, width) << (part << 2)", "Const(0b1111, width) << (part << 1)",
    ),
    Mutant(
        "load-retires-with-what-comes", "hw/load_writer.py", "wrong stage",
        "last.eq(part.last)", "last.eq(self.parts.payload.last)",
    ),
    Mutant(
        "load-error-while-padding", "hw/load_writer.py", "fault condition",
        "self.failed.eq(running & ~is_padding & self.words.valid", "self.failed.eq(running & self.words.valid",
    ),
    # Weights of 4 bits
    Mutant(
        "weights-zero-point-is-added", "hw/weight_records.py", "wrong sign",
        "products[number] - offsets[row]", "products[number] + offsets[row]",
    ),
    Mutant(
        "weights-halves-swapped", "hw/weight_records.py", "byte order",
        "word.word_select(number, 4), scales[row]", "word.word_select(number ^ 1, 4), scales[row]",
    ),
    Mutant(
        "weights-one-pair-for-all", "hw/weight_records.py", "address",
        "row = number * shape.outputs // weights", "row = 0",
    ),
    Mutant(
        "weights-head-only-first", "hw/weight_records.py", "corner case",
        "m.d.sync += [self.in_head.eq(self.records), entry.eq(0)]\n        with m.Elif(self.takes & self.ends_entry)",
        "m.d.sync += entry.eq(0)\n        with m.Elif(self.takes & self.ends_entry)",
    ),
    Mutant(
        "weights-record-one-entry-long", "hw/weight_records.py", "off by one",
        "(entry == shape.entries - 1)", "(entry == max(0, shape.entries - 2))",
    ),
    Mutant(
        "weights-filling-is-a-pair", "hw/weight_records.py", "filling taken",
        "with m.If(self.part == number):", "if True:",
    ),
    Mutant(
        "weights-plain-words-are-scaled", "hw/weight_records.py", "wrong form",
        "products[number].eq(Mux(records, unpacked, plain))", "products[number].eq(unpacked)",
    ),
    Mutant(
        "weights-unpacker-runs-on", "hw/weight_records.py", "back-pressure ignored",
        "with m.If(enable):", "if True:",
    ),
    Mutant(
        "weights-unpacker-is-never-busy", "hw/weight_records.py", "idle too early",
        "self.idle.eq(~valid.any())", "self.idle.eq(1)",
    ),
    Mutant(
        "weights-mask-of-one-word", "hw/load_writer.py", "write mask",
        "Const(0b11, len(own.mask)) << (part.part << 1)", "Const(0b01, len(own.mask)) << (part.part << 1)",
    ),
    Mutant(
        "weights-padding-allowed", "hw/load.py", "fault condition",
        "(starting.pad_value != FOUR_BITS) | is_padded", "starting.pad_value != FOUR_BITS",
    ),
    Mutant(
        "weights-any-format", "hw/load.py", "fault condition",
        "(starting.pad_value != FOUR_BITS) | is_padded", "is_padded",
    ),
    Mutant(
        "weights-index-counts-records", "hw/transfer_plan.py", "wrong unit",
        "request.index + in_entries(work.entries)", "request.index + work.entries",
    ),
    Mutant(
        "weights-record-without-head", "hw/transfer_kinds.py", "address",
        "return reduce(add, (count << bit for bit in bits))", "return count << bits[-1]",
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
)  # fmt: skip
