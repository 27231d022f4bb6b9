"""Tables of small tensors on the core, as sums of ramps.

On a core without tables a function of one 8-bit value (the sigmoid of a gate) is a table on the host, for which it
stops. Between some numbers ``t`` every table is, rounded down, as good as straight, so it is a sum of a multiple of
``x`` and of multiples of ``max(x, t)``, in whole numbers and so exact. That takes two micro-ops an entry for each of
them: little where the tensor is small, as pooled ones are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....graph import Array, Call, Constant, Expr, Function, Module, Span, call
from ....graph.visit import calls, topological_order, with_children
from ....operators import numerics
from ....passes.manager import Pass
from ..packed_layout import Blocks

FRACTION_BITS = 14
"""Of sums of ramps. A step of 255 and a change from its rise to its fall still are weights of 25 bits."""

MOST_RAMPS = 64
"""Of a table. A smooth function has 5 to 40, whatever is not smooth up to 255."""

MOST_CYCLES = 8192
"""Of the vector engine for one table: what the host's interrupt costs, at 100 MHz some 80 microseconds."""


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
        for place, weight in zip(self.places[1:], self.weights[1:], strict=True):
            total = call(
                "multiply_accumulate", total, call("maximum_immediate", x, value=place, span=span), weight=weight,
                span=span,
            )  # fmt: skip
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


def tables_as_ramps(blocks: Blocks) -> Pass:
    """The pass for an array of this shape: tables between layers of the core, where few enough cycles do."""
    return Pass("tables-as-ramps", lambda module: _run(module, blocks), needs=("legalise",))


def _run(module: Module, blocks: Blocks) -> Module:
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
        entries = -(-np.prod(blocks.accumulator_shape(x.shape)) // (blocks.batch * blocks.block_out))
        if len(ramps.places) <= MOST_RAMPS and 2 * len(ramps.places) * entries <= MOST_CYCLES:
            memo[node] = ramps.expression(memo[x], node.span)
    return module.with_main(memo[body])


def _table_of(node: Expr) -> tuple[Call, Array] | None:
    """The value of the core and the table of whose entries the host makes ``node`` (see ``passes.tabulate``)."""
    place, table = _host_step(node, "gather")
    wide, first = _host_step(place, "nn.add")
    x, _ = _host_step(wide, "nn.cast")
    on_core = isinstance(x, Call) and isinstance(x.op, str) and x.dtype == "int8" and len(x.shape) in (2, 4)
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
