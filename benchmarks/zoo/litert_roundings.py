"""Products whose integers show how the sums behind them are rounded, which random operands hardly ever do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.zoo.litert_cases import VALID, Case, Maker
from benchmarks.zoo.litert_models import Array, options


def roundings() -> Iterator[Case]:
    """Products of scales that are powers of two: results that are halves, or that are halves and the last bit of a sum
    of 26 bits, which float32 does not hold; and products with constants whose own factors are no numbers of float32."""
    for dtype, large, op in itertools.product(("int8", "uint8"), (False, True), ("FULLY_CONNECTED", "CONV_2D")):
        make = Maker(f"{op} {dtype} {'wide' if large else 'halves'}")
        zero = 128 if dtype == "uint8" else 0
        depth, results, rows = (4096, 36, 2) if large else (16, 24, 50)
        x, w = make.rng.integers(-128, 128, (rows, depth)), make.rng.integers(-2, 3, (results, depth))
        if large:
            x[...] = np.where(np.arange(depth) < depth - 1, 127, 1)
            for result in range(results):
                w[result] = _weights_of_sum((2 * (64 + result) + 1) * 2**18 + 1, depth)
        is_dense = op == "FULLY_CONNECTED"
        shapes = ((rows, depth), (results, depth), (rows, results)) if is_dense else (
            (1, rows, 1, depth), (results, 1, 1, depth), (1, rows, 1, results)
        )  # fmt: skip
        held = make.input(shapes[0], dtype, like={"scale": np.float32(0.5), "zero": zero})
        make.arrays[-1][...] = (x + zero).astype(dtype).reshape(shapes[0])
        data = (w + zero).astype(dtype).reshape(shapes[1])
        weights = make.net.tensor(shapes[1], dtype, np.float32(0.25), zero, data=data)
        bias = make.net.tensor((results,), "int32", np.float32(0.125), 0, data=np.zeros(results, np.int32))
        y = make.output(shapes[2], dtype, like={"scale": np.float32(2.0**16 if large else 1.0), "zero": zero})
        made = options("FullyConnectedOptions") if is_dense else options(
            "Conv2DOptions", padding=VALID, strideH=1, strideW=1
        )  # fmt: skip
        yield make.op(op, [held, weights, bias], [y], made, 5)
    for dtype, factors in itertools.product(("int8", "uint8"), ((1,), (8,), (1, 20, 20, 1), (1, 20, 20, 8))):
        make = Maker(f"MUL {dtype} halves by a constant {list(factors)}")
        zero, shape = 128 if dtype == "uint8" else 0, (2, 20, 20, 8)
        scales = np.array([0.3, 1 / 3], np.float32)
        x = make.input(shape, dtype, like={"scale": scales[0], "zero": zero})
        numbers = (make.rng.integers(-120, 120, factors) + zero).astype(dtype)
        factor = make.net.tensor(factors, dtype, scales[1], zero + 3, data=numbers)
        y = make.output(shape, dtype, like={"scale": scales[0] * scales[1] * np.float32(32), "zero": zero})
        yield make.op("MUL", [x, factor], [y], options("MulOptions"), 2)


def _weights_of_sum(total: int, depth: int) -> Array:
    """Weights of 7 bits by which inputs of 127, the last one of 1, come to a sum."""
    weights = np.zeros(depth, np.int64)
    whole, rest = divmod(total, 127 * 127)
    weights[:whole], weights[whole], weights[-1] = 127, rest // 127, rest % 127
    return weights
