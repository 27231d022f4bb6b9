"""Changes of layout at the ends of a network, as compiled kernels, against their NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.operators.packed_layout import Blocks

BLOCKS = [Blocks(1, 16, 16), Blocks(1, 16, 32), Blocks(1, 8, 32), Blocks(2, 32, 8), Blocks(4, 8, 8), Blocks(2, 4, 4)]


def module_of(op: str, kind: TensorType, **attrs: Any) -> Module:
    x = Var("x", kind)
    return Module(Function((x,), call(op, x, **attrs), Attrs({"name": "main", "outputs": ("y",)})), "operators")


def check(module: Module, seed: int) -> CompiledModel:
    """The model of a module of one move, whose machine code gives what NumPy gives."""
    model = weft.compile(module, target="cpu")
    assert isinstance(model, CompiledModel)
    assert [layer.device for layer in model.layers] == ["cpu"], model.layers
    x = np.random.default_rng(seed).integers(-128, 128, module.main.params[0].shape).astype(np.int8)
    wanted = evaluate(module, {"x": x})["y"]
    got = weft.load(model).run(x)["y"]
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(got, wanted)
    return model


def plain_shapes() -> st.SearchStrategy[tuple[int, ...]]:
    """(N, C) and (N, C, H, W), also with rows long enough for squares of bytes."""
    batch, channels = st.integers(1, 5), st.integers(1, 70)
    images = st.tuples(batch, channels, st.integers(1, 9), st.integers(1, 40))
    return st.one_of(st.tuples(batch, channels), images)


@settings(max_examples=40, deadline=None)
@given(plain_shapes(), st.sampled_from(BLOCKS))
def test_pack_is_its_meaning(shape: tuple[int, ...], blocks: Blocks) -> None:
    check(module_of("pack", TensorType(shape, "int8"), blocks=blocks.sizes), 1)


@settings(max_examples=40, deadline=None)
@given(plain_shapes(), st.sampled_from(BLOCKS))
def test_unpack_is_its_meaning(shape: tuple[int, ...], blocks: Blocks) -> None:
    packed = blocks.packed_type(TensorType(shape, "int8"))
    check(module_of("unpack", packed, blocks=blocks.sizes, shape=shape), 2)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_unfold_is_its_meaning(data: st.DataObject) -> None:
    def several(count: int, low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(count))

    shape = (*several(2, 1, 4), *several(2, 7, 24))
    module = module_of(
        "unfold", TensorType(shape, "int8"), kernel=several(2, 1, 4), strides=several(2, 1, 3), pads=several(4, 0, 3),
        dilations=several(2, 1, 2), pad_value=data.draw(st.integers(-128, 127)),
    )  # fmt: skip
    check(module, 3)


@pytest.mark.parametrize("shape", [(1, 147, 20, 24), (1, 16, 5, 17), (3, 40, 16, 16)])
def test_bytes_are_transposed_in_registers_where_rows_are_long(shape: tuple[int, ...]) -> None:
    blocks = Blocks(1, 16, 16)
    model = check(module_of("pack", TensorType(shape, "int8"), blocks=blocks.sizes), 4)
    (step,) = model.steps
    assert any("transposed_bytes_16" in kernel.text for kernel in step.program.kernels)  # type: ignore[union-attr]


def test_both_ends_together_give_back_the_image() -> None:
    x, blocks = Var("x", TensorType((2, 21, 9, 33), "int8")), Blocks(2, 32, 8)
    packed = call("pack", x, blocks=blocks.sizes)
    back = call("unpack", packed, blocks=blocks.sizes, shape=x.shape)
    module = Module(Function((x,), back, Attrs({"name": "main", "outputs": ("y",)})), "operators")
    image = np.random.default_rng(0).integers(-128, 128, x.shape).astype(np.int8)
    np.testing.assert_array_equal(weft.load(weft.compile(module, target="cpu")).run(image)["y"], image)
