"""Small tensors that are moved between operators are no kernels of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pytest
import weft
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Tuple,
    Var,
    call,
    evaluate,
)
from weft.compiler.model import HostStep
from weft.compiler.targets.cpu import processor
from weft.compiler.targets.cpu.build import check_host_program
from weft.compiler.targets.loops import small_moves
from weft.compiler.targets.loops.fusion import group_calls
from weft.compiler.targets.loops.fusion_limits import FusionLimits
from weft.compiler.targets.loops.small_moves import REPEATED

from ..cpu.programs import compiled

LIMITS = FusionLimits(before_reductions=True, row_statistics=True, moved_bytes=4096)
X = Var("x", TensorType((4, 6, 8), "float32"))
Y = Var("y", TensorType((4, 8), "float32"))


def kernels(result: Expr, limits: FusionLimits = LIMITS) -> list[tuple[str, ...]]:
    return [tuple(str(node.op) for node in group.members) for group in group_calls(result, limits)]


def turned(x: Expr) -> Call:
    """Rotary positions: the second half of the last axis, negative, before the first."""
    half = x.shape[-1] // 2
    sizes, steps = (*x.shape[:-1], half), (1,) * len(x.shape)
    low, high = (call("slice", x, starts=(*(0,) * (len(x.shape) - 1), start), sizes=sizes, steps=steps)
                 for start in (0, half))  # fmt: skip
    return call("concat", call("nn.negative", high), low, axis=len(x.shape) - 1)


def rotated(x: Expr) -> Call:
    wave = Constant(np.linspace(-1, 1, x.shape[-1]).astype(np.float32))
    return call("nn.add", call("nn.multiply", x, wave), call("nn.multiply", turned(x), wave))


def norm(x: Expr) -> Call:
    mean = call("nn.reduce_mean", call("nn.multiply", x, x), axes=(len(x.shape) - 1,), keepdims=True)
    return call("nn.divide", x, call("nn.sqrt", mean))


@pytest.mark.parametrize("made", [turned, rotated], ids=lambda made: made.__name__)
def test_what_is_between_moves_is_one_kernel(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    result = made(X)  # type: ignore[operator]
    assert len(kernels(result)) == 1
    assert len(kernels(result, FusionLimits())) > 1
    assert not group_calls(result, LIMITS)[0].moved_rows  # each element is read where it lies
    limits = processor.fusion_limits
    monkeypatch.setattr(processor, "fusion_limits", lambda core: replace(limits(core), moved_bytes=4096))
    module = Module(Function((X,), result, Attrs({"name": "main", "outputs": ("out",)})))
    given = {"x": np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)}
    model = compiled(module)
    assert len(model.layers) == 1
    found = weft.load(model).run(given)["out"]
    np.testing.assert_allclose(found, evaluate(module, given)["out"], rtol=1e-5, atol=1e-6)


def test_large_tensors_are_moved_by_kernels_of_their_own() -> None:
    nbytes = 4 * X.tensor_type.size
    assert len(kernels(rotated(X), replace(LIMITS, moved_bytes=nbytes))) == 1
    assert len(kernels(rotated(X), replace(LIMITS, moved_bytes=nbytes - 1))) > 1


def test_what_two_kernels_read_is_computed_once() -> None:
    product = call("nn.multiply", X, X)
    both = Tuple((turned(product), call("nn.add", product, product)))
    assert sum("nn.multiply" in members for members in kernels(both)) == 1


def test_what_takes_long_is_not_repeated() -> None:
    """An exponential that two halves read stands alone, and a product that they read does not."""
    assert ("nn.exp",) in kernels(rotated(call("nn.exp", X)))
    assert len(kernels(rotated(call("nn.multiply", X, X)))) == 1


def test_an_element_is_computed_a_few_times_at_most() -> None:
    def spread(times: int) -> Call:
        sum_ = call("nn.add", Y, Y)
        tall = call("reshape", sum_, shape=(1, 4, 8))
        return call("transpose", call("expand", tall, shape=(times, 4, 8)), perm=(2, 1, 0))

    assert len(kernels(spread(REPEATED))) == 1
    assert ("expand", "transpose") in kernels(spread(REPEATED + 1))


def test_reductions_keep_their_order_of_summation() -> None:
    """What moves their operands and results are kernels of their own, and a reshape is none."""
    assert kernels(norm(X)) == kernels(norm(X), replace(LIMITS, moved_bytes=0))
    moved = call("pad", call("transpose", norm(X), perm=(0, 2, 1)), pads=(0, 0, 0, 0, 0, 2), value=0.0)
    assert kernels(moved) == [*kernels(norm(X)), ("transpose", "pad")]
    assert kernels(call("reshape", norm(X), shape=(4, 48))) == [*kernels(norm(X)), ("reshape",)]
    scores = call("nn.multiply", call("transpose", X, perm=(0, 2, 1)), Constant(np.float32(2)))
    assert kernels(call("nn.softmax", scores, axis=2))[-1] == ("nn.softmax",)


def test_elements_are_numbered_only_where_a_move_reads_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large tensor they are millions."""
    numbered: list[str] = []
    moved = small_moves._moved

    def counted(move: Call) -> Array | None:
        numbered.append(str(move.op))
        return moved(move)

    monkeypatch.setattr(small_moves, "_moved", counted)
    large = Var("x", TensorType((64, 32, 16), "float32"))
    turned = call("transpose", call("nn.abs", large), perm=(0, 2, 1))
    assert kernels(turned) == [("nn.abs",), ("transpose",)]
    assert not numbered
    kernels(call("transpose", call("pad", large, pads=(0, 0, 0, 0, 0, 4), value=0.0), perm=(1, 0, 2)))
    assert numbered == ["transpose", "pad"]


