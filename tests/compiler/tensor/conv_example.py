"""A packed quantised convolution and intrinsics for it: the program that most of these tests schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from weft.compiler.tensor import (
    Schedule,
    TensorIntrinsic,
    clamp,
    compute,
    create_schedule,
    placeholder,
    reduce_axis,
    scalar,
    select,
    tensor_intrinsic,
    tile,
)
from weft.compiler.tensor import sum as tensor_sum


@dataclass(frozen=True)
class Conv:
    """Sizes in blocks and elements; ``out_block`` = ``sub_blocks * lanes``, ``in_block`` likewise."""

    height: int = 5
    width: int = 6
    in_blocks: int = 2
    out_blocks: int = 3
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    lanes: int = 4
    zero_point: int = -3

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1


def conv_schedule(conv: Conv) -> Schedule:
    """Stages pad, acc, out over X (Ci, H, W, n, b), W (Co, Ci, kh, kw, o, i), params (Co, 3, n, b)."""
    lanes, padding, zero = conv.lanes, conv.padding, conv.zero_point
    x = placeholder((conv.in_blocks, conv.height, conv.width, 1, lanes), "int8", "X")
    w = placeholder((conv.out_blocks, conv.in_blocks, conv.kernel, conv.kernel, lanes, lanes), "int8", "W")
    params = placeholder((conv.out_blocks, 3, 1, lanes), "int32", "params")
    padded = (conv.in_blocks, conv.height + 2 * padding, conv.width + 2 * padding, 1, lanes)

    def pad_value(c: Any, y: Any, x_: Any, n: Any, i: Any) -> Any:
        inside = (y >= padding) & (y < conv.height + padding) & (x_ >= padding) & (x_ < conv.width + padding)
        return select(inside, x[c, y - padding, x_ - padding, n, i], zero)

    pad = compute(padded, pad_value, "pad")
    kc, kh, kw = reduce_axis(conv.in_blocks, "kc"), reduce_axis(conv.kernel, "kh"), reduce_axis(conv.kernel, "kw")
    k = reduce_axis(lanes, "k")
    acc = compute(
        (conv.out_blocks, conv.out_height, conv.out_width, 1, lanes),
        lambda co, y, x, n, o: tensor_sum(
            pad[kc, y * conv.stride + kh, x * conv.stride + kw, n, k].astype("int32")
            * w[co, kc, kh, kw, o, k].astype("int32"),
            [kc, kh, kw, k],
        ),
        "acc",
    )

    def requantise(co: Any, y: Any, x_: Any, n: Any, o: Any) -> Any:
        wide = acc[co, y, x_, n, o].astype("int64") + params[co, 0, n, o].astype("int64")
        shift = params[co, 2, n, o].astype("int64")
        rounded = (wide * params[co, 1, n, o].astype("int64") + (1 << (shift - 1))) >> shift
        return clamp(rounded + 5, -100, 100).astype("int8")

    out = compute((conv.out_blocks, conv.out_height, conv.out_width, 1, lanes), requantise, "out")
    return create_schedule(out, inputs=[x, w, params], name="conv")


def conv_data(conv: Conv, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Random arrays for the placeholders."""
    random = np.random.default_rng(seed)
    lanes = conv.lanes
    params = np.stack(
        [
            random.integers(-1000, 1000, (conv.out_blocks, 1, lanes)),
            random.integers(1 << 29, 1 << 30, (conv.out_blocks, 1, lanes)),
            random.integers(36, 40, (conv.out_blocks, 1, lanes)),
        ],
        axis=1,
    ).astype(np.int32)
    return {
        "X": random.integers(-128, 128, (conv.in_blocks, conv.height, conv.width, 1, lanes)).astype(np.int8),
        "W": random.integers(
            -128, 128, (conv.out_blocks, conv.in_blocks, conv.kernel, conv.kernel, lanes, lanes)
        ).astype(np.int8),
        "params": params,
    }


