"""Constant weights of 8 bits or fewer behind a dequantise: which products keep them so, and what they are as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...graph.dtypes import NARROW_INTEGERS
from ...graph.ir import Array, Call, Constant, Expr
from ...graph.registry import Anchor, Role, operator_of, role_of
from ...graph.visit import topological_order, use_counts

WIDTHS = (2, 4, 8)
"""Bits of a packed weight."""

WHOLE_BYTES = 8 // min(WIDTHS)
"""So many neighbours fill whole bytes, whatever their width."""

FLOAT_BYTES = 4

WORTH_BYTES = 256 << 10
"""Of the weights as floats. Less than this stays in a processor's caches between two uses, so floats are as fast."""


@dataclass(frozen=True)
class Weights:
    """``codes``: (depth, columns), from 0 on; ``scales`` and ``zeros``: (blocks, columns) of float32, of ``block``
    rows each; ``bits``: that hold any code; ``lowest``: the integer of code 0."""

    codes: Array
    scales: Array
    zeros: Array
    block: int
    bits: int
    lowest: int

    @property
    def in_byte(self) -> int:
        return 8 // self.bits

    def packed(self, lanes: int) -> Array:
        """Panels of so many columns, one behind the other: (panels, bytes of a column, lanes). Codes of neighbouring
        rows share a byte, from its lowest bits on."""
        depth, columns = self.codes.shape
        apart = self.codes.reshape(depth // self.in_byte, self.in_byte, columns)
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)[:, None]
        rows = np.bitwise_or.reduce(apart << shifts, axis=1)
        return np.asarray(rows.reshape(len(rows), columns // lanes, lanes).transpose(1, 0, 2))


def is_weight_only(call: Call) -> bool:
    """Whether a call is a product of floats with a dequantise of constants, in blocks along its depth or not."""
    entry = operator_of(call)
    if entry is None or entry.anchor is not Anchor.PRODUCT or call.dtype != "float32":
        return False
    x, weights = call.args
    if (
        isinstance(x, Constant)
        or not isinstance(weights, Call)
        or role_of(weights) is not Role.DEQUANTISE
        or len(weights.shape) != 2
    ):
        return False
    codes, scale, _ = weights.args
    if not all(isinstance(each, Constant) for each in weights.args) or codes.dtype not in NARROW_INTEGERS:
        return False
    if weights.tensor_type.size * FLOAT_BYTES < WORTH_BYTES:
        return False
    depth_axis = 1 if is_turned(call) else 0
    depth, along_depth = weights.shape[depth_axis], weights.attr("axis") == depth_axis
    block = weights.attr("block") if scale.shape else 0
    if block:
        return along_depth and depth % block == 0 and block % WHOLE_BYTES == 0
    return depth % WHOLE_BYTES == 0 and not (scale.shape and along_depth)


def is_turned(product: Call) -> bool:
    """Whether the second operand lies transposed, as weights of a dense layer do."""
    return role_of(product) is not Role.MATRIX_PRODUCT


def weights_of(call: Call) -> Weights:
    """The weights of such a product."""
    dequantise = call.args[1]
    assert isinstance(dequantise, Call)
    numbers, scale, zero = (each.value for each in dequantise.args if isinstance(each, Constant))
    block = dequantise.attr("block") if scale.ndim else 0
    if is_turned(call):
        numbers, scale, zero = numbers.T, scale.T, zero.T
    if not block:
        scale, zero = (np.broadcast_to(each, (1, numbers.shape[1])) for each in (scale, zero))
    return packed_weights(numbers, scale, zero, block or len(numbers))


def range_of(numbers: Array) -> tuple[int, int]:
    """The lowest of integers of 8 bits or fewer, and the bits that hold any of them less that."""
    wide = numbers.astype(np.int16)
    lowest = int(wide.min())
    return lowest, next(bits for bits in WIDTHS if int(wide.max()) - lowest < 1 << bits)


def packed_weights(numbers: Array, scales: Array, zeros: Array, block: int) -> Weights:
    """Of integers (depth, columns), with scales and zero points (blocks, columns)."""
    lowest, bits = range_of(numbers)
    codes, middles = (each.astype(np.int16) - lowest for each in (numbers, zeros))
    return Weights(codes.astype(np.uint8), scales.astype(np.float32), middles.astype(np.float32), block, bits, lowest)


def kept_weights(body: Expr) -> set[Expr]:
    """The dequantises of a graph that nothing but such a product needs."""
    uses = use_counts(body)
    products = (node for node in topological_order(body) if isinstance(node, Call) and is_weight_only(node))
    return {node.args[1] for node in products if uses[node.args[1]] == 1}
