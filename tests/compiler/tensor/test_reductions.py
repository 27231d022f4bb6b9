"""rfactor and tile: the program after them, and their refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler import tensor as t

from .programs import matmul_chain, padded_conv, strided_pools


def total(extent: int = 12, op: Callable[..., t.Reduction] = t.sum, dtype: t.DType = "int32") -> t.Schedule:
    """s[0] = sum over x"""
    x = t.placeholder((extent,), dtype, "x")
    k = t.reduce_axis(extent, "k")
    return t.create_schedule(t.compute((1,), lambda i: op(x[k], k), "s"), name="total")


def test_rfactor_gives_each_part_a_result_of_its_own() -> None:
    schedule = total()
    schedule.split("k", 4)
    assert schedule.rfactor("s", "k_i") == "s_rf"
    assert str(schedule) == (
        """\
def total(
    x: int32[12] @ "global",
    s: int32[1] @ "global",
):
    with allocate(int32[4, 1] @ "global") as s_rf:
        for i in range(1):
            for k_o in range(3):
                for k_i in range(4):
                    with block("s_rf", "reduce", over=[k_o], init=int32(0)):
                        s_rf[k_i, 0] = s_rf[k_i, 0] + x[k_i + k_o * 4]
        for i_all in range(1):
            for k_i_all in range(4):
                with block("s", "reduce", over=[k_i_all], init=int32(0)):
                    s[0] = s[0] + s_rf[k_i_all, 0]
"""
    )


def test_the_parts_can_run_at_once() -> None:
    schedule = total()
    schedule.split("k", 4)
    schedule.rfactor("s", "k_i")
    schedule.reorder("k_o", "k_i")
    schedule.vectorize("k_i")
    found = t.interpret(schedule.func, {"x": np.arange(12, dtype=np.int32)})
    assert found["s"].tolist() == [66]


def test_rfactor_of_the_only_reduction_leaves_an_elementwise_stage() -> None:
    schedule = matmul_chain()
    schedule.rfactor("product", "k", axis=2)
    assert 'with block("product_rf", "spatial"):' in str(schedule)
    assert "product_rf[i, j, k] = a[i, k].astype(int32) * b[k, j].astype(int32)" in str(schedule)


def test_the_partial_results_move_into_the_loops_of_the_whole() -> None:
    schedule = matmul_chain()
    schedule.split("k", 4)
    schedule.rfactor("product", "k_i", axis=2)
    schedule.compute_at("product_rf", "j_all")
    assert 'with allocate(int32[1, 1, 4] @ "global") as product_rf:' in str(schedule)


@given(
    extent=st.integers(1, 40),
    factor=st.integers(1, 9),
    outer=st.booleans(),
    op=st.sampled_from([t.sum, t.max, t.min]),
    seed=st.integers(0, 99),
)
def test_rfactor_keeps_the_integers(
    extent: int, factor: int, outer: bool, op: Callable[..., t.Reduction], seed: int
) -> None:
    schedule = total(extent, op)
    values = np.random.default_rng(seed).integers(-(2**31), 2**31, extent).astype(np.int32)
    expected = t.interpret(schedule.func, {"x": values})["s"]
    loops = schedule.split("k", factor)
    try:
        schedule.rfactor("s", loops[0 if outer else 1])
    except t.ScheduleError:
        assert not outer
        assert extent % factor
    np.testing.assert_array_equal(t.interpret(schedule.func, {"x": values})["s"], expected)


def test_rfactor_of_floats_rounds_in_another_order() -> None:
    schedule = total(1000, dtype="float32")
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    schedule.split("k", 8)
    schedule.rfactor("s", "k_i")
    np.testing.assert_allclose(t.interpret(schedule.func, {"x": values})["s"], values.sum(), rtol=1e-4)
    smallest = total(10, t.max, "float32")
    smallest.rfactor("s", "k")
    assert 'init=float32("-inf")' in str(smallest)


def test_rfactor_inside_a_loop_that_is_shared_sums_up_over_it() -> None:
    schedule = padded_conv()
    schedule.reorder("kh", "o", "acc_y", "acc_c")
    schedule.compute_at("pad", "kh")
    before = schedule.func
    schedule.rfactor("acc", "kw")
    assert 'with block("acc", "reduce", over=[kh, kw_all], init=int32(0)):' in str(schedule)
    random = np.random.default_rng(1)
    arrays = {
        "x": random.integers(-128, 128, (5, 7)).astype(np.int8),
        "w": random.integers(-128, 128, (3, 3, 2)).astype(np.int8),
    }
    np.testing.assert_array_equal(t.interpret(schedule.func, arrays)["out"], t.interpret(before, arrays)["out"])


def test_tile_puts_the_outer_loops_around_the_inner_ones() -> None:
    schedule = matmul_chain()
    names = [var.name for var in schedule.tile(["i", "j"], [4, 2])]
    assert names == ["i_o", "j_o", "i_i", "j_i"]
    assert [var.name for var in schedule.get_loops("product")] == [*names, "k"]
    assert str(schedule.trace[-1]) == "i_o, j_o, i_i, j_i = tile(order=['i', 'j'], factors=[4, 2])"
    by_hand = matmul_chain()
    by_hand.split("i", 4)
    by_hand.split("j", 2)
    by_hand.reorder(*names)
    assert by_hand.func == schedule.func
    assert t.replay(matmul_chain(), schedule.trace).func == schedule.func


TEXT = """
def f(x: int32[4, 4] @ "global", s: int32[1] @ "global"):
    for k in range(4):
        for j in range({extent}):
            with block("s", "reduce", over=[k, j], init=int32(0)):
                s[0] = {value}