def conv_reference(conv: Conv, data: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The output in plain NumPy, without any of the code under test."""
    padding, size = conv.padding, conv.kernel
    x = np.pad(
        data["X"][:, :, :, 0, :].astype(np.int64),
        ((0, 0), (padding, padding), (padding, padding), (0, 0)),
        constant_values=conv.zero_point,
    )
    w = data["W"].astype(np.int64)
    out = np.zeros((conv.out_blocks, conv.out_height, conv.out_width, conv.lanes), np.int64)
    for y in range(conv.out_height):
        for column in range(conv.out_width):
            top, left = y * conv.stride, column * conv.stride
            window = x[:, top : top + size, left : left + size, :]
            out[:, y, column, :] = np.einsum("chwk,ochwbk->ob", window, w)
    bias, multiplier, shift = (data["params"][:, row, 0, :].astype(np.int64)[:, None, None, :] for row in range(3))
    scaled = ((out + bias) * multiplier + (1 << (shift - 1))) >> shift
    return np.clip(scaled + 5, -100, 100).astype(np.int8)[:, :, :, None, :]


def intrinsics(lanes: int = 4) -> dict[str, TensorIntrinsic]:
    """An accelerator with entries of 1 x lanes elements and weight entries of lanes x lanes."""
    gemm = tensor_intrinsic(
        "gemm",
        operands=[
            tile("acc", (1, lanes), "int32", "acc", "inout"),
            tile("inp", (1, lanes), "int8", "inp", "in"),
            tile("wgt", (lanes, lanes), "int8", "wgt", "in"),
        ],
        loops={"n": 1, "o": lanes, "k": lanes},
        meaning=lambda acc, inp, wgt, n, o, k: acc.store(
            (n, o), acc[n, o] + inp[n, k].astype("int32") * wgt[o, k].astype("int32")
        ),
        emits="GEMM",
    )

    def requantise_meaning(out: Any, acc: Any, par: Any, zero: Any, low: Any, high: Any, i: Any) -> Any:
        wide = acc[0, i].astype("int64") + par[0, 0, i].astype("int64")
        shift = par[2, 0, i].astype("int64")
        rounded = (wide * par[1, 0, i].astype("int64") + (1 << (shift - 1))) >> shift
        return out.store((0, i), clamp(rounded + zero, low, high).astype("int8"))

    requantise = tensor_intrinsic(
        "requantise",
        operands=[
            tile("out", (1, lanes), "int8", "out", "out"),
            tile("acc", (1, lanes), "int32", "acc", "in"),
            tile("par", (3, 1, lanes), "int32", "acc", "in", align=lanes),
        ],
        scalars=[scalar("zero", "int64", -128, 127), scalar("low", "int64"), scalar("high", "int64")],
        loops={"i": lanes},
        meaning=requantise_meaning,
    )
    load_padded = tensor_intrinsic(
        "load_padded",
        operands=[tile("dst", (1, lanes), "int8", "inp", "out"), tile("src", (1, lanes), "int8", "global", "in")],
        scalars=[scalar("inside", "bool"), scalar("fill", "int8")],
        loops={"i": lanes},
        meaning=lambda dst, src, inside, fill, i: dst.store((0, i), select(inside, src[0, i], fill)),
    )
    return {
        "gemm": gemm,
        "requantise": requantise,
        "load_padded": load_padded,
        "load_wgt": copy_intrinsic("load_wgt", lanes * lanes, "int8", "wgt", "global"),
        "load_par": copy_intrinsic("load_par", lanes, "int32", "acc", "global"),
        "store": copy_intrinsic("store", lanes, "int8", "global", "out"),
    }


def copy_intrinsic(name: str, size: int, dtype: Any, to: str, source: str) -> TensorIntrinsic:
    """Copy one entry of ``size`` elements."""
    return tensor_intrinsic(
        name,
        operands=[tile("dst", (size,), dtype, to, "out"), tile("src", (size,), dtype, source, "in")],
        loops={"i": size},
        meaning=lambda dst, src, i: dst.store((i,), src[i]),
    )


def accelerator_schedule(conv: Conv, tile_rows: int = 2, vthreads: bool = False) -> Schedule:
    """The whole convolution tensorized: rows in tiles, channels of the input one block at a time."""
    schedule = conv_schedule(conv)
    ops = intrinsics(conv.lanes)
    write = schedule.cache_write("out", "out")
    schedule.set_scope("acc", "acc")
    weights = schedule.cache_read("acc", "W", "wgt")
    params = schedule.cache_read("out", "params", "acc")
    schedule.set_scope("pad", "inp")

    co, y, x, n, o = schedule.get_loops(write)
    y_o, y_i = schedule.split(y, tile_rows)
    schedule.reorder(co, y_o, y_i, x, n, o)
    if vthreads:
        schedule.vthread(co)
    schedule.compute_at("out", y_o)
    schedule.compute_at("acc", y_o)
    schedule.compute_at(params, y_o)
    kc, kh, kw, k = schedule.get_loops("acc")[-4:]
    spatial = schedule.get_loops("acc")[2:-4]
    schedule.reorder(kc, *spatial[:3], kh, kw, *spatial[3:], k)
    schedule.compute_at("pad", kc)
    schedule.compute_at(weights, kc)
    schedule.tensorize(spatial[3], ops["gemm"])
    schedule.tensorize(schedule.get_loops("out")[-1], ops["requantise"])
    schedule.tensorize(schedule.get_loops("pad")[-1], ops["load_padded"])
    schedule.tensorize(schedule.get_loops(params)[-1], ops["load_par"])
    rows, columns = schedule.get_loops(weights)[-2:]
    schedule.tensorize(schedule.fuse(rows, columns), ops["load_wgt"])
    schedule.tensorize(o, ops["store"])
    return schedule
