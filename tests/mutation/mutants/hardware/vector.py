"""Faults in the vector engine and the memories that it shares."""

from __future__ import annotations

from ..mutant import Mutant

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
    # Vector
    Mutant(
        "vector-b-wraps", "hw/vector.py", "bound",
        "Cat(vector.b[: config.index_bits], beyond)", "vector.b[: config.index_bits]",
    ),
    Mutant(
        "vector-illegal-op-runs", "hw/vector.py", "illegal instruction passes",
        "illegal = ~targets.bit_select(vector.target, 1) | ", "illegal = ",
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
        "vector-waits-for-what-is-written", "hw/vector_results.py", "late release",
        "(older & ~(1 << to_write)[: self.slots]).any()", "older.any()",
    ),
    Mutant(
        "vector-newest-not-found", "hw/vector_results.py", "missing hazard check",
        "found.eq((self.issue & is_newest) | left)", "found.eq(left)",
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
        "rounding: Any = Const(1, 1)", "rounding: Any = Const(0, 1)",
    ),
    Mutant(
        "vector-ties-away-from-zero", "hw/vector_lanes.py", "tie rule",
        "addend = Cat(rounding, ", "addend = Cat(~narrow[-1], ",
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
        "x[LOW_BITS:].as_signed() * factor", "x[LOW_BITS:] * factor",
    ),
    Mutant(
        "vector-max-from-int8", "hw/vector_lanes.py", "max pooling initial value",
        "Cat(self.op.keeps_least.replicate(31), self.op.keeps_largest)",
        "Cat(self.op.keeps_least.replicate(7), self.op.keeps_largest.replicate(25))",
    ),
    Mutant(
        "vector-mac-is-no-sum", "hw/vector_lanes.py", "what kind an operation is",
        '"sums": (VectorOp.MAC, VectorOp.SUM)', '"sums": (VectorOp.SUM,)',
    ),
    Mutant(
        "vector-newest-without-distance", "hw/vector_fetch.py", "missing hazard check",
        "newest.eq(micro_op.dst - distance)", "newest.eq(micro_op.dst)",
    ),
    Mutant(
        "vector-results-overflow", "hw/vector_results.py", "queue depth",
        "self.room.eq(count < self.slots - 1)", "self.room.eq(count <= self.slots)",
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
        "to_out, shown = offered & ~destination.to_acc & ~destination.to_inp, result",
        "to_out, shown = offered & ~destination.to_acc, result",
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
        "illegal = ~targets.bit_select(vector.target, 1) | ", "illegal = ~targets.any() | ",
    ),
    # Rounding in float32
    Mutant(
        "float32-of-an-exact-sum", "hw/vector_lanes.py", "rounding missing",
        "self.x[stage + 1].eq(_without(x, _insignificant(x)))", "self.x[stage + 1].eq(x)",
    ),
    Mutant(
        "float32-sum-wraps", "hw/vector_lanes.py", "width",
        "return 33 if self.float32 and", "return 32 if self.float32 and",
    ),
    Mutant(
        "float32-of-an-exact-product", "hw/vector_lanes.py", "rounding missing",
        "dropped.eq(Mux(rounds, insignificant, 0))", "dropped.eq(0)",
    ),
    Mutant(
        "float32-of-every-product", "hw/vector_lanes.py", "what kind an operation is",
        "dropped.eq(Mux(rounds, insignificant, 0))", "dropped.eq(insignificant)",
    ),
    Mutant(
        "float32-halves-down", "hw/vector_lanes.py", "tie rule",
        "Cat(odd, dropped[1:])", "Cat(Const(0, 1), dropped[1:])",
    ),
    Mutant(
        "float32-all-that-follows-a-half-is-a-half", "hw/vector_lanes.py", "tie rule",
        "half_down = wide[0] & goes_down & ~self.inexact", "half_down = wide[0] & goes_down",
    ),
    Mutant(
        "float32-last-step-loses-nothing", "hw/vector_lanes.py", "sticky bit",
        "left_early | _leaves(between, fine, 16, 1)", "left_early",
    ),
    Mutant(
        "float32-first-step-loses-nothing", "hw/vector_lanes.py", "sticky bit",
        "left_early | _leaves(between, fine, 16, 1)", "_leaves(between, fine, 16, 1)",
    ),
    Mutant(
        "float32-of-every-requantise", "hw/vector.py", "what kind an operation is",
        "task.order.rounding.eq(vector.rounding)", "task.order.rounding.eq(1)",
    ),
    Mutant(
        "float32-with-the-slots-of-before", "hw/pipelines.py", "queue depth",
        "return 32 if config.rounding in ROUNDING_STAGES else 16", "return 16",
    ),
    # Halves
    Mutant(
        "halves-above-zero-down", "hw/vector_lanes.py", "wrong sign",
        "goes_down = wide[-1] if", "goes_down = ~wide[-1] if",
    ),
    Mutant(
        "halves-without-what-was-lost", "hw/vector_lanes.py", "sticky bit",
        "HALVES = (FLOAT32, HALF_AWAY, HALF_EVEN)", "HALVES = (FLOAT32, HALF_EVEN)",
    ),
    # Two roundings
    Mutant(
        "first-rounding-of-every-shift", "hw/vector_lanes.py", "rounding missing",
        "beyond = order.rounds_otherwise & self.amount[stage][-1]", "beyond = order.rounds_otherwise",
    ),
    Mutant(
        "first-rounding-up-alone", "hw/vector_lanes.py", "tie rule",
        "half = Mux(product[-1], -(1 << FIRST_PLACES - 1), 1", "half = Mux(product[-1], 1 << FIRST_PLACES - 1, 1",
    ),
    Mutant(
        "wide-product-too-large-unseen", "hw/vector_lanes.py", "width",
        "too_large = too_large | ((amount[4:] == 1)", "too_large = too_large & ((amount[4:] == 1)",
    ),
    Mutant(
        "wide-multiplier-of-every-product", "hw/vector_lanes.py", "width",
        "b if self.multiplier_bits == IMMEDIATE_BITS else b[:IMMEDIATE_BITS].as_signed()", "b",
    ),
    # Tables
    Mutant(
        "table-entry-one-further", "hw/vector_tables.py", "table index",
        "read.addr.eq(Cat(low, self.table))", "read.addr.eq(Cat((low + 1)[:ENTRY_BITS], self.table))",
    ),
    Mutant(
        "table-after-the-one-named", "hw/vector.py", "table index",
        "task.table.eq(vector.table - 1)", "task.table.eq(vector.table)",
    ),
    Mutant(
        "table-written-one-cycle-late", "hw/vector_tables.py", "missing hazard check",
        "m.d.comb += [\n                write.en.eq(writes),\n                write.addr.eq(self.index),\n"
        "                write.data.eq(low),\n",
        "m.d.sync += [write.en.eq(writes), write.addr.eq(self.index), write.data.eq(low)]\n            m.d.comb += [\n",
    ),
    Mutant(
        "table-entry-without-a-sign", "hw/vector_tables.py", "wrong sign",
        ".eq(read.data.as_signed())", ".eq(read.data)",
    ),
    Mutant(
        "table-of-the-lane-beside", "hw/vector_tables.py", "wrong lane",
        "self.data[width * lane : width * (lane + 1)]",
        "self.data[width * (lane ^ 1) : width * (lane ^ 1) + width]",
    ),
    Mutant(
        "table-of-the-first-lane-for-all", "hw/vector_tables.py", "wrong lane",
        "low = self.result[width * lane : width * lane + ENTRY_BITS]", "low = self.result[:ENTRY_BITS]",
    ),
    Mutant(
        "table-read-while-a-result-waits", "hw/vector_results.py", "back-pressure ignored",
        "tables.enable.eq(take)", "tables.enable.eq(waiting.r_rdy)",
    ),
    Mutant(
        "table-result-goes-to-out-as-well", "hw/vector_results.py", "write enable",
        "to_out & ~destination.to_tab, Mux", "to_out, Mux",
    ),
    Mutant(
        "table-as-deep-as-out", "hw/vector_fetch.py", "bound",
        "beyond_out = Mux(task.to_tab, micro_op.dst[tab_bits:].any(), beyond_out)", "pass",
    ),
    Mutant(
        "table-for-what-accumulates", "hw/vector.py", "illegal instruction passes",
        "takes_none = accumulates | (vector.target", "takes_none = (vector.target",
    ),
    Mutant(
        "table-beyond-the-last", "hw/vector.py", "illegal instruction passes",
        "(vector.table > config.tables) | (takes_none", "(takes_none",
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
)  # fmt: skip
