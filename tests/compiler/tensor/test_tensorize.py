"""tensorize: what matches, what the call says, and why something is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft.compiler import tensor as t

from .conv_example import copy_intrinsic, intrinsics


def product(rows: int = 3, columns: int = 8, depth: int = 12) -> t.Schedule:
    """c[i, j] = sum of a[i, k] * b[j, k], with all three in the memories of the test accelerator."""
    a, b = t.placeholder((rows, depth), "int8", "a"), t.placeholder((columns, depth), "int8", "b")
    k = t.reduce_axis(depth, "k")
    c = t.compute((rows, columns), lambda i, j: t.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k), "c")
    return t.create_schedule(c)


def packed_product() -> t.Schedule:
    """The same, tiled 4x4 in memory: c[i, J, j] = sum of a[i, K, k] * b[J, K, j, k]."""
    a, b = t.placeholder((3, 2, 4), "int8", "a"), t.placeholder((5, 2, 4, 4), "int8", "b")
    outer, inner = t.reduce_axis(2, "K"), t.reduce_axis(4, "k")
    c = t.compute(
        (3, 5, 4),
        lambda i, J, j: t.sum(  # noqa: N803
            a[i, outer, inner].astype("int32") * b[J, outer, j, inner].astype("int32"), [outer, inner]
        ),
        "c",
    )
    schedule = t.create_schedule(c)
    schedule.cache_read("c", "a", "inp")
    schedule.cache_read("c", "b", "wgt")
    schedule.cache_write("c", "acc")
    i, block, j, k_outer, k_inner = schedule.get_loops("c")
    schedule.reorder(i, block, k_outer, j, k_inner)
    return schedule


def arrays(schedule: t.Schedule, seed: int = 0) -> dict[str, Any]:
    """Bytes for the placeholders."""
    random = np.random.default_rng(seed)
    return {
        buffer.name: random.integers(-100, 100, buffer.shape).astype(buffer.dtype)
        for buffer in schedule.func.params
        if buffer.name not in schedule.blocks()
    }


def same_after(schedule: t.Schedule, step: Any) -> t.IntrinsicCall:
    """Run ``step`` on the schedule, compare the results before and after, and give the call that is there then."""
    data = arrays(schedule)
    expected = t.interpret(schedule.func, data)
    step()
    t.verify(schedule.func)
    found = t.interpret(schedule.func, data)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    return next(call for call in calls(schedule.func.body))


def calls(stmt: t.Stmt) -> list[t.IntrinsicCall]:
    """All intrinsic calls below a statement."""
    match stmt:
        case t.IntrinsicCall():
            return [stmt]
        case t.For(body=body) | t.Allocate(body=body):
            return calls(body)
        case t.Seq(body):
            return [call for child in body for call in calls(child)]
    return []


def test_a_packed_product_is_the_gemm_and_starts_from_zero_when_its_outer_reductions_do() -> None:
    schedule = packed_product()
    call = same_after(schedule, lambda: schedule.tensorize("j", intrinsics()["gemm"]))
    assert [t.expr_text(index) for index in call.operand("wgt").indices] == ["J", "K", "0", "0"]
    assert t.expr_text(call.operand("wgt").offset) == "0 + J * 32 + K * 16 + 0 * 4 + 0 * 1"
    assert call.init == (t.Var("K"),)
    assert call.init_value == t.Const(0, "int32")
    assert call.intrinsic.emits == "GEMM"


def test_after_decompose_reduction_only_the_update_is_the_call() -> None:
    schedule = packed_product()
    schedule.decompose_reduction("c", "K")
    call = same_after(schedule, lambda: schedule.tensorize("j", intrinsics()["gemm"]))
    assert call.init is None
    assert schedule.blocks() == ["a_inp", "b_wgt", "c_init", "c", "c_write"]


def test_the_initial_value_can_be_a_call_too() -> None:
    fill = t.tensor_intrinsic(
        "fill",
        operands=[t.tile("dst", (4,), "int32", "acc", "out")],
        scalars=[t.scalar("value", "int32")],
        loops={"i": 4},
        meaning=lambda dst, value, i: dst.store((i,), value),
    )
    schedule = packed_product()
    schedule.decompose_reduction("c", "K")
    schedule.tensorize("j", intrinsics()["gemm"])
    call = same_after(schedule, lambda: schedule.tensorize("j_init", fill))
    assert call.scalar("value") == t.Const(0, "int32")


def test_a_reduction_that_carries_its_initial_value_needs_an_accumulating_intrinsic() -> None:
    schedule = packed_product()
    add = lanes_intrinsic(lambda a, b: a + b)
    assert refusal(schedule, "j", add) == (
        "loop 'j': tensorize: block 'c' is a reduction with an initial value, but 'lanes' does not accumulate; "
        "hint: decompose_reduction first, or use an intrinsic whose output is inout"
    )


def test_the_order_of_operands_and_loops_does_not_matter() -> None:
    flipped = t.tensor_intrinsic(
        "flipped",
        operands=[
            t.tile("wgt", (4, 4), "int8", "wgt", "in"),
            t.tile("inp", (4,), "int8", "inp", "in"),
            t.tile("acc", (4,), "int32", "acc", "inout"),
        ],
        loops={"k": 4, "o": 4},
        meaning=lambda wgt, inp, acc, k, o: acc.store(
            (o,), wgt[o, k].astype("int32") * inp[k].astype("int32") + acc[o]
        ),
    )
    schedule = packed_product()
    same_after(schedule, lambda: schedule.tensorize("j", flipped))


def elementwise(value: Any, dtype: Any = "int32") -> t.Schedule:
    """v[i] = value(u[i], w[i]) over 24 elements, all in "acc"."""
    u, w = t.placeholder((24,), dtype, "u"), t.placeholder((24,), dtype, "w")
    v = t.compute((24,), lambda i: value(u[i], w[i]), "v")
    schedule = t.create_schedule(v)
    for name in ("u", "w"):
        if name in str(schedule.func.body):
            schedule.cache_read("v", name, "acc")
    schedule.cache_write("v", "acc")
    schedule.split("i", 8)
    return schedule


def lanes_intrinsic(value: Any, *, scalars: Any = (), inplace: bool = False) -> t.TensorIntrinsic:
    """dst[i] = value(a[i], b[i], scalars) on 8 lanes; with ``inplace``, a is dst."""
    tile = [t.tile("dst", (8,), "int32", "acc", "inout" if inplace else "out")]
    tile += [] if inplace else [t.tile("a", (8,), "int32", "acc", "in")]
    tile += [t.tile("b", (8,), "int32", "acc", "in")]

    def meaning(dst: Any, b: Any, i: Any, a: Any = None, **rest: Any) -> Any:
        return dst.store((i,), value((dst if a is None else a)[i], b[i], **rest))

    return t.tensor_intrinsic("lanes", operands=tile, scalars=scalars, loops={"i": 8}, meaning=meaning)


def test_elementwise_lanes() -> None:
    schedule = elementwise(lambda u, w: w + u)
    call = same_after(schedule, lambda: schedule.tensorize("i_i", lanes_intrinsic(lambda a, b: a + b)))
    assert t.expr_text(call.operand("dst").indices[0]) == "i_o * 8"


def test_the_name_of_an_intrinsic_is_none() -> None:
    with pytest.raises(t.ScheduleError, match=r"loop 'i_i': tensorize: intrinsic is 'lanes', but must be a TensorInt"):
        elementwise(lambda u, w: w + u).tensorize("i_i", "lanes")  # type: ignore[arg-type]


def test_an_update_in_place_needs_the_inplace_step() -> None:
    accumulate = lanes_intrinsic(lambda a, b: t.maximum(a, b), inplace=True)
    schedule = elementwise(lambda u, w: t.maximum(u, w))
    with pytest.raises(t.ScheduleError, match="block 'v' computes max"):
        schedule.tensorize("i_i", accumulate)
    schedule.inplace("v", "u_acc")
    same_after(schedule, lambda: schedule.tensorize("i_i", accumulate))


def test_a_maximum_over_a_window_accumulates() -> None:
    x = t.placeholder((9, 8), "int32", "x")
    k = t.reduce_axis(3, "k")
    pool = t.compute((7, 8), lambda i, j: t.max(x[i + k, j], k), "pool")
    schedule = t.create_schedule(pool)
    schedule.cache_read("pool", "x", "acc")
    schedule.cache_write("pool", "acc")
    schedule.reorder("i", "k", "j")
    accumulate = lanes_intrinsic(lambda a, b: t.maximum(a, b), inplace=True)
    call = same_after(schedule, lambda: schedule.tensorize("j", accumulate))
    assert call.init == (t.Var("k"),)
    assert call.init_value == t.Const(-(2**31), "int32")


def test_scalars_take_constants_and_what_depends_on_outer_loops() -> None:
    scaled = lanes_intrinsic(
        lambda a, b, offset, factor: (a + b) * factor + offset,
        scalars=[t.scalar("offset", "int32"), t.scalar("factor", "int32", 0, 7)],
    )
    schedule = elementwise(lambda u, w: 3 * (u + w) - 100)
    call = same_after(schedule, lambda: schedule.tensorize("i_i", scaled))
    assert dict(call.scalars) == {"offset": t.Const(-100, "int32"), "factor": t.Const(3, "int32")}


def test_a_scalar_that_is_not_there_is_the_neutral_element() -> None:
    scaled = lanes_intrinsic(
        lambda a, b, offset: t.maximum(a, b) + offset, scalars=[t.scalar("offset", "int32", -8, 7)]
    )
    schedule = elementwise(lambda u, w: t.maximum(u, w))
    call = same_after(schedule, lambda: schedule.tensorize("i_i", scaled))
    assert call.scalar("offset") == t.Const(0, "int32")


def refusal(schedule: t.Schedule, loop: str, intrinsic: t.TensorIntrinsic) -> str:
    """The text of the refusal."""
    before = schedule.func
    with pytest.raises(t.ScheduleError) as error:
        schedule.tensorize(loop, intrinsic)
    assert schedule.func is before
    return str(error.value)


def test_a_loop_of_another_length_is_refused_with_the_split_to_make() -> None:
    schedule = product(rows=1, columns=4, depth=12)
    assert refusal(schedule, "i", intrinsics()["gemm"]) == (
        "loop 'i': tensorize: loop 'k' runs 12 times, but 'gemm' needs 4; hint: split 'k' by 4 first"
    )


def test_loops_too_many_or_too_few_are_refused() -> None:
    schedule = packed_product()
    assert "the nest also has loop 'K', which 'gemm' does not have" in refusal(schedule, "K", intrinsics()["gemm"])
    assert "'gemm' also needs loops of 4, which are not in the nest" in refusal(schedule, "k", intrinsics()["gemm"])


def test_a_loop_that_is_not_constant_is_refused() -> None:
    schedule = elementwise(lambda u, w: u + w)
    schedule.split("i_o", 2)
    text = refusal(schedule, "i_o_i", lanes_intrinsic(lambda a, b: a + b))
    assert text.startswith("loop 'i_o_i': tensorize: loop 'i_o_i' runs min(2, 3 - i_o_o * 2) times, which is not")


def test_the_wrong_memory_is_refused() -> None:
    schedule = product(rows=1, columns=4, depth=4)
    schedule.cache_write("c", "acc")
    schedule.cache_read("c", "b", "wgt")
    assert refusal(schedule, "i", intrinsics()["gemm"]) == (
        "loop 'i': tensorize: operand 'inp' of 'gemm' must be in 'inp', but 'a' is in 'global'; "
        "hint: use cache_read, cache_write or set_scope first"
    )


def test_the_wrong_type_is_refused() -> None:
    schedule = elementwise(lambda u, w: u + w, "int8")
    text = refusal(schedule, "i_i", lanes_intrinsic(lambda a, b: a + b))
    assert "operand 'dst' of 'lanes' holds int32, but 'v_acc' holds int8" in text


def test_another_computation_is_refused_showing_both() -> None:
    schedule = elementwise(lambda u, w: u - w)
    text = refusal(schedule, "i_i", lanes_intrinsic(lambda a, b: a + b))
    assert "block 'v' computes u_acc[i_o * 8 + i_i] - w_acc[i_o * 8 + i_i]" in text.replace(
        "i_i + i_o * 8", "i_o * 8 + i_i"
    )
    assert "but 'lanes' computes a[i] + b[i]" in text


def test_data_that_is_not_packed_is_refused() -> None:
    schedule = product(rows=1, columns=8, depth=8)
    schedule.cache_write("c", "acc")
    schedule.cache_read("c", "a", "inp")
    schedule.cache_read("c", "b", "wgt")
    schedule.split("j", 4)
    schedule.split("k", 4)
    schedule.reorder("j_o", "k_o", "j_i", "k_i")
    text = refusal(schedule, "j_i", intrinsics()["gemm"])
    assert "operand 'wgt' of 'gemm' steps by 4 elements along loop 'o', but loop 'j_i' steps by 8 in 'b_wgt'" in text
    assert "pack the data or reorder the loops" in text


def test_a_tile_between_two_entries_is_refused() -> None:
    u = t.placeholder((9,), "int32", "u")
    v = t.compute((8,), lambda i: u[i + 1], "v")
    schedule = t.create_schedule(v)
    schedule.cache_write("v", "acc")
    assert refusal(schedule, "i", copy_intrinsic("load", 8, "int32", "acc", "global")) == (
        "loop 'i': tensorize: operand 'src' of 'load' must start at a multiple of 8 elements, but starts at 1 of "
        "'u'; hint: split the loops so that tiles are whole entries"
    )


def test_a_scalar_out_of_range_is_refused() -> None:
    scaled = lanes_intrinsic(lambda a, b, factor: (a + b) * factor, scalars=[t.scalar("factor", "int32", 0, 7)])
    schedule = elementwise(lambda u, w: (u + w) * 9)
    assert "'factor' of 'lanes' must be in 0..7, but is int32(9)" in refusal(schedule, "i_i", scaled)


def test_a_virtual_thread_cannot_disappear_into_an_instruction() -> None:
    schedule = elementwise(lambda u, w: u + w)
    schedule.vthread("i_i")
    text = refusal(schedule, "i_i", lanes_intrinsic(lambda a, b: a + b))
    assert "loop 'i_i' is marked vthread, so it cannot become part of one instruction" in text


def test_declarations_that_contradict_themselves_are_refused() -> None:
    def declare(mode: Any, **options: Any) -> None:
        t.tensor_intrinsic(
            "twice",
            operands=[t.tile("dst", (4,), "int32", "acc", mode), t.tile("src", (4,), "int32", "acc", "in", **options)],
            loops={"i": 4},
            meaning=lambda dst, src, i: dst.store((i,), src[i] + src[i]),
        )

    declare("out")
    with pytest.raises(t.IRError, match="operand 'dst' of intrinsic 'twice' is declared 'inout', but its meaning"):
        declare("inout")
    with pytest.raises(t.IRError, match="loop 'k' of intrinsic 'last' stores to the same elements again and again"):
        t.tensor_intrinsic(
            "last",
            operands=[t.tile("dst", (4,), "int32", "acc", "out"), t.tile("src", (4, 4), "int32", "acc", "in")],
            loops={"i": 4, "k": 4},
            meaning=lambda dst, src, i, k: dst.store((i,), src[i, k]),
        )
    with pytest.raises(t.IRError, match="operand 'src' has 1 dimensions, but 2 strides"):
        declare("out", strides=(1, 1))


def windows(step: int, gap: int, lanes: int = 4) -> t.Schedule:
    """c[y, j] = sum over three rows of a[y + step * k, j], whose rows lie ``gap`` elements further apart."""
    a = t.placeholder((12, lanes), "int8", "a")
    k = t.reduce_axis(3, "k")
    c = t.compute((4, lanes), lambda y, j: t.sum(a[y + k * step, j].astype("int32"), k), "c")
    schedule = t.create_schedule(c)
    copied = schedule.cache_read("c", "a", "inp")
    schedule.cache_write("c", "acc")
    if gap:
        schedule.storage_align(copied, axis=0, factor=lanes + gap, offset=0)
    y, j, k_loop = schedule.get_loops("c")
    schedule.reorder(y, j, k_loop)
    return schedule


def three_rows(lanes: int = 4, align: int = 4) -> t.TensorIntrinsic:
    """A sum of three entries whose distance is a field of the instruction."""
    return t.tensor_intrinsic(
        "three_rows",
        operands=[
            t.tile("d", (lanes,), "int32", "acc", "inout"),
            t.tile("s", (3, lanes), "int8", "inp", "in", strides=(None, 1), align=align),
        ],
        loops={"j": lanes, "k": 3},
        meaning=lambda d, s, j, k: d.store((j,), d[j] + s[k, j].astype("int32")),
    )


@pytest.mark.parametrize(("step", "gap", "stride"), [(1, 0, 4), (2, 0, 8), (1, 4, 8), (3, 4, 24)])
def test_a_stride_that_is_left_open_is_the_buffer_s(step: int, gap: int, stride: int) -> None:
    schedule = windows(step, gap)
    loop = schedule.get_loops("c")[1]
    call = same_after(schedule, lambda: schedule.tensorize(loop, three_rows()))
    assert call.operand("s").strides == (stride, 1)


def test_an_open_stride_is_a_multiple_of_the_alignment() -> None:
    schedule = windows(1, 0)
    message = refusal(schedule, schedule.get_loops("c")[1].name, three_rows(align=8))
    assert "would step by 4 elements in 'a_inp', but can only step by multiples of 8" in message


def test_an_open_stride_stands_under_one_loop() -> None:
    with pytest.raises(t.IRError, match="has a dimension without a stride, which is not indexed with a loop variable"):
        t.tensor_intrinsic(
            "twice",
            operands=[
                t.tile("d", (4,), "int32", "acc", "inout"),
                t.tile("s", (8, 4), "int32", "acc", "in", strides=(None, 1), align=4),
            ],
            loops={"j": 4, "k": 3},
            meaning=lambda d, s, j, k: d.store((j,), d[j] + s[k * 2, j]),
        )


def looked_up(entries: int, shift: int = 0) -> t.Schedule:
    """out[i] = table[the unsigned byte of x[i] + shift, lane of i]; the intrinsic's table has 256 entries."""
    x, table = t.placeholder((3, 4), "int32", "x"), t.placeholder((entries, 4), "int8", "table")

    def value(i: Any, j: Any) -> Any:
        number = x[i, j] + shift if shift else x[i, j]
        return table[number.astype("uint8").astype("int64"), j]

    return t.create_schedule(t.compute((3, 4), value, "out"), [x, table])


