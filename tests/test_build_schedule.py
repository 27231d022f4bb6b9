"""``weft.build``: a function scheduled by hand runs everywhere with the same numbers; what does not fit is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.build_schedule import CoreFunction
from weft.compiler import tensor as t
from weft.compiler.targets.accel.operators.intrinsics import intrinsics
from weft.compiler.targets.errors import CompileError
from weft.hw.config import PYNQ, TINY
from weft.runtime.device import FsimDevice
from weft.runtime.errors import InputError

Array = np.ndarray[Any, Any]


def matmul(rows: int, inner: int, columns: int, dtype: Any = "int32") -> t.Schedule:
    a, b = t.placeholder((rows, inner), dtype, "a"), t.placeholder((inner, columns), dtype, "b")
    k = t.reduce_axis(inner, "k")
    return t.create_schedule(t.compute((rows, columns), lambda i, j: t.sum(a[i, k] * b[k, j], k), "c"), name="matmul")


def matmul_data(rows: int, inner: int, columns: int) -> dict[str, Array]:
    random = np.random.default_rng(rows * 100 + inner * 10 + columns)
    return {
        "a": random.integers(-99, 99, (rows, inner), np.int32),
        "b": random.integers(-99, 99, (inner, columns), np.int32),
    }


def dense(rows: int = 16, threads: int = 1) -> t.Schedule:
    """``y = (x @ w.T) >> 6`` for 8 inputs and 8 outputs, tensorized for ``tiny``."""
    x, w = t.placeholder((rows, 2, 1, 1, 4), "int8", "x"), t.placeholder((2, 2, 4, 4), "int8", "w")
    kb, kr, ks = t.reduce_axis(2, "kb"), t.reduce_axis(1, "kr"), t.reduce_axis(4, "ks")

    def product(y: Any, c: Any, r: Any, n: Any, o: Any) -> Any:
        terms = x[y, kb, kr, n, ks].astype("int32") * w[c, kb, r * 4 + o, kr * 4 + ks].astype("int32")
        return t.sum(terms, [kb, kr, ks])

    acc = t.compute((rows, 2, 1, 1, 4), product, "acc")
    out = t.compute((rows, 2, 1, 1, 4), lambda y, c, r, n, o: (acc[y, c, r, n, o] >> 6).astype("int8"), "y")
    schedule = t.create_schedule(out, [x, w], "dense")
    schedule.set_scope("acc", "acc")
    store = schedule.cache_write("y", "out")
    if threads > 1:
        _, thread, _ = schedule.split(schedule.get_loops(store)[0], factors=[None, threads, 2])
        schedule.compute_at("y", thread)
        schedule.compute_at("acc", thread)
    loads = {schedule.cache_read("acc", "x", "inp"): "load_inp", schedule.cache_read("acc", "w", "wgt"): "loadw_wgt"}
    if threads > 1:
        schedule.compute_at(next(iter(loads)), thread)
        schedule.vthread(thread)
    *_, y, c, r, n, o, kb_loop, kr_loop, ks_loop = schedule.get_loops("acc")
    schedule.reorder(y, c, kb_loop, r, n, o, kr_loop, ks_loop)
    operations = intrinsics(TINY)
    for stage, name in {"acc": "gemm", "y": "shift_right_to_out", store: "store_out", **loads}.items():
        schedule.tensorize(schedule.get_loops(stage)[-len(operations[name].loops)], operations[name])
    return schedule


def dense_data(rows: int = 16) -> tuple[dict[str, Array], Array]:
    """Arrays for ``dense``, and its result by NumPy."""
    random = np.random.default_rng(rows)
    x, w = (random.integers(-128, 128, (size, 8)).astype(np.int8) for size in (rows, 8))
    packed = {"x": x.reshape(rows, 2, 1, 1, 4), "w": w.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3)}
    return packed, ((x.astype(np.int32) @ w.T.astype(np.int32)) >> 6).astype(np.int8).reshape(rows, 2, 1, 1, 4)


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_the_processor_and_the_interpreter_agree_with_numpy(
    rows: int, inner: int, columns: int, threads: int, scheduled: bool
) -> None:
    schedule = matmul(rows, inner, columns)
    if scheduled:
        schedule.reorder("i", "k", "j")
        schedule.parallel("i")
        schedule.vectorize("j")
    arrays = matmul_data(rows, inner, columns)
    expected = arrays["a"] @ arrays["b"]
    for built in (weft.build(schedule, "interpreter"), weft.build(schedule, "cpu", threads=threads)):
        for _ in range(2):
            results = built.run(arrays)
            assert list(results) == ["c"]
            np.testing.assert_array_equal(results["c"], expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["interpreter", "fsim", "rtl"])
def test_a_core_gives_the_integers_of_numpy(target: str, threads: int) -> None:
    arrays, expected = dense_data()
    built = weft.build(dense(threads=threads), target, config=None if target == "interpreter" else TINY)
    for _ in range(2):
        np.testing.assert_array_equal(built.run(arrays)["y"], expected)


def test_a_core_reports_instructions_and_cycles() -> None:
    built = weft.build(dense(), FsimDevice(TINY))
    assert isinstance(built, CoreFunction)
    assert built.cycles is None
    built.run(dense_data()[0])
    assert built.cycles is not None
    assert built.cycles > 16 * 2 * 2
    assert [item.opcode.name for item in built.instructions][-2:] == ["STORE", "FINISH"]


def test_virtual_threads_are_faster() -> None:
    """Loads of one tile hide behind the work of the other."""
    cycles = []
    for threads in (1, 2):
        built = weft.build(dense(64, threads), "fsim", config="tiny")
        built.run(dense_data(64)[0])
        assert isinstance(built, CoreFunction)
        cycles.append(built.cycles)
    one, two = cycles
    assert one is not None
    assert two is not None
    assert two < 0.85 * one


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_what_is_written_starts_as_it_is_given_or_as_zeros(target: str) -> None:
    func = t.parse(
        'def add(\n    x: int32[3] @ "global",\n    total: int32[3] @ "global",\n):\n'
        '    for i in range(3):\n        with block("total", "spatial"):\n            total[i] = total[i] + x[i]\n'
    )
    assert isinstance(func, t.PrimFunc)
    built = weft.build(func, target)
    x, total = np.arange(3, dtype=np.int32), np.full(3, 10, np.int32)
    assert built.run({"x": x})["total"].tolist() == [0, 1, 2]
    assert built.run({"x": x, "total": total})["total"].tolist() == [10, 11, 12]
    assert total.tolist() == [10, 10, 10]


def test_arrays_need_not_be_contiguous() -> None:
    arrays = matmul_data(4, 5, 6)
    views = {name: np.asfortranarray(array) for name, array in arrays.items()}
    np.testing.assert_array_equal(weft.build(matmul(4, 5, 6)).run(views)["c"], arrays["a"] @ arrays["b"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": np.zeros((4, 4), np.int32)}, r"buffer 'a' of 'matmul' must be int32\[4, 5\], not int32\[4, 4\]"),
        ({"b": np.zeros((5, 6))}, r"buffer 'b' of 'matmul' must be int32\[5, 6\], not float64\[5, 6\]"),
        ({"c": np.zeros(6, np.int32)}, r"buffer 'c' of 'matmul' must be int32\[4, 6\], not int32\[6\]"),
        ({"d": np.zeros(6)}, "'matmul' has no buffer 'd'; hint: its buffers: a, b, c"),
        ({"a": None}, r"buffer 'a' of 'matmul' has no array; hint: give int32\[4, 5\]"),
    ],
)
@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_an_array_that_does_not_fit_is_refused_by_its_buffers_name(
    change: dict[str, Any], message: str, target: str
) -> None:
    arrays = {name: array for name, array in (matmul_data(4, 5, 6) | change).items() if array is not None}
    with pytest.raises(InputError, match=message):
        weft.build(matmul(4, 5, 6), target).run(arrays)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("gpu", {}, "there is no target 'gpu'; hint: choose interpreter, cpu, null, fsim, rtl"),
        ("cpu", {"config": "tiny"}, "target 'cpu' takes no config; hint: leave it out"),
        (FsimDevice(PYNQ), {"config": "tiny"}, "target 'fsim' takes no config"),
        ("fsim", {"threads": 2}, "target 'fsim' takes no threads; hint: leave them out"),
        ("cpu", {"threads": 0}, "threads is 0, but must be at least 1"),
        ("fsim", {}, "function 'matmul': stage 'c' was not tensorized: the accelerator has no instruction for it"),
    ],
)
def test_a_target_that_cannot_do_it_says_why(target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.build(matmul(4, 5, 6), target, **options)


def test_a_core_names_a_buffer_of_a_type_that_it_lacks() -> None:
    with pytest.raises(CompileError, match="function 'matmul': buffer 'a' is float32, but a core has int8, uint8, i"):
        weft.build(matmul(4, 4, 4, "float32"), "fsim")


@pytest.mark.parametrize("target", ["cpu", "fsim"])
def test_machine_code_for_accesses_outside_of_a_buffer_is_refused(target: str) -> None:
    x = t.placeholder((4,), "int32", "x")
    schedule = t.create_schedule(t.compute((4,), lambda i: x[i + 1], "y"), name="shifted")
    with pytest.raises(t.IRError, match=r"block 'y': index 'i \+ 1' of 'x' may be 1\.\.4, but axis 0 has 4 elements"):
        weft.build(schedule, target)
    with pytest.raises(t.InterpreterError):
        weft.build(schedule, "interpreter").run({"x": np.zeros(4, np.int32)})
