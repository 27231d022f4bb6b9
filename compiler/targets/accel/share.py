"""Depthwise convolutions on both compute engines: the array takes some channel groups, the vector engine the others.

One tap of a depthwise convolution is, for a channel group, the product with a diagonal matrix. So the array computes an
entry with as many micro-ops as the vector engine, and what it takes over runs beside it. The matrices are larger in
DRAM than the weights, and the vector engine requantises all groups: the share follows from an estimate of all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....hw.config import CoreConfig
from ...graph import Array, Call, Constant, Expr, Function, TensorType, Var, call, layout
from ...graph.layout import Blocks, blocks_of
from ...graph.visit import topological_order
from ..compute_rules import Kernel

ANCHOR = "packed_depthwise_conv2d"


@dataclass(frozen=True)
class Part:
    """A function that computes some channel groups, from ``first_group``, of one batch group of another function."""

    function: Function
    batch_group: int
    first_group: int

    def shift(self, shape: tuple[int, ...]) -> int:
        """First byte of the part in an int8 activation of packed ``shape``."""
        return (self.batch_group * shape[1] + self.first_group) * prod(shape[2:])


@dataclass(frozen=True)
class Shared:
    """One batch group of a depthwise function: ``whole``, or instead the ``parts`` side by side."""

    whole: Part
    parts: tuple[Part, ...]


def share(config: CoreConfig, function: Function, kernel: Kernel) -> list[Shared]:
    """The batch groups of a depthwise function (``kernel``: all of it).

    Empty where the vector engine alone is as fast, or the array is not square and so has no diagonal.
    """
    if kernel.kind != "depthwise_conv2d" or config.block_in != config.block_out:
        return []
    groups = kernel.output.shape[1]
    on_array = array_groups(config, kernel)
    if not on_array:
        return []
    found = []
    for batch_group in range(kernel.output.shape[0]):
        whole = _part(function, batch_group, 0, groups)
        array = _part(function, batch_group, 0, on_array, "array")
        vector = [_part(function, batch_group, on_array, groups, "vector")] if on_array < groups else []
        # The array's part last, so that its results are not in the way of the vector engine's own work.
        found.append(Shared(whole, (*vector, array)))
    return found


def array_groups(config: CoreConfig, kernel: Kernel) -> int:
    """How many channel groups of a depthwise kernel the array should compute: as few as make it fastest."""
    outer, groups, height, width = kernel.output.shape[:4]
    window = kernel.window
    if window is None:
        return 0
    taps = prod(window.kernel)
    pixels = outer * height * width
    data = sum(prod(tensor.shape) for tensor in kernel.inputs if len(tensor.shape) == len(kernel.output.shape))
    copied = (data + prod(kernel.output.shape)) / config.bus_bytes

    def cycles(count: int) -> float:
        vector = pixels * (groups * len(kernel.stages.vector) + (groups - count) * taps)
        return max(vector, pixels * count * taps, copied + count * taps * config.wgt_bytes / config.bus_bytes)

    return min(range(groups + 1), key=cycles)


def _part(function: Function, batch_group: int, start: int, stop: int, engine: str = "") -> Part:
    """Every operator of a depthwise function keeps channels apart, so a part of it is the same on fewer of them."""
    values: dict[Expr, Expr] = {}
    for node in topological_order(function.body):
        match node:
            case Var():
                values[node] = Var(node.name, TensorType((1, stop - start, *node.shape[2:]), node.dtype))
            case Constant():
                values[node] = Constant(node.value[start:stop], node.name, node.span)
            case Call(op=str() as op):
                args = tuple(values[arg] for arg in node.args)
                if op == ANCHOR and engine == "array":
                    op, args = "packed_grouped_conv2d", (args[0], _diagonal(args[1], blocks_of(node.attrs["blocks"])))
                values[node] = call(op, *args, span=node.span, **node.attrs)
    params = tuple(param for param in (values[param] for param in function.params) if isinstance(param, Var))
    attrs = function.attrs.replace(name=f"{function.name}.{engine}" if engine else function.name)
    return Part(Function(params, values[function.body], attrs, function.span), batch_group, start)


def _diagonal(weights: Expr, blocks: Blocks) -> Constant:
    if not isinstance(weights, Constant):
        raise TypeError("the weights of a packed convolution are constant")
    value: Array = layout.pack_grouped_weights(layout.unpack_depthwise_weights(weights.value), blocks)
    return Constant(value, weights.name, weights.span)
