"""Proofs that work ends: something that cannot fall for ever falls in every cycle in which the surroundings let it.

Each is a step of one argument (docs/formal.md): an engine whose tokens come, whose memory answers and whose ports are
granted now and then retires every instruction that it has started.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from amaranth.asserts import Initial
from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data
from weft.hw import pipelines
from weft.hw.bursts import BurstCutter, burst_layout
from weft.hw.bus import ReadClient
from weft.hw.config import LOOP_LEVELS, CoreConfig
from weft.hw.engine import Ledger
from weft.hw.isa import Engine
from weft.hw.load_writer import LoadWriter, RowPart, entry_part_layout, write_layout
from weft.hw.loops import LoopNest
from weft.hw.pipelines import ENTRIES_AHEAD, IN_FLIGHT, VectorStages, slots_of
from weft.hw.read_dma import ReadMaster
from weft.hw.shared_reads import SharedReads
from weft.hw.store import EntryPacker, rows_layout
from weft.hw.transfer_kinds import LoadTargets
from weft.hw.transfer_plan import TransferPlanner
from weft.hw.vector_fetch import PARAMETERS, OperandFetch, task_layout
from weft.hw.vector_lanes import VectorLanes
from weft.hw.vector_results import DISTANCES, QUERIES, VectorResults

from .dma import KINDS
from .forwarding import free_gemm, stage_layout
from .harness import Harness
from .prover import Mutant, Proof
from .queues import NARROW

FLOAT32 = replace(NARROW, rounding="float32")
TWICE = replace(NARROW, rounding="two_roundings")


def prove_falls(harness: Harness, rank: Value, moves: Any, name: str = "rank_falls") -> None:
    """In a cycle with ``moves``, ``rank`` (a number that is never negative) becomes smaller."""
    before, moved = Signal(len(rank), name=f"{name}_before"), Signal(name=f"{name}_moved")
    harness.m.d.sync += [before.eq(rank), moved.eq(moves)]
    harness.prove(~moved | (rank < before), name)


def loop_nest() -> Harness:
    """Each micro-op that is taken brings the nest nearer to its end: the levels' counters, the outermost first."""
    harness = Harness()
    nest = LoopNest(NARROW)
    inside = harness.add("nest", nest)
    # A LOOP of another kind is refused, and no nest starts until the next reset.
    harness.assume(~nest.set | ((nest.loop.extent != 0) & (nest.loop.level < LOOP_LEVELS)))
    harness.assume(~(nest.set | nest.start) | nest.ready)  # accept_instructions
    harness.assume(~(nest.set & nest.start))
    taken = nest.micro_ops.valid & nest.micro_ops.ready
    left = []
    for number in range(LOOP_LEVELS):
        level = {name: inside[f"level{number}_{name}"] for name in ("last", "single", "used", "left", "ended")}
        left.append(Mux(level["used"], level["left"], 0))
        harness.prove(level["single"] == (level["last"] == 0), f"single_{number}")
        harness.prove(~nest.micro_ops.valid | (level["ended"] == (left[-1] == 0)), f"ended_{number}")
    counters = Signal(sum(len(each) for each in left))
    harness.m.d.comb += counters.eq(Cat(left))
    prove_falls(harness, counters, taken & ~nest.micro_ops.payload.end)
    harness.prove(~nest.micro_ops.valid | (nest.micro_ops.payload.end == (counters == 0)), "the_last_is_the_end")
    waited = Signal()
    harness.m.d.sync += waited.eq(nest.micro_ops.valid & ~(taken & nest.micro_ops.payload.end))
    harness.prove(~waited | nest.micro_ops.valid, "a_micro_op_is_offered_until_the_end")
    harness.prove(nest.micro_ops.valid | nest.ready, "then_the_next_may_start")
    return harness


