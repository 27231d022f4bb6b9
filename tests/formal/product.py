"""Proof that each multiplier of a lane has its part of the factors.

So the first product is ``(x mod 2**17) * factor`` and the second ``(x div 2**17) * factor``, both exact, and the
second times 2**17 plus the first is ``x * factor``: for that law of numbers no solver is asked. That a lane adds them
so is part of the proofs of its results (``vector_lanes.py``), from which the multipliers are cut out.
"""

from __future__ import annotations

from amaranth.hdl import Signal, Value
from amaranth.lib import data
from weft.hw.pipelines import VectorStages
from weft.hw.vector_lanes import KINDS, LOW_BITS, VectorLanes

from .harness import Harness
from .prover import Mutant, Proof
from .queues import NARROW


def factors() -> Harness:
    """Each partial product, with all its bits, is that of its part of the first factor and all of the second."""
    harness = Harness()
    inside = harness.add("lanes", VectorLanes(NARROW))
    at = VectorStages.of(NARROW).multiply
    kinds = data.View(data.StructLayout(dict.fromkeys(KINDS, 1)), inside[f"stage{at}_op"])
    for lane in range(NARROW.lanes):
        x, factor = (inside[f"lane{lane}_{name}_{at}"] for name in ("x", "factor"))
        for name, part in (("low", x[:LOW_BITS]), ("high", x[LOW_BITS:].as_signed())):
            exact: Value = part * factor
            wanted = Signal(exact.shape(), name=f"{name}_{lane}")
            with harness.m.If(inside[f"stage{at}_valid"] & kinds.multiplies):
                harness.m.d.sync += wanted.eq(exact)
            harness.prove(inside[f"lane{lane}_{name}_{at + 1}"] == wanted, f"{name}_part_of_lane_{lane}")
    return harness


PROOFS = [
    Proof(
        "isa-factors", "each multiplier of a lane has its part of the first factor, and the second",
        factors, Mutant("vector_lanes", "x[LOW_BITS:].as_signed() * factor", "x[LOW_BITS:] * factor"),
        depth=3, mutant_depth=9,
        instruction="VECTOR MUL, MAC", flags="the multipliers",
    ),
]  # fmt: skip
