"""Kernels from a file are refused unless it is proved that they touch their own memory only."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as t
from weft.compiler.model import HostProgram, KernelCode
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.cpu.intrinsics import intrinsic_named
from weft.compiler.targets.cpu.kernels import loop_target
from weft.compiler.targets.cpu.processor import named_target
from weft.compiler.targets.loops.check_kernel import CheckedKernel, UncheckedKernelError, check_kernel
from weft.compiler.targets.loops.kernel_code import kernel_code, kernel_symbol, touched_bytes
from weft.compiler.targets.loops.link import link_host
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.tensor.errors import TensorError
from weft.compiler.tensor.interpreter import InterpreterError
from weft.compiler.tensor.visitor import stores_of

PLAIN = """def weft_kernel(
    x: float32[4, 8] @ "global",
    y: float32[4, 8] @ "global",
):
    for i in parallel(4):
        for j in vectorize(8):
            y[i, j] = x[i, j]
"""


def code_of(text: str, threads: int = 1) -> KernelCode:
    """A kernel of this text, with all that follows from it."""
    func = t.parse(text, intrinsic_named)
    return replace(kernel_code(func, {}, threads), text=text, symbol=kernel_symbol(text, {}))


def check(code: KernelCode, threads: int = 1) -> CheckedKernel:
    return check_kernel(code, threads, intrinsic_named)


def program_of(seed: int, processor: str) -> HostProgram:
    return link_host(prepare(random_graph(seed, 8).module), loop_target(named_target(processor)), 2)


def mutations(text: str) -> list[str]:
    """The text with one number of an index or extent one higher, or a buffer one smaller."""
    results: list[str] = []
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", text):
        for number in {int(match[0]) + 1, max(1, int(match[0]) - 1)}:
            results.append(text[: match.start()] + str(number) + text[match.end() :])
    return results


def runs_inside(func: t.PrimFunc) -> bool:
    """Whether the interpreter finds each index inside of its buffer."""
    written = {buffer.name for buffer, _ in stores_of(func.body)}
    arrays = {
        buffer.name: np.zeros(buffer.shape, t.NUMPY_TYPES[buffer.dtype])
        for buffer in func.params if buffer.name not in written
    }  # fmt: skip
    try:
        t.interpret(func, arrays)
    except InterpreterError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.data())
def test_a_mutated_kernel_is_refused_or_stays_inside(seed: int, data: st.DataObject) -> None:
    kernels = [
        code for code in program_of(seed, "host").kernels
        if len(code.text) < 3000 and not code.windows and mutations(code.text)
    ]  # fmt: skip
    assume(kernels)
    text = data.draw(st.sampled_from(mutations(data.draw(st.sampled_from(kernels)).text)))
    try:
        code = code_of(text)
        assume(code.workspace_bytes < 1 << 20)
        check(code)
    except (TensorError, UncheckedKernelError):
        return
    assert runs_inside(t.parse(text, intrinsic_named)), text


def test_what_a_kernel_writes_is_told() -> None:
    assert check(code_of(PLAIN)).written == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y[i, j] =", "y[i, j + 1] =", r"buffer 'y': an index may be outside of the 8 elements of axis 1: j \+ 1"),
        ("= x[i, j]", "= x[i, j - 1]", r"buffer 'x': an index may be outside of the 8 elements of axis 1: j - 1"),
        ("parallel(4)", "parallel(5)", r"buffer 'y': an index may be outside"),
        ("x: float32[4, 8]", "x: float32[4, 7]", r"buffer 'x': an index may be outside of the 7 elements of axis 1: j"),
        ("= x[i, j]", "= x[i, 4611686018427387904 * j + 4611686018427387904 * j]", "this may wrap"),
        ("vectorize(8)", "unroll(100000)", "buffer 'y'"),
        ("weft_kernel", "malloc", "its function is called 'malloc'"),
        ("for j in", "for i in", "declared twice"),
        ("= x[i, j]", "= missing[i, j]", "buffer 'missing' is not known here"),
        ("y[i, j] = x[i, j]", "thing(\"y\")", "the CPU has no intrinsic 'thing'"),
        ("y[i, j] = x[i, j]", "y[i, j] = 1 +", "not the text of a function"),
    ],
)  # fmt: skip
def test_an_error_names_kernel_and_buffer(old: str, new: str, message: str) -> None:
    changed = PLAIN.replace(old, new)
    code = replace(code_of(PLAIN), text=changed, symbol=kernel_symbol(changed, {}))
    shape = re.search(r"x: float32\[4, (\d)\]", changed)
    assert shape is not None
    code = replace(code, nbytes=(16 * int(shape[1]), 128))
    with pytest.raises(UncheckedKernelError, match=message) as caught:
        check(code)
    assert str(caught.value).startswith(f"kernel '{code.symbol}'")


GATHER = """def weft_kernel(
    x: float32[5] @ "global",
    at: int64[3] @ "global",
    y: float32[3] @ "global",
):
    for i in parallel(3):
        y[i] = x[at[i] + (at[i] < 0).astype(int64) * 5]
