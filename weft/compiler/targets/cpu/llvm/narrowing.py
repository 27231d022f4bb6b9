"""Integers that are limited to what eight bits hold, as bytes: registers are packed by instructions that saturate."""

from __future__ import annotations

import llvmlite.ir as ll

from ...llvm.llvm_types import I8, I16, Value, constant, declared, intrinsic, lanes_of
from ..processor import Processor
from .byte_products import picked, shuffled

WORD_RANGE = -(1 << 15), (1 << 15) - 1
UNSIGNED_BYTES, SIGNED_BYTES = (0, 255), (-128, 127)

NEON_LANES = 8
"""Words in a register of 32-bit NEON."""


def limited_bytes(target: Processor, builder: ll.IRBuilder, value: Value, low: int, high: int) -> Value:
    """Lanes of int32, limited to ``low .. high``, which are within one of the ranges of bytes, as bytes.

    They become words first, which saturates. AVX-512 has an instruction from int32 to bytes.
    """
    lanes = lanes_of(value)
    if target.triple.startswith("arm") and "+neon" in target.features.split(",") and lanes % NEON_LANES == 0:
        return _by_neon(builder, value, low, high)
    if target.vector_bytes < 64:
        value = builder.trunc(_limited(builder, value, *WORD_RANGE), ll.VectorType(I16, lanes))
    return builder.trunc(_limited(builder, value, low, high), ll.VectorType(I8, lanes))


def _limited(builder: ll.IRBuilder, value: Value, low: int, high: int) -> Value:
    for name, limit in (("llvm.smax", low), ("llvm.smin", high)):
        value = intrinsic(builder, name, value.type, [value, constant(value.type.element, limit, lanes_of(value))])
    return value


def _by_neon(builder: ll.IRBuilder, value: Value, low: int, high: int) -> Value:
    """LLVM does not find these instructions in what 32-bit ARM limits."""
    half_words, bytes_ = ll.VectorType(I16, NEON_LANES // 2), ll.VectorType(I8, NEON_LANES)
    narrowed = {UNSIGNED_BYTES: "vqmovnsu", SIGNED_BYTES: "vqmovns"}.get((low, high))
    parts = []
    for first in range(0, lanes_of(value), NEON_LANES):
        halves = []
        for start in (first, first + NEON_LANES // 2):
            half = picked(builder, value, list(range(start, start + NEON_LANES // 2)))
            halves.append(_called(builder, "llvm.arm.neon.vqmovns.v4i16", half_words, half))
        each = _joined(builder, *halves)
        if narrowed:
            parts.append(_called(builder, f"llvm.arm.neon.{narrowed}.v8i8", bytes_, each))
        else:
            parts.append(builder.trunc(_limited(builder, each, low, high), bytes_))
    while len(parts) > 1:  # there are a power of two, as in every register of lanes
        parts = [_joined(builder, parts[at], parts[at + 1]) for at in range(0, len(parts), 2)]
    return parts[0]


def _joined(builder: ll.IRBuilder, first: Value, second: Value) -> Value:
    return shuffled(builder, first, second, list(range(2 * lanes_of(first))))


def _called(builder: ll.IRBuilder, name: str, kind: ll.Type, value: Value) -> Value:
    return builder.call(declared(builder.module, name, ll.FunctionType(kind, [value.type])), [value])
