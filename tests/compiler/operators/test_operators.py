"""The registry has no silent gaps, and the integer contract is what docs/integers.md says, in plain Python."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import (
    Array,
    Attrs,
    Constant,
    Family,
    Fusion,
    GraphError,
    Module,
    Operator,
    TensorType,
    Unsupported,
    Var,
    call,
    evaluate_function,
    operator,
    operators,
)
from weft.compiler.graph.ir import Function
from weft.compiler.operators import contract, nn, numerics
from weft.compiler.passes import check_stage
from weft.compiler.targets.accel.operators import packed_layout
from weft.compiler.targets.accel.operators.packed_layout import Blocks


@pytest.mark.parametrize("entry", operators(), ids=lambda entry: entry.name)
def test_every_rule_is_there_or_says_why_not(entry: Operator) -> None:
    assert callable(entry.types)
    assert callable(entry.numpy)
    assert isinstance(entry.fusion, Fusion)
    assert entry.doc.endswith(".")
    for rule in (entry.gradient, entry.lower, entry.sample):
        assert callable(rule) or (isinstance(rule, Unsupported) and rule.reason)
    assert entry.arguments
    assert entry.cost >= 1


PACKAGE = Path(__file__).parents[3] / "weft"
PACKED = "compiler/targets/accel/operators/"
ENTRIES = ("compiler/operators/", f"{PACKED}operators.py", f"{PACKED}window_operators.py")
FILES = ("compiler/frontends/", "compiler/exporters/")  # what the operators of a file are in those of the graph


def listed_operators(source: str) -> list[tuple[int, list[str]]]:
    """Line and names of every collection in Python code that holds several names of operators."""
    names, lists = {entry.name for entry in operators()}, []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                parts: list[ast.expr | None] = [*items]
            case ast.Dict(keys=keys, values=values):
                parts = [*keys, *values]
            case _:
                continue
        found = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if len(names.intersection(found)) > 1:
            lists.append((node.lineno, sorted(names.intersection(found))))
    return lists


def test_no_list_of_names_answers_what_the_entry_should_answer() -> None:
    """Rules may name the operators that they rewrite; whatever is asked of any operator stands in its entry."""
    assert listed_operators("MOVES = frozenset({'reshape', 'transpose'})") == [(1, ["reshape", "transpose"])]
    lists = []
    for path in sorted(
        [*(PACKAGE / "compiler").rglob("*.py"), *(PACKAGE / "runtime").rglob("*.py"), *PACKAGE.glob("*.py")]
    ):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith((*ENTRIES, *FILES)):
            lists += [(name, *each) for each in listed_operators(path.read_text())]
    assert not lists, "\n".join(map(str, lists))


def test_the_family_tells_where_an_operator_may_stand() -> None:
    family = {entry.name: entry.family for entry in operators()}
    assert {name for name in family if family[name] is Family.PACKED} == {
        name for name in family if name.startswith("packed_")
    }
    assert {name for name in family if family[name] is Family.HOST} == {
        "mean_square", "normalise", "pack", "scale_rows", "softmax", "to_signed", "to_unsigned", "unfold",
        "unpack",
    }  # fmt: skip
    x = Var("x", TensorType((1, 2, 4, 4), "int8"))
    pooled = Module(Function((x,), call("max_pool", x, kernel=(2, 2)), Attrs({"name": "main"})))
    check_stage(pooled, "integer")
    with pytest.raises(GraphError, match=r"max_pool is not legal at stage 'source'"):
        check_stage(pooled, "source")


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "macs"),
    [
        ("conv2d", [(2, 4, 5, 6), (6, 2, 3, 2)], {"groups": 2}, 2 * 6 * 3 * 5 * 2 * 3 * 2),
        ("nn.conv3d", [(1, 2, 3, 4, 4), (3, 2, 2, 2, 2)], {}, 3 * 2 * 3 * 3 * 2 * 8),
        ("nn.dense", [(3, 4), (5, 4)], {}, 3 * 4 * 5),
        ("nn.matmul", [(2, 1, 3, 4), (3, 4, 2)], {}, 2 * 3 * 3 * 4 * 2),
        ("nn.einsum", [(2, 3), (3, 4)], {"equation": "ij,jk->ki"}, 2 * 3 * 4),
        ("nn.einsum", [(2, 3)], {"equation": "ij->ji"}, 0),
        ("nn.add", [(2, 3), (3,)], {}, 0),
    ],
)
def test_multiply_accumulates_are_counted_without_padding(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], macs: int
) -> None:
    dtype = "int8" if op == "conv2d" else "float32"
    args = [Var(f"x{number}", TensorType(shape, dtype)) for number, shape in enumerate(shapes)]
    assert operator(op).macs(call(op, *args, **attrs)) == macs


@pytest.mark.parametrize("weights", [(3, 2, 3, 3), (4, 1, 3, 3), (4, 4, 3, 3)])
def test_channels_must_fit_the_groups_of_a_convolution(weights: tuple[int, ...]) -> None:
    x, w = Var("x", TensorType((1, 4, 5, 5), "float32")), Var("w", TensorType(weights, "float32"))
    with pytest.raises(GraphError, match=r"4 input channels and weights .* do not fit 2 groups"):
        call("nn.conv2d", x, w, groups=2)


def test_the_weights_of_an_operator_are_the_operand_w() -> None:
    weights = {entry.name for entry in operators() if entry.weights == 1}
    assert weights >= {"nn.conv2d", "nn.conv3d", "nn.dense", "conv2d", "conv3d"}
    assert operator("nn.matmul").weights is None
    assert operator("nn.add").weights is None


def test_whoever_asks_the_registry_alone_finds_all_operators() -> None:
    """Also those of the accelerator: the runtime, which knows the graph IR alone, evaluates host functions of them."""
    code = "from weft.compiler.graph.registry import operators; print(*(entry.name for entry in operators()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == {entry.name for entry in operators()}


def test_operators_are_called_as_functions() -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    assert nn.clip(nn.add(x, x), low=0.0) == call("nn.clip", call("nn.add", x, x), low=0.0)
    y = Var("y", TensorType((2, 3), "bool"))
    assert nn.and_(y, y) == call("nn.and", y, y)
    assert contract.reshape(x, shape=(6,)) == call("reshape", x, shape=(6,))
    with pytest.raises(GraphError, match=r"there is no operator 'nn\.what'"):
        nn.what(x)


def plain_requantise(
    x: int, bias: int, multiplier: int, shift: int, zero_point: int, low: int, high: int, left: int
) -> int:
    """The definition, in Python's integers."""
    t = (x + bias + 2**31) % 2**32 - 2**31
    rounded = (t * multiplier + 2 ** (shift - 1)) >> shift
    return max(low, min(high, rounded + zero_point)) << left


