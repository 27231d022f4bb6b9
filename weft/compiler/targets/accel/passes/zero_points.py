"""Zero points of products of two computed tensors: more channels of both operands bring them into the sums.

The sum of ``(x - zx) * (w - zw)`` over the channels is that of ``x * w``, of ``-zw`` for each ``x``, of ``-zx`` for
each ``w``, and a number. The array adds these up where ``x`` stands once more beside channels of ``-zw``, and ``w``
beside channels of ``-zx``. Loads read such channels from where the operands lie, as they do for any moved entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....hw.isa import IMMEDIATE_BITS
from ....graph import Array, Attrs, Call, Expr, Function, TensorType, Var, call, calls
from ..operators.moves import entries_of, entry_of_fill, move_call
from ..operators.packed_layout import Blocks

_LARGEST_IMMEDIATE = (1 << IMMEDIATE_BITS - 1) - 1

Parts = tuple[int | None, ...]
"""What stands beside each other in the channels of an operand: None for itself, else a number in all of as many."""


@dataclass(frozen=True)
class WideProduct:
    """A product with zero points, whose operands are parameters of a function, and the channels of both."""

    product: Call
    x_parts: Parts
    w_parts: Parts

    @staticmethod
    def of(function: Function) -> WideProduct | None:
        """That of a function; None where there is none."""
        for node in calls(function.body):
            if node.op == "product" and any(node.attr("zero_points")):
                of_x, of_w = (_bytes_of(-zero) for zero in node.attr("zero_points"))
                return WideProduct(node, (None, *(None for _ in of_w), *of_x), (None, *of_w, *(None for _ in of_x)))
        return None

    @property
    def operands(self) -> tuple[tuple[Expr, Parts], ...]:
        x, w = self.product.args
        return (x, self.x_parts), (w, self.w_parts)

    def params(self, blocks: Blocks) -> tuple[Var, Var]:
        """The parameters of the packed function that stand for the operands with all their channels."""
        x, w = (
            Var(f"{name}_channels", blocks.packed_type(TensorType(_wide(arg.shape, parts), "int8")))
            for name, (arg, parts) in zip(("x", "w"), self.operands, strict=True)
        )
        return x, w

    def packed(self, params: tuple[Var, Var], blocks: Blocks) -> Call:
        """The packed product of such parameters, without its zero points."""
        node = self.product
        attrs = {"depth": node.attr("depth"), "outputs": node.attr("outputs"), "blocks": blocks.sizes}
        made = call("packed_product", *params, span=node.span, **attrs)
        (x, _), _ = self.operands
        first, second = node.attr("zero_points")
        rest = -x.shape[1] * first * second
        while rest:
            value = max(-_LARGEST_IMMEDIATE, min(_LARGEST_IMMEDIATE, rest))
            made = call("packed_subtract_immediate", made, value=value, blocks=blocks.sizes, span=node.span)
            rest -= value
        return made


def with_channels(operand: Expr, packed: Expr, parts: Parts, blocks: Blocks, *, behind: bool = False) -> Call:
    """A move that puts the channels of ``packed``, an operand of a product, and numbers beside each other. ``behind``:
    it does what the move does that ``packed`` is, too."""
    own = np.arange(packed.tensor_type.size // (blocks.batch * blocks.sub_block)).reshape(packed.shape[:-2])
    sources: tuple[Expr, ...] = (packed,)
    before = move_before(packed) if behind else None
    if before is not None:
        sources, own = before[0], before[1].reshape(own.shape)
    entries = [own if number is None else np.full(own.shape, entry_of_fill(number)) for number in parts]
    shape = _wide(operand.shape, parts)
    name = f"{operand.span.node or 'product'}.channels"
    params = tuple(Var(f"x{number}", source.tensor_type) for number, source in enumerate(sources))
    body = move_call(name, np.concatenate(entries, axis=1).ravel(), params, blocks, blocks.activation_shape(shape))
    attrs = Attrs({"name": name, "primitive": True, "anchor": "move", "shape": shape, "macs": 0})
    return call(Function(params, body, attrs), *sources, span=operand.span)


def move_before(packed: Expr) -> tuple[tuple[Expr, ...], Array] | None:
    """What a move of the core moves, and its entries; None for what is no move."""
    if not isinstance(packed, Call) or not isinstance(packed.op, Function):
        return None
    entries = entries_of(packed.op)
    return (packed.args, entries) if entries is not None else None


def _wide(shape: Sequence[int], parts: Parts) -> tuple[int, ...]:
    images, channels, *pixels = shape
    return (images, channels * len(parts), *pixels)


def _bytes_of(value: int) -> tuple[int, ...]:
    """The fewest int8 numbers whose sum is a value."""
    count = max(-(-value // 127), -(value // 128)) if value else 0
    return tuple((value + number) // count for number in range(count))
