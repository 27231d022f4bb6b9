"""A convolution whose DRAM blocks, GEMM blocks and sub-blocks differ in size, tiled in every way, on two threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler import tensor as t

SUB = 2  # lanes of a sub-block
IN, OUT, DRAM = 4, 6, 8  # channels of an input entry, of an output entry, of a block in memory
BATCH = 2
HEIGHT, WIDTH, KERNEL, STRIDE, PADDING, DILATION = 7, 9, 3, 2, 2, 2
IN_BLOCKS, OUT_BLOCKS = 3, 3  # counted in entries
OUT_HEIGHT = (HEIGHT + 2 * PADDING - DILATION * (KERNEL - 1) - 1) // STRIDE + 1
OUT_WIDTH = (WIDTH + 2 * PADDING - DILATION * (KERNEL - 1) - 1) // STRIDE + 1


def blocked_conv() -> t.Schedule:
    """Stages pad and acc over X (No, Cd, H, W, r, n, s) and W (Ko, Kc, KH, KW, bo, bi)."""
    fold = DRAM // IN
    x = t.placeholder((1, -(-IN_BLOCKS // fold), HEIGHT, WIDTH, DRAM // SUB, BATCH, SUB), "int8", "X")
    w = t.placeholder((OUT_BLOCKS, IN_BLOCKS, KERNEL, KERNEL, OUT, IN), "int8", "W")
    entry = (IN // SUB, BATCH, SUB)

    def padded(no: Any, c: Any, y: Any, z: Any, r: Any, n: Any, s: Any) -> Any:
        inside = (y >= PADDING) & (y < PADDING + HEIGHT) & (z >= PADDING) & (z < PADDING + WIDTH)
        return t.select(inside, x[no, c // fold, y - PADDING, z - PADDING, (c % fold) * (IN // SUB) + r, n, s], 11)

    pad = t.compute((1, IN_BLOCKS, HEIGHT + 2 * PADDING, WIDTH + 2 * PADDING, *entry), padded, "pad")
    kc, kh, kw = t.reduce_axis(IN_BLOCKS, "kc"), t.reduce_axis(KERNEL, "kh"), t.reduce_axis(KERNEL, "kw")
    rk, sk = t.reduce_axis(IN // SUB, "rk"), t.reduce_axis(SUB, "sk")

    def product(no: Any, ko: Any, y: Any, z: Any, ro: Any, n: Any, so: Any) -> Any:
        data = pad[no, kc, y * STRIDE + kh * DILATION, z * STRIDE + kw * DILATION, rk, n, sk]
        weight = w[ko, kc, kh, kw, ro * SUB + so, rk * SUB + sk]
        return t.sum(data.astype("int32") * weight.astype("int32"), [kc, kh, kw, rk, sk])

    shape = (1, OUT_BLOCKS, OUT_HEIGHT, OUT_WIDTH, OUT // SUB, BATCH, SUB)
    return t.create_schedule(t.compute(shape, product, "acc"), inputs=[x, w], name="blocked")


def gemm() -> t.TensorIntrinsic:
    """One entry of the accumulator += one entry of the input times one of the weights, in sub-blocks."""
    return t.tensor_intrinsic(
        "gemm",
        operands=[
            t.tile("acc", (OUT // SUB, BATCH, SUB), "int32", "acc", "inout"),
            t.tile("inp", (IN // SUB, BATCH, SUB), "int8", "inp", "in"),
            t.tile("wgt", (OUT, IN), "int8", "wgt", "in"),
        ],
        loops={"ro": OUT // SUB, "n": BATCH, "so": SUB, "rk": IN // SUB, "sk": SUB},
        meaning=lambda acc, inp, wgt, ro, n, so, rk, sk: acc.store(
            (ro, n, so),
            acc[ro, n, so] + inp[rk, n, sk].astype("int32") * wgt[ro * SUB + so, rk * SUB + sk].astype("int32"),
        ),
    )


def load() -> t.TensorIntrinsic:
    """One padded input entry."""
    return t.tensor_intrinsic(
        "load",
        operands=[
            t.tile("dst", (IN // SUB, BATCH, SUB), "int8", "inp", "out"),
            t.tile("src", (IN // SUB, BATCH, SUB), "int8", "global", "in", align=BATCH * SUB),
        ],
        scalars=[t.scalar("inside", "bool"), t.scalar("fill", "int8")],
        loops={"r": IN // SUB, "n": BATCH, "s": SUB},
        meaning=lambda dst, src, inside, fill, r, n, s: dst.store((r, n, s), t.select(inside, src[r, n, s], fill)),
    )


def reference(x: Any, w: Any) -> Any:
    """The same convolution on plain (N, C, H, W) arrays, unpacked and packed by NumPy."""
    plain = x[0].transpose(4, 0, 3, 5, 1, 2).reshape(BATCH, -1, HEIGHT, WIDTH)[:, : IN_BLOCKS * IN].astype(np.int64)
    weights = w.transpose(0, 4, 1, 5, 2, 3).reshape(OUT_BLOCKS * OUT, IN_BLOCKS * IN, KERNEL, KERNEL).astype(np.int64)
    edge = (PADDING, PADDING)
    plain = np.pad(plain, ((0, 0), (0, 0), edge, edge), constant_values=11)
    reach = DILATION * (KERNEL - 1) + 1
    result = np.zeros((BATCH, OUT_BLOCKS * OUT, OUT_HEIGHT, OUT_WIDTH), np.int64)
    for y in range(OUT_HEIGHT):
        for z in range(OUT_WIDTH):
            top, left = y * STRIDE, z * STRIDE
            window = plain[:, :, top : top + reach : DILATION, left : left + reach : DILATION]
            result[:, :, y, z] = np.einsum("nchw,ochw->no", window, weights)
    packed = result.reshape(BATCH, OUT_BLOCKS, OUT // SUB, SUB, OUT_HEIGHT, OUT_WIDTH).transpose(1, 4, 5, 2, 0, 3)
    return packed[None].astype(np.int32)


@pytest.mark.parametrize(
    ("channels", "rows", "columns", "depth"), [(1, 1, 9, 1), (2, 2, 2, 2), (3, 3, 4, 3), (2, 4, 3, 2)]
)
def test_any_tiling_on_two_threads_is_the_convolution(channels: int, rows: int, columns: int, depth: int) -> None:
    schedule = blocked_conv()
    random = np.random.default_rng(channels)
    data = {
        buffer.name: random.integers(-128, 128, buffer.shape).astype(np.int8) for buffer in schedule.func.params[:2]
    }
    expected = reference(data["X"], data["W"])
    np.testing.assert_array_equal(t.interpret(schedule.func, data)["acc"], expected)

    weights = schedule.cache_read("acc", "W", "wgt")
    write = schedule.cache_write("acc", "acc")
    schedule.set_scope("pad", "inp")
    no, ko, y, z, *_ = schedule.get_loops(write)
    ko_o, ko_v, ko_i = schedule.split(ko, factors=[None, 2, channels])
    y_o, y_i = schedule.split(y, rows)
    z_o, z_i = schedule.split(z, columns)
    schedule.reorder(no, y_o, z_o, ko_o, ko_v, ko_i, y_i, z_i)
    schedule.vthread(ko_v)
    schedule.compute_at("acc", ko_v)
    loops = schedule.get_loops("acc")[5:]
    no, ko, y, z, ro, n, so, kc, kh, kw, rk, sk = loops
    kc_o, kc_i = schedule.split(kc, depth)
    schedule.reorder(no, kc_o, ko, y, z, kc_i, kh, kw, ro, n, so, rk, sk)
    schedule.compute_at("pad", kc_o)
    schedule.compute_at(weights, kc_o)
    schedule.tensorize(ro, gemm())
    schedule.tensorize(schedule.get_loops("pad")[-3], load())
    t.verify(schedule.func)
    np.testing.assert_array_equal(t.interpret(schedule.func, data)["acc"], expected)
    assert t.parse(str(schedule), {"gemm": gemm(), "load": load()}) == schedule.func