def cutter() -> Harness:
    """Rows to come, words left of this row, bursts not yet taken: that falls whenever a burst may leave."""
    harness = Harness()
    m = harness.m
    unit = BurstCutter(NARROW)
    inside = harness.add("cutter", unit)
    transfer, burst = unit.transfers, unit.bursts
    rows, valid, word, final = (inside[name] for name in ("rows", "valid", "word", "final"))
    words = Signal(len(word) + 1)
    m.d.comb += words.eq(Mux(valid, final - word + 1, 0))
    # The burst that was cut, and one before it that waits in the skid buffer.
    cut, waits = inside["burst_valid"], inside["skid.full"]
    held = Signal(2)
    rank = Signal(len(rows) + len(words) + len(held))
    m.d.comb += [held.eq(cut + waits), rank.eq(Cat(held, words, rows))]
    accepts = transfer.valid & transfer.ready
    asked = transfer.payload
    harness.assume(~transfer.valid | ((asked.rows != 0) & (asked.first <= asked.final)))
    # A row does not wrap around the end of the window's 4 GiB (`transfer-plan`).
    row_first, row_final = inside["row_first"], inside["row_final"]
    harness.assume((rows == 0) | (row_first <= row_final))
    prove_falls(harness, rank, (burst.ready | ~burst.valid) & ~accepts & ~unit.idle)
    harness.prove(unit.idle == (rank == 0), "idle_is_the_end")
    harness.prove(~valid | (word <= final), "row_is_not_over")
    # Every transfer has one burst that says it is the last: what a STORE waits for.
    open_transfers = Signal(range(8))
    m.d.sync += open_transfers.eq(open_transfers + accepts - (burst.valid & burst.ready & burst.payload.last))
    bursts = [(cut, inside["burst"]), (waits, inside["skid.waiting"])]
    last_bursts = sum(each_valid & burst_layout(NARROW)(each).last for each_valid, each in bursts)
    counted = (rows != 0) + (valid & inside["last_row"]) + last_bursts
    harness.prove(open_transfers == counted, "each_transfer_has_one_last_burst")
    harness.prove(~valid | inside["last_row"] | (rows != 0), "the_last_row_is_marked")
    harness.prove(~(valid & inside["last_row"] & (rows != 0)) | (open_transfers >= 2), "rows_of_the_next_transfer")
    return harness


def planner() -> Harness:
    """From any state, a request has its plan or its fault after eight cycles at most."""
    harness = Harness()
    m = harness.m
    unit = TransferPlanner(NARROW, KINDS)
    inside = harness.add("planner", unit)
    harness.assume(~Initial() | (inside["fsm_state"] < 9))
    harness.assume(unit.plans.ready)
    cycle, seen = Signal(4), Signal()
    m.d.sync += [cycle.eq(Mux(Initial(), 1, cycle + (cycle != 9))), seen.eq(~Initial() & (seen | unit.idle))]
    harness.prove(Initial() | (cycle < 9) | seen | unit.idle, "idle_within_eight_cycles")
    return harness


def ledger() -> Harness:
    """What has started retires once the body says so, and what has retired is sent once there is room."""
    harness = Harness()
    m = harness.m
    book = Ledger()
    inside = harness.add("ledger", book)
    rows = [book.entry_layout(row) for row in inside.rows("ring")]
    to_start, to_retire, to_send = (inside[f"to_{verb}"] for verb in ("start", "retire", "send"))
    unsent, unretired = Signal(range(2 * IN_FLIGHT)), Signal(range(2 * IN_FLIGHT))
    m.d.comb += [unsent.eq(to_start - to_send), unretired.eq(to_start - to_retire)]
    oldest = Signal(book.entry_layout)
    m.d.comb += oldest.eq(Array(row.as_value() for row in rows)[to_retire[:-1]])
    harness.assume(~book.start | book.room)
    working = Signal(range(2 * IN_FLIGHT))  # as in `ledger-retirement`: in the hands of the body
    m.d.sync += working.eq(working + (book.start & ~book.entry.instant) - book.retire)
    harness.assume(~book.retire | (working != 0))
    rank = Signal(range(4 * IN_FLIGHT))
    m.d.comb += rank.eq(unsent + unretired)
    # Nothing to send, and the oldest is in the hands of the body: only then may nothing move.
    lasting = unretired_lasting(m, rows, to_retire, unretired)
    waits_for_body = (unsent == unretired) & ~oldest.instant & (working == lasting)
    prove_falls(harness, rank, book.send.ready & (rank != 0) & ~book.start & ~(waits_for_body & ~book.retire))
    harness.prove(book.empty == (rank == 0), "empty_is_the_end")
    waited = Signal()
    m.d.sync += waited.eq(book.empty & ~book.start)
    harness.prove(~waited | ~book.empty | book.room, "then_there_is_room")
    # Invariants of `ledger-retirement`.
    harness.prove(unsent <= IN_FLIGHT, "ring")
    harness.prove(unretired <= unsent, "order")
    harness.prove(~(book.room & (unsent == IN_FLIGHT)), "room")
    harness.prove(working + inside["done"] == lasting, "reported_and_working")
    return harness


