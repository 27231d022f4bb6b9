"""A concatenation of channels that are not aligned to the array's blocks: operands side by side, each in whole blocks.

Between them stand gaps, channels of any value. A dense convolution reads them with weights of zero; for whatever else
reads the result, a 1 x 1 convolution with ones at the right places closes the gaps. Both are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....graph import Attrs, Call, Constant, Expr, Function, TensorType, Var, call
from ....graph.visit import calls, topological_order, use_counts, with_children
from ....operators import numerics
from ..operators.empty_matrices import Kept
from ..operators.packed_layout import Blocks, pack_weights

ENTRY_CYCLES = 2
"""For which an entry of a kernel that only closes gaps keeps the memory busy, at usual rates."""


@dataclass(frozen=True)
class Gaps:
    """``shape`` of a concatenation with its gaps, or of another value that does not lie as it is read, and where in it
    the channels lie."""

    shape: tuple[int, ...]
    channels: npt.NDArray[np.int64]

    @staticmethod
    def between(parts: Sequence[tuple[int, ...]], block: int) -> Gaps:
        """Of operands (N, C, H, W), each of which fills whole blocks."""
        places, start = [], 0
        for shape in parts:
            places.append(start + np.arange(shape[1]))
            start += -(-shape[1] // block) * block
        outer, _, *size = parts[0]
        return Gaps((outer, start, *size), np.concatenate(places))

    def opened(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Weights (O, C, ...) for what has the gaps."""
        wide = np.zeros((weights.shape[0], self.shape[1], *weights.shape[2:]), weights.dtype)
        wide[:, self.channels] = weights
        return wide


def reading_gaps(function: Function, place: int, gaps: Gaps, blocks: Blocks) -> Function | None:
    """A primitive function whose operand ``place`` has gaps; None where it is not a dense convolution that reads it,
    or would take longer for it than closing the gaps takes."""
    param = function.params[place]
    reader = next((node for node in calls(function.body) if param in node.args), None)
    if use_counts(function.body)[param] != 1 or reader is None or reader.op != "conv2d":
        return None
    weights = reader.args[1]
    if reader.args[0] != param or reader.attr("groups") != 1 or not isinstance(weights, Constant):
        return None
    opened = gaps.opened(weights.value)
    more = _matrices(opened, blocks) - _matrices(weights.value, blocks)
    closing = -(-gaps.shape[1] // blocks.dram_block) + -(-len(gaps.channels) // blocks.dram_block)
    if more > ENTRY_CYCLES * closing:
        return None
    values: dict[Expr, Expr] = {}
    for node in topological_order(function.body):
        match node:
            case Var() if node == param:
                values[node] = Var(param.name, TensorType(gaps.shape, param.dtype))
            case Constant() if node == weights:
                values[node] = Constant(opened, weights.name, weights.span)
            case _:
                values[node] = with_children(node, tuple(values[child] for child in node.children))
    params = tuple(each for each in (values.get(param, param) for param in function.params) if isinstance(each, Var))
    return Function(params, values[function.body], function.attrs, function.span)


def _matrices(weights: npt.NDArray[Any], blocks: Blocks) -> int:
    return int(np.count_nonzero(Kept.of(pack_weights(weights, blocks)).mask))


def closing_gaps(node: Expr, gaps: Gaps) -> Function:
    """The primitive function from a concatenation with gaps to ``node``, the one without."""
    ones = np.eye(len(gaps.channels), dtype=np.int8)[:, :, None, None]
    x = Var("x0", TensorType(gaps.shape, "int8"))
    moved = call("conv2d", x, Constant(gaps.opened(ones), f"{node.span.node}.placement"), span=node.span)
    # moving channels is no work of the model, whatever products it takes
    attrs = {"name": f"{node.span.node or 'concat'}.channels", "primitive": True, "anchor": "conv2d", "macs": 0}
    return Function((x,), exact(moved, 1.0), Attrs(attrs))


def exact(x: Expr, factor: float, **attrs: object) -> Call:
    """A requantise of an accumulator by ``factor`` alone, which rounds nothing."""
    channels = x.shape[1]
    multiplier, shift = numerics.quantise_multiplier(np.full(channels, factor))
    params = (np.zeros(channels, np.int32), multiplier, shift)
    return call("requantise", x, *map(Constant, params), span=x.span, **attrs)
