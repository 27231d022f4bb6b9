"""Small programs with halos, reductions, chains and several readers, for tests that schedule at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compiler import tensor as t


def padded_conv() -> t.Schedule:
    """Two stages with a halo and a select, then an elementwise one."""
    x = t.placeholder((5, 7), "int8", "x")
    w = t.placeholder((3, 3, 2), "int8", "w")
    pad = t.compute(
        (7, 9),
        lambda y, c: t.select((y >= 1) & (y < 6) & (c >= 1) & (c < 8), x[y - 1, c - 1], -7),
        "pad",
    )
    kh, kw = t.reduce_axis(3, "kh"), t.reduce_axis(3, "kw")
    acc = t.compute(
        (2, 5, 7),
        lambda o, y, c: t.sum(pad[y + kh, c + kw].astype("int32") * w[kh, kw, o].astype("int32"), [kh, kw]),
        "acc",
    )
    out = t.compute((2, 5, 7), lambda o, y, c: t.clamp(acc[o, y, c] >> 4, -100, 100).astype("int8"), "out")
    return t.create_schedule(out)


def matmul_chain() -> t.Schedule:
    """A product, a bias, a residual which is read twice; two outputs."""
    a, b = t.placeholder((6, 8), "int8", "a"), t.placeholder((8, 5), "int8", "b")
    bias = t.placeholder((5,), "int32", "bias")
    k = t.reduce_axis(8, "k")
    product = t.compute((6, 5), lambda i, j: t.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), k), "product")
    biased = t.compute((6, 5), lambda i, j: product[i, j] + bias[j], "biased")
    positive = t.compute((6, 5), lambda i, j: t.maximum(biased[i, j], 0), "positive")
    rest = t.compute((6, 5), lambda i, j: biased[i, j] - positive[i, j] * 3, "rest")
    return t.create_schedule([positive, rest])


def strided_pools() -> t.Schedule:
    """Maximum over strided windows, twice, and a transposition."""
    x = t.placeholder((2, 13, 9), "int32", "x")
    kh, kw = t.reduce_axis(3, "kh"), t.reduce_axis(2, "kw")
    first = t.compute((2, 6, 8), lambda c, y, z: t.max(x[c, y * 2 + kh, z + kw], [kh, kw]), "first")
    second = t.compute((2, 4, 4), lambda c, y, z: t.min(first[c, y + kh, z * 2 + kw], [kh, kw]), "second")
    turned = t.compute((4, 2, 4), lambda z, c, y: second[c, y, z] + 1, "turned")
    return t.create_schedule(turned)


def wrapping() -> t.Schedule:
    """Divided and reversed indices; arithmetic that wraps."""
    x = t.placeholder((12,), "int8", "x")
    grouped = t.compute((4, 3), lambda i, j: x[i * 3 + j] * 5, "grouped")
    k = t.reduce_axis(3, "k")
    total = t.compute((4,), lambda i: t.sum(grouped[3 - i, k], k), "total")
    spread = t.compute((12,), lambda i: total[i // 3] + grouped[i // 3, i % 3], "spread")
    return t.create_schedule(spread)


PROGRAMS: dict[str, Callable[[], t.Schedule]] = {
    "padded_conv": padded_conv,
    "matmul_chain": matmul_chain,
    "strided_pools": strided_pools,
    "wrapping": wrapping,
}


def outputs(results: dict[str, Any], schedule: t.Schedule) -> dict[str, Any]:
    """The parameters that the first program of ``schedule`` writes."""
    written = {buffer.name for buffer in schedule.func.params if buffer.name in schedule.blocks()}
    return {name: array for name, array in results.items() if name in written}
