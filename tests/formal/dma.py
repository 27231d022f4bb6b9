"""Proofs about DMA: no address outside the window, no burst across a page, AXI channels that hold still."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any
from unittest.mock import patch

from amaranth.asserts import Initial
from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data
from weft.hw import write_dma
from weft.hw.bursts import BurstCutter, burst_layout, transfer_layout
from weft.hw.bus import OFFSET_BITS, PAGE_BYTES, ReadClient
from weft.hw.fetch import Fetch
from weft.hw.isa import Fault
from weft.hw.read_dma import ReadMaster
from weft.hw.transfer_kinds import TransferKind
from weft.hw.transfer_plan import TransferPlanner, request_layout
from weft.hw.write_dma import WriteMaster

from .harness import Harness, Inside
from .prover import Mutant, Proof
from .queues import NARROW

WIDE_BITS = 40
"""Exact arithmetic of the specification: no sum or product of a transfer needs as many."""

KINDS = (TransferKind(4, 8), TransferKind(8, 16), TransferKind(2, 16), TransferKind(24, 16, 2))
"""Entries of 4, 8 and 2 bytes, and records of 4-bit weights with a head of 8 bytes that fill two entries."""


def times(value: Value, number: int) -> Value:
    """A product with a constant, without a multiplier: the proof cuts the one that the planner has."""
    return reduce(add, (value << bit for bit in range(number.bit_length()) if number >> bit & 1))


def planner() -> Harness:
    """A plan covers the bytes that the instruction names, all inside window and scratchpad; else there is a fault."""
    harness = Harness()
    m = harness.m
    unit = TransferPlanner(NARROW, KINDS)
    inside = harness.add("planner", unit, driven=("window_size",))
    m.d.comb += unit.window_size.eq(harness.constant("window", unit.window_size.shape()))

    harness.assume(unit.window_size <= 1 << OFFSET_BITS)
    harness.assume(~Initial() | unit.idle)  # whatever happened before: one whole instruction stands for each

    # As LoadEngine and StoreEngine ask.
    asked = unit.requests.payload
    harness.assume(asked.total_rows >= asked.rows)
    harness.assume(asked.total_columns >= asked.columns)
    harness.assume(~asked.dense | ((asked.total_rows == asked.rows) & (asked.total_columns == asked.columns)))
    # The two products of a request: entries in the scratchpad, and entries in DRAM from the first row to the last.
    entries = Signal(2 * len(asked.total_rows))
    gap = Signal(len(inside["product"]))
    request = Signal(request_layout(NARROW))
    with m.If(unit.requests.valid & unit.requests.ready):
        m.d.sync += [
            request.eq(asked),
            entries.eq(harness.free("any_entries", entries.shape())),
            gap.eq(harness.free("any_gap", gap.shape())),
        ]
    assume_products(harness, inside, request, entries, gap)

    def exact(name: str, value: Any) -> Signal:
        signal = Signal(WIDE_BITS, name=name)
        m.d.comb += signal.eq(value)
        return signal

    def in_bytes(name: str, count: Value) -> Signal:
        return exact(
            name,
            Array(exact(f"{name}_{kind.entry_bytes}", times(count, kind.entry_bytes)) for kind in KINDS)[asked_kind],
        )

    asked_kind = request.kind
    depth = exact("depth", Array(kind.depth for kind in KINDS)[asked_kind])
    moves = (request.rows != 0) & (request.columns != 0)
    first = exact("first", request.offset << (NARROW.granule_bytes.bit_length() - 1))
    end = exact("end", first + in_bytes("span", gap + request.columns))
    misaligned = Signal()
    for number, kind in enumerate(KINDS):
        with m.If(asked_kind == number):
            m.d.comb += misaligned.eq(
                first[: min(kind.entry_bytes & -kind.entry_bytes, NARROW.bus_bytes).bit_length() - 1].any()
            )
    filled = Array(exact(f"filled_{number}", times(entries, kind.entries)) for number, kind in enumerate(KINDS))[
        asked_kind
    ]
    bad_index = exact("index_end", request.index + filled) > depth
    bad_window = moves & (end > unit.window_size)
    expected = Signal(Fault)
    with m.If(bad_index):
        m.d.comb += expected.eq(Fault.INDEX)
    with m.Elif(moves & misaligned):
        m.d.comb += expected.eq(Fault.ALIGNMENT)
    with m.Elif(bad_window):
        m.d.comb += expected.eq(Fault.WINDOW)

    plan = unit.plans.payload
    transfer = plan.transfer
    offered = unit.plans.valid
    merged = request.dense & (request.stride == request.columns)
    harness.prove(~offered | (expected == Fault.NONE), "only_legal_instructions_get_a_plan")
    harness.prove(~unit.fault | ((unit.cause == expected) & (expected != Fault.NONE)), "a_fault_has_the_first_cause")
    harness.prove(~offered | (plan.moves == moves), "moves")
    moved = offered & moves
    harness.prove(~moved | (transfer.first == first), "it_begins_as_asked")
    harness.prove(~moved | (transfer.first <= transfer.final), "rows_are_not_empty")
    harness.prove(
        ~moved
        | merged
        | ((transfer.rows == request.rows) & (transfer.row_bytes == in_bytes("stride_bytes", request.stride))),
        "it_has_the_rows_asked_for",
    )
    harness.prove(
        ~moved | merged | (transfer.final + 1 == first + in_bytes("row", request.columns)), "each_row_has_its_columns"
    )
    harness.prove(~(moved & merged) | (transfer.rows == 1), "rows_without_a_gap_are_one")
    harness.prove(~(moved & merged) | (transfer.final + 1 == end), "of_the_same_bytes")
    return harness


def assume_products(harness: Harness, inside: Inside, request: Any, entries: Value, gap: Value) -> None:
    """What the multiplier, cut out of the proof, gives for the operands that it gets; and how its two products are
    related. Nothing else about multiplication matters here, and a solver would have to work it out bit by bit."""
    before = []
    for name in ("factor_a", "factor_b"):
        factor = inside[name]
        before.append(Signal(len(factor), name=f"{name}_before"))
        harness.m.d.sync += before[-1].eq(factor)
    all_but_one = (request.rows - 1)[: len(before[0])]
    operands = ((request.total_rows, request.total_columns, entries), (all_but_one, request.stride, gap))
    for one, other, product in operands:
        harness.assume(~((before[0] == one) & (before[1] == other)) | (inside["product"] == product))
    harness.assume((entries == 0) == ((request.total_rows == 0) | (request.total_columns == 0)))
    # rows * columns = (rows - 1) * columns + columns
    merged = request.dense & (request.stride == request.columns) & (request.rows != 0)
    harness.assume(~merged | (entries == gap + request.columns))


def cutter() -> Harness:
    """Bursts of a transfer that stays in the window stay in it, and in their page."""
    harness = Harness()
    m = harness.m
    unit = BurstCutter(NARROW)
    inside = harness.add("cutter", unit)
    bus_log2 = NARROW.bus_bytes.bit_length() - 1
    transfer = unit.transfers.payload
    rows, row_first, row_final, row_bytes = (inside[name] for name in ("rows", "row_first", "row_final", "row_bytes"))
    valid, word, final = inside["valid"], inside["word"], inside["final"]

    def exact(name: str, value: Any) -> Signal:
        signal = Signal(WIDE_BITS, name=name)
        m.d.comb += signal.eq(value)
        return signal

    window = harness.constant("window", OFFSET_BITS + 1)
    harness.assume(window <= 1 << OFFSET_BITS)
    harness.assume(~unit.transfers.valid | (transfer.rows != 0))
    harness.assume(~unit.transfers.valid | (transfer.first <= transfer.final))
    # Row n of a transfer begins at first + n * row_bytes, without a limit to the numbers. `transfer-plan` and
    # `fetch-window` prove that the last row ends inside the window; so do those before it.
    first_of_row, final_of_row = Signal(WIDE_BITS), Signal(WIDE_BITS)
    with m.If(unit.transfers.valid & unit.transfers.ready):
        m.d.sync += [first_of_row.eq(transfer.first), final_of_row.eq(transfer.final)]
    with m.Elif(inside["next_row"]):
        m.d.sync += [first_of_row.eq(first_of_row + row_bytes), final_of_row.eq(final_of_row + row_bytes)]
    harness.assume((rows == 0) | (final_of_row < window))
    harness.prove((rows == 0) | (row_first == first_of_row), "rows_begin_where_they_should")
    harness.prove((rows == 0) | (row_final == final_of_row), "rows_end_where_they_should")

    limit = exact("limit", (window - 1)[: len(window)] >> bus_log2)  # last bus word of which some byte is in the window
    page_log2 = (PAGE_BYTES // NARROW.bus_bytes).bit_length() - 1
    # The burst that is offered, the one that was cut, and the one that waits in the skid buffer.
    offered = (unit.bursts.valid, unit.bursts.payload)
    cut = (inside["burst_valid"], burst_layout(NARROW)(inside["burst"]))
    waits = (inside["skid.full"], burst_layout(NARROW)(inside["skid.waiting"]))
    for name, (burst_valid, burst) in {"offered": offered, "cut": cut, "waiting": waits}.items():
        begins = exact(f"{name}_begins", burst.word)
        ends = exact(f"{name}_ends", begins + burst.beats_minus_1)
        harness.prove(~burst_valid | (ends <= limit), f"no_word_{name}_outside_the_window")
        harness.prove(~burst_valid | (begins >> page_log2 == ends >> page_log2), f"no_burst_{name}_over_a_page")
    # Invariants: no row is empty, and the row being cut ends inside the window.
    harness.prove((rows == 0) | (first_of_row <= final_of_row), "rows_to_come_are_not_empty")
    harness.prove(~valid | (final <= limit), "row")
    harness.prove(~valid | (word <= final), "row_is_not_over")
    harness.prove((window != 0) | ~valid, "an_empty_window_has_no_rows")
    return harness


def fetch_window() -> Harness:
    """Fetch asks for its program only, and only where all of it is in the window."""
    harness = Harness()
    m = harness.m
    unit = Fetch(NARROW)
    constant = ("offset", "count", "window_size")  # RegisterFile: locked while a program runs
    inside = harness.add("fetch", unit, driven=constant)
    for name in constant:
        port = getattr(unit, name)
        m.d.comb += port.eq(harness.constant(f"any_{name}", port.shape()))
    harness.assume(unit.window_size <= 1 << OFFSET_BITS)
    end = Signal(WIDE_BITS)
    m.d.comb += end.eq(unit.offset + unit.count * NARROW.instruction_bytes)
    valid = inside["transfers__valid"]
    transfer = data.View(transfer_layout(NARROW), inside["transfers__payload"])
    harness.prove(~valid | (transfer.first == unit.offset), "it_begins_at_the_program")
    harness.prove(~valid | (transfer.final + 1 == end), "it_ends_with_the_program")
    harness.prove(~valid | ((transfer.rows == 1) & (transfer.first <= transfer.final)), "it_is_one_row_not_empty")
    harness.prove(~valid | (transfer.final < unit.window_size), "it_stays_in_the_window")
    harness.prove(~valid | inside["cutter.transfers__ready"], "it_is_accepted")
    # Invariants.
    checking = inside["fsm_state"] == 1
    waiting_for_start = inside["fsm_state"] == 0
    harness.prove(~checking | (inside["end"] == end), "end")
    harness.prove(~(checking | waiting_for_start) | (inside["cutter.rows"] == 0), "nothing_is_cut_before_the_check")
    return harness


class AddressChannel:
    """Ghost state beside an AXI address channel of which the clients' bursts stay in the window and in their page."""

    def __init__(self, harness: Harness, base: Any) -> None:
        self._harness = harness
        self._base = base
        m = harness.m
        self._window = harness.constant("window", 33)
        bus_log2 = NARROW.bus_bytes.bit_length() - 1
        self._words = Signal(33)  # bus words of which some byte is in the window
        m.d.comb += [
            base.eq(harness.constant("any_base", base.shape())),
            self._words.eq((self._window + NARROW.bus_bytes - 1) >> bus_log2),
        ]
        # RegisterFile stores no lower bits of the base; that the window ends within the address space is the driver's.
        harness.assume(base[: (PAGE_BYTES - 1).bit_length()] == 0)
        harness.assume(base + self._window <= 1 << NARROW.address_bits)

    def assume_client(self, bursts: Any) -> None:
        """What `burst-window` and `read-buffer` prove of every client; a burst stays until it is taken."""
        burst = bursts.payload
        page_words = PAGE_BYTES // NARROW.bus_bytes
        self._harness.assume(~bursts.valid | (burst.word + burst.beats_minus_1 < self._words))
        self._harness.assume(
            ~bursts.valid | (burst.word[: page_words.bit_length() - 1] + burst.beats_minus_1 < page_words)
        )

    def prove(self, axi: Any, letter: str) -> None:
        valid, ready, address, length = (getattr(axi, f"a{letter}{part}") for part in ("valid", "ready", "addr", "len"))
        m, prove = self._harness.m, self._harness.prove
        size = Signal(16)
        m.d.comb += size.eq((length + 1) * NARROW.bus_bytes)
        prove(~valid | (address >= self._base), "not_before_the_window")
        prove(~valid | (address + size <= self._base + self._words * NARROW.bus_bytes), "not_after_the_window")
        prove(~valid | (address[: (PAGE_BYTES - 1).bit_length()] + size <= PAGE_BYTES), "not_over_a_page")
        prove_stable(self._harness, valid, ready, Cat(address, length), f"a{letter}")


