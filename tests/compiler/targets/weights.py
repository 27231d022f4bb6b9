"""Quantised weights of products, drawn at random, for the targets that keep them packed."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, call
from weft.compiler.graph.dtypes import limits, numpy_dtype

SCALES = st.sampled_from(["one", "by column", "in blocks"])
DTYPES = st.sampled_from(["int8", "uint8", "int4", "uint4", "int2", "uint2"])


def weights(
    op: str, dtype: str, scales: str, depth: int, columns: int, block: int, random: np.random.Generator
) -> Expr:
    """(columns, depth) for ``nn.dense``, else (depth, columns)."""
    axis, shape = (1, (columns, depth)) if op == "nn.dense" else (0, (depth, columns))
    low, high = limits(dtype)
    codes = random.integers(int(low), int(high) + 1, shape).astype(numpy_dtype(dtype))
    if scales == "in blocks":
        size = tuple(n // block if at == axis else n for at, n in enumerate(shape))
        attrs = {"axis": axis, "block": block}
    else:
        size, attrs = (() if scales == "one" else (columns,)), {"axis": 1 - axis}
    scale = (random.random(size) + 0.5).astype(np.float32)
    zero = random.integers(int(low), int(high) + 1, size).astype(numpy_dtype(dtype))
    return call("dequantise", Constant(codes), Constant(np.asarray(scale)), Constant(np.asarray(zero)), **attrs)