def unretired_lasting(m: Any, rows: list[Any], to_retire: Value, unretired: Value) -> Value:
    """How many started instructions that are not instant have not retired."""
    lasting = []
    for position, row in enumerate(rows):
        age = Signal(range(IN_FLIGHT), name=f"age_{position}")
        m.d.comb += age.eq(position - to_retire)
        lasting.append((age < unretired) & ~row.instant)
    total = Signal(range(IN_FLIGHT + 1))
    m.d.comb += total.eq(sum(lasting[1:], lasting[0]))
    return total


def arbiter() -> Harness:
    """A client that wants the bus waits for at most one burst of each other client."""
    harness = Harness()
    m = harness.m
    unit = ReadMaster(NARROW)
    inside = harness.add("master", unit)
    asked = Signal(range(2 * NARROW.read_outstanding))
    begins = Cat(client.bursts.valid & client.bursts.ready for client in unit.clients)
    ends = unit.axi.rvalid & unit.axi.rlast
    m.d.sync += asked.eq(asked + begins.any() - ends)
    harness.assume(~unit.axi.rvalid | (asked != 0))
    harness.prove(asked == inside["outstanding"], "counter")
    harness.prove(asked <= NARROW.read_outstanding, "outstanding")
    wanted = Cat(client.bursts.valid for client in unit.clients).any()
    free = (~unit.axi.arvalid | unit.axi.arready) & (asked != NARROW.read_outstanding) & ~unit.stop
    harness.prove(~(wanted & free) | begins.any(), "a_free_bus_is_used")
    harness.prove(unit.axi.rready, "data_never_waits")
    passed = []
    for client in ReadClient:
        bursts = unit.clients[client].bursts
        overtaken = Signal(range(8), name=f"overtaken_{client.name.lower()}")
        m.d.sync += overtaken.eq(Mux(bursts.valid & ~bursts.ready, overtaken + begins.any(), 0))
        passed.append(overtaken)
        harness.prove(overtaken < len(ReadClient), f"{client.name.lower()}_is_not_passed_over")
        # Invariant: how far the round robin is from this client.
        last = inside["last_granted"]
        distance = Mux(client > last, client - last, client + len(ReadClient) - last)
        harness.prove((overtaken == 0) | (overtaken + distance <= len(ReadClient)), f"turn_of_{client.name.lower()}")
    harness.prove(inside["last_granted"] < len(ReadClient), "a_client_was_granted")
    return harness