INT32 = st.integers(-(2**31), 2**31 - 1)


@given(
    INT32, INT32, st.integers(-(2**24), 2**24 - 1), st.integers(1, 56), st.integers(-256, 255),
    st.tuples(st.integers(-256, 255), st.integers(-256, 255)).map(sorted), st.integers(0, 23),
)  # fmt: skip
def test_requantise_is_its_definition(
    x: int, bias: int, multiplier: int, shift: int, zero_point: int, limits: list[int], left: int
) -> None:
    value = Var("x", TensorType((1, 1), "int32"))
    params = [Constant(np.array([v], np.int32)) for v in (bias, multiplier, shift)]
    node = call(
        "requantise", value, *params, zero_point=zero_point, low=limits[0], high=limits[1], left_shift=left, out="int32"
    )
    got = evaluate_function(Function((value,), node), [np.array([[x]], np.int32)])
    assert isinstance(got, np.ndarray)
    assert got.item() == plain_requantise(x, bias, multiplier, shift, zero_point, limits[0], limits[1], left)


@given(st.floats(2.0**-33, 2.0**22.9), st.booleans())
def test_a_multiplier_is_normalised_and_close(real: float, negative: bool) -> None:
    real = -real if negative else real
    multiplier, shift = numerics.quantise_multiplier(np.array([real]))
    assert 2**23 <= abs(int(multiplier[0])) < 2**24
    assert 1 <= shift[0] <= 56
    assert abs(float(multiplier[0]) * 2.0 ** -int(shift[0]) / real - 1) <= 2.0**-24


def test_multipliers_at_the_edges() -> None:
    multiplier, shift = numerics.quantise_multiplier(np.array([0.0, 1e-30, 1 - 2.0**-26, 2.0**-40]))
    assert multiplier.tolist() == [0, 0, 2**23, 2**16]
    assert shift.tolist() == [1, 56, 23, 56]
    with pytest.raises(ValueError, match="too large"):
        numerics.quantise_multiplier(np.array([2.0**23]))
    with pytest.raises(ValueError, match="not a finite number"):
        numerics.quantise_multiplier(np.array([np.inf]))


