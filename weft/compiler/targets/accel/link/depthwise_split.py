"""Depthwise convolutions on both compute engines: the array takes some channel groups, the vector engine the others.

One tap of a depthwise convolution is, for a channel group, the product with a diagonal matrix. So the array computes an
entry with as many micro-ops as the vector engine, and what it takes over runs beside it. The matrices are larger in
DRAM than the weights, and the vector engine requantises all groups: the share follows from an estimate of all three.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .....hw.config import CoreConfig
from .....hw.dram_rate import DramRate
from ....graph import Array, Call, Constant, Expr, Function, TensorType, Var, call
from ....graph.visit import topological_order
from ..cost.tile_costs import estimate, tilings, work_of
from ..cost.work import Work
from ..operators import packed_layout
from ..operators.depthwise_mode import in_depthwise_mode
from ..operators.lower import Kernel, lower_function
from ..operators.operators import tables_of
from ..operators.packed_layout import Blocks, blocks_of
from ..schedule.tiling import Problem
from .forms import DEPTHWISE

ANCHOR = "packed_depthwise_conv2d"


@dataclass(frozen=True)
class Slice:
    """A function that computes some channel groups, from ``first_group``, of one batch group of another function."""

    function: Function
    batch_group: int
    first_group: int

    def shift(self, shape: tuple[int, ...]) -> int:
        """First byte of the slice in an int8 activation of packed ``shape``."""
        return (self.batch_group * shape[1] + self.first_group) * prod(shape[2:])


@dataclass(frozen=True)
class Split:
    """One batch group of a depthwise function: ``whole``, or instead the ``slices``, if any, side by side."""

    whole: Slice
    slices: tuple[Slice, ...]


def split(config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int) -> list[Split]:
    """The batch groups of a depthwise function (``kernel``: all of it).

    Empty where the vector engine alone is as fast, or the array is not square and so has no diagonal.
    """
    if kernel.kind != DEPTHWISE or config.block_in != config.block_out:
        return []
    on_array = array_groups(config, rate, function, kernel, threads)
    return split_at(function, kernel, on_array) if on_array else []


def split_at(function: Function, kernel: Kernel, on_array: int) -> list[Split]:
    """The batch groups of a depthwise function (``kernel``: all of it), of each of which the array computes so many
    channel groups."""
    groups = kernel.output.shape[1]
    splits = []
    for batch_group in range(kernel.output.shape[0]):
        array = _slice(function, batch_group, 0, on_array, "array")
        if on_array == groups:
            splits.append(Split(array, ()))
            continue
        vector = _slice(function, batch_group, on_array, groups, "vector")
        # The array's slice last, so that its results are not in the way of the vector engine's own work.
        splits.append(Split(_slice(function, batch_group, 0, groups), (vector, array)))
    return splits


def array_groups(config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int) -> int:
    """How many channel groups of a depthwise function the array should compute: as few as make it fastest."""
    cycles = cycles_by_groups(config, rate, function, kernel, threads)
    return min(range(len(cycles)), key=cycles.__getitem__, default=0)


def fastest_in_mode(
    config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int
) -> Kernel | None:
    """The kernel of a depthwise function (``kernel``: on the vector engine) in the array's depthwise mode, where the
    estimate does not say that this is slower than what the two engines do otherwise."""
    in_mode = in_depthwise_mode(config, function)
    if in_mode is None:
        return None
    tapped = lower_function(in_mode)
    others = min(_estimate(config, rate, kernel, threads), split_estimate(config, rate, function, kernel, threads))
    return tapped if _estimate(config, rate, tapped, threads) <= others else None


def estimate_apart(config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int) -> float:
    """Cycles of a function by itself, roughly, in its fastest form; infinite where nothing fits."""
    in_mode = in_depthwise_mode(config, function)
    return min(
        _estimate(config, rate, kernel, threads), split_estimate(config, rate, function, kernel, threads),
        _estimate(config, rate, lower_function(in_mode), threads) if in_mode is not None else float("inf"),
    )  # fmt: skip


def _estimate(config: CoreConfig, rate: DramRate, kernel: Kernel, threads: int) -> float:
    problem = Problem(config, kernel, threads, rate=rate)
    found = next(iter(tilings(problem)), None)
    return float("inf") if found is None else estimate(problem, found) or float("inf")


def split_estimate(config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int) -> float:
    """Cycles of a function whose channel groups both engines share, roughly; infinite where they cannot."""
    if kernel.kind != DEPTHWISE or config.block_in != config.block_out:
        return float("inf")
    return min(cycles_by_groups(config, rate, function, kernel, threads), default=float("inf"))


def cycles_by_groups(
    config: CoreConfig, rate: DramRate, function: Function, kernel: Kernel, threads: int
) -> list[float]:
    """The estimate for each number of channel groups on the array; empty if nothing fits."""
    groups = kernel.output.shape[1]
    on_array = lower_function(_slice(function, 0, 0, groups, "array").function)
    outer = kernel.output.shape[0]
    none, every = (_work(Problem(config, each, threads, rate=rate)) for each in (kernel, on_array))
    vector, array = (_work(Problem(config, each, 1, beside=True, rate=rate)) for each in (kernel, on_array))
    if none is None or every is None or vector is None or array is None:
        return []

    shares = (count / groups for count in range(1, groups))
    both = (vector * (1 - share) + array * (share * outer) for share in shares)
    return [float(work.cycles) for work in (none, *both, every * outer)]


def _work(problem: Problem) -> Work | None:
    return next((work_of(problem, tiling) for tiling in tilings(problem)), None)


def on_array(function: Function) -> Function:
    """A depthwise function, all of it, for the array."""
    groups = function.body.shape[1]
    return _slice(function, None, 0, groups, "array").function


def _slice(function: Function, batch_group: int | None, start: int, stop: int, engine: str = "") -> Slice:
    """Every operator of a depthwise function keeps channels apart, so a slice of it is the same on fewer of them."""
    values: dict[Expr, Expr] = {}
    tables = tables_of(function)
    for node in topological_order(function.body):
        match node:
            case Var():
                outer = node.shape[0] if batch_group is None else 1
                values[node] = Var(node.name, TensorType((outer, stop - start, *node.shape[2:]), node.dtype))
            case Constant() if node in tables:
                values[node] = node
            case Constant():
                own: tuple[slice, ...] = (slice(start, stop),)
                if node.tensor_type.rank == function.body.tensor_type.rank:  # an activation
                    own = (slice(None), *own) if batch_group is None else (slice(batch_group, batch_group + 1), *own)
                elif node.shape[0] == 1:  # parameters that all groups share
                    own = (slice(None),)
                values[node] = Constant(node.value[own], node.name, node.span)
            case Call(op=str() as op):
                args = tuple(values[arg] for arg in node.args)
                if op == ANCHOR and engine == "array":
                    op, args = "packed_grouped_conv2d", (args[0], _diagonal(args[1], blocks_of(node.attrs["blocks"])))
                values[node] = call(op, *args, span=node.span, **node.attrs)
    params = tuple(param for param in (values[param] for param in function.params) if isinstance(param, Var))
    attrs = function.attrs.replace(name=f"{function.name}.{engine}" if engine else function.name)
    return Slice(Function(params, values[function.body], attrs, function.span), batch_group or 0, start)


def _diagonal(weights: Expr, blocks: Blocks) -> Constant:
    if not isinstance(weights, Constant):
        raise TypeError("the weights of a packed convolution are constant")
    value: Array = packed_layout.pack_grouped_weights(packed_layout.unpack_depthwise_weights(weights.value), blocks)
    return Constant(value, weights.name, weights.span)
