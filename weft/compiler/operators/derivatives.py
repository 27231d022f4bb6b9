"""What gradient rules share. Rules compose operators, so that a gradient is a graph as any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..graph.dtypes import numpy_dtype
from ..graph.gradient import zeros
from ..graph.ir import Call, Constant, Expr
from ..graph.registry import Gradient
from .build import contract, nn


def like(x: Expr, value: float) -> Constant:
    """A number of the element type of ``x``."""
    return Constant(np.array(value, numpy_dtype(x.dtype)))


def where(condition: Expr, x: Expr) -> Expr:
    """``x`` where the condition holds, 0 elsewhere."""
    return nn.where(condition, x, like(x, 0))


def times(x: Expr, factor: float) -> Expr:
    return nn.multiply(x, like(x, factor))


def reciprocal(x: Expr) -> Expr:
    return nn.divide(like(x, 1), x)


def square(x: Expr) -> Expr:
    return nn.multiply(x, x)


def reshaped(x: Expr, shape: Sequence[int]) -> Expr:
    return x if x.shape == tuple(shape) else contract.reshape(x, shape=tuple(shape))


def expanded(x: Expr, shape: Sequence[int]) -> Expr:
    return x if x.shape == tuple(shape) else contract.expand(x, shape=tuple(shape))


def transposed(x: Expr, perm: Sequence[int]) -> Expr:
    return x if tuple(perm) == tuple(range(len(perm))) else contract.transpose(x, perm=tuple(perm))


def part(x: Expr, starts: Sequence[int], sizes: Sequence[int]) -> Expr:
    """``sizes`` elements of each axis from ``starts``."""
    return x if x.shape == tuple(sizes) else contract.slice(
        x, starts=tuple(starts), sizes=tuple(sizes), steps=(1,) * len(x.shape)
    )  # fmt: skip


def padded(x: Expr, before: Sequence[int], after: Sequence[int]) -> Expr:
    """``x`` among zeros; a negative number takes elements away. One number an axis."""
    pads = (*(max(each, 0) for each in before), *(max(each, 0) for each in after))
    around = contract.pad(x, pads=pads) if any(pads) else x
    sizes = [size + first + last for size, first, last in zip(x.shape, before, after, strict=True)]
    return part(around, [max(-each, 0) for each in before], sizes)


def flipped(x: Expr, axes: Sequence[int]) -> Expr:
    """``x`` from the end along ``axes``."""
    turned = [axis for axis in axes if x.shape[axis] > 1]
    return x if not turned else contract.slice(
        x, starts=tuple(size - 1 if axis in turned else 0 for axis, size in enumerate(x.shape)), sizes=x.shape,
        steps=tuple(-1 if axis in turned else 1 for axis in range(len(x.shape))),
    )  # fmt: skip


def of_operand(derivative: Callable[[Expr, Expr], Expr]) -> Gradient:
    """The rule of a function of one number: its derivative, from the operand and the result."""

    def rule(upstream: Expr, node: Call) -> tuple[Expr | None, ...]:
        return (nn.multiply(upstream, derivative(node.args[0], node)),)

    return rule


def nothing_like(x: Expr) -> Expr:
    """Zeros of the type of ``x``."""
    return zeros(x.tensor_type)
