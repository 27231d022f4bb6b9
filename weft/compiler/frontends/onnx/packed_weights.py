"""Packed weights of a few bits, as onnxruntime's tools write them: in products (``com.microsoft.MatMulNBits``) and in
tables of embeddings (``com.microsoft.GatherBlockQuantized``)."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Array, Constant, Expr
from .node import Converted, Node, converter

WIDTHS = (2, 4, 8)
"""Bits of a weight: so many that a byte holds a whole number of them."""


@converter("MatMulNBits")
def _matmul_nbits(node: Node) -> Converted:
    """``x (..., K)`` times weights ``(N, K)`` of a few bits, with a scale for each block along K.

    Numbers lie from a byte's lowest bits on; each block, and each row of packed zero points, begins with a byte.
    """
    x = node.input(0)
    depth, outputs = _size(node, "K"), _size(node, "N")
    bits, block = _width(node), _size(node, "block_size")
    if not x.shape or x.shape[-1] != depth:
        raise node.error(f"the input has shape {x.shape}, but K is {depth}")
    blocks = math.ceil(depth / block)
    packed = _bytes(node, 1, "the weights", outputs * blocks * math.ceil(block * bits / 8))
    codes = numbers_of(packed.reshape(outputs * blocks, -1), bits, block).reshape(outputs, -1)[:, :depth]
    scales = node.constant(2, "the scales")
    if scales.size != outputs * blocks:
        raise node.error(f"{scales.size} scales, but {outputs} outputs have {blocks} blocks each")
    scales = scales.reshape(outputs, blocks)
    zeros = _zero_points(node, bits, outputs, blocks)
    order = _order(node, depth, block, blocks)
    if order is None:
        constants = Constant(codes, span=node.span), Constant(scales, span=node.span), Constant(zeros, span=node.span)
        weights: Expr = node.call("dequantise", *constants, axis=1, block=block)
    else:
        centred = codes.astype(np.float32) - zeros[:, order].astype(np.float32)
        weights = Constant((centred * scales[:, order].astype(np.float32)).astype(scales.dtype), span=node.span)
    rows = node.reshape(x, (math.prod(x.shape[:-1]), depth))
    if weights.dtype != x.dtype:
        weights = node.cast(weights, x.dtype)
    result: Expr = node.call("nn.dense", rows, weights)
    if node.has(5):
        result = node.call("nn.add", result, node.input(5))
    return node.reshape(result, (*x.shape[:-1], outputs))


@converter("GatherBlockQuantized")
def _gather_block_quantized(node: Node) -> Converted:
    """Rows of a table of small integers, with a scale for each block along one axis.

    What is taken stays in integers, behind a dequantise of its own blocks, so that the table is nowhere in floats.
    uint8 holds packed numbers of ``bits``, from a byte's lowest bits on.
    """
    table, indices = node.input(0), node.input(1)
    rank = len(table.shape)
    block = node.integer("block_size", 128)
    along, taken = node.axis(rank, 1, "quantize_axis"), node.axis(rank, 0, "gather_axis")
    codes = node.constant(0, "the table")
    zeros = node.constant(3, "the zero points") if node.has(3) else None
    middle = 0
    if table.dtype == "uint8":
        bits = _width(node)
        middle = 1 << bits - 1
        codes = _unpacked(codes, bits, codes.shape[-1] * 8 // bits)
    scales = node.constant(2, "the scales")
    wanted = tuple(math.ceil(size / block) if axis == along else size for axis, size in enumerate(codes.shape))
    if block < 1 or scales.shape != wanted:
        raise node.error(f"scales are {list(scales.shape)}, but blocks of {block} along axis {along} have {wanted}")
    if zeros is None:
        zeros = np.full(wanted, middle).astype(codes.dtype)
    elif table.dtype == "uint8":
        zeros = _unpacked(zeros, _width(node), wanted[-1])
    parts = [Constant(each, span=node.span) for each in (codes, scales, zeros)]
    if taken == along:
        return node.call("gather", node.call("dequantise", *parts, axis=along, block=block), indices, axis=taken)
    rows = [node.call("gather", each, indices, axis=taken) for each in parts]
    moved = along + (len(indices.shape) - 1 if along > taken else 0)
    return node.call("dequantise", *rows, axis=moved, block=block)


def _unpacked(packed: Array, bits: int, count: int) -> Array:
    """The first ``count`` numbers of each last axis of bytes."""
    return numbers_of(packed.reshape(-1, packed.shape[-1]), bits, count).reshape(*packed.shape[:-1], count)


def _width(node: Node) -> int:
    bits = node.integer("bits", 4)
    if bits not in WIDTHS:
        raise node.error(f"weights of {bits} bits are not read", f"those of {', '.join(map(str, WIDTHS))} bits are")
    return bits


def _size(node: Node, name: str) -> int:
    value = node.integer(name, 0)
    if value < 1:
        raise node.error(f"attribute {name!r} must be 1 or more, not {value}")
    return value


def _bytes(node: Node, index: int, what: str, count: int) -> Array:
    """A constant operand of so many bytes."""
    value = node.constant(index, what)
    if value.dtype != np.uint8 or value.size != count:
        raise node.error(f"{what} are {value.dtype}{list(value.shape)}, but must be {count} bytes of uint8")
    return value


def numbers_of(rows: Array, bits: int, count: int) -> Array:
    """The first ``count`` numbers of each row of bytes, as uint8."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    each = rows[:, :, None] >> shifts & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(each.reshape(len(rows), -1)[:, :count])


def _zero_points(node: Node, bits: int, outputs: int, blocks: int) -> Array:
    """Of each block, uint8 ``(outputs, blocks)``; the middle of the range where they are left out."""
    if not node.has(3):
        return np.full((outputs, blocks), 1 << bits - 1, np.uint8)
    value = node.constant(3, "the zero points")
    if value.dtype != np.uint8:  # not packed, and of the scales' type
        whole = value.astype(np.float32)
        if value.size != outputs * blocks or (whole != np.clip(np.rint(whole), 0, (1 << bits) - 1)).any():
            raise node.error("zero points that are no whole numbers of the weights' range are not read",
                             "quantise with packed zero points")  # fmt: skip
        return whole.astype(np.uint8).reshape(outputs, blocks)
    packed = _bytes(node, 3, "the zero points", outputs * math.ceil(blocks * bits / 8))
    return numbers_of(packed.reshape(outputs, -1), bits, blocks)


def _order(node: Node, depth: int, block: int, blocks: int) -> Array | None:
    """The block of each input channel, where channels are not in the order of the blocks."""
    if not node.has(4):
        return None
    order = node.constant(4, "g_idx").reshape(-1)
    if order.size != depth or (order.size and not 0 <= order.min() <= order.max() < blocks):
        raise node.error(f"g_idx must have a block below {blocks} for each of {depth} input channels")
    return None if (order == np.arange(depth) // block).all() else order
