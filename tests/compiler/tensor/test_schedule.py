"""Each primitive: the program after it, and the text of its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft.compiler import tensor as t
from weft.compiler.tensor.tree import find_buffer

from .programs import matmul_chain, padded_conv, strided_pools


def scale(extent: int = 13) -> t.Schedule:
    """y[i] = x[i] * 3"""
    x = t.placeholder((extent,), "int32", "x")
    return t.create_schedule(t.compute((extent,), lambda i: x[i] * 3, "y"), name="scale")


def body(schedule: t.Schedule) -> str:
    """The function's text without its head."""
    return str(schedule).split("):\n", maxsplit=1)[1]


@pytest.mark.parametrize("name", [3, None, b"c", ["c"], {}])
def test_what_is_no_text_names_no_loop_block_or_buffer(name: Any) -> None:
    """Traces of schedules come from files."""
    schedule = matmul_chain()
    steps: dict[str, Callable[[], object]] = {
        "loop": lambda: schedule.tile([name, "j"], [2, 2]),
        "loop ": lambda: schedule.reorder(name, "i"),
        "block": lambda: schedule.compute_inline(name),
        "buffer": lambda: schedule.cache_read("product", name, "near"),
    }
    for what, step in steps.items():
        with pytest.raises(t.ScheduleError, match=f"a {what.strip()} is named .*, but must be named by a text"):
            step()


def test_a_new_schedule_is_one_nest_a_stage() -> None:
    assert str(matmul_chain()) == (
        """\
def main(
    a: int8[6, 8] @ "global",
    b: int8[8, 5] @ "global",
    bias: int32[5] @ "global",
    positive: int32[6, 5] @ "global",
    rest: int32[6, 5] @ "global",
):
    with allocate(int32[6, 5] @ "global") as product:
        with allocate(int32[6, 5] @ "global") as biased:
            for i in range(6):
                for j in range(5):
                    for k in range(8):
                        with block("product", "reduce", over=[k], init=int32(0)):
                            product[i, j] = product[i, j] + a[i, k].astype(int32) * b[k, j].astype(int32)
            for biased_i in range(6):
                for biased_j in range(5):
                    with block("biased", "spatial"):
                        biased[biased_i, biased_j] = product[biased_i, biased_j] + bias[biased_j]
            for positive_i in range(6):
                for positive_j in range(5):
                    with block("positive", "spatial"):
                        positive[positive_i, positive_j] = max(biased[positive_i, positive_j], int32(0))
            for rest_i in range(6):
                for rest_j in range(5):
                    with block("rest", "spatial"):
                        rest[rest_i, rest_j] = biased[rest_i, rest_j] - positive[rest_i, rest_j] * int32(3)
"""
    )


def test_split_that_does_not_divide_shortens_the_last_run() -> None:
    schedule = scale()
    assert [var.name for var in schedule.split("i", 4)] == ["i_o", "i_i"]
    assert body(schedule) == (
        """\
    for i_o in range(4):
        for i_i in range(min(4, 13 - i_o * 4)):
            with block("y", "spatial"):
                y[i_i + i_o * 4] = x[i_i + i_o * 4] * int32(3)
"""
    )


def test_split_that_divides_is_constant() -> None:
    schedule = scale(24)
    schedule.split("i", factors=[None, 3, 4])
    assert [str(line).strip() for line in body(schedule).splitlines()[:3]] == [
        "for i_0 in range(2):",
        "for i_1 in range(3):",
        "for i_2 in range(4):",
    ]


def test_splits_take_numbers() -> None:
    with pytest.raises(t.ScheduleError, match=r"loop 'i': split: factors are \[None, 'a'\], but must be whole numbers"):
        scale().split("i", "a")  # type: ignore[arg-type]


def test_splits_of_splits_stay_inside() -> None:
    schedule = scale()
    schedule.split("i", factors=[None, 2, 3])
    _, inner = schedule.split("i_0", 2)
    schedule.split("i_2", 2)
    assert inner.name == "i_0_i"
    x = np.arange(13, dtype=np.int32)
    np.testing.assert_array_equal(t.interpret(schedule.func, {"x": x})["y"], x * 3)


def test_fuse_and_reorder() -> None:
    schedule = strided_pools()
    schedule.reorder("z", "c", "y")
    assert [var.name for var in schedule.get_loops("first")] == ["z", "c", "y", "kh", "kw"]
    fused = schedule.fuse("kh", "kw")
    assert "x[c, y * 2 + kh_kw // 2, z + kh_kw % 2]" in str(schedule)
    assert fused == t.Var("kh_kw")
    assert "over=[kh_kw]" in str(schedule)