def prove_stable(harness: Harness, valid: Value, ready: Value, payload: Value, name: str) -> None:
    """AXI: what is offered stays, unchanged, until it is taken."""
    waited, offered = Signal(name=f"{name}_waited"), Signal(len(payload), name=f"{name}_offered")
    harness.m.d.sync += [waited.eq(valid & ~ready), offered.eq(payload)]
    harness.prove(~waited | (valid & (payload == offered)), f"{name}_is_stable")


def read_master() -> Harness:
    """Read addresses are in the window and stay until taken; never more bursts than allowed are in flight."""
    harness = Harness()
    m = harness.m
    unit = ReadMaster(NARROW)
    inside = harness.add("master", unit, driven=("base",))
    channel = AddressChannel(harness, unit.base)
    for client in unit.clients:
        channel.assume_client(client.bursts)
    channel.prove(unit.axi, "r")
    asked = Signal(range(2 * NARROW.read_outstanding))
    begins = Cat(client.bursts.valid & client.bursts.ready for client in unit.clients)
    ends = unit.axi.rvalid & unit.axi.rready & unit.axi.rlast
    m.d.sync += asked.eq(asked + begins.any() - ends)
    harness.assume(~unit.axi.rvalid | (asked != 0))
    harness.prove(asked <= NARROW.read_outstanding, "outstanding")
    harness.prove((begins & (begins - 1)[: len(ReadClient)]) == 0, "one_client_at_a_time")
    harness.prove(~unit.stop | ~begins.any(), "nothing_begins_after_a_stop")
    harness.prove((asked == 0) | unit.busy, "busy_while_a_burst_is_under_way")
    # Invariants.
    harness.prove(asked == inside["outstanding"], "counter")
    harness.prove(inside["last_granted"] < len(ReadClient), "the_last_was_one_of_them")
    return harness


