"""Proofs that the lanes of the vector engine give what the instruction set says (``vector_meaning.py``).

The pipeline never stalls: what a micro-op does ends a fixed number of cycles after its issue. So it is shown for one
that is issued while the lanes are in any state, with anything issued behind it. That holds for every cycle of every
run: such a proof says as much as an inductive one.

Multipliers are cut out. That the right factors reach their registers, and that a lane adds the two partial products, is
part of these proofs; what the multipliers make of the registers is ``isa-factors``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from amaranth.hdl import Const, Mux, Signal, Value, signed
from weft.hw.config import CoreConfig
from weft.hw.isa import VectorOp
from weft.hw.pipelines import ADDED_STAGE, VectorStages
from weft.hw.vector_lanes import LOW_BITS, VectorLanes
from weft.roundings import HALF_AWAY, HALF_EVEN, HALF_UP, TWO_ROUNDINGS

from . import vector_meaning
from .harness import Harness, Inside
from .prover import Mutant, Proof
from .queues import NARROW
from .window import Window, window_proof

ONE_STEP = (VectorOp.ADD, VectorOp.SUB, VectorOp.MIN, VectorOp.MAX)
"""What one adder or one comparison gives, in the first stage behind the operand registers."""

MULTIPLYING = (VectorOp.MUL, VectorOp.MAC, VectorOp.REQUANTISE)


def lane_result(op: VectorOp, config: CoreConfig = NARROW) -> Harness:
    """Each lane's result of one micro-op, ``stages.result`` cycles after its issue, from what its operand registers
    hold in the third cycle after it."""
    harness = Harness()
    window = Window(harness)
    lanes = VectorLanes(config)
    inside = harness.add("lanes", lanes)
    stages = VectorStages.of(config)
    order = lanes.order
    issue = window.at(0)
    harness.assume(~issue | (lanes.issue & (order.op == op)))
    # As OperandFetch orders (`isa-operands`).
    alone = ~order.identity & ~order.chain if op.identity is None else ~(order.identity & order.chain)
    harness.assume(~issue | alone)
    identity, chain = (window.kept(name, order[name], 0) for name in ("identity", "chain"))
    fields = ("zero_point", "low", "high", "left_shift", *(("rounding",) if config.rounding != HALF_UP else ()))
    limits = vector_meaning.Limits(**{name: window.kept(name, order[name], 0) for name in fields})
    ends = window.at(stages.result)
    for number in range(config.lanes):
        register = partial(_register, inside, number)
        names = ("a", "b", "multiplier", "shift", "d")
        a, b, multiplier, shift, d = (window.kept(f"{name}_{number}", register(name), ADDED_STAGE) for name in names)
        old: Value = d
        if op.identity is not None:
            last = window.kept(f"last_{number}", register(f"sum_{stages.shift + 1}"), stages.shift)
            old = Mux(identity, Const(op.identity, signed(32)), Mux(chain, last, d))
        operands = vector_meaning.Operands(a, b, multiplier, shift, old)
        product: Value = Const(0, 1)
        if op in MULTIPLYING:
            at = stages.multiply
            parts = (register(f"high_{at + 1}") << LOW_BITS) + register(f"low_{at + 1}")
            width = len(register(f"product_{at + 2}"))
            product = window.kept(f"product_{number}", vector_meaning.low(parts, width), at + 1)
            most = 1 << width - 2  # of both factors at their lowest; a free product could be twice as large
            harness.assume(~window.at(at + 1) | ((parts >= -most) & (parts <= most)))
            factors = vector_meaning.factors(op, operands, config.rounding)
            for name, factor in zip(("x", "factor"), factors, strict=True):
                same = register(f"{name}_{at}") == factor
                harness.prove(~window.at(at) | same, f"{name}_reaches_the_multiplier_of_lane_{number}")
        expected = vector_meaning.result(op, operands, product, limits, config.rounding)
        if op.identity is not None:
            begins = register(f"old_{ADDED_STAGE + 1}") == Mux(identity, Const(op.identity, signed(32)), d)
            harness.prove(~window.at(ADDED_STAGE + 1) | begins, f"begins_in_lane_{number}")
        if op in ONE_STEP:  # not needed for the result, but a fault shows many cycles earlier
            made = register(f"x_{ADDED_STAGE + 1}") == expected
            harness.prove(~window.at(ADDED_STAGE + 1) | made, f"made_in_lane_{number}")
        result = lanes.result[32 * number : 32 * number + 32].as_signed()
        harness.prove(~ends | (lanes.result_valid & (result == expected)), f"result_of_lane_{number}")
    return harness


def _register(inside: Inside, number: int, name: str) -> Signal:
    return inside[f"lane{number}_{name}"]


MUTANTS = {
    VectorOp.ADD: ("(VectorOp.ADD, VectorOp.SUB, ", "(VectorOp.SUB, "),
    VectorOp.SUB: ('"subtracts": (VectorOp.SUB, ', '"subtracts": ('),
    VectorOp.MIN: ('"compares": (VectorOp.MIN, VectorOp.MAX)', '"compares": (VectorOp.MAX,)'),
    VectorOp.MAX: ("added[-1] ^ op.takes_larger", "added[-1]"),
    VectorOp.MUL: ("Mux(op.requantises, self.multiplier, number)", "self.multiplier"),
    VectorOp.SHR: ('"shifts": (VectorOp.SHR,)', '"shifts": ()'),
    VectorOp.REQUANTISE: ("Cat(rounding, rounds.content.zero_point)", "Cat(Const(0, 1), rounds.content.zero_point)"),
    VectorOp.MAC: ("Mux(op.compares, chosen, a)", "Mux(op.compares, chosen, b)"),
    VectorOp.SUM: ("Mux(order.content.identity, order.identity, self.d)", "self.d"),
    VectorOp.MIN_ACCUMULATE: ("self.op.keeps_least.replicate(31)", "self.op.keeps_least.replicate(30)"),
    VectorOp.MAX_ACCUMULATE: ("replicate(31), self.op.keeps_largest)", "replicate(31), self.op.keeps_least)"),
}
"""Of each operation that is proved a fault in ``vector_lanes.py``."""

ROUNDING_MUTANTS = {
    HALF_AWAY: ("goes_down = wide[-1]", "goes_down = ~wide[-1]"),
    HALF_EVEN: ("else ~wide[1]", "else wide[1]"),
    TWO_ROUNDINGS: ("beyond = order.rounds_otherwise & self.amount[stage][-1]", "beyond = order.rounds_otherwise"),
}
"""The same for a REQUANTISE on a core that has each way to round beside half up."""


def _proof(name: str, claim: str, flags: str, op: VectorOp, mutant: tuple[str, str], rounding: str = HALF_UP) -> Proof:
    config = replace(NARROW, rounding=rounding)
    return window_proof(
        name, claim, partial(lane_result, op, config), Mutant("vector_lanes", *mutant), VectorStages.of(config).result,
        cut_multipliers=2 * NARROW.lanes, instruction=f"VECTOR {op.name}", flags=flags,
    )  # fmt: skip


def _flags(op: VectorOp) -> str:
    if op is VectorOp.REQUANTISE:
        return "bias, multiplier, shift, limits"
    return "zero, goes on, b of acc or immediate" if op.accumulates else "target acc, b of acc or immediate"


PROOFS = [
    _proof(
        f"isa-{op.name.lower().replace('_', '-')}",
        f"a micro-op of VECTOR {op.name} gives in each lane what the instruction set says",
        _flags(op), op, mutant,
    )
    for op, mutant in MUTANTS.items()
] + [
    _proof(
        f"isa-{rounding.replace('_', '-')}",
        f"a REQUANTISE rounds as the instruction set says, on a core that has {rounding} beside half up",
        f"rounding {rounding}, and half up beside it", VectorOp.REQUANTISE, mutant, rounding,
    )
    for rounding, mutant in ROUNDING_MUTANTS.items()
]  # fmt: skip