def load_writer() -> Harness:
    """What is left of a LOAD falls in every cycle with a free port and, for data, a word; each LOAD retires once."""
    harness = Harness()
    m = harness.m
    unit = LoadWriter(NARROW, LoadTargets.of(Engine.LOAD))
    inside = harness.add("writer", unit)
    running, take, row = (inside["fsm_state"] == state for state in range(3))  # in the order of their first use
    load = data.View(write_layout(NARROW), inside["load"])
    run, run_left, part = inside["run"], inside["run_left"], inside["part"]

    def sensible(asked: Any) -> Value:
        """What LoadEngine describes (`transfer-plan`): a LOAD that is not empty has rows, and they have entries."""
        padding_rows, rows = (asked.top | asked.bottom) != 0, asked.rows != 0
        entries = (~padding_rows | (asked.width != 0)) & (~rows | (asked.columns != 0))
        return (asked.kind < len(KINDS)) & entries & (asked.empty | padding_rows | rows)

    to_come = Signal(len(load.top) + 2)
    harness.assume(~unit.loads.valid | sensible(unit.loads.payload))
    kinds = LoadTargets.of(Engine.LOAD).kinds(NARROW)
    last_part = Array(max(1, kind.entry_bytes // NARROW.bus_bytes) - 1 for kind in kinds)[load.kind]
    m.d.comb += to_come.eq(Mux(load.empty, 0, load.top + load.rows + load.bottom))
    parts_left = Signal(4)
    phase = Signal(2)  # LEFT, BODY, RIGHT: what is left of a row
    waits = inside["write.skid.full"]  # a part behind the one in front of the port: then no other may come
    rank = Signal(len(parts_left) + len(run_left) + len(phase) + len(to_come) + 2)
    m.d.comb += [
        parts_left.eq(last_part - part),
        phase.eq(Mux(running, RowPart.RIGHT + 1 - run, 0)),
        rank.eq(
            Cat(waits, Mux(take, 0, Cat(Mux(running, parts_left, 0), Mux(running, run_left, 0), phase, to_come, ~take)))
        ),
    ]
    needs_word = running & (run == RowPart.BODY)
    has_word = unit.words.valid & ~unit.words.payload.error
    may_move = unit.own.ready & unit.acc.ready & ~unit.halt & (has_word | ~needs_word)
    prove_falls(harness, rank, may_move & ~take)
    harness.prove(~(take & unit.loads.valid & ~unit.halt) | unit.loads.ready, "then_it_takes_the_next")
    open_loads = Signal(range(8))
    m.d.sync += open_loads.eq(open_loads + (unit.loads.valid & unit.loads.ready) - unit.retire)
    waiting = data.View(entry_part_layout(NARROW, LoadTargets.of(Engine.LOAD)), inside["write.skid.waiting"])
    in_register = ~inside["write.idle"] & inside["write.last"]
    harness.prove(open_loads == ~take + in_register + (waits & waiting.last), "each_load_retires_once")
    harness.prove(~waits | ~inside["write.idle"], "a_part_waits_behind_another")
    # Invariants.
    harness.prove(inside["fsm_state"] < 3, "state")
    harness.prove(~row | load.empty | sensible(load), "before_its_first_row")
    harness.prove(~running | ((run_left != 0) & (run < len(RowPart)) & ~load.empty), "a_row_is_not_over")
    harness.prove(take | (load.kind < len(KINDS)), "kind")
    harness.prove(take | load.empty | ((load.top | load.bottom) == 0) | (load.width != 0), "padding_has_entries")
    body_comes = (load.rows != 0) | (running & ~inside["pad_row"])
    harness.prove(take | load.empty | ~body_comes | (load.columns != 0), "rows_have_entries")
    harness.prove(~running | ~inside["pad_row"] | (run == RowPart.LEFT), "padding_row")
    harness.prove(Mux(running & (run == RowPart.BODY), part <= last_part, part == 0), "part")
    return harness


def entry_packer() -> Harness:
    """Entries to read, then what is on its way: that falls whenever a word may leave."""
    harness = Harness()
    m = harness.m
    unit = EntryPacker(NARROW)
    inside = harness.add("packer", unit)
    reading, enabled, ahead = inside["reading"], inside["enabled"], inside["ahead"]
    level = {name: inside[f"{name}.inner_level"] + inside[f"{name}.r_rdy"] for name in ("entries", "places")}
    accepts = unit.rows.valid & unit.rows.ready
    harness.assume(~unit.rows.valid | ((unit.rows.payload.rows != 0) & (unit.rows.payload.columns != 0)))
    on_its_way, columns = Signal(8), Signal(len(inside["columns_left"]))
    rows = Signal(len(inside["rows_left"]) + 1)
    m.d.comb += [
        on_its_way.eq(
            5 * enabled[0]
            + 4 * enabled[1]
            + 3 * inside["entries.inner_level"]
            + 2 * inside["entries.r_rdy"]
            + inside["complete"]
        ),
        columns.eq(Mux(reading, inside["columns_left"], 0)),
        rows.eq(Mux(reading, inside["rows_left"] + 1, 0)),
    ]
    rank = Cat(on_its_way, columns, rows)
    prove_falls(harness, rank, unit.words.ready & ~accepts & (rank != 0))
    harness.prove(reading | unit.rows.ready, "then_it_takes_the_next")
    harness.prove(~enabled[1] | inside["entries.w_rdy"], "there_is_room_for_every_entry_that_comes")
    # Invariants.
    read = data.View(rows_layout(NARROW), inside["rows"])
    harness.prove(~reading | ((inside["columns_left"] != 0) & (read.columns != 0)), "a_row_is_not_over")
    harness.prove(ahead == enabled[0] + enabled[1] + level["entries"], "ahead")
    harness.prove((ahead <= ENTRIES_AHEAD) & (ahead == level["places"]), "each_entry_has_its_place")
    return harness


def vector_waits(config: CoreConfig = NARROW) -> Harness:
    """A read of the vector engine waits only for results under way; a micro-op is issued once its reads are granted."""
    harness = Harness()
    m = harness.m
    fetch, results, slot_count = OperandFetch(config), VectorResults(config), slots_of(config)
    joined = ("room", "matches", "found", "freed")
    inside = harness.add("fetch", fetch, driven=joined)
    inner = harness.add("results", results, driven=("issue", "destination", "newest", "query"))
    m.d.comb += [
        results.issue.eq(fetch.issue),
        results.destination.eq(fetch.destination),
        *(results.newest[number].eq(fetch.newest[number]) for number in range(len(DISTANCES))),
        *(results.query[query].eq(fetch.query[query]) for query in range(len(QUERIES))),
        *(fetch.matches[query].eq(results.matches[query]) for query in range(len(QUERIES))),
        fetch.found.eq(results.found),
        fetch.freed.eq(results.freed),
        fetch.room.eq(results.room),
    ]
    used, count = inner["used"], inner["count"]
    to_issue, to_take, to_write = (inner[f"to_{verb}"] for verb in ("issue", "take", "write"))
    # The lanes give one result for each issue, later.
    calculating = Signal(range(2 * slot_count))
    m.d.sync += calculating.eq(calculating + fetch.issue - results.result_valid)
    harness.assume(~results.result_valid | (calculating != 0))

    # As VectorEngine decodes.
    task = fetch.task
    harness.assume(~(task.b_immediate & task.b_entry) & (task.b_entry | ~task.b_parameters))

    blocked = {name: inside[f"{name}_blocked"] for name in ("a", "b", "d")}
    for name, slots in blocked.items():
        harness.prove((slots & ~used) == 0, f"{name}_waits_for_results_under_way")
    offered, waiting = inner["offered"], inner["waiting.level"]
    harness.prove(count == calculating + waiting + offered, "what_is_under_way")
    harness.prove(count <= slot_count, "no_overflow")
    harness.prove(~results.room | (count < slot_count), "room_means_room")
    harness.prove(~results.result_valid | inner["waiting.w_rdy"], "a_result_is_never_lost")
    oldest = Signal(range(slot_count))
    m.d.comb += oldest.eq(Mux(offered, to_write, to_take))
    for slot in range(slot_count):
        age = Signal(range(slot_count), name=f"age_{slot}")
        m.d.comb += age.eq(slot - oldest)
        harness.prove(used[slot] == (age < count), f"slots_are_a_ring_{slot}")
    harness.prove(to_issue == (oldest + count)[: len(to_issue)], "ring_end")
    harness.prove(~offered | (to_take == (to_write + 1)[: len(to_take)]), "ring_begin")
    # Results leave while their port is granted; then there is room again.
    granted = results.write_acc.ready | ~results.write_acc.enable  # those of out and inp always are
    prove_falls(harness, count, offered & granted & ~fetch.issue)
    few = Signal()
    m.d.sync += few.eq(count < slot_count - 1)
    harness.prove(~few | results.room, "room_comes_back")
    held = data.View(task_layout(fetch.config), inside["task"])
    pending = {name: inside[f"{name}_pending"] for name in ("a", "b", "d")}
    harness.prove(~(held.b_immediate & held.b_parameters), "parameters_are_no_immediate")
    legal = inside["occupied"] & ~inside["outside"]
    for name, slots in blocked.items():
        by_port = ~held.b_immediate if name == "b" else 1
        wants = legal & pending[name] & ~slots.any() & by_port
        harness.prove(inside[f"{name}_asks"] == wants, f"{name}_asks_for_what_it_may_read")
    harness.prove(~(held.b_parameters & pending["b"]) | (inside["parameter"] < PARAMETERS), "parameters_left")
    parameters = Mux(held.b_parameters, PARAMETERS - inside["parameter"], 1)
    reads = Signal(4)
    m.d.comb += reads.eq(pending["a"] + pending["d"] + Mux(pending["b"], parameters, 0))
    granted = fetch.read_a.ready & fetch.read_b.ready & fetch.read_d.ready
    active = inside["occupied"] & ~inside["outside"] & ~fetch.halt
    free = active & granted & ~Cat(*blocked.values()).any()
    prove_falls(harness, reads, free & ~fetch.issue & (reads != 0), "reads_fall")
    harness.prove(~(free & results.room & (reads == 0)) | fetch.issue, "then_it_is_issued")
    return harness


def gemm_pipeline() -> Harness:
    """A legal micro-op is issued in the cycle in which it is offered, and ends a fixed number of cycles later."""
    harness = Harness()
    m = harness.m
    _, inside, loops, _ = free_gemm(harness, driven=())
    depth = pipelines.ARRAY_STAGE + pipelines.array_latency(NARROW) + 1
    issues = loops.micro_ops.valid & inside["issue"]
    refused = inside["failure__valid"]  # an index outside its memory
    harness.prove(~loops.micro_ops.valid | refused | inside["control.halt"] | issues, "nothing_waits")
    follows: Any = issues
    for stage in range(1, depth + 1):
        delayed = Signal(name=f"issued_{stage}_ago")
        m.d.sync += delayed.eq(follows)
        harness.prove(inside[f"stage{stage}_valid"] == delayed, f"stage_{stage}_follows")
        follows = delayed
    last = data.View(stage_layout(), inside[f"stage{depth}"])
    harness.prove(inside["retire"] == (follows & last.end), "retires_at_the_end")
    return harness


def vector_pipeline(config: CoreConfig = NARROW) -> Harness:
    """The lanes give a result for each issue, a fixed number of cycles later."""
    harness = Harness()
    lanes = VectorLanes(config)
    harness.add("lanes", lanes)
    issued: Any = lanes.issue
    for stage in range(1, VectorStages.of(config).result + 1):
        delayed = Signal(name=f"issued_{stage}_ago")
        harness.m.d.sync += delayed.eq(issued)
        issued = delayed
    harness.prove(lanes.result_valid == issued, "a_result_for_each_issue")
    return harness


def shared_reads() -> Harness:
    """Once all that run wait, a round begins; each read of it lets at least one burst go, and they are all the same."""
    harness = Harness()
    unit = SharedReads(NARROW, 3)
    inside = harness.add("shared", unit)
    left, bursts = inside["left"], [inside[f"waiting_{number}"] for number in range(3)]
    read = unit.reads.valid & unit.reads.ready
    prove_falls(harness, left, read)
    may_begin, began, members = Signal(), Signal(), Signal(3)
    harness.m.d.sync += may_begin.eq((left == 0) & unit.waits.any() & (unit.waits | ~unit.running).all())
    harness.m.d.comb += [began.eq(unit.reads.valid), members.eq(unit.members)]
    harness.prove(~may_begin | began, "a_round_begins_once_all_that_run_wait")
    harness.prove((left & ~unit.waits) == 0, "only_bursts_that_wait_are_read")
    harness.prove(~unit.reads.valid | members.any(), "each_read_is_somebodys")
    for number, burst in enumerate(bursts):
        same = Value.cast(burst) == Value.cast(unit.reads.payload)
        harness.prove(~members[number] | same, f"core_{number}_gets_what_it_asked_for")
        kept = Signal(len(Value.cast(burst)), name=f"kept_{number}")
        stays = Signal(name=f"stays_{number}")
        harness.m.d.sync += [kept.eq(burst), stays.eq(unit.waits[number] & ~(read & members[number]))]
        harness.prove(~stays | (unit.waits[number] & (kept == Value.cast(burst))), f"burst_{number}_waits_until_read")
    return harness


PROOFS = [
    Proof(
        "live-shared", "bursts that cores share are read once all that run wait, each with those that are the same",
        shared_reads, Mutant("shared_reads", "(self.waits | ~self.running).all()", "self.waits.all()"),
        depth=3, mutant_depth=8,
    ),
    Proof(
        "live-loops", "every micro-op taken brings the nest nearer to its end, and one is always offered",
        loop_nest, Mutant("loops", "self.left.eq(self.left - 1)", "self.left.eq(self.left)"), depth=3, mutant_depth=5,
    ),
    Proof(
        "live-bursts", "a transfer ends after finitely many bursts, and exactly its last says so",
        cutter, Mutant("bursts", "word.eq((word[log2:] + 1) << log2)", "word.eq(word[log2:] << log2)"),
        depth=3, mutant_depth=5,
    ),
    Proof(
        "live-plan", "every LOAD and STORE is planned or refused within eight cycles",
        planner,
        Mutant("transfer_plan", 'self.fault.eq(1)\n                m.next = "IDLE"', "self.fault.eq(1)"),
        depth=10, inductive=False, any_state=True,
    ),
    Proof(
        "live-ledger", "an instruction that the body has ended retires and sends its tokens, if there is room for them",
        ledger, Mutant("engine", "instant | self.retire | (done != 0)", "instant | self.retire"),
        depth=3, mutant_depth=8,
    ),
    Proof(
        "live-read", "a client that wants the bus waits for at most one burst of each other client",
        arbiter, Mutant("read_dma", "(last + step) % len(ReadClient)", "step % len(ReadClient)"),
        depth=3, mutant_depth=8,
    ),
    Proof(
        "live-writer", "a LOAD ends after finitely many words and grants of its port, and retires once",
        load_writer, Mutant("load_writer", "part_left.eq(part_left - 1)]", "part_left.eq(part_left)]"),
        depth=3, mutant_depth=8,
    ),
    Proof(
        "live-packer", "every entry of a STORE is read, and packed while words are taken",
        entry_packer, Mutant("store", "ahead.eq(ahead + self.out.enable - taken)", "ahead.eq(ahead + self.out.enable)"),
        depth=3, mutant_depth=8,
    ),
    Proof(
        "live-vector", "a read waits only for results under way, results leave in order, then the micro-op is issued",
        vector_waits, Mutant("vector_fetch", "operand.blocked & ~self.freed", "operand.blocked"),
        depth=3, mutant_depth=12,
    ),
    Proof(
        "live-lanes", "every issue has its result a fixed number of cycles later",
        vector_pipeline, Mutant("vector_lanes", "order.valid.eq(valid)", "order.valid.eq(valid & ~order.valid)"),
        depth=16,
    ),
    Proof(
        "live-vector-float32", "reads wait, results leave and micro-ops are issued so where it rounds in float32, too",
        partial(vector_waits, FLOAT32), Mutant("vector_fetch", "operand.blocked & ~self.freed", "operand.blocked"),
        depth=3, mutant_depth=12,
    ),
    Proof(
        "live-lanes-float32", "every issue has its result three cycles later where the lanes round in float32",
        partial(vector_pipeline, FLOAT32),
        Mutant("vector_lanes", "order.valid.eq(valid)", "order.valid.eq(valid & ~order.valid)"),
        depth=19,
    ),
    Proof(
        "live-lanes-twice", "every issue has its result a cycle later where the lanes round twice",
        partial(vector_pipeline, TWICE),
        Mutant("vector_lanes", "order.valid.eq(valid)", "order.valid.eq(valid & ~order.valid)"),
        depth=17,
    ),
    Proof(
        "live-gemm", "a legal micro-op never waits, and is written a fixed number of cycles later",
        gemm_pipeline, Mutant("gemm", "stage.valid.eq(valid)", "stage.valid.eq(valid & ~stage.valid)"),
        depth=3, mutant_depth=8,
    ),
]  # fmt: skip