def write_master() -> Harness:
    """Write addresses are in the window; a burst begins when all its words are there; no answer is lost."""
    harness = Harness()
    m = harness.m
    config = replace(NARROW, write_outstanding=4)
    with patch.object(write_dma, "buffer_beats", lambda config: 8):
        unit = WriteMaster(config)
        inside = harness.add("master", unit, driven=("base",))
    rows = inside.rows("lengths.storage")
    channel = AddressChannel(harness, unit.base)
    channel.assume_client(unit.client.bursts)
    channel.prove(unit.axi, "w")
    axi, client = unit.axi, unit.client
    prove_stable(harness, axi.wvalid, axi.wready, Cat(axi.wdata, axi.wstrb, axi.wlast), "w")
    begins, moves = Signal(), inside["next_word"]
    owed = Signal(9)  # words of bursts that have begun, not yet taken from the buffer
    beats = client.bursts.payload.beats_minus_1 + 1
    answered = axi.bvalid & axi.bready
    unanswered, unwritten = Signal(range(16)), Signal(range(16))  # bursts
    m.d.comb += begins.eq(client.bursts.valid & client.bursts.ready)
    m.d.sync += [
        owed.eq(owed + Mux(begins, beats, 0) - moves),
        unanswered.eq(unanswered + begins - answered),
        unwritten.eq(unwritten + begins - (axi.wvalid & axi.wready & axi.wlast)),
    ]
    harness.assume(~axi.bvalid | (unanswered > unwritten))  # AXI: the answer follows the last word
    harness.prove(~unit.stop | ~begins, "nothing_begins_after_a_stop")
    harness.prove(unanswered <= config.write_outstanding, "outstanding")
    harness.prove((unanswered == 0) | unit.busy, "busy_while_a_burst_is_under_way")
    harness.prove((owed == 0) | (inside["words.r_rdy"] | inside["words.inner_r_rdy"]), "a_burst_never_waits_for_words")
    # Invariants: counters, queues, and what the queue of lengths still owes.
    level = {
        name: inside[f"{name}.inner_level"] + inside[f"{name}.r_rdy"] for name in ("words", "lengths", "unanswered")
    }
    harness.prove(level["words"] == inside["gathered"] + owed, "every_word_of_a_burst_that_began_is_there")
    harness.prove((unanswered == inside["outstanding"]) & (unanswered == level["unanswered"]), "answers")
    harness.prove(unwritten == level["lengths"] + (axi.wvalid & axi.wlast), "unwritten")
    harness.prove(unwritten <= unanswered, "no_answer_before_the_words")
    inner = config.write_outstanding - 1
    consume, produce, inner_level = (inside[f"lengths.{name}"] for name in ("consume", "produce", "inner_level"))
    sum_ = consume + inner_level
    harness.prove((consume < inner) & (inner_level <= inner), "lengths_in_range")
    harness.prove(produce == Mux(sum_ >= inner, sum_ - inner, sum_), "lengths_produce")
    current = inside["lengths.r_data"]
    waiting = []
    for number, row in enumerate(rows):
        age = Signal(3, name=f"age_{number}")
        m.d.comb += age.eq(Mux(number >= consume, number - consume, number + inner - consume))
        waiting.append(Mux(age < inner_level, row + 1, 0))
    first_owed = Mux(inside["lengths.r_rdy"], current + 1 - inside["beat_number"], 0)
    harness.prove(owed == sum(waiting, first_owed), "owed_is_what_the_lengths_say")
    harness.prove(inside["beat_number"] <= Mux(inside["lengths.r_rdy"], current, 0), "beat_number")
    harness.prove(inside["lengths.r_rdy"] | (inner_level == 0) | (inside["beat_number"] == 0), "between_bursts")
    return harness


