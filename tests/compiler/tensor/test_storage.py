"""storage_align and double_buffer: the program after them, what they promise, and their refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft.compiler import tensor as t
from weft.compiler.tensor.ir import sequence
from weft.compiler.tensor.tree import find_buffer
from weft.compiler.tensor.visitor import substitute_stmt

from .conv_example import Conv, accelerator_schedule
from .programs import PROGRAMS, matmul_chain, padded_conv


def arrays_of(schedule: t.Schedule) -> dict[str, Any]:
    random = np.random.default_rng(3)
    given = [buffer for buffer in schedule.func.params if buffer.name not in schedule.blocks()]
    return {buffer.name: random.integers(-100, 100, buffer.shape).astype(buffer.dtype) for buffer in given}


def rows_of_pad() -> t.Schedule:
    """The padded rows of padded_conv are computed for each row of the result."""
    schedule = padded_conv()
    schedule.compute_at("pad", "acc_y")
    return schedule


def test_storage_align_leaves_gaps_that_survive_a_move() -> None:
    schedule = padded_conv()
    schedule.storage_align("pad", 0, 8, 4)
    assert 'with allocate(int8[7, 9] @ "global", align=[(0, 8, 4)]) as pad:' in str(schedule)
    schedule.compute_at("pad", "acc_y")
    pad = find_buffer(schedule.func, "pad")
    assert (pad.shape, pad.strides, pad.size) == ((3, 9), (12, 1), 36)
    assert t.parse(str(schedule)) == schedule.func
    expected = t.interpret(padded_conv().func, arrays_of(schedule))
    np.testing.assert_array_equal(t.interpret(schedule.func, arrays_of(schedule))["out"], expected["out"])


def test_storage_align_of_several_dimensions() -> None:
    schedule = padded_conv()
    schedule.storage_align("acc", 1, 32, 0)
    schedule.storage_align("acc", 0, 16, 1)
    assert find_buffer(schedule.func, "acc").strides == (161, 32, 1)
    schedule.storage_align("acc", 1, 1, 0)
    assert find_buffer(schedule.func, "acc").strides == (49, 7, 1)


def test_double_buffer_gives_the_iterations_two_copies_in_turn() -> None:
    schedule = rows_of_pad()
    schedule.double_buffer("pad")
    lines = [line.strip() for line in str(schedule).splitlines()]
    place = lines.index('with allocate(int8[2, 3, 9] @ "global") as pad:')
    assert lines[place + 1] == "for acc_y in range(5):"
    assert "pad[acc_y % 2, y, c] = select(" in str(schedule)
    assert "+ pad[acc_y % 2, kh, acc_c + kw].astype(int32)" in str(schedule)


def one_iteration_ahead(func: t.PrimFunc, loop: str) -> t.PrimFunc:
    """The function with the first stage of the loop's body run one iteration ahead of the rest."""

    def change(stmt: t.Stmt) -> t.Stmt:
        match stmt:
            case t.Allocate(buffer, body):
                return t.Allocate(buffer, change(body))
            case t.Seq(body):
                return sequence(*map(change, body))
            case t.For(var=var, extent=extent, body=t.Seq((first, *rest))) if var.name == loop:
                following = t.If(var + 1 < extent, substitute_stmt(first, {var: var + 1}))
                ahead = t.For(var, extent, "serial", sequence(following, *rest))
                return sequence(substitute_stmt(first, {var: t.Const(0)}), ahead)
            case t.For(var=var, extent=extent, kind=kind, body=body):
                return t.For(var, extent, kind, change(body))
        return stmt

    return t.PrimFunc(func.name, func.params, change(func.body))


def test_with_two_copies_the_next_one_is_filled_while_this_one_is_read() -> None:
    schedule = rows_of_pad()
    schedule.double_buffer("pad")
    arrays = arrays_of(schedule)
    expected = t.interpret(padded_conv().func, arrays)["out"]
    ahead = one_iteration_ahead(schedule.func, "acc_y")
    assert ahead != schedule.func
    np.testing.assert_array_equal(t.interpret(ahead, arrays)["out"], expected)
    one_copy = t.parse(str(schedule).replace("pad[acc_y % 2", "pad[0"))
    assert (t.interpret(one_iteration_ahead(one_copy, "acc_y"), arrays)["out"] != expected).any()


def test_twice_doubled_buffers_alternate_with_two_loops() -> None:
    schedule = rows_of_pad()
    schedule.storage_align("pad", 0, 16)
    schedule.double_buffer("pad")
    schedule.double_buffer("pad")
    pad = find_buffer(schedule.func, "pad")
    assert (pad.shape, pad.strides) == ((2, 2, 3, 9), (96, 48, 16, 1))
    assert "pad[o, acc_y % 2, y, c]" in str(schedule), "o runs twice, so o % 2 is o"


