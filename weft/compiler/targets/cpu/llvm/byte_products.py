"""How processors multiply bytes by fours into int32, exactly: one form for each kind of instruction that does it.

A step is ``acc[l] += sum of a[q] * w[l, q]`` over four bytes q, uint8 times int8, in the lanes l of a register. What
depends on the weights alone is written for each step, too: LLVM computes it once for all rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import llvmlite.ir as ll

from ...llvm.llvm_types import I8, I16, I32, Value, constant, declared, lanes_of, splat
from ...loops.layouts import PAIR, QUAD
from ..processor import Processor

Step = Callable[[ll.IRBuilder, Value, Value, Value], Value]
"""Sums, four bytes of data in one int32 for all lanes or one for each, and weights; to new sums."""

WORD_PRODUCTS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
"""By lanes of int32: what multiplies words and adds the products by twos, in SSE2, AVX2 and AVX-512BW."""

BYTE_PRODUCTS = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128", 8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512",
}  # fmt: skip
"""The same of unsigned by signed bytes, into words, which saturate."""


LONG_PRODUCTS = {"aarch64": "llvm.aarch64.neon.smull.v4i32", "arm": "llvm.arm.neon.vmulls.v4i32"}
"""What multiplies words of `LONG_LANES` lanes into int32 in NEON."""

LONG_LANES = 4


@dataclass(frozen=True)
class ByteForm:
    """``lanes``: of int32, for which there are instructions. ``operations``: for each row and register of weights;
    ``shared``: what those add that the rows of a tile share, or its columns, as measured. ``prepares_weights``: the
    weights of a step lie in more registers than they came in. ``paired``: it is exact only for weights of which
    `bears_pairs`. ``words``: bytes are words by then, and better widened before, for this step of
    theirs."""

    name: str
    lanes: tuple[int, ...]
    operations: int
    step: Step
    shared: float = 0.0
    prepares_weights: bool = False
    paired: bool = False
    words: Literal["", "words", "elements"] = ""

    @property
    def cost(self) -> float:
        """Operations for each row and register of weights, with its part of the shared ones."""
        return self.operations + self.shared


def byte_form(target: Processor, lanes: int, *, paired: bool = False) -> ByteForm:
    """The fastest form that a processor has for a register of so many lanes. ``paired``: of weights of which
    `bears_pairs`."""
    return next(form for form in byte_forms(target) if lanes in form.lanes and (paired or not form.paired))


def byte_forms(target: Processor) -> tuple[ByteForm, ...]:
    """The forms of a processor, the fastest one first; the last takes any lanes."""
    found = []
    features = {word[1:] for word in target.features.split(",") if word.startswith("+")}
    if target.triple.startswith("x86_64"):
        widths = tuple(lanes for lanes in WORD_PRODUCTS if 4 * lanes <= target.vector_bytes)
        if target.dot_product:
            found.append(ByteForm("vpdpbusd", widths, 1, _vnni))
        if {"ssse3", "avx512bw"} & features:
            found.append(ByteForm("pmaddubsw", widths, 3, _by_pairs, paired=True))
        found.append(ByteForm("pmaddwd", widths, 4, _by_words, words="words"))
    elif target.triple.startswith("aarch64"):
        if "i8mm" in features:
            found.append(ByteForm("usdot", (4,), 1, _usdot))
        if "dotprod" in features:
            found.append(ByteForm("sdot", (4,), 2, _sdot))
        found.append(ByteForm("smlal", (4,), 4, _by_long_products(LONG_PRODUCTS["aarch64"]), 1, True, words="elements"))
    elif target.triple.startswith("arm") and "neon" in features:
        found.append(ByteForm("vmlal", (4,), 4, _by_long_products(LONG_PRODUCTS["arm"]), 1, True, words="elements"))
    return (*found, ByteForm("mul", tuple(range(1, 65)), 8, _by_products))


def _vnni(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """AVX-512 VNNI, and AVX-VNNI, for which LLVM has the same names."""
    return _dot(f"llvm.x86.avx512.vpdpbusd.{acc.type.count * 32}", builder, acc, value, weight)


def _usdot(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    return _dot("llvm.aarch64.neon.usdot.v4i32.v16i8", builder, acc, value, weight)


def _sdot(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """Both factors are signed there: x * w = (x - 128) * w - (-128) * w, of which the second product is of the weights
    alone."""
    name, lanes = "llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type.count
    moved = builder.xor(
        splat(builder, value, lanes), constant(I32, -0x7F7F7F80, lanes)
    )  # 0x80808080: each byte less 128
    least = constant(I32, -0x7F7F7F80, lanes)
    of_weights = _dot(name, builder, constant(I32, 0, lanes), least, weight)
    return builder.sub(_dot(name, builder, acc, moved, weight), of_weights)


def _dot(name: str, builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    byte = ll.VectorType(I8, acc.type.count * QUAD)
    kind = ll.FunctionType(acc.type, [acc.type, byte, byte])
    data = builder.bitcast(splat(builder, value, acc.type.count), byte)
    return builder.call(declared(builder.module, name, kind), [acc, data, weight])


def _by_words(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """By words: bytes at even places and those at odd ones, each pair of products added up in int32. It is exact: a
    product of bytes has 16 bits."""
    lanes = acc.type.count
    words = ll.VectorType(I16, lanes * PAIR)
    eight = constant(I16, 8, lanes * PAIR)
    a, w = builder.bitcast(splat(builder, value, lanes), words), builder.bitcast(weight, words)
    name = WORD_PRODUCTS[lanes]
    function = declared(builder.module, name, ll.FunctionType(acc.type, [words, words]))
    even = builder.and_(a, constant(I16, 255, lanes * PAIR)), builder.ashr(builder.shl(w, eight), eight)
    odd = builder.lshr(a, eight), builder.ashr(w, eight)
    for pair in (even, odd):
        acc = builder.add(acc, builder.call(function, pair))
    return acc


def word_step(target: Processor, builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """``acc[l] += sum of a[q] * w[l, q]`` over two words q. ``value`` holds those of all lanes, or is an int32 that all
    share."""
    lanes = acc.type.count
    words = ll.VectorType(I16, lanes * PAIR)
    data = value if lanes_of(value) else builder.bitcast(splat(builder, value, lanes), words)
    if has_word_products(target, lanes):
        function = declared(builder.module, WORD_PRODUCTS[lanes], ll.FunctionType(acc.type, [words, words]))
        return in_order(builder, builder.add(acc, builder.call(function, [data, weight])))
    for part in range(PAIR):
        places = list(range(part, lanes * PAIR, PAIR))
        factors = (builder.sext(picked(builder, each, places), acc.type) for each in (data, weight))
        acc = builder.add(acc, builder.mul(*factors))
    return acc


def long_step(target: Processor, builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """``acc[l] += a[l] * w[l]`` of words."""
    name = next((each for arch, each in LONG_PRODUCTS.items() if target.triple.startswith(arch)), "")
    if not name or acc.type.count != LONG_LANES or "+neon" not in target.features.split(","):
        return builder.add(acc, builder.mul(*(builder.sext(each, acc.type) for each in (value, weight))))
    function = declared(builder.module, name, ll.FunctionType(acc.type, [weight.type, weight.type]))
    return builder.add(acc, builder.call(function, [weight, value]))


def has_word_products(target: Processor, lanes: int) -> bool:
    """Whether a processor has an instruction for registers of so many lanes that multiplies words by twos."""
    return target.triple.startswith("x86_64") and lanes in WORD_PRODUCTS and 4 * lanes <= target.vector_bytes


def _by_pairs(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """Two products of bytes and their sum in a word, which must not saturate; then two words and their sum."""
    lanes = acc.type.count
    words, bytes_ = ll.VectorType(I16, lanes * PAIR), ll.VectorType(I8, lanes * QUAD)
    data = builder.bitcast(splat(builder, value, lanes), bytes_)
    multiplied = declared(builder.module, BYTE_PRODUCTS[lanes], ll.FunctionType(words, [bytes_, bytes_]))
    added = declared(builder.module, WORD_PRODUCTS[lanes], ll.FunctionType(acc.type, [words, words]))
    pairs = builder.call(multiplied, [data, weight])
    return in_order(builder, builder.add(acc, builder.call(added, [pairs, constant(I16, 1, lanes * PAIR)])))


def in_order(builder: ll.IRBuilder, value: Value) -> Value:
    """A vector of x86 that LLVM must have before it goes on: it would add up products of several steps first, and put
    sums on the stack for them. No instruction is made for it."""
    kind = ll.FunctionType(value.type, [value.type])
    return builder.asm(kind, "", "=v,0", [value], side_effect=False)


def _by_long_products(name: str) -> Step:
    """NEON's products of words into int32, one byte of the four at a time: the weights for that byte are brought
    together; data for all lanes is an element that the instruction picks."""

    def step(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
        lanes = acc.type.count
        words = ll.VectorType(I16, lanes)
        function = declared(builder.module, name, ll.FunctionType(acc.type, [words, words]))
        factors = _by_byte(builder, weight, builder.ashr)
        if lanes_of(value):
            data = _by_byte(builder, value, builder.lshr)
        else:
            quad = builder.zext(builder.bitcast(value, ll.VectorType(I8, QUAD)), ll.VectorType(I16, QUAD))
            data = [picked(builder, quad, [part] * lanes) for part in range(QUAD)]
        for pair in zip(data, factors, strict=True):
            acc = builder.add(acc, builder.call(function, pair))
        return acc

    return step


def _by_byte(builder: ll.IRBuilder, quads: Value, shifted: Callable[[Value, Value], Value]) -> list[Value]:
    """Four vectors of words: byte 0 of each four, byte 1, 2 and 3, widened by a shift to the right."""
    bits = quads.type.count * (32 if quads.type.element == I32 else 8)
    eight = constant(I16, 8, bits // 16)
    words = builder.bitcast(quads, eight.type)
    even, odd = shifted(builder.shl(words, eight), eight), shifted(words, eight)
    return [picked(builder, each, list(range(part, bits // 16, PAIR))) for part in range(PAIR) for each in (even, odd)]


def _by_products(builder: ll.IRBuilder, acc: Value, value: Value, weight: Value) -> Value:
    """In plain vector arithmetic."""
    lanes = acc.type.count
    wide = ll.VectorType(I32, lanes)
    data = builder.bitcast(splat(builder, value, lanes), ll.VectorType(I8, lanes * QUAD))
    for part in range(QUAD):
        places = [lane * QUAD + part for lane in range(lanes)]
        factors = (builder.zext(picked(builder, data, places), wide),
                   builder.sext(picked(builder, weight, places), wide))  # fmt: skip
        acc = builder.add(acc, builder.mul(*factors))
    return acc


def picked(builder: ll.IRBuilder, value: Value, places: list[int]) -> Value:
    """The elements of a vector at these places."""
    return shuffled(builder, value, ll.Constant(value.type, ll.Undefined), places)


def shuffled(builder: ll.IRBuilder, first: Value, second: Value, places: list[int]) -> Value:
    """Elements of two vectors, which are counted through."""
    mask = ll.Constant(ll.VectorType(I32, len(places)), [ll.Constant(I32, place) for place in places])
    return builder.shuffle_vector(first, second, mask)