PROOFS = [
    Proof(
        "transfer-plan",
        "a plan covers exactly the instruction's bytes, all in the window; a refusal has the first cause",
        planner,
        Mutant("transfer_plan", "Signal(max(OFFSET_BITS, len(self.span_bytes)) + 1, ", "Signal(len(self.span_bytes), "),
        depth=8,
        inductive=False,
        any_state=True,
        cut_multipliers=1,
    ),
    Proof(
        "burst-window",
        "every burst of a legal transfer lies in the window and in one 4 KiB page",
        cutter,
        Mutant("bursts", "end = Mux(row_ends, final[:log2], (1 << log2) - 1)", "end = (1 << log2) - 1"),
        depth=4,
    ),
    Proof(
        "fetch-window",
        "fetch reads exactly its program, and only where all of it is in the window",
        fetch_window,
        Mutant("fetch", "m.Elif(end > self.window_size)", "m.Elif(end[:32] > self.window_size)"),
        depth=4,
    ),
    Proof(
        "read-master",
        "read addresses: in the window, no page crossed, stable; outstanding bursts never exceed the limit",
        read_master,
        Mutant("read_dma", "(~axi.arvalid | axi.arready) & (out", "(out"),
        depth=4,
    ),
    Proof(
        "write-master",
        "write addresses: in the window, no page crossed, stable; a burst's words are there before its address",
        write_master,
        Mutant("write_dma", "(beats_minus_1 < gathered)", "(beats_minus_1 <= gathered)"),
        depth=4,
        mutant_depth=6,
    ),
]