def tensorized() -> t.Schedule:
    return accelerator_schedule(Conv())


REFUSALS: dict[str, tuple[Callable[[], t.Schedule], Callable[[t.Schedule], Any], str]] = {
    "align a parameter": (
        padded_conv,
        lambda s: s.storage_align("x", 0, 8),
        "buffer 'x': storage_align: 'x' is a parameter, and its layout is the caller's; hint: use cache_read or "
        "cache_write",
    ),
    "align the last axis": (
        padded_conv,
        lambda s: s.storage_align("pad", 1, 8),
        "buffer 'pad': storage_align: axis is 1, but must be in 0..0: 'pad' has 2 dimensions, and elements along the "
        "last one are neighbours",
    ),
    "align one dimension": (
        PROGRAMS["wrapping"],
        lambda s: s.storage_align("total", 0, 8),
        "buffer 'total': storage_align: 'total' has no rows to be aligned, its shape is [4]",
    ),
    "align by less than the offset": (
        padded_conv,
        lambda s: s.storage_align("pad", 0, 8, 8),
        "buffer 'pad': storage_align: factor is 8 and offset 8, but 0 <= offset < factor must hold",
    ),
    "double a parameter": (
        padded_conv,
        lambda s: s.double_buffer("x"),
        "buffer 'x': double_buffer: 'x' is a parameter; hint: cache_read it, and compute_at the copy",
    ),
    "double outside of loops": (
        padded_conv,
        lambda s: s.double_buffer("pad"),
        "buffer 'pad': double_buffer: 'pad' is not allocated inside a loop whose iterations could take turns; "
        "hint: compute_at its stage first",
    ),
    "double in a thread": (
        rows_of_pad,
        lambda s: (s.vthread("acc_y"), s.double_buffer("pad")),
        "buffer 'pad': double_buffer: loop 'acc_y' around 'pad' is marked vthread, so each of its iterations has a "
        "copy already; hint: compute_at a serial loop inside of it",
    ),
    "double after tensorize": (
        tensorized,
        lambda s: s.double_buffer("pad"),
        "buffer 'pad': double_buffer: block 'pad', which uses 'pad', is a call of 'load_padded' already; "
        "hint: double_buffer before tensorize",
    ),
    "align after tensorize": (
        tensorized,
        lambda s: s.storage_align("pad", 0, 64),
        "buffer 'pad': storage_align: block 'pad', which uses 'pad', is a call of 'load_padded' already; "
        "hint: storage_align before tensorize",
    ),
    "scope after tensorize": (
        tensorized,
        lambda s: s.set_scope("pad", "wgt"),
        "buffer 'pad': set_scope: block 'pad', which uses 'pad', is a call of 'load_padded' already; "
        "hint: set_scope before tensorize",
    ),
    "double for one turn": (
        padded_conv,
        lambda s: (s.split("acc_y", 5), s.compute_at("pad", "acc_y_o"), s.double_buffer("pad")),
        "buffer 'pad': double_buffer: loop 'acc_y_o' around 'pad' runs once, so there is no next turn",
    ),
    "compute_at of a doubled buffer": (
        padded_conv,
        lambda s: (
            s.reverse_compute_at("out", "o"),
            s.double_buffer("acc"),
            s.split("o", 1),
            s.compute_at("acc", "o_i"),
        ),
        "block 'acc': compute_at: block 'acc' writes 'acc' at 'o_o', which is a loop around it; hint: compute_at "
        "before reverse_compute_at and double_buffer",
    ),
    "parallel turns": (
        rows_of_pad,
        lambda s: (s.double_buffer("pad"), s.parallel("acc_y")),
        "loop 'acc_y': parallel: iterations of loop 'acc_y' may meet in elements of 'pad'; hint: allocate 'pad' "
        "inside the loop (compute_at), or mark loops before they are fused, double-buffered and tensorized",
    ),
    "parallel over what all write": (
        matmul_chain,
        lambda s: (s.split("k", 4), s.rfactor("product", "k_i"), s.reorder("k_i", "i"), s.parallel("k_i_all")),
        "loop 'k_i_all': parallel: loop 'k_i_all' is a reduction of block 'product', so its iterations meet; hint: "
        "mark a loop over the block's output instead",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_place_and_the_reason(case: str) -> None:
    make, step, message = REFUSALS[case]
    schedule = make()
    with pytest.raises(t.ScheduleError) as error:
        step(schedule)
    assert str(error.value) == message