def softmax(x: Expr) -> Call:
    return call("nn.softmax", x, axis=len(x.shape) - 1)


def scores(x: Expr) -> Call:
    """Rows of 21 of 32 channels, 16 of which lie together, as an accelerator gives them."""
    sliced = call("slice", x, starts=(0, 0, 0), sizes=(3, 21, 10), steps=(1, 1, 1))
    return call("transpose", call("reshape", sliced, shape=(3, 1, 21, 10)), perm=(0, 1, 3, 2))


def merged(x: Expr) -> Call:
    """Every other row and column of an image beside the others."""
    images = call("reshape", x, shape=(4, 6, 40))
    parts = [call("slice", images, starts=(row, column, 0), sizes=(2, 3, 40), steps=(2, 2, 1))
             for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))]  # fmt: skip
    return call("concat", *parts, axis=2)


@pytest.mark.parametrize("rows", [softmax, norm])
@pytest.mark.parametrize("moves", [scores, merged])
@pytest.mark.parametrize("widens", [True, False])
def test_rows_are_moved_by_the_kernel_that_combines_them(
    rows: Callable[[Expr], Expr], moves: Callable[[Expr], Expr], widens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one kernel, which gives what it gives without moves, to the bit."""
    x = Var("x", TensorType((3, 32, 10), "int8" if widens else "float32"))
    moved = moves(x)
    given_ = {"x": np.random.default_rng(0).integers(-128, 128, x.type.shape).astype(x.dtype)}
    scale = Constant(np.float32(0.05))
    body = rows(call("dequantise", moved, scale, Constant(np.int8(3))) if widens else moved)
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("out",)})))
    apart = weft.load(compiled(module)).run(given_)["out"]
    limits = processor.fusion_limits
    monkeypatch.setattr(processor, "fusion_limits", lambda core: replace(limits(core), moved_bytes=4096))
    model = compiled(module)
    assert [layer.operators[-1] for layer in model.layers] == [body.op]
    for step in model.steps:
        assert isinstance(step, HostStep)
        check_host_program(step.program)
    np.testing.assert_array_equal(weft.load(model).run(given_)["out"], apart)


def test_rows_that_others_need_or_of_large_tensors_whose_elements_lie_apart_are_moved_before() -> None:
    turned_around = call("transpose", X, perm=(0, 2, 1))
    both = Tuple((softmax(turned_around), call("nn.abs", turned_around)))
    assert ("transpose",) in kernels(both)
    assert ("transpose",) in kernels(softmax(turned_around), replace(LIMITS, moved_bytes=64))
    x = Var("x", TensorType((6, 200, 16), "int8"))
    together = call("reshape", call("transpose", x, perm=(1, 0, 2)), shape=(200, 96))
    widened = call("dequantise", together, Constant(np.float32(0.5)), Constant(np.int8(3)))
    assert [each for each in kernels(softmax(widened), replace(LIMITS, moved_bytes=64)) if each != ("reshape",)] == [
        ("transpose", "reshape", "dequantise", "nn.softmax")
    ]


def blocks_of(x: Expr) -> Call:
    """Rows of 21 as an accelerator reads them: 32 channels, 16 of which lie together, before the pixels."""
    filled = call("pad", x, pads=(0,) * (2 * len(x.shape) - 1) + (11,), value=0)
    blocks = call("reshape", filled, shape=(3, 10, 2, 16))
    return call("transpose", blocks, perm=(0, 2, 1, 3))


def patches_of(x: Expr) -> Call:
    """Rows of 160 of patches in another order, in blocks."""
    blocks = call("reshape", x, shape=(2, 3, 10, 16))
    return call("transpose", blocks, perm=(2, 1, 0, 3))


@pytest.mark.parametrize("rows", [softmax, norm])
@pytest.mark.parametrize(("moves", "behind"), [(scores, blocks_of), (merged, patches_of)])
@pytest.mark.parametrize("moved_bytes", [64, 4096])
def test_rows_are_written_through_moves_by_the_kernel_that_combines_them(
    rows: Callable[[Expr], Expr], moves: Callable[[Expr], Expr], behind: Callable[[Expr], Call], moved_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A row at a time: all that it stores on the way is one row. Of any size; what is moved before is of some."""
    x = Var("x", TensorType((3, 32, 10), "int8"))
    scales = Constant(np.array(0.05, np.float32)), Constant(np.array(3, np.int8))
    body = behind(call("quantise", rows(call("dequantise", moves(x), *scales)), *scales))
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("out",)})))
    given_ = {"x": np.random.default_rng(0).integers(-128, 128, x.type.shape).astype(np.int8)}
    apart = weft.load(compiled(module)).run(given_)["out"]
    limits = processor.fusion_limits
    monkeypatch.setattr(processor, "fusion_limits", lambda core: replace(limits(core), moved_bytes=moved_bytes))
    model = compiled(module)
    assert len([layer for layer in model.layers if {"nn.softmax", "nn.sqrt"} & set(layer.operators)]) == 1
    assert model.layers[-1].operators[-1] == "transpose"
    assert len(model.layers) == 1 or moved_bytes < 4096
    for step in model.steps:
        assert isinstance(step, HostStep)
        check_host_program(step.program)
        text = next(kernel.text for kernel in step.program.kernels if "_init" in kernel.text)
        sizes = [prod(map(int, size.split(","))) for size in re.findall(r"allocate\(\w+\[([\d, ]+)\]", text)]
        assert set(sizes) <= {1, moves(x).shape[-1]}
        assert ("moved" in text) == (moved_bytes == 4096)
        blocks = re.search(r"in range\((2|10)\)", text)
        assert blocks is None or text.index("_init") < blocks.start()
    np.testing.assert_array_equal(weft.load(model).run(given_)["out"], apart)