"""


def test_an_index_that_depends_on_data_needs_their_interval() -> None:
    code = code_of(GATHER)
    for elements in ({}, {1: ((-6, 4),)}, {1: ((-5, 5),)}):
        with pytest.raises(UncheckedKernelError, match="buffer 'x': an index may be outside of the 5 elements"):
            check_kernel(code, 1, intrinsic_named, elements)
    check_kernel(code, 1, intrinsic_named, {1: ((-5, 4),)})


def test_a_guard_on_data_that_may_change_does_not_count() -> None:
    text = GATHER.replace("x[at[i] + (at[i] < 0).astype(int64) * 5]",
                          "select((0 <= at[i]) & (at[i] < 5), x[at[i]], float32(0.0))")  # fmt: skip
    with pytest.raises(UncheckedKernelError, match="buffer 'x'"):
        check(code_of(text))


def test_a_kernel_must_not_write_what_was_checked() -> None:
    text = GATHER.replace("        y[i] =", "        at[i] = 7\n        y[i] =")
    with pytest.raises(UncheckedKernelError, match="its elements were checked before"):
        check_kernel(code_of(text), 1, intrinsic_named, {1: ((-5, 4),)})


@pytest.mark.parametrize(
    "change",
    [
        lambda code: replace(code, nbytes=(code.nbytes[0], code.nbytes[1] - 4)),
        lambda code: replace(code, workspace_bytes=64),
        lambda code: replace(code, parts=0),
    ],
)
def test_what_stands_beside_the_text_must_follow_from_it(change: object) -> None:
    assert callable(change)
    with pytest.raises(UncheckedKernelError, match="bytes, workspace or parts are not those of its text"):
        check(change(code_of(PLAIN, threads=2)), threads=2)


def test_a_name_must_be_that_of_the_content() -> None:
    with pytest.raises(UncheckedKernelError, match="its name is not that of its content"):
        check(replace(code_of(PLAIN), symbol="weft_0"))


def test_a_window_is_bounded_by_its_own_strides() -> None:
    func = t.parse(PLAIN)
    code = kernel_code(func, {"y": (10, 1)}, 1)
    assert code.nbytes == (128, 4 * (3 * 10 + 8)) == (128, touched_bytes(func.params[1], (10, 1)))
    check(code)
    with pytest.raises(UncheckedKernelError, match="fit no parameter"):
        check(replace(code, windows={"z": (10, 1)}, symbol=kernel_symbol(code.text, {"z": (10, 1)})))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[i] = x[i] // x[i]", "the divisor x\\[i\\] may be 0"),
        ("y[i] = x[i] << x[i]", "int32 may be shifted by another amount"),
        ("y[i] = x[i] << (i + 29).astype(int32)", "int32 may be shifted by another amount"),
        ("y[i] = x[i] >> (i - 1).astype(int32)", "int32 may be shifted by another amount"),
        ("for j in range(1000000000000):\n            for k in range(1000000000000):\n                y[i] = x[i]",
         "it computes 4,000,000,000,000,000,000,000,000 elements"),
        ("for j in unroll(1000000):\n            y[i] = x[i]", "in 1,000,000 statements"),
    ],
)  # fmt: skip
def test_what_stops_the_machine_or_never_ends_is_refused(body: str, message: str) -> None:
    text = (
        'def weft_kernel(\n    x: int32[4] @ "global",\n    y: int32[4] @ "global",\n):\n'
        f"    for i in parallel(4):\n        {body}\n"
    )
    with pytest.raises(UncheckedKernelError, match=message):
        check(code_of(text))


def test_a_shift_by_up_to_31_bits_passes() -> None:
    text = GATHER.replace("float32", "int32").replace("x[at[i] + (at[i] < 0).astype(int64) * 5]",
                                                      "x[i] << (i + 29).astype(int32)")  # fmt: skip
    check(code_of(text))


def test_a_tile_must_be_that_of_its_intrinsic() -> None:
    text = """def weft_kernel(
    a: float32[6] @ "global",
    b: float32[16] @ "global",
    acc: float32[6, 16] @ "register",
):
    for i in range(1):
        outer_product_6_16_1("acc",
            acc=tile(acc[0, 0], [6, 16], [16, 1]),
            a=tile(a[0], [6], [1]),
            b=tile(b[0], [16], [1]))
"""
    check(code_of(text))
    for old, new in (("outer_product_6_16_1", "outer_product_6_16_2"), ("b[0], [16]", "b[0], [8]")):
        with pytest.raises(UncheckedKernelError, match=r"the tile for '[ab]' of 'outer_product_6_16_[12]' is another"):
            check(code_of(text.replace(old, new)))
    with pytest.raises(UncheckedKernelError, match="buffer 'b': an index may be outside of its 16 elements"):
        check(code_of(text.replace("b=tile(b[0]", "b=tile(b[1]")))


def test_pairs_of_weights_must_be_those_of_a_parameter() -> None:
    text = """def weft_kernel(
    a: uint8[8] @ "global",
    b: int8[3, 8, 4] @ "global",
    acc: int32[1, 8] @ "register",
):
    for i in range(3):
        paired_dot_product_1_8_4_8("acc",
            acc=tile(acc[0, 0], [1, 8], [8, 1]),
            a=tile(a[0], [1, 4], [4, 1]),
            b=tile(b[i, 0, 0], [8, 4], [4, 1]))
"""
    assert check(code_of(text)).paired == (False, True, False)
    assert check(code_of(text.replace("paired_", "").replace("_4_8(", "_4("))).paired == (False, False, False)
    for changed in (
        text.replace("b[i, 0, 0]", "b[0, i, 1]"),
        text.replace("b[i, 0, 0]", "b[i * 8]").replace("3, 8, 4", "96"),
    ):
        with pytest.raises(
            UncheckedKernelError, match="buffer 'b': it is no parameter, or its last axis is not that of"
        ):
            check(code_of(changed))