def look_up_intrinsic() -> t.TensorIntrinsic:
    return t.tensor_intrinsic(
        "look_up",
        operands=[t.tile("d", (4,), "int8", "global", "out"), t.tile("a", (4,), "int32", "global", "in"),
                  t.tile("table", (256, 4), "int8", "global", "in")],
        loops={"j": 4},
        meaning=lambda d, a, table, j: d.store((j,), table[a[j].astype("uint8").astype("int64"), j]),
    )  # fmt: skip


def test_an_index_may_be_computed_from_data() -> None:
    schedule = looked_up(256)
    values = arrays(schedule)
    wanted = t.interpret(schedule.func, values)["out"]
    schedule.tensorize("j", look_up_intrinsic())
    np.testing.assert_array_equal(t.interpret(schedule.func, values)["out"], wanted)
    np.testing.assert_array_equal(wanted, values["table"][values["x"].astype(np.uint8), np.arange(4)[None, :]])
    assert (values["x"] < 0).any()


@pytest.mark.parametrize(("entries", "shift"), [(512, 0), (256, 1)])
def test_a_computed_index_is_the_same_and_of_a_whole_axis(entries: int, shift: int) -> None:
    with pytest.raises(t.ScheduleError, match="look_up"):
        looked_up(entries, shift).tensorize("j", look_up_intrinsic())