"""


def parsed(extent: str = "4", value: str = "s[0] + x[k, j]") -> t.Schedule:
    return t.Schedule(t.parse(TEXT.format(extent=extent, value=value)))


REFUSALS: dict[str, tuple[Callable[[], t.Schedule], Callable[[t.Schedule], Any], str]] = {
    "rfactor of no reduction": (
        matmul_chain,
        lambda s: s.rfactor("biased", "biased_i"),
        "block 'biased': rfactor: block 'biased' is no sum, maximum or minimum with an initial value; hint: "
        "rfactor before decompose_reduction",
    ),
    "rfactor after decompose_reduction": (
        matmul_chain,
        lambda s: (s.decompose_reduction("product", "k"), s.rfactor("product", "k")),
        "block 'product': rfactor: block 'product' is no sum, maximum or minimum with an initial value; hint: "
        "rfactor before decompose_reduction",
    ),
    "rfactor of a difference": (
        lambda: parsed(value="x[k, j] - s[0]"),
        lambda s: s.rfactor("s", "k"),
        "block 's': rfactor: block 's' is no sum, maximum or minimum with an initial value; hint: rfactor before "
        "decompose_reduction",
    ),
    "rfactor of an axis": (
        strided_pools,
        lambda s: s.rfactor("first", "y"),
        "block 'first': rfactor: loop 'y' is not a reduction of block 'first'; hint: its reductions are kh, kw; "
        "split one of them first to get partial results of a part",
    ),
    "rfactor beyond the dimensions": (
        matmul_chain,
        lambda s: s.rfactor("product", "k", axis=3),
        "block 'product': rfactor: axis is 3, but must be in 0..2",
    ),
    "rfactor of a shared loop": (
        padded_conv,
        lambda s: (s.reorder("kh", "o", "acc_y", "acc_c"), s.compute_at("pad", "kh"), s.rfactor("acc", "kh")),
        "block 'acc': rfactor: loop 'kh' also holds other stages than block 'acc'; hint: rfactor before stages are "
        "moved under loop 'kh'",
    ),
    "rfactor of a tail": (
        total,
        lambda s: (s.split("k", 5), s.rfactor("s", "k_i")),
        "block 's': rfactor: loop 'k_i' runs min(5, 12 - k_o * 5) times, which is not constant; hint: split by a "
        "factor that divides the extent",
    ),
    "rfactor of a marked nest": (
        matmul_chain,
        lambda s: (s.parallel("i"), s.rfactor("product", "k")),
        "block 'product': rfactor: loop 'i' is marked parallel; hint: rfactor first, then mark loops",
    ),
    "rfactor of an empty part": (
        lambda: parsed(extent="k"),
        lambda s: s.rfactor("s", "k"),
        "block 's': rfactor: loop 'j' runs k times, perhaps never, so a part of 'k' might have no value; hint: "
        "split by factors that divide the extent",
    ),
    "tile without factors": (
        matmul_chain,
        lambda s: s.tile(["i", "j"], [4]),
        "tile: 2 loops, but 1 factors; hint: give one factor for each of the loops",
    ),
    "tile of strangers": (
        matmul_chain,
        lambda s: s.tile(["i", "k"], [4, 4]),
        "loop 'i': tile: loop 'k' is not directly inside loop 'i'; hint: reorder the loops first, and tile before "
        "other stages are moved between them",
    ),
    "tile of a tail": (
        total,
        lambda s: s.tile(s.split("k", 5), [2, 2]),
        "loop 'k_i_o': reorder: loop 'k_i_o' runs (min(5, 12 - k_o_i * 5 - k_o_o * 10) + 1) // 2 times, which "
        "depends on loop 'k_o_i'; hint: keep 'k_i_o' inside 'k_o_i', or split by a factor that divides the extent",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_place_and_the_reason(case: str) -> None:
    make, step, message = REFUSALS[case]
    schedule = make()
    with pytest.raises(t.ScheduleError) as error:
        step(schedule)
    assert str(error.value) == message
