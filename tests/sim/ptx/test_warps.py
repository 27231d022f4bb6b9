"""What lanes do together, against loops over lanes and matrices; layouts as the PTX manual draws them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from weft.sim.ptx import KernelFaultError

from .lines import run, run_kernel
from .test_memory import shared_kernel

LANES = np.arange(32)


@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("mode", ["bfly", "down", "up", "idx"])
def test_shuffles(mode: str, width: int) -> None:
    a = np.random.default_rng(0).integers(0, 1 << 32, 96).astype(np.uint32)
    by = 3
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    lines = f"shfl.sync.{mode}.b32 D0|%p1, A0, {by}, {clamp}, -1; selp.b32 D1, 1, 0, %p1;"
    found, inside = run(lines, [a], [np.uint32] * 2)
    for thread in range(96):
        warp, lane = thread // 32 * 32, thread % 32
        first = lane // width * width
        source = {"bfly": lane ^ by, "down": lane + by, "up": lane - by, "idx": first + by}[mode]
        valid = first <= source < first + width
        assert inside[thread] == valid
        assert found[thread] == a[warp + (source if valid else lane)]


def test_votes_and_reductions() -> None:
    a = np.random.default_rng(0).integers(-9, 9, 64).astype(np.int32)
    found = run(
        """setp.gt.s32 %p1, A0, 0; vote.sync.ballot.b32 D0, %p1, 0xffffffff; vote.sync.any.pred %p2, %p1, -1;
        selp.b32 D1, 1, 0, %p2; vote.sync.all.pred %p3, !%p1, -1; selp.b32 D2, 1, 0, %p3;
        redux.sync.add.s32 D3, A0, -1; redux.sync.min.s32 D4, A0, -1; activemask.b32 D5;""",
        [a], [np.uint32, np.uint32, np.uint32, np.int32, np.int32, np.uint32],
    )  # fmt: skip
    for warp in (slice(0, 32), slice(32, 64)):
        bits = sum(1 << lane for lane in range(32) if a[warp][lane] > 0)
        wanted = (bits, (a[warp] > 0).any(), not (a[warp] > 0).any(), a[warp].sum(), a[warp].min(), 0xFFFFFFFF)
        for result, value in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(result[warp], value)


def test_lanes_that_are_missing_are_noticed() -> None:
    a = np.zeros(32, np.uint32)
    with pytest.raises(KernelFaultError, match="not all lanes of a warp are here"):
        run("setp.lt.u32 %p1, %thread, 16; @%p1 shfl.sync.bfly.b32 D0, A0, 1, 31, -1;", [a], [np.uint32])
    with pytest.raises(KernelFaultError, match="a warp of fewer than 32"):
        run("shfl.sync.bfly.b32 D0, A0, 1, 31, -1;", [a[:20]], [np.uint32])


def words(matrix: np.ndarray, lane: int, number: int) -> int:
    """Register ``number`` of A in a lane, after the manual: rows g and g + 8, words t and t + 4."""
    rows = matrix.view(np.uint32)
    return int(rows[lane // 4 + number % 2 * 8 if len(matrix) == 16 else lane // 4,
                    lane % 4 + (number // 2 if len(matrix) == 16 else number) * 4])  # fmt: skip


MMA = [
    ("m16n8k32", "s8", np.int8, np.int32), ("m16n8k16", "s8", np.int8, np.int32), ("m8n8k16", "s8", np.int8, np.int32),
    ("m16n8k32", "u8", np.uint8, np.int32), ("m16n8k16", "f16", np.float16, np.float32),
    ("m16n8k8", "f16", np.float16, np.float32), ("m16n8k16", "f16", np.float16, np.float16),
    ("m16n8k16", "bf16", ml_dtypes.bfloat16, np.float32), ("m16n8k8", "tf32", np.float32, np.float32),
    ("m16n8k4", "tf32", np.float32, np.float32),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kind", "dtype", "result"), MMA)
def test_matrix_products(shape: str, kind: str, dtype: type, result: type) -> None:
    generator = np.random.default_rng(0)
    rows, depth = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    pick = (lambda *size: generator.integers(-128 if dtype == np.int8 else 0, 128, size)) if result == np.int32 else (
        lambda *size: generator.integers(-8, 8, size) / 4
    )  # fmt: skip
    a, b = pick(rows, depth).astype(dtype), pick(8, depth).astype(dtype)
    c = pick(rows, 8).astype(result)
    count = depth * a.dtype.itemsize // 16
    halves = rows // 8
    left = [np.array([words(a, lane, n) for lane in LANES], np.uint32) for n in range(halves * count)]
    right = [b.view(np.uint32)[LANES // 4, LANES % 4 + 4 * n].copy() for n in range(count)]
    each = 1 if result == np.float16 else 2
    addend = [
        np.ascontiguousarray(c.reshape(rows, 4, 2)[LANES // 4 + 8 * half, LANES % 4]).view(np.uint32)[:, n].copy()
        for half in range(halves) for n in range(each)
    ]  # fmt: skip
    names = iter(f"A{number}" for number in range(99))
    groups = [", ".join(next(names) for _ in part) for part in (left, right, addend)]
    out = ", ".join(f"D{number}" for number in range(len(addend)))
    kinds = f"{'s32' if result == np.int32 else 'f16' if result == np.float16 else 'f32'}.{kind}.{kind}"
    operands = ", ".join(f"{{{each}}}" for each in (out, *groups))
    line = f"mma.sync.aligned.{shape}.row.col.{kinds}.{kinds.split('.')[0]} {operands};"
    found = np.stack(run(line, [*left, *right, *addend], [np.uint32] * len(addend)), 1)
    wanted = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
    for lane in LANES:
        pairs = np.ascontiguousarray(found[lane]).view(result).reshape(halves, 2)
        for half in range(halves):
            at = wanted[lane // 4 + 8 * half, lane % 4 * 2 : lane % 4 * 2 + 2]
            np.testing.assert_array_equal(pairs[half].astype(np.float64), at)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_matrices_from_shared_memory(number: int, turned: bool) -> None:
    data = np.arange(number * 64, dtype=np.uint16)
    registers = [f"%r{20 + n}" for n in range(number)]
    stores = "".join(f"st.global.u32 [%rd7+{128 * n}], {register};" for n, register in enumerate(registers))
    body = f"""
        mul.lo.u32 %r4, %thread, {4 * number}; cvt.u64.u32 %rd8, %r4; add.s64 %rd9, %rd0, %rd8; add.u32 %r5, %r1, %r4;
        {"".join(f"ld.global.u32 %r6, [%rd9+{4 * n}]; st.shared.u32 [%r5+{4 * n}], %r6;" for n in range(number))}
        bar.sync 0;
        and.b32 %r7, %thread, {8 * number - 1}; shl.b32 %r8, %r7, 4; add.u32 %r9, %r1, %r8;
        ldmatrix.sync.aligned.m8n8.x{number}{".trans" if turned else ""}.shared.b16 {{{", ".join(registers)}}}, [%r9];
        bar.sync 0; add.s64 %rd7, %rd0, %rd5; {stores}"""
    (found,), counts = run_kernel(shared_kernel(body), [data])
    matrices = data.reshape(number, 8, 8)
    wanted = np.ascontiguousarray(matrices.transpose(0, 2, 1) if turned else matrices)
    np.testing.assert_array_equal(found, wanted.reshape(-1))
    assert counts.wavefronts[next(text for text in counts.wavefronts if "ldmatrix" in text)].needed == number