def test_rows_that_others_need_too_or_whose_elements_come_apart_are_moved_by_other_kernels() -> None:
    rows = softmax(call("nn.abs", Var("x", TensorType((3, 10, 160), "float32"))))
    blocks = call("transpose", call("reshape", rows, shape=(3, 10, 10, 16)), perm=(0, 2, 1, 3))
    assert kernels(blocks)[-1] == ("nn.softmax", "reshape", "transpose")
    for read in (rows, blocks.args[0]):
        shared = kernels(Tuple((blocks, call("nn.abs", read))))
        assert all("nn.softmax" not in members or "transpose" not in members for members in shared)
    turned_around = call("transpose", rows, perm=(0, 2, 1))
    assert kernels(turned_around)[-1] == ("transpose",)
    columns = call("transpose", call("nn.softmax", rows.args[0], axis=1), perm=(1, 0, 2))
    assert kernels(columns)[-1] == ("transpose",)
    assert kernels(blocks, replace(LIMITS, moved_bytes=0))[-1] == ("transpose",)
    assert "nn.softmax" not in kernels(blocks, replace(LIMITS, depth=2))[-1]


def test_what_combines_other_axes_than_rows_keeps_moves_apart() -> None:
    columns = call("nn.softmax", call("transpose", X, perm=(0, 2, 1)), axis=1)
    assert kernels(columns) == [("transpose",), ("nn.softmax",)]
    summed = call("nn.reduce_sum", call("transpose", X, perm=(0, 2, 1)), axes=(1,), keepdims=True)
    assert len(kernels(summed)) == 2


