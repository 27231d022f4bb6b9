"""Concatenations of channels: who makes an operand writes it into the result, and all that read either see the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, TensorType, Var, call

from ..cpu.test_link import check, kinds, module_of

RANDOM = np.random.default_rng(3)


pytestmark = pytest.mark.usefixtures("small_models_use_threads")


def image(dtype: str = "float32", channels: int = 16, batch: int = 1) -> Var:
    return Var("x", TensorType((batch, channels, 6, 5), dtype))


def conv(x: Expr, filters: int, kernel: int = 1, fill: int = 0) -> Expr:
    shape = filters, x.shape[1], kernel, kernel
    if x.dtype == "float32":
        weights = RANDOM.standard_normal(shape).astype(np.float32)
        return call("nn.conv2d", x, Constant(weights), pads=(kernel // 2,) * 4)
    weights = RANDOM.integers(-128, 127, shape, np.int8, endpoint=True)
    sums = call("conv2d", x, Constant(weights), pads=(kernel // 2,) * 4, pad_value=fill)
    parameters = [(0, np.int32), (1 << 23, np.int32), (34, np.int32)]
    return call("requantise", sums, *(Constant(np.full(filters, value, kind)) for value, kind in parameters))


def concat(*parts: Expr, axis: int = 1) -> Expr:
    return call("concat", *parts, axis=axis)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_operands_are_written_into_the_result_with_the_halo_of_its_reader(dtype: str) -> None:
    x = image(dtype)
    joined = concat(conv(x, 16), conv(x, 32, 3))
    model = check(module_of(conv(joined, 16, 3), params=(x,)), threads=2)
    assert kinds(model).count("convolution") == 3
    assert not any("part" in layer.name or layer.operators == ("concat",) for layer in model.layers)


def test_results_of_concatenations_are_operands_of_others() -> None:
    x = image()
    dense: Expr = conv(x, 16)
    for _ in range(3):
        dense = concat(dense, conv(call("nn.clip", dense, low=0.0), 16, 3))
    model = check(module_of(conv(dense, 16, 3), params=(x,)))
    assert not any("part" in layer.name or "concat" in layer.operators for layer in model.layers)


def test_a_value_in_two_results_is_copied_into_one_of_them() -> None:
    x = image()
    a, b = conv(x, 16), conv(x, 16)
    model = check(module_of(conv(concat(a, b), 16), conv(concat(b, a, b), 16, 3), params=(x,)))
    assert sum("part" in layer.name for layer in model.layers) == 3


def test_half_of_the_result_in_blocks_is_enough() -> None:
    x = image()
    turned = call("transpose", x, perm=(0, 1, 3, 2))
    moved = call("reshape", turned, shape=x.shape)
    model = check(module_of(conv(concat(moved, conv(x, 16)), 16, 3), params=(x,)))
    assert sum("part" in layer.name for layer in model.layers) == 1
    assert not any("concat" in layer.operators for layer in model.layers)


def test_readers_with_other_paddings_get_a_tensor_of_their_own() -> None:
    x = image("int8")
    a, b = conv(x, 16), conv(x, 16)
    other = conv(a, 16, 3, fill=7)
    check(module_of(conv(concat(a, b), 16, 3, fill=-5), other, params=(x,)))


def test_inputs_and_odd_channels_and_batches_are_no_parts() -> None:
    x = image()
    check(module_of(conv(concat(x, conv(x, 16)), 16), params=(x,)))
    check(module_of(conv(concat(conv(x, 12), conv(x, 16)), 16), params=(x,)))
    check(module_of(concat(conv(x, 16), conv(x, 16)), params=(x,)))
    many = image(batch=2)
    check(module_of(conv(concat(conv(many, 16), conv(many, 16)), 16), params=(many,)))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_graphs_of_concatenations(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "int8"]))
    x = image(dtype)
    values: list[Expr] = [x]
    for _ in range(data.draw(st.integers(2, 7))):
        if data.draw(st.booleans()):
            source = data.draw(st.sampled_from(values))
            values.append(conv(source, data.draw(st.sampled_from([4, 8, 16, 32])), data.draw(st.sampled_from([1, 3])),
                               data.draw(st.sampled_from([0, 3])) if dtype == "int8" else 0))  # fmt: skip
        else:
            parts = data.draw(st.lists(st.sampled_from(values), min_size=2, max_size=3))
            if sum(each.shape[1] for each in parts) <= 160:
                values.append(concat(*parts))
    ends = data.draw(st.lists(st.sampled_from(values[1:] or values), min_size=1, max_size=2, unique=True))
    check(module_of(*ends, params=(x,)), threads=data.draw(st.sampled_from([1, 2])), tolerance=1e-4)
