"""A packed, padded, quantised convolution from its definition to intrinsics."""

from __future__ import annotations

import time

import numpy as np
import pytest
from weft.compiler import tensor as t

from .conv_example import Conv, accelerator_schedule, conv_data, conv_reference, conv_schedule, intrinsics

CASES = {
    "padded": Conv(),
    "strided": Conv(height=9, width=7, stride=2),
    "pointwise": Conv(kernel=1, padding=0, lanes=8),
    "large window": Conv(height=6, width=6, kernel=5, padding=2, stride=2, in_blocks=1, out_blocks=1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_definition_is_the_convolution(name: str) -> None:
    conv = CASES[name]
    data = conv_data(conv)
    found = t.interpret(conv_schedule(conv).func, data)["out"]
    np.testing.assert_array_equal(found, conv_reference(conv, data))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_the_tensorized_program_is_the_convolution(name: str, rows: int) -> None:
    conv = CASES[name]
    data = conv_data(conv, seed=rows)
    schedule = accelerator_schedule(conv, rows, vthreads=rows == 2)
    t.verify(schedule.func)
    found = t.interpret(schedule.func, data)["out"]
    np.testing.assert_array_equal(found, conv_reference(conv, data))
    assert t.parse(t.function_text(schedule.func), intrinsics(conv.lanes)) == schedule.func
    trace = t.trace_from_json(t.trace_to_json(schedule.trace))
    assert t.replay(conv_schedule(conv), trace, intrinsics(conv.lanes)).func == schedule.func


def test_every_stage_becomes_calls() -> None:
    schedule = accelerator_schedule(Conv())
    text = str(schedule)
    assert "block(" not in text
    gemm = text[text.index('gemm("acc"') :].split(")\n", maxsplit=4)
    assert "init=[kc, kh, kw], init_value=int32(0)" in "".join(gemm)


def test_the_parts_in_scratchpads_are_tiles_with_a_halo() -> None:
    text = str(accelerator_schedule(Conv(), tile_rows=2))
    assert 'allocate(int8[1, 4, 8, 1, 4] @ "inp") as pad' in text
    assert "for y in range(min(4, 7 - out_write_i1_o * 2)):" in text
    assert 'allocate(int32[1, 2, 6, 1, 4] @ "acc") as acc' in text


def test_padding_becomes_a_predicate_of_the_load() -> None:
    text = str(accelerator_schedule(Conv(), tile_rows=2))
    assert "inside=(1 <= out_write_i1_o * 2 + y) & (out_write_i1_o * 2 + y < 6) & (1 <= x_) & (x_ < 7)" in text
    assert "fill=int8(-3)" in text


def test_a_layer_of_14_by_14_with_64_channels_is_interpreted_in_seconds() -> None:
    conv = Conv(height=14, width=14, in_blocks=4, out_blocks=4, lanes=16)
    data = conv_data(conv)
    started = time.monotonic()
    schedule = accelerator_schedule(conv, 4)
    found = t.interpret(schedule.func, data)["out"]
    assert time.monotonic() - started < 10
    np.testing.assert_array_equal(found, conv_reference(conv, data))