@dataclass(frozen=True)
class AnyAttention:
    def makes(self, product: Call, anchor: Call) -> bool:
        return True


def test_products_take_nothing_in() -> None:
    turned_around = call("transpose", X, perm=(0, 2, 1))
    product = call("nn.matmul", turned_around, X)
    assert [members for members in kernels(product) if "nn.matmul" in members] == [("nn.matmul",)]
    attention = call("nn.matmul", softmax(product), call("nn.abs", Var("v", TensorType((4, 8, 8), "float32"))))
    assert ("nn.matmul", "nn.softmax", "nn.matmul") in kernels(attention, replace(LIMITS, attention=AnyAttention()))


def unpacked(groups: int, pixels: int, block: int, perm: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Var, Call]:
    """Channels of an accelerator, a block of which lies together, as floats in another order."""
    x = Var("x", TensorType((groups, pixels, block), "int8"))
    moved = call("reshape", call("transpose", x, perm=perm), shape=shape)
    return x, call("dequantise", moved, Constant(np.float32(0.5)), Constant(np.int8(3)))


@pytest.mark.parametrize(
    ("groups", "block", "perm", "shape", "count"),
    [
        (6, 16, (1, 0, 2), (1, 5, 40, 96), 1),  # channels last: blocks stay together
        (6, 8, (1, 0, 2), (200, 48), 1),
        (6, 4, (1, 0, 2), (200, 24), 2),  # too few to be read by lanes
        (6, 16, (0, 2, 1), (1, 96, 5, 40), 2),  # pixels of a channel lie apart
    ],
)
def test_large_rows_are_read_through_moves_that_keep_parts_of_them_together(
    groups: int, block: int, perm: tuple[int, ...], shape: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, body = unpacked(groups, 200, block, perm, shape)
    made = [members for members in kernels(body, replace(LIMITS, moved_bytes=64)) if members != ("reshape",)]
    assert len(made) == count
    limits = processor.fusion_limits
    monkeypatch.setattr(processor, "fusion_limits", lambda core: replace(limits(core), moved_bytes=64))
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("out",)})))
    values = {"x": np.random.default_rng(0).integers(-128, 128, x.type.shape).astype(np.int8)}
    model = compiled(module)
    for step in model.steps:
        assert isinstance(step, HostStep)
        check_host_program(step.program)
    np.testing.assert_array_equal(weft.load(model).run(values)["out"], evaluate(module, values)["out"])


def test_what_others_read_too_is_moved_once() -> None:
    _, body = unpacked(6, 200, 16, (1, 0, 2), (200, 96))
    moved = body.args[0]
    both = Tuple((body, call("nn.abs", call("nn.cast", moved, to="float32"))))
    assert any(
        "transpose" in members and len(members) == 1 for members in kernels(both, replace(LIMITS, moved_bytes=64))
    )


def test_another_shape_of_a_large_tensor_stays_free() -> None:
    flat = call("reshape", Var("x", TensorType((6, 200, 16), "float32")), shape=(600, 32))
    assert kernels(call("nn.abs", flat), replace(LIMITS, moved_bytes=64)) == [("reshape",), ("nn.abs",)]


def test_large_moves_that_meet_and_keep_parts_of_rows_are_one_kernel() -> None:
    x = Var("x", TensorType((6, 64, 40), "int8"))
    turned_ = call("reshape", call("transpose", x, perm=(0, 2, 1)), shape=(6, 40, 4, 16))
    packed = call("transpose", turned_, perm=(0, 2, 1, 3))
    assert kernels(packed, replace(LIMITS, moved_bytes=64))[-1] == ("transpose",)  # nothing is together in the end
    back = call("transpose", call("reshape", packed, shape=(6, 4, 40, 16)), perm=(0, 1, 3, 2))
    rows = call("transpose", call("reshape", back, shape=(6, 64, 40)), perm=(1, 0, 2))
    assert len(kernels(rows, replace(LIMITS, moved_bytes=64))) == 1
