"""Proofs about tokens: the counters of the token matrix, and the engines that take and send them."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data
from weft.hw.config import TINY
from weft.hw.engine import EngineControl, Ledger
from weft.hw.interfaces import ENGINES, command_layout
from weft.hw.isa import ENGINE_NAMES, Engine, header_layout
from weft.hw.pipelines import IN_FLIGHT
from weft.hw.tokens import TokenMatrix

from .harness import Harness
from .prover import Mutant, Proof

GHOST_BITS = 8
"""Ghost counts wrap; the difference of two is what counts, and is at most ``token_depth``."""


def token_matrix() -> Harness:
    """Every counter is tokens sent minus tokens taken, never leaves 0..token_depth, and gates ready and available."""
    harness = Harness()
    m = harness.m
    matrix = TokenMatrix(TINY)
    inside = harness.add("matrix", matrix)
    for sender in Engine:
        rooms = []
        for receiver in Engine:
            if receiver is sender:
                # Refused by fetch: an instruction never names its own engine.
                harness.assume(~matrix.send[sender].payload[sender])
                continue
            pair = f"{ENGINE_NAMES[sender]}_to_{ENGINE_NAMES[receiver]}"
            count = inside[pair]
            send, take = matrix.send[sender], matrix.take[receiver][sender]
            sent, taken, held = (Signal(GHOST_BITS, name=f"{verb}_{pair}") for verb in ("sent", "taken", "held"))
            m.d.comb += held.eq(sent - taken)
            m.d.sync += [
                sent.eq(sent + (send.valid & send.ready & send.payload[receiver])),
                taken.eq(taken + take),
            ]
            # What `engine-takes` proves of every engine.
            harness.assume(~take | matrix.available[receiver][sender])
            harness.prove(held == count, f"count_{pair}")
            harness.prove(held <= TINY.token_depth, f"range_{pair}")
            harness.prove(matrix.available[receiver][sender] == (held != 0), f"available_{pair}")
            rooms.append(~send.payload[receiver] | (held != TINY.token_depth))
        harness.prove(matrix.send[sender].ready == Cat(rooms).all(), f"ready_{ENGINE_NAMES[sender]}")
    return harness


def engine_takes() -> Harness:
    """An engine takes the tokens that its instruction waits for, all at once, when it starts it, and no others."""
    harness = Harness()
    m = harness.m
    control = EngineControl(TINY)
    inside = harness.add("control", control)
    header = header_layout(TINY)(data.View(command_layout(TINY), inside["command"]).word)
    starts = Signal()
    m.d.comb += starts.eq(inside["leave"])
    harness.prove(~(control.take & ~control.tokens).any(), "a_token_that_is_taken_is_there")
    harness.prove(control.take == Mux(starts, header.wait, 0), "what_it_waits_for_is_what_it_takes")
    harness.prove(~starts | inside["held"], "what_starts_has_come")
    harness.prove(~starts | ~(control.stop | control.halt), "nothing_starts_after_a_stop")
    harness.prove(~(control.work.valid & control.work.ready) | starts, "work_that_is_accepted_has_started")

    # An instruction neither vanishes nor starts twice: those that came are those that started and the one held.
    came, started = Signal(4), Signal(4)
    m.d.sync += [
        came.eq(came + (control.commands.valid & control.commands.ready)),
        started.eq(started + starts),
    ]
    harness.prove((came - started)[:4] == inside["held"], "each_instruction_starts_once")
    before, kept = Signal(), Signal.like(inside["command"])
    m.d.sync += [before.eq(inside["held"] & ~starts), kept.eq(inside["command"])]
    harness.prove(~before | (inside["held"] & (kept == inside["command"])), "a_waiting_instruction_stays")
    return harness


def ledger() -> Harness:
    """Follow any instruction from its start: its tokens are sent once, after it retired, in program order."""
    harness = Harness()
    m = harness.m
    book = Ledger()
    inside = harness.add("ledger", book)
    rows = [book.entry_layout(row) for row in inside.rows("ring")]
    to_start, to_retire, to_send = (inside[f"to_{verb}"] for verb in ("start", "retire", "send"))
    harness.assume(~book.start | book.room)  # EngineControl: may_start

    def distance(end: Value, begin: Value, name: str) -> Signal:
        result = Signal(range(2 * IN_FLIGHT), name=name)
        m.d.comb += result.eq(end - begin)
        return result

    unsent = distance(to_start, to_send, "unsent")
    unretired = distance(to_start, to_retire, "unretired")
    harness.prove(unsent <= IN_FLIGHT, "the_ring_never_overflows")
    harness.prove(unretired <= unsent, "nothing_is_sent_before_it_retires")
    harness.prove(~(book.room & (unsent == IN_FLIGHT)), "room_means_room")
    harness.prove(book.empty == (unsent == 0), "empty")

    # The followed instruction, and how many sends of others come before its own.
    follow = harness.free("follow")
    followed = Signal()
    entry = Signal(book.entry_layout)
    slot = Signal.like(to_start)
    sends_itself, passes = Signal(), Signal()
    still = distance(to_start, slot, "still")  # entries from the followed one on
    m.d.comb += [
        passes.eq(followed & (to_send == slot) & (still <= unsent) & (unsent != 0)),
        sends_itself.eq(passes & book.send.valid),
    ]
    with m.If(book.start & follow & ~followed):
        m.d.sync += [followed.eq(1), entry.eq(book.entry), slot.eq(to_start)]
    gone = Signal()
    next_send = Signal.like(to_send)
    m.d.comb += [next_send.eq(to_send + 1), gone.eq(passes & (unretired < still))]
    with m.If(gone & (book.send.ready | ~book.send.valid)):
        m.d.sync += followed.eq(0)
    harness.prove(~followed | ((still != 0) & (still <= unsent)), "it_stays_until_it_is_sent")
    row = Signal(book.entry_layout)
    m.d.comb += row.eq(Array(each.as_value() for each in rows)[slot[:-1]])
    harness.prove(~followed | (row.as_value() == entry.as_value()), "its_entry_is_kept")
    harness.prove(~sends_itself | (book.send.payload == entry.send), "it_sends_its_own_tokens")
    harness.prove(~gone | (book.send.valid == entry.send.any()), "it_sends_when_it_has_tokens_to_send")
    harness.prove(~sends_itself | gone, "it_sends_after_it_retired")
    retires = followed & (to_retire == slot) & (unretired != 0)
    harness.prove(~(retires & book.retired.valid) | (book.retired.number == entry.number), "it_retires_as_itself")

    # A send that waits stays as it is.
    waited, mask = Signal(), Signal(ENGINES)
    m.d.sync += [waited.eq(book.send.valid & ~book.send.ready), mask.eq(book.send.payload)]
    harness.prove(~waited | (book.send.valid & (book.send.payload == mask)), "a_send_waits_unchanged")
    return harness


def ledger_retirement() -> Harness:
    """As many instructions retire as the engine's body reports, no more and no fewer, instant ones aside."""
    harness = Harness()
    m = harness.m
    book = Ledger()
    inside = harness.add("ledger", book)
    rows = [book.entry_layout(row) for row in inside.rows("ring")]
    to_start, to_retire, done = inside["to_start"], inside["to_retire"], inside["done"]
    unsent, unretired = Signal(range(2 * IN_FLIGHT)), Signal(range(2 * IN_FLIGHT))
    m.d.comb += [unsent.eq(to_start - inside["to_send"]), unretired.eq(to_start - to_retire)]
    harness.assume(~book.start | book.room)
    working = Signal(range(2 * IN_FLIGHT))  # started, not instant, and not reported as done
    m.d.sync += working.eq(working + (book.start & ~book.entry.instant) - book.retire)
    harness.assume(~book.retire | (working != 0))

    lasting = Signal(IN_FLIGHT)  # slots of unretired instructions that are not instant
    for position, row in enumerate(rows):
        age = Signal(range(IN_FLIGHT), name=f"age_{position}")
        m.d.comb += [age.eq(position - to_retire), lasting[position].eq((age < unretired) & ~row.instant)]
    oldest = Signal(book.entry_layout)
    m.d.comb += oldest.eq(Array(row.as_value() for row in rows)[to_retire[:-1]])
    reported = (done != 0) | book.retire
    harness.prove(
        book.retired.valid == ((unretired != 0) & (oldest.instant | reported)), "the_oldest_retires_when_it_is_done"
    )
    harness.prove(working <= IN_FLIGHT, "working_in_range")
    harness.prove(done <= IN_FLIGHT, "no_overflow_of_done")
    # Invariants.
    harness.prove(unsent <= IN_FLIGHT, "ring")
    harness.prove(unretired <= unsent, "order")
    harness.prove(~(book.room & (unsent == IN_FLIGHT)), "room")
    harness.prove(working + done == sum(lasting[1:], lasting[0]), "reported_and_working_are_the_unretired")
    return harness


PROOFS = [
    Proof(
        "token-counters",
        "tokens sent - tokens taken = counter, in 0..token_depth, for all 20 pairs; ready and available say so",
        token_matrix,
        Mutant("tokens", "with m.If(put & ~take):", "with m.If(put):"),
        depth=3,
        mutant_depth=4,
    ),
    Proof(
        "engine-takes",
        "an engine takes only tokens that are there, exactly those it waits for, once for each instruction",
        engine_takes,
        Mutant("engine", "missing.eq(header.wait & ~self.tokens)", "missing.eq(header.wait[1:] & ~self.tokens[1:])"),
        depth=3,
    ),
    Proof(
        "ledger-sends",
        "every started instruction sends its tokens exactly once, after it retired, in order",
        ledger,
        Mutant("engine", "pending & (self.send.ready | ~sending.data.send.any())", "pending"),
        depth=4,
        mutant_depth=6,
    ),
    Proof(
        "ledger-retirement",
        "instructions retire in order, one for each report of the engine's body",
        ledger_retirement,
        Mutant("engine", "Mux(started & ~instant, done, done + 1)", "Mux(started, done, done + 1)"),
        depth=4,
        mutant_depth=8,
    ),
]