def naive_conv(x: Array, w: Array, strides: tuple[int, int], pads: tuple[int, ...], dilations: tuple[int, int],
               groups: int, pad_value: int) -> Array:  # fmt: skip
    """Convolution, one output element after the other."""
    n, c, height, width = x.shape
    o, cg, kh, kw = w.shape
    padded = np.full((n, c, height + pads[0] + pads[2], width + pads[1] + pads[3]), pad_value, np.int64)
    padded[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width] = x
    out_h = (padded.shape[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    out_w = (padded.shape[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    result = np.zeros((n, o, out_h, out_w), np.int64)
    for k in range(o):
        first = k // (o // groups) * cg
        for i in range(out_h):
            for j in range(out_w):
                rows = slice(i * strides[0], i * strides[0] + dilations[0] * (kh - 1) + 1, dilations[0])
                columns = slice(j * strides[1], j * strides[1] + dilations[1] * (kw - 1) + 1, dilations[1])
                window = padded[:, first : first + cg, rows, columns]
                result[:, k, i, j] = (window * w[k].astype(np.int64)).sum(axis=(1, 2, 3))
    return result


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Array, Array, dict[str, object]]:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    group_in, group_out = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        groups, group_in, group_out = draw(st.integers(2, 20)), 1, 1
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    size = [draw(st.integers(dilations[i] * (kernel[i] - 1) + 1, 8)) for i in (0, 1)]
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    x = generator.integers(-128, 128, (draw(st.integers(1, 3)), groups * group_in, *size)).astype(np.int8)
    w = generator.integers(-128, 128, (groups * group_out, group_in, *kernel)).astype(np.int8)
    attrs: dict[str, object] = {
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), "dilations": dilations, "groups": groups,
        "pads": draw(st.tuples(*[st.integers(0, 2)] * 4)), "pad_value": draw(st.integers(-128, 127)),
    }  # fmt: skip
    return x, w, attrs


@given(convolutions())
def test_convolution_is_its_definition(case: tuple[Array, Array, dict[str, object]]) -> None:
    x, w, attrs = case
    assert np.array_equal(numerics.convolve_integers(x, w, **attrs), naive_conv(x, w, **attrs))  # type: ignore[arg-type]


def test_convolution_is_exact_beyond_float32() -> None:
    x = np.full((1, 1500, 1, 1), -128, np.int8)
    x[0, 0] = 1
    w = np.full((1, 1500, 1, 1), -128, np.int8)
    got = numerics.convolve_integers(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, pad_value=0)
    assert got.item() == 1499 * 16384 - 128


def test_a_layer_of_resnet_takes_less_than_a_second() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-128, 128, (1, 64, 56, 56)).astype(np.int8)
    w = generator.integers(-128, 128, (64, 64, 3, 3)).astype(np.int8)
    start = time.perf_counter()
    numerics.convolve_integers(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1, pad_value=0)
    assert time.perf_counter() - start < 2  # 0.1 s on an idle machine


def test_pooling() -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 4, 4)
    pooled = numerics.max_pool(x, kernel=(2, 2), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1), pad_value=-128)
    assert pooled[0, 0].tolist() == [[-8, -6, -5], [0, 2, 3], [4, 6, 7]]
    total = numerics.sum_pool(x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 0, 0), pad_value=5)
    assert total[0, 0, 0, 0] == 25 + (-8 - 7 - 4 - 3)
    assert total.dtype == np.int32


BLOCKS = st.builds(Blocks, st.sampled_from([1, 2]), st.sampled_from([1, 4, 8]), st.sampled_from([1, 4, 16]))


@given(BLOCKS, st.tuples(st.integers(1, 3), st.integers(1, 37), st.integers(1, 3), st.integers(1, 3)))
def test_layouts_put_channels_where_the_page_says(blocks: Blocks, shape: tuple[int, int, int, int]) -> None:
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    packed = packed_layout.pack_activation(x, blocks)
    assert packed.shape == blocks.activation_shape(shape)
    n, c, i, j = (size - 1 for size in shape)
    entry, lane = divmod(c, blocks.sub_block)
    group, row = divmod(entry, blocks.input_rows)
    assert packed[n // blocks.batch, group, i, j, row, n % blocks.batch, lane] == x[n, c, i, j]
    assert np.array_equal(packed_layout.unpack(packed, shape), x)
    wide = packed_layout.activation_to_accumulator(packed, blocks)
    assert np.array_equal(wide, packed_layout.pack_accumulator(x, blocks))
    assert np.array_equal(packed_layout.accumulator_to_activation(wide, blocks), packed)
    assert wide.shape == blocks.accumulator_shape(shape)


@given(BLOCKS, st.integers(1, 20), st.integers(1, 20))
def test_weights_and_parameters_pack_with_neutral_padding(blocks: Blocks, out: int, channels: int) -> None:
    w = np.random.default_rng(0).integers(-128, 128, (out, channels, 2, 1)).astype(np.int8)
    packed = packed_layout.pack_weights(w, blocks)
    o, c = out - 1, channels - 1
    got = packed[o // blocks.block_out, c // blocks.block_in, 1, 0, o % blocks.block_out, c % blocks.block_in]
    assert got == w[o, c, 1, 0]
    full = packed_layout.unpack_weights(packed)
    assert np.array_equal(full[:out, :channels], w)
    assert full.astype(np.int64).__abs__().sum() == np.abs(w.astype(np.int64)).sum()
    narrow = packed_layout.unpack_depthwise_weights(packed_layout.pack_depthwise_weights(w[:, :1], blocks))
    assert np.array_equal(narrow[:out], w[:, :1])
    assert not narrow[out:].any()
    values = np.arange(out, dtype=np.int32) + 7
    params = packed_layout.pack_parameters(values, values, values, blocks)
    assert params.shape[1:] == (3, blocks.output_rows, blocks.batch, blocks.sub_block)
    lanes = params[:, :, :, -1].transpose(1, 0, 2, 3).reshape(3, -1)
    assert np.array_equal(lanes[:, :out], np.stack([values] * 3))
    assert np.all(lanes[:, out:] == np.array([[0], [0], [1]]))


def test_blocks_are_powers_of_two() -> None:
    with pytest.raises(GraphError, match="block_in must be a power of two, not 12"):
        Blocks(1, 12, 16)
    with pytest.raises(GraphError, match=r"only \(N, C\) and \(N, C, H, W\) tensors can be packed"):
        packed_layout.spatial((1, 2, 3))
