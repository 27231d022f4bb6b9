"""Proofs about queues: order is kept, nothing is lost, nothing overflows."""

from __future__ import annotations

from functools import partial

from amaranth.hdl import Array, Mux, Signal
from amaranth.lib import data
from weft.hw.config import CoreConfig
from weft.hw.layout_fifo import LayoutFifo
from weft.hw.read_dma import ReadBuffer

from .harness import Harness
from .prover import Mutant, Proof

VALUE_BITS = 4
"""A queue only copies its values, so their width does not matter."""

NARROW = CoreConfig(block_in=2, block_out=2, inp_depth=8, wgt_depth=8, acc_depth=16, out_depth=8, acc_banks=1)


def fifo(depth: int) -> Harness:
    """Follow any one value through the queue: it comes out after exactly those that were before it."""
    harness = Harness()
    m = harness.m
    queue = LayoutFifo(data.StructLayout({"value": VALUE_BITS}), depth)
    inside = harness.add("queue", queue)
    rows = inside.rows("fifo.storage")
    inner = {name: inside[f"fifo.{name}"] for name in ("produce", "consume", "inner_level")}
    push, pop = Signal(), Signal()
    level = Signal(range(depth + 2))  # pushed and not popped
    m.d.comb += [push.eq(queue.input.valid & queue.input.ready), pop.eq(queue.output.valid & queue.output.ready)]
    m.d.sync += level.eq(level + push - pop)

    follow = harness.free("follow")
    followed = Signal()
    value = Signal(VALUE_BITS)
    ahead = Signal(range(depth + 2))
    with m.If(push & follow & ~followed):
        m.d.sync += [followed.eq(1), value.eq(queue.input.payload.value), ahead.eq(level - pop)]
    with m.Elif(pop & followed):
        m.d.sync += [followed.eq(ahead != 0), ahead.eq(ahead - 1)]
    late = Signal()
    m.d.sync += late.eq((level != 0) & ~queue.output.valid)

    at_output = (ahead == 0) & queue.output.valid
    harness.prove(~followed | ~at_output | (queue.output.payload.value == value), "value_is_kept")
    harness.prove(~queue.output.valid | (level != 0), "nothing_is_invented")
    harness.prove(~late | queue.output.valid, "a_value_is_offered_one_cycle_after_it_came_at_the_latest")
    harness.prove(level <= depth, "no_overflow")
    harness.prove(queue.empty == (level == 0), "empty")
    # Invariants: how the ghost state stands to the registers.
    wrapped = Signal(range(2 * depth))
    place = Signal(range(2 * depth))
    m.d.comb += [
        wrapped.eq(inner["consume"] + inner["inner_level"]),
        place.eq(inner["consume"] + ahead - queue.output.valid),
    ]
    size = depth - 1
    harness.prove(level == inner["inner_level"] + queue.output.valid, "level")
    harness.prove(inner["consume"] < size, "consume_in_range")
    harness.prove(inner["produce"] == Mux(wrapped >= size, wrapped - size, wrapped), "produce")
    harness.prove(~followed | (ahead < level), "followed_is_inside")
    row = Signal(VALUE_BITS)
    m.d.comb += row.eq(Array(rows)[Mux(place >= size, place - size, place)])
    harness.prove(~followed | at_output | (row == value), "row")
    return harness


def read_buffer() -> Harness:
    """The words asked for and those held never exceed the buffer, so that the bus can always deliver."""
    depth = 16
    harness = Harness()
    m = harness.m
    buffer = ReadBuffer(NARROW, depth)
    inside = harness.add("buffer", buffer)
    asked = Signal(range(2 * depth))  # words asked for that have not come
    held = Signal(range(2 * depth))
    ask, take = Signal(7), Signal()
    m.d.comb += take.eq(buffer.words.valid & buffer.words.ready)
    with m.If(buffer.client.bursts.valid & buffer.client.bursts.ready):
        m.d.comb += ask.eq(buffer.client.bursts.payload.beats_minus_1 + 1)
    m.d.sync += [
        asked.eq(asked + ask - buffer.client.word_valid),
        held.eq(held + buffer.client.word_valid - take),
    ]
    harness.assume(~buffer.client.word_valid | (asked != 0))
    harness.prove(~buffer.client.word_valid | inside["buffer.w_rdy"], "there_is_room_for_every_word_that_comes")
    harness.prove(asked + held <= depth, "no_overflow")
    harness.prove((buffer.bursts.valid & buffer.bursts.ready) == (ask != 0), "a_burst_is_taken_when_it_is_asked_for")
    # Invariants.
    harness.prove(inside["room"] + asked + held == depth, "room")
    harness.prove(held == inside["buffer.inner_level"] + inside["buffer.r_rdy"], "held")
    return harness


def _queue_proof(depth: int, mutant: Mutant) -> Proof:
    claim = f"a queue of {depth} keeps order and values, loses and invents nothing"
    return Proof(f"queue-{depth}", claim, partial(fifo, depth), mutant, depth=4, mutant_depth=depth + 4)


PROOFS = [
    _queue_proof(2, Mutant("layout_fifo", "queue.r_en.eq(self.output.ready)", "queue.r_en.eq(1)")),
    _queue_proof(8, Mutant("layout_fifo", "self.input.ready.eq(queue.w_rdy)", "self.input.ready.eq(1)")),
    _queue_proof(16, Mutant("layout_fifo", "self.empty.eq(queue.level == 0)", "self.empty.eq(~queue.r_rdy)")),
    Proof(
        "read-buffer",
        "a client asks only for words that its buffer has room for",
        read_buffer,
        Mutant("read_dma", "room.eq(Mux(taken, room - beats_minus_1, ", "room.eq(Mux(1, room - beats_minus_1, "),
        depth=8,
    ),
]
