"""How deep the engines' pipelines are, how much is under way in them, and how long a start takes. What the timing model
knows of them as well, so it says nothing in Amaranth."""

from __future__ import annotations

from dataclasses import dataclass

from ..roundings import FLOAT32, TWO_ROUNDINGS
from .config import CoreConfig

CLEAR_CYCLES = 16
"""Cycles that a start takes before the program runs: the engines are in reset and the counters are cleared."""

HANDOVER_CYCLES = CLEAR_CYCLES + 4
"""From the last counted cycle of a run to the first one of a run that waited for it, exclusive: the end is seen and
counted, counts are compared, the core takes its start, and clears its counters."""

NUMBER_BITS = 24
"""Width of an instruction's number in its program."""

IN_FLIGHT = 16
"""Instructions of one engine that may be started and not yet have sent; covers the longest pipeline."""

PLANNER_PATH = ("IDLE", "COUNT", "SPAN", "SUM", "BYTES", "END", "CHECK", "PLAN")
"""States of the planner of transfers that a legal instruction passes, one cycle each."""

PLANNER_CYCLES = len(PLANNER_PATH) - 1
"""From the start of a LOAD or STORE until its transfer is planned."""

LOADS_IN_FLIGHT = 8
"""LOADs planned and not yet written, so that the bus stays busy from one to the next."""

STORES_IN_FLIGHT = 16
"""STOREs planned and not yet acknowledged by the memory."""

ENTRIES_AHEAD = 8
"""Entries that store has read from the scratchpad and not yet packed; covers the read latency at one entry a cycle."""

UNPACK_CYCLES = 3
"""Registers of :class:`~weft.hw.weight_records.WeightUnpacker`: a part leaves it so many cycles after it has come."""

MULTIPLY_STAGES = 3
"""Registers from the operands to the products; the plain array needs one, a DSP block's three are all used."""

ADDENDS = 4
"""Values that one register stage of the array's adder tree adds up."""

ARRAY_STAGE = 3
"""Cycles from a gemm micro-op's issue to its operands' arrival at the array: a register, then the scratchpads' two."""

READ_BEFORE_ADD = 3
"""Stages from the read of the old accumulator to its sum: the memory's two, and a register."""

FORWARDS = READ_BEFORE_ADD + 1
"""Gemm micro-ops before this one whose writes its own accumulator read comes too early to see."""

ADDED_STAGE = 3
"""Of the vector engine's pipeline: what needs one adder or one comparison."""

QUEUE_CYCLES = 1
"""From a vector result's arrival in the queue before the write port until it can leave the queue."""


def array_latency(config: CoreConfig) -> int:
    """Cycles from operands to sums, the same for every variant of the array."""
    return MULTIPLY_STAGES + ((config.block_in - 1).bit_length() + 1) // 2


@dataclass(frozen=True)
class GemmStages:
    """Stages of a micro-op, counted from its issue, in which its accumulator is read, added to and written."""

    read: int
    add: int
    write: int

    @staticmethod
    def of(config: CoreConfig) -> GemmStages:
        add = ARRAY_STAGE + array_latency(config)
        return GemmStages(read=add - READ_BEFORE_ADD, add=add, write=add + 1)


ROUNDING_STAGES = {FLOAT32: (1, 2), TWO_ROUNDINGS: (0, 1)}
"""Stages of the vector engine before and behind its product that a core has which rounds so. Where only halves go
another way, the shift's stages tell them."""


@dataclass(frozen=True)
class VectorStages:
    """Where the parts of the vector engine's pipeline begin, in cycles from the issue of a micro-op."""

    multiply: int  # two partial products, their sum
    shift: int  # accumulate or shift to the right
    narrow: int  # saturate, round, clamp, shift to the left
    result: int  # the result stands at the output

    @staticmethod
    def of(config: CoreConfig) -> VectorStages:
        before, behind = ROUNDING_STAGES.get(config.rounding, (0, 0))
        multiply = ADDED_STAGE + 1 + before
        shift = multiply + 2 + behind
        return VectorStages(multiply, shift, narrow=shift + 2, result=shift + 6)


def slots_of(config: CoreConfig) -> int:
    """Vector micro-ops between issue and write, a power of two. One a cycle needs one for each cycle of the pipeline,
    write included (14, 15 where it rounds twice, 17 in float32), and one more, because room is told early."""
    return 32 if config.rounding in ROUNDING_STAGES else 16