def test_compute_at_leaves_trailing_dimensions_whole() -> None:
    a = t.placeholder((6, 4, 5), "int32", "a")
    k = t.reduce_axis(3, "k")
    c = t.compute((6,), lambda i: t.sum(a[i, k, 0], k), "c")
    for whole, shape in ((0, (1, 3, 1)), (1, (1, 3, 5)), (2, (1, 4, 5)), (3, (6, 4, 5))):
        schedule = t.create_schedule(c)
        copied = schedule.cache_read("c", "a", "near")
        schedule.compute_at(copied, "i", whole)
        buffer = find_buffer(schedule.func, copied)
        assert buffer.shape == shape
        data = {"a": np.arange(120, dtype=np.int32).reshape(6, 4, 5), "c": np.zeros(6, np.int32)}
        np.testing.assert_array_equal(t.interpret(schedule.func, data)["c"], data["a"][:, :3, 0].sum(axis=1))
    schedule = t.create_schedule(c)
    copied = schedule.cache_read("c", "a", "near")
    with pytest.raises(t.ScheduleError, match="whole is 4, but 'a_near' has 3 dimensions"):
        schedule.compute_at(copied, "i", 4)


@pytest.mark.parametrize("whole", [0, 1, 2])
@pytest.mark.parametrize("later", ["c_o", "c_i"])
def test_compute_at_again_computes_no_more_than_there_was(later: str, whole: int) -> None:
    """The second time, the buffer is a region: what of it is behind the end of ``x`` was never computed."""
    schedule = padded_conv()
    data = {name: np.arange(np.prod(size)).reshape(size) for name, size in (("x", (5, 7)), ("w", (3, 3, 2)))}
    arrays: dict[str, Any] = {name: value.astype(np.int8) for name, value in data.items()}
    expected = t.interpret(schedule.func, arrays)["out"]
    schedule.split("c", 2)
    schedule.cache_read("pad", "x", "global")
    for loop, count in (("c_o", 0), (later, whole)):
        schedule.compute_at("x_global", loop, count)
        np.testing.assert_array_equal(t.interpret(schedule.func, arrays)["out"], expected)


def test_compute_at_shrinks_the_loops_and_the_buffer() -> None:
    schedule = padded_conv()
    schedule.split("out_y", 2)
    schedule.compute_at("acc", "out_y_o")
    schedule.compute_at("pad", "acc_y")
    assert body(schedule) == (
        """\
    for out_o in range(2):
        for out_y_o in range(3):
            with allocate(int32[1, 2, 7] @ "global") as acc:
                for o in range(1):
                    for acc_y in range(min(2, 5 - out_y_o * 2)):
                        with allocate(int8[3, 9] @ "global") as pad:
                            for y in range(3):
                                for c in range(9):
                                    with block("pad", "spatial"):
                                        pad[y, c] = select((1 <= acc_y + out_y_o * 2 + y) & (acc_y + out_y_o * 2 + y < 6) & (1 <= c) & (c < 8), x[acc_y + out_y_o * 2 + y - 1, c - 1], int8(-7))
                            for acc_c in range(7):
                                for kh in range(3):
                                    for kw in range(3):
                                        with block("acc", "reduce", over=[kh, kw], init=int32(0)):
                                            acc[0, acc_y, acc_c] = acc[0, acc_y, acc_c] + pad[kh, acc_c + kw].astype(int32) * w[kh, kw, out_o].astype(int32)
                for out_y_i in range(min(2, 5 - out_y_o * 2)):
                    for out_c in range(7):
                        with block("out", "spatial"):
                            out[out_o, out_y_i + out_y_o * 2, out_c] = min(max(acc[0, out_y_i, out_c] >> int32(4), int32(-100)), int32(100)).astype(int8)
"""  # noqa: E501
    )


