"""Proofs about the write port that vector and load share: nothing is lost, written twice, mixed up or overtaken."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import connect
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine
from weft.hw.load_writer import WriteRegister, entry_part_layout
from weft.hw.shared_write import SharedWrite
from weft.hw.transfer_kinds import LoadKind, LoadTargets

from .harness import Harness
from .prover import Mutant, Proof

TWO_WORDS = CoreConfig(block_in=16, block_out=16, inp_depth=8, wgt_depth=8, acc_depth=16, out_depth=8, acc_banks=1)
"""An entry of ``inp`` is two bus words, so that the mask counts."""


def shared_write() -> Harness:
    """In every cycle the port has the whole write of one who offers: of the first if it does, and he knows."""
    harness = Harness()
    unit = SharedWrite(2, 8, 4)
    harness.add("unit", unit)
    first, second, port = (Cat(each.index, each.data, each.mask) for each in (unit.first, unit.second, unit.port))
    accepted = [each.enable & each.ready for each in (unit.first, unit.second)]
    harness.prove((accepted[0] == unit.first.enable) & ~(accepted[0] & accepted[1]), "the_first_never_waits")
    harness.prove(unit.port.enable == (accepted[0] | accepted[1]), "nothing_is_lost_or_invented")
    harness.prove(~accepted[0] | (port == first), "the_first_is_whole")
    harness.prove(~accepted[1] | (port == second), "the_second_is_whole")
    harness.prove(unit.first.enable | unit.second.ready, "the_second_waits_for_nothing_else")
    return harness


def load_at_inp() -> Harness:
    """What the load writer hands over is written once, unchanged, in order, whatever vector writes meanwhile."""
    harness = Harness()
    m = harness.m
    register = WriteRegister(TWO_WORDS, LoadTargets.of(Engine.LOAD))
    shared = SharedWrite(len(register.own.index), len(register.own.data), TWO_WORDS.bus_bits)
    inside = harness.add("register", register, driven=("own",))
    harness.add("shared", shared, driven=("second", "port"))
    connect(m, register.own, shared.second)

    # What was handed over and is not written: the oldest, which is offered, and one behind it.
    item = data.StructLayout(
        {
            "nothing": 1,
            "last": 1,
            "kind": LoadKind,
            "index": TWO_WORDS.index_bits,
            "value": TWO_WORDS.bus_bits,
            "mask": len(register.own.mask),
        }
    )
    oldest, second, handed = Signal(item), Signal(item), Signal(item)
    waiting, behind = Signal(), Signal()
    part = register.parts.payload
    padding = part.pad_value.replicate(TWO_WORDS.bus_bits // 8)
    m.d.comb += [
        handed.nothing.eq(part.nothing),
        handed.last.eq(part.last),
        handed.kind.eq(part.kind),
        handed.index.eq(part.index),
        handed.value.eq(Mux(part.is_padding, padding, part.word)),
        handed.mask.eq(Mux(part.is_padding, ~0, Const(1, len(handed.mask)) << part.part)),
    ]
    to_own = waiting & ~oldest.nothing & (oldest.kind == LoadKind.OWN)
    to_acc = waiting & ~oldest.nothing & (oldest.kind != LoadKind.OWN)
    comes, leaves = Signal(), Signal()
    m.d.comb += [
        comes.eq(register.parts.valid & register.parts.ready),
        leaves.eq(Mux(to_own, ~shared.first.enable, ~to_acc | register.acc.ready) & waiting),
    ]
    with m.If(leaves | ~waiting):
        m.d.sync += [waiting.eq(behind | comes), behind.eq(0), oldest.eq(Mux(behind, second, handed))]
    with m.Elif(comes):
        m.d.sync += [behind.eq(1), second.eq(handed)]
    harness.prove(~behind | waiting, "one_is_behind_another")
    harness.prove(register.parts.ready == ~behind, "it_takes_one_more_than_it_offers")
    harness.prove(register.idle == ~waiting, "idle")
    harness.prove(register.retire == (leaves & oldest.last), "retires_with_its_last_write")
    harness.prove(register.own.enable == to_own, "offered_until_it_is_written")
    harness.prove(register.acc.enable == to_acc, "offered_to_acc_until_it_is_written")
    written = shared.port.enable & ~shared.first.enable
    harness.prove(written == (to_own & leaves), "written_once")
    here = shared.port
    right = (
        (here.index == oldest.index[: len(here.index)])
        & (here.data == oldest.value.replicate(2))
        & (here.mask == oldest.mask)
    )
    harness.prove(~written | right, "unchanged")
    # Invariants: what is offered is the oldest, what waits behind it is what was handed over.
    offer = register.own
    offered = (offer.index == oldest.index[: len(offer.index)]) & (offer.mask == oldest.mask)
    harness.prove(~to_own | (offered & (offer.data == oldest.value.replicate(2))), "the_oldest_is_offered")
    harness.prove(~waiting | (inside["last"] == oldest.last), "its_end_is_known")
    kept = data.View(entry_part_layout(TWO_WORDS, LoadTargets.of(Engine.LOAD)), inside["skid.waiting"])
    kept_value = Mux(kept.is_padding, kept.pad_value.replicate(TWO_WORDS.bus_bits // 8), kept.word)
    kept_mask = Mux(kept.is_padding, ~0, Const(1, len(second.mask)) << kept.part)[: len(second.mask)]
    same = Cat(kept.nothing, kept.last, kept.kind, kept.index, kept_value, kept_mask)
    harness.prove(~behind | (same == second.as_value()), "what_waits_is_what_came")
    return harness


PROOFS = [
    Proof(
        "shared-write",
        "of two writers of a scratchpad one is served, whole; the first never waits",
        shared_write,
        Mutant("shared_write", "port.index.eq(Mux(first.enable,", "port.index.eq(Mux(~second.enable,"),
        depth=2,
    ),
    Proof(
        "load-at-inp",
        "a load's writes reach inp once, unchanged, in order, however often vector comes first",
        load_at_inp,
        Mutant("load_writer", "((own.enable & ~own.ready) | (acc.enable", "((acc.enable"),
        depth=4,
    ),
]
