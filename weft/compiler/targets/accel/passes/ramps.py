"""Tables of small tensors on the core, as sums of ramps.

On a core without tables a function of one 8-bit value (the sigmoid of a gate) is a table on the host, for which it
stops. Between some numbers ``t`` every table is, rounded down, as good as straight, so it is a sum of a multiple of
``x`` and of multiples of ``max(x, t)``, in whole numbers and so exact. That takes two micro-ops an entry for each of
them: little where the tensor is small, as pooled ones and rows of one token are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....graph import Array, Call, Constant, Expr, Function, Module, Span, call
from ....graph.host import HOST_STEP, renumber
from ....graph.visit import calls, rewrite, topological_order, with_children
from ....operators import numerics
from ....passes.manager import Pass
from ....passes.tabulate import look_up_on_host
from ..cost.tile_costs import VECTOR_PIPELINE
from ..operators.packed_layout import PACKABLE_RANKS, Blocks
from .prices import Rate, entries_of

FRACTION_BITS = 14
"""Of sums of ramps. A step of 255 and a change from its rise to its fall still are weights of 25 bits."""

MOST_RAMPS = 64
"""Of a table. A smooth function has 5 to 40, whatever is not smooth up to 255."""

ENTRIES_A_TIME = 256
"""That an instruction is taken to work on: an eighth of the accumulator of ``pynq``, two tiles with two values each."""

INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Ramps:
    """``(start + sum of weight * max(x, place)) >> FRACTION_BITS`` for int8 ``x``; the first place is -128."""

    start: int
    places: tuple[int, ...]
    weights: tuple[int, ...]

    @staticmethod
    def of(table: Array) -> Ramps:
        """Of 256 numbers of 8 bits, the least value's first."""
        low = table.astype(np.int64) << FRACTION_BITS
        high = low + (1 << FRACTION_BITS) - 1
        value = first = int(low[0] + high[0]) // 2
        places, slopes, here = [], [], 0
        while here < len(low) - 1:
            furthest, _ = _straight(low, high, here, value)
            # The furthest end may leave little room for what follows: the end counts from which the next one is.
            ends = [
                (end, _straight(low, high, here, value, end)[1]) for end in range((here + furthest) // 2 + 1, furthest)
            ]
            ends.append(_straight(low, high, here, value))
            _, end, slope = max(
                (_straight(low, high, end, value + slope * (end - here))[0], end, slope) for end, slope in ends
            )
            places.append(here - 128)
            slopes.append(slope)
            value, here = value + slope * (end - here), end
        weights = np.diff(slopes, prepend=0).tolist()
        start = first - sum(weight * place for weight, place in zip(weights, places, strict=True))
        return Ramps(start, tuple(places), tuple(weights))

    def expression(self, x: Expr, span: Span) -> Call:
        """The int8 results, as the core computes them."""
        total = call("multiply_immediate", x, weight=self.weights[0], span=span)
        bent = x
        for place, weight in zip(self.places[1:], self.weights[1:], strict=True):
            bent = call("maximum_immediate", bent, value=place, span=span)  # that of two places is that of the larger
            total = call("multiply_accumulate", total, bent, weight=weight, span=span)
        half = 1 << FRACTION_BITS - 1  # a requantise rounds
        channels = x.shape[1]
        multiplier, shift = numerics.quantise_multiplier(np.full(channels, 2.0**-FRACTION_BITS))
        bias = numerics.wrap_int32(np.full(channels, self.start - half))
        return call("requantise", total, Constant(bias), Constant(multiplier), Constant(shift), span=span)


def _straight(low: Array, high: Array, here: int, value: int, end: int | None = None) -> tuple[int, int]:
    """The furthest place, up to ``end``, to which a line from ``value`` at ``here`` stays within bounds; its slope."""
    rest = slice(here + 1, None if end is None else end + 1)
    distance = np.arange(1, len(low[rest]) + 1)
    if not len(distance):
        return here, 0
    least = np.maximum.accumulate(-((value - low[rest]) // distance))
    most = np.minimum.accumulate((high[rest] - value) // distance)
    count = int(np.argmin(np.append(least <= most, False)))
    return here + count, int(least[count - 1] + most[count - 1]) // 2


def _on_host(node: Call) -> Expr | None:
    """look_up(x, table)  ->  gather(table, cast(x) + 128) by the host"""
    if node.op != "look_up" or not node.args[1].static:
        return None
    return look_up_on_host(node, "a table, which this core does not have")


def _without_tables(module: Module) -> Module:
    return module.with_main(renumber(rewrite(module.main.body, _on_host)))


tables_on_host = Pass("tables-on-host", _without_tables, needs=("legalise",), about=_on_host.__doc__ or "")
"""For a core without tables: `look_up` is the host's, where it is not made of ramps later."""


def tables_as_ramps(blocks: Blocks, bytes_per_cycle: int = 8) -> Pass:
    """The pass for an array of this shape, with DRAM that moves ``bytes_per_cycle`` a cycle: tables between layers of
    the core, where ramps cost less than a step of the host."""
    rate = Rate(blocks, bytes_per_cycle)
    return Pass("tables-as-ramps", lambda module: _run(module, rate), needs=("legalise",), about=__doc__ or "")


def _run(module: Module, rate: Rate) -> Module:
    body = module.main.body
    readers = [node for node in calls(body) if isinstance(node.op, str)]
    read = {id(arg) for node in readers for arg in node.args}
    memo: dict[Expr, Expr] = {}
    for node in topological_order(body):
        memo[node] = with_children(node, tuple(memo[child] for child in node.children))
        found = _table_of(node) if id(node) in read else None
        if found is None or not isinstance(node, Call):
            continue
        x, table = found
        ramps = Ramps.of(table)
        if len(ramps.places) <= MOST_RAMPS and cycles_of(ramps, x.shape, rate) <= HOST_STEP:
            made = ramps.expression(memo[x], node.span)
            memo[node] = made if made.shape == node.shape else call(
                "reshape", made, shape=node.shape, span=Span(node.span.nodes, node.span.tensor)
            )  # fmt: skip
    return module.with_main(memo[body])


def cycles_of(ramps: Ramps, shape: Sequence[int], rate: Rate) -> float:
    """What ramps of a tensor cost: two micro-ops an entry for each, which wait for each other where there are few
    entries; a load and a store of the tensor, and the instructions themselves, which the bus brings, too."""
    entries, steps = entries_of(shape, rate.blocks), 2 * len(ramps.places)
    rounds = -(-entries // ENTRIES_A_TIME)
    moved = 2 * entries * rate.blocks.batch * rate.blocks.block_out + rounds * steps * INSTRUCTION_BYTES
    return rounds * steps * max(min(entries, ENTRIES_A_TIME), VECTOR_PIPELINE) + moved / rate.bytes_per_cycle


def _table_of(node: Expr) -> tuple[Call, Array] | None:
    """The value of the core, before reshapes, and the table of whose entries the host makes ``node`` (see
    ``passes.tabulate``)."""
    place, table = _host_step(node, "gather")
    wide, first = _host_step(place, "nn.add")
    x, _ = _host_step(wide, "nn.cast")
    while isinstance(x, Call) and x.op == "reshape":
        x = x.args[0]
    on_core = isinstance(x, Call) and isinstance(x.op, str) and x.dtype == "int8" and len(x.shape) in PACKABLE_RANKS
    if not on_core or not isinstance(x, Call) or table is None or first is None:
        return None
    is_one = table.dtype == np.int8 and table.shape == (256,) and first.size == 1 and int(first.reshape(())) == 128
    return (x, table) if is_one else None


def _host_step(node: Expr | None, op: str) -> tuple[Expr | None, Array | None]:
    """The computed operand and the constant one, if any, of a host function of one operator; None where it is none."""
    if not isinstance(node, Call) or not isinstance(node.op, Function) or not node.op.host_reason:
        return None, None
    inner = node.op.body
    if not isinstance(inner, Call) or inner.op != op or len(node.args) != 1:
        return None, None
    return node.args[0], next((arg.value for arg in inner.args if isinstance(arg, Constant)), None)