def test_what_is_read_at_places_that_are_data_is_computed_whole() -> None:
    """How much of it is needed is not known before the data are: no loop could run so often."""
    x, at = t.placeholder((6, 4), "int32", "x"), t.placeholder((3,), "int32", "at")
    doubled = t.compute((6, 4), lambda i, j: x[i, j] * 2, "doubled")
    picked = t.compute((3, 4), lambda n, m: doubled[t.clamp(at[n].astype("int64"), 0, 5), m], "picked")
    schedule = t.create_schedule(picked)
    arrays = {"x": np.arange(24, dtype=np.int32).reshape(6, 4), "at": np.array([7, -1, 3], np.int32)}
    expected = t.interpret(schedule.func, arrays)["picked"]
    schedule.compute_at("doubled", "n")
    assert "with allocate(int32[6, 4]" in str(schedule)
    assert "for i in range(6):" in str(schedule)
    np.testing.assert_array_equal(t.interpret(schedule.func, arrays)["picked"], expected)


def test_reverse_compute_at_moves_the_epilogue_to_its_producer() -> None:
    schedule = padded_conv()
    schedule.split("acc_y", 2)
    schedule.reverse_compute_at("out", "acc_y_o")
    assert 'with allocate(int32[1, 2, 7] @ "global") as acc:' in str(schedule)
    assert "for out_y in range(min(2, 5 - acc_y_o * 2)):" in str(schedule)


def test_inline_puts_the_padding_into_the_reader() -> None:
    schedule = padded_conv()
    schedule.compute_inline("pad")
    assert schedule.blocks() == ["acc", "out"]
    assert "select((1 <= acc_y + kh) & (acc_y + kh < 6)" in str(schedule)


def test_decompose_reduction_stores_the_initial_value_before() -> None:
    schedule = matmul_chain()
    assert schedule.decompose_reduction("product", "j") == "product_init"
    assert body(schedule).splitlines()[2:10] == [
        "            for i in range(6):",
        "                for j_init in range(5):",
        '                    with block("product_init", "reduce-init"):',
        "                        product[i, j_init] = int32(0)",
        "                for j in range(5):",
        "                    for k in range(8):",
        '                        with block("product", "reduce-update", over=[k]):',
        "                            product[i, j] = product[i, j] + a[i, k].astype(int32) * b[k, j].astype(int32)",
    ]


def test_inplace_makes_one_buffer_of_two() -> None:
    schedule = matmul_chain()
    schedule.inplace("biased", "product")
    assert "biased" not in str(schedule).replace("biased_", "").replace('"biased"', "")
    assert "product[biased_i, biased_j] = product[biased_i, biased_j] + bias[biased_j]" in str(schedule)


def test_a_buffer_inside_a_virtual_thread_belongs_to_it() -> None:
    schedule = padded_conv()
    schedule.vthread("out_o")
    schedule.compute_at("acc", "out_o")
    lines = [line.strip() for line in body(schedule).splitlines()]
    assert lines.index("for out_o in vthread(2):") < lines.index('with allocate(int32[1, 5, 7] @ "global") as acc:')


def test_marks_and_notes_are_printed() -> None:
    schedule = scale(16)
    schedule.split("i", 4)
    schedule.bind("i_o", "blockIdx.x")
    schedule.vectorize("i_i")
    schedule.annotate("i_i", "pragma", "prefetch")
    assert "for i_o in bind(4, 'blockIdx.x'):" in str(schedule)
    assert "for i_i in vectorize(4, pragma='prefetch'):" in str(schedule)
    assert t.parse(str(schedule)) == schedule.func


def first_row() -> t.Schedule:
    """q reads one row of p, whatever the iteration."""
    x = t.placeholder((6, 5), "int32", "x")
    p = t.compute((6, 5), lambda i, j: x[i, j] * 2, "p")
    return t.create_schedule(t.compute((5,), lambda j: p[0, j] + 1, "q"))


def two_readers() -> t.Schedule:
    """matmul_chain with ``rest`` moved under ``positive``: several stages under one loop."""
    schedule = matmul_chain()
    schedule.compute_at("product", "biased_i")
    return schedule


