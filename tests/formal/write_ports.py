"""Proofs about the write port that vector and load share: nothing is lost, written twice, mixed up or overtaken."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib.wiring import connect
from weft.hw.config import CoreConfig
from weft.hw.isa import Engine
from weft.hw.load_writer import LoadKind, LoadTargets, WriteRegister
from weft.hw.shared_write import SharedWrite

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
    harness.add("register", register, driven=("own",))
    harness.add("shared", shared, driven=("second", "port"))
    connect(m, register.own, shared.second)

    # The oldest that was handed over and is not written: there is never another one behind it.
    waiting, last, kind = Signal(), Signal(), Signal(LoadKind)
    nothing = Signal()
    index, value, mask = Signal(len(register.index)), Signal(TWO_WORDS.bus_bits), Signal(len(register.own.mask))
    comes, leaves = Signal(), Signal()
    to_own = waiting & ~nothing & (kind == LoadKind.OWN)
    to_acc = waiting & ~nothing & (kind != LoadKind.OWN)
    m.d.comb += [
        comes.eq(register.valid & register.advance),
        leaves.eq(Mux(to_own, ~shared.first.enable, ~to_acc | register.acc.ready) & waiting),
    ]
    with m.If(leaves):
        m.d.sync += waiting.eq(0)
    with m.If(comes):
        m.d.sync += [
            waiting.eq(1),
            nothing.eq(register.nothing),
            kind.eq(register.kind),
            last.eq(register.last),
            index.eq(register.index),
            value.eq(Mux(register.is_padding, register.pad_value.replicate(len(value) // 8), register.word)),
            mask.eq(Mux(register.is_padding, ~0, Const(1, len(mask)) << register.part)),
        ]
    harness.prove(register.advance == (~waiting | leaves), "it_takes_the_next_when_the_oldest_leaves")
    harness.prove(register.idle == ~waiting, "idle")
    harness.prove(register.retire == (leaves & last), "retires_with_its_last_write")
    harness.prove(register.own.enable == to_own, "offered_until_it_is_written")
    harness.prove(register.acc.enable == to_acc, "offered_to_acc_until_it_is_written")
    written = shared.port.enable & ~shared.first.enable
    harness.prove(written == (to_own & leaves), "written_once")
    here = shared.port
    right = (here.index == index[: len(here.index)]) & (here.data == value.replicate(2)) & (here.mask == mask)
    harness.prove(~written | right, "unchanged")
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