REFUSALS: dict[str, tuple[Callable[[], t.Schedule], Callable[[t.Schedule], Any], str]] = {
    "no such loop": (scale, lambda s: s.split("k", 2), "there is no loop 'k'; hint: the loops are i"),
    "no such block": (scale, lambda s: s.get_loops("z"), "there is no block 'z'; hint: the blocks are y"),
    "no such buffer": (
        scale,
        lambda s: s.cache_read("y", "q", "near"),
        "there is no buffer 'q'; hint: the buffers are x, y",
    ),
    "split by nothing": (
        scale,
        lambda s: s.split("i", 0),
        "loop 'i': split: factors are [None, 0], but must be at least 1",
    ),
    "split into another number": (
        scale,
        lambda s: s.split("i", factors=[2, 4]),
        "loop 'i': split: loop 'i' runs 13 times, so with inner factors [4] the outer loop runs 4 times, not 2; "
        "hint: give None as the first factor",
    ),
    "split a marked loop": (
        scale,
        lambda s: (s.parallel("i"), s.split("i", 2)),
        "loop 'i': split: loop 'i' is marked parallel; hint: split first, then mark the new loops",
    ),
    "fuse strangers": (
        matmul_chain,
        lambda s: s.fuse("i", "k"),
        "loop 'i': fuse: loop 'k' is not directly inside loop 'i'; hint: reorder the loops first, and fuse before "
        "other stages are moved between them",
    ),
    "fuse a reduction": (
        matmul_chain,
        lambda s: s.fuse("j", "k"),
        "loop 'j': fuse: of loops 'j' and 'k' only one is a reduction of block 'product'; hint: fuse reductions "
        "with reductions only",
    ),
    "fuse a tail": (
        scale,
        lambda s: s.fuse(*s.split("i", 4)),
        "loop 'i_i': fuse: the inner loop 'i_i' runs min(4, 13 - i_o * 4) times, which is not constant; "
        "hint: split by a factor that divides the extent",
    ),
    "reorder nothing": (
        scale,
        lambda s: s.reorder(),
        "reorder: no loop is named; hint: name the loops in the order that they are to have",
    ),
    "reorder a tail": (
        scale,
        lambda s: s.reorder(*reversed(s.split("i", 4))),
        "loop 'i_i': reorder: loop 'i_i' runs min(4, 13 - i_o * 4) times, which depends on loop 'i_o'; "
        "hint: keep 'i_i' inside 'i_o', or split by a factor that divides the extent",
    ),
    "reorder loops of two nests": (
        matmul_chain,
        lambda s: s.reorder("i", "biased_i"),
        "loop 'biased_i': reorder: loops 'biased_i' and 'i' are not in one nest",
    ),
    "reorder around a stage": (
        two_readers,
        lambda s: s.reorder("biased_j", "biased_i"),
        "loop 'biased_i': reorder: between loops 'biased_i' and 'biased_j' stand other statements; hint: reorder "
        "before other stages are moved between them",
    ),
    "parallel reduction": (
        matmul_chain,
        lambda s: s.parallel("k"),
        "loop 'k': parallel: loop 'k' is a reduction of block 'product', so its iterations meet; hint: mark a "
        "loop over the block's output instead",
    ),
    "vectorize a reduction": (
        matmul_chain,
        lambda s: s.vectorize("k"),
        "loop 'k': vectorize: loop 'k' is a reduction of block 'product', so its iterations meet; hint: mark a "
        "loop over the block's output instead",
    ),
    "threads of a reduction": (
        matmul_chain,
        lambda s: s.vthread("k"),
        "loop 'k': vthread: loop 'k' is a reduction of block 'product', so its iterations meet; hint: mark a "
        "loop over the block's output instead",
    ),
    "bind a reduction": (
        matmul_chain,
        lambda s: s.bind("k", "threadIdx.x"),
        "loop 'k': bind:threadIdx.x: loop 'k' is a reduction of block 'product', so its iterations meet; hint: mark a "
        "loop over the block's output instead",
    ),
    "unroll a tail": (
        scale,
        lambda s: s.unroll(s.split("i", 4)[1]),
        "loop 'i_i': unroll: loop 'i_i' runs min(4, 13 - i_o * 4) times, which is not constant; "
        "hint: split by a factor that divides the extent",
    ),
    "vectorize outside": (
        matmul_chain,
        lambda s: s.vectorize("i"),
        "loop 'i': vectorize: loop 'i' is not innermost; hint: reorder it inwards",
    ),
    "cache what is not read": (
        matmul_chain,
        lambda s: s.cache_read("biased", "a", "near"),
        "block 'biased': cache_read: block 'biased' does not read 'a'",
    ),
    "cache inside the producer's loops": (
        two_readers,
        lambda s: (s.reverse_compute_at("positive", "biased_i"), s.cache_read("positive", "biased", "near")),
        "block 'positive': cache_read: 'biased' is written in the same loops in which block 'positive' reads it; "
        "hint: cache_read before compute_at",
    ),
    "scope of a parameter": (
        scale,
        lambda s: s.set_scope("x", "near"),
        "buffer 'x': set_scope: 'x' is a parameter, and its memory is the caller's; hint: use cache_read or "
        "cache_write",
    ),
    "inline a reduction": (
        matmul_chain,
        lambda s: s.compute_inline("product"),
        "block 'product': compute_inline: block 'product' is a reduction; hint: use compute_at",
    ),
    "inline an output": (
        matmul_chain,
        lambda s: s.compute_inline("positive"),
        "block 'positive': compute_inline: 'positive' is an output",
    ),
    "compute_at with a reader elsewhere": (
        matmul_chain,
        lambda s: s.compute_at("biased", "rest_i"),
        "block 'biased': compute_at: block 'positive', which reads 'biased', is not inside loop 'rest_i'; "
        "hint: move 'positive' there first",
    ),
    "compute_at of an output": (
        matmul_chain,
        lambda s: s.compute_at("positive", "rest_i"),
        "block 'positive': compute_at: block 'positive' writes the output 'positive', which must be complete at the end"
        "; hint: cache_write it first, or use reverse_compute_at",
    ),
    "compute_at itself": (
        matmul_chain,
        lambda s: s.compute_at("product", "j"),
        "block 'product': compute_at: loop 'j' is one of the loops of block 'product' itself",
    ),
    "compute_at after split": (
        matmul_chain,
        lambda s: (s.split("i", 2), s.compute_at("product", "biased_i")),
        "block 'product': compute_at: the loops of block 'product' have been split or fused; hint: compute_at "
        "first, then split the loops that come out of it",
    ),
    "compute_at with stages under its loops": (
        two_readers,
        lambda s: s.compute_at("biased", "positive_i"),
        "block 'biased': compute_at: block 'biased' shares loop 'biased_i' with other stages; hint: compute_at "
        "block 'biased' before stages are moved under its loops",
    ),
    "reverse_compute_at under a reduction": (
        padded_conv,
        lambda s: (s.reorder("kh", "o", "acc_y", "acc_c"), s.reverse_compute_at("out", "acc_y")),
        "block 'out': reverse_compute_at: loop 'kh' is a reduction of block 'acc', so 'acc' is not complete inside it"
        "; hint: choose a loop outside of the reduction",
    ),
    "reverse_compute_at of a window": (
        strided_pools,
        lambda s: s.reverse_compute_at("second", "c"),
        "block 'second': reverse_compute_at: block 'second' is a reduction; hint: use compute_at",
    ),
    "reverse_compute_at without a producer": (
        matmul_chain,
        lambda s: s.reverse_compute_at("rest", "i"),
        "block 'rest': reverse_compute_at: nothing that block 'rest' reads is written inside loop 'i'",
    ),
    "reverse_compute_at of what one iteration completes": (
        first_row,
        lambda s: s.reverse_compute_at("q", "i"),
        "block 'q': reverse_compute_at: block 'q' reads 'p' at 0, which is not one of its loops",
    ),
    "decompose twice": (
        matmul_chain,
        lambda s: (s.decompose_reduction("product", "k"), s.decompose_reduction("product", "k")),
        "block 'product': decompose_reduction: block 'product' has no initial value to separate",
    ),
    "decompose inside the reduction": (
        padded_conv,
        lambda s: s.decompose_reduction("acc", "kw"),
        "block 'acc': decompose_reduction: loop 'kh' of the reduction is around loop 'kw'; hint: decompose at "
        "loop 'kh'",
    ),
    "inplace over what is read later": (
        matmul_chain,
        lambda s: s.inplace("positive", "biased"),
        "block 'positive': inplace: 'biased' is read again after block 'positive'",
    ),
    "inplace over another shape": (
        padded_conv,
        lambda s: s.inplace("out", "acc"),
        "block 'out': inplace: 'acc' and 'out' differ in shape, type, memory or alignment; hint: use set_scope, "
        "and attach both to the same loop",
    ),
    "inplace over an input": (
        scale,
        lambda s: s.inplace("y", "x"),
        "block 'y': inplace: 'x' is a parameter; hint: cache_read it first",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_place_and_the_reason(case: str) -> None:
    make, step, message = REFUSALS[case]
    schedule = make()
    with pytest.raises(t.ScheduleError) as error:
        step(schedule)
    assert str(error.value) == message


def test_a_refused_step_changes_nothing() -> None:
    schedule = scale()
    before = schedule.func
    with pytest.raises(t.ScheduleError):
        schedule.split("i", factors=[2, 4])
    assert schedule.func is before
    assert schedule.trace == ()


@pytest.mark.parametrize("factors", [[None, 1 << 40], [None, (1 << 63) - 1], [None, 1 << 20, 1 << 20], [1 << 31, 1]])
def test_factors_whose_sums_would_wrap_are_refused(factors: list[int | None]) -> None:
    schedule = scale()
    before = schedule.func
    with pytest.raises(t.ScheduleError, match=r"the product of the factors .* is beyond 2,147,483,647"):
        schedule.split("i", factors=factors)
    assert schedule.func is before


def test_an_alignment_beyond_all_memory_is_refused() -> None:
    x = t.placeholder((6, 5), "int8", "x")
    y = t.compute((6, 5), lambda i, j: x[i, j] + 1, "y")
    schedule = t.create_schedule(t.compute((6, 5), lambda i, j: y[i, j] + 1, "z"))
    with pytest.raises(t.ScheduleError, match="factor is 1099511627776, but must be at most 1,048,576"):
        schedule.storage_align("y", 0, 1 << 40, 1)


def test_a_trace_prints_replays_and_is_checked() -> None:
    schedule = scale()
    schedule.split("i", 4)
    schedule.reorder("i_o", "i_i")
    assert str(schedule.trace[0]) == "i_o, i_i = split(loop='i', factors=[None, 4])"
    trace = t.trace_from_json(t.trace_to_json(schedule.trace))
    assert t.replay(scale(), trace).func == schedule.func
    other = scale()
    other.split("i", 5)
    with pytest.raises(t.ScheduleError, match="there is no loop 'i'"):
        t.replay(other, trace)
    with pytest.raises(t.ScheduleError, match="unknown primitive 'func'"):
        t.replay(scale(), (t.Step("func", ()),))
    damaged = ("{}", "[[", "[5]", '[["split", {}]]', "[[1, {}, []]]", '[["split", [], []]]', '[["split", {}, [1]]]')
    for text in (*damaged, '[["split", {}, 5]]', "[" * 100_000):
        with pytest.raises(t.ScheduleError, match="this is not a schedule trace"):
            t.trace_from_json(text)


def test_a_copy_goes_its_own_way() -> None:
    schedule = scale()
    other = schedule.copy()
    other.split("i", 4)
    assert schedule.get_loops("y") == [t.Var("i")]
    assert len(other.trace) == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, k: t.compute((4,), lambda i: x[i, k], "y"), "uses reduction axis 'k', but does not reduce"),
        (lambda x, k: t.compute((4,), lambda i, j: x[i, j], "y"), "shape has 1 dimensions, but the function takes 2"),
        (lambda x, k: t.compute((4,), lambda i: x[i], "y"), "tensor 'x' has 2 dimensions, but is read with 1"),
        (lambda x, k: t.compute((4,), lambda i: x[i, 0] + x[i, 0].astype("int32"), "y"), "'add' of int8 and int32"),
        (lambda x, k: t.compute((4,), lambda k_: t.sum(x[k_, k], []), "y"), "a reduction needs at least one axis"),
        (lambda x, k: t.compute((4,), lambda k: t.sum(x[0, t.reduce_axis(4, "k")], t.reduce_axis(4, "k")), "y"),
         "stage 'y' has an axis and a reduction axis of one name, 'k'"),
        (lambda x, k: t.compute((4,), lambda i: x[i, 0] if x[i, 0] > 0 else x[i, 1], "y"), "no truth value"),
        (lambda x, k: t.compute((4,), lambda i: x[i, 0] + 300, "y"), "constant 300 does not fit int8"),
        (lambda x, k: t.placeholder((4,), "int8", "conv/weight"), "a tensor cannot be called 'conv/weight'"),
        (lambda x, k: t.create_schedule(x), "computes nothing"),
        (lambda x, k: t.create_schedule(t.compute((4,), lambda i: x[i, 0], "y"), inputs=[]), "'x' is read, but is not"),
        (lambda x, k: t.create_schedule(t.compute((4,), lambda i: x[i, 0], "x")), "two tensors are called 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_definition_is_refused(build: Callable[[t.Tensor, t.ReduceAxis], Any], message: str) -> None:
    with pytest.raises(t.IRError, match=message):
        build(t.placeholder((4, 4), "int8", "x"), t.reduce_axis(4, "k"))
