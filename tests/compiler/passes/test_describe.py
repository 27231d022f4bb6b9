"""Quantised operators that need more than one step in integers: right to the last digit."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import Function, Module, calls, evaluate, parse
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.passes.manager import random_inputs

TENSOR = "dequantise(uint8[2, 2, 2](0, 255, 3, 9, 200, 100, 50, 25), float32(0.02), uint8(99))"
A = "%a = dequantise(%x, float32(0.05), int8(3))"
WIDE = "dequantise(uint8[2, 2, 1, 2](0, 255, 9, 130, 254, 3, 77, 128), float32(0.01), uint8({zero}))"
GATE = "nn.reduce_max(%a, axes=({axes}), keepdims=true)"
CASES = {
    # name: (input, expression of %a, operators that must not be left, at most so many integers off by one)
    "weights of 9 bits": ("1, 2, 4, 4", f"nn.conv2d(%a, {WIDE.format(zero=3)})", {"nn.conv2d"}),
    "weights of 9 bits, all positive": ("1, 2, 4, 4", f"nn.conv2d(%a, {WIDE.format(zero=0)})", {"nn.conv2d"}),
    "weights of 9 bits in groups": (
        "1, 4, 4, 4", f"nn.conv2d(%a, {WIDE.format(zero=40)}, groups=2)", {"nn.conv2d"},
    ),
    "weights scaled along the other axis, turned": (
        "3, 2", "nn.dense(%a, transpose(dequantise(int8[2, 2](9, -7, 100, 3), float32[2](0.5, 0.25), int8[2](0, 0), "
        "axis=1), perm=(1, 0)))", {"nn.dense"},
    ),
    "average at the edges": (
        "1, 3, 5, 6", "nn.average_pool(%a, kernel=(3, 5), pads=(1, 2, 1, 2), strides=(1, 2))", {"nn.average_pool"},
    ),
    "mean over the last axis": ("2, 3, 7", "nn.reduce_mean(%a, axes=(2,))", {"nn.reduce_mean"}),
    "mean over channels": ("2, 3, 4, 5", "nn.reduce_mean(%a, axes=(1,), keepdims=true)", {"nn.reduce_mean"}),
    "sum over three axes": ("1, 3, 2, 2", "nn.reduce_sum(%a, axes=(1, 2, 3), keepdims=true)", {"nn.reduce_sum"}),
    "largest over two axes": ("2, 3, 4, 5", "nn.reduce_max(%a, axes=(1, 3))", {"nn.reduce_max"}),
    "least": ("2, 3, 4", "nn.reduce_min(%a, axes=(1,))", set()),
    "channels last, a factor each": (
        "1, 3, 4", "nn.multiply(%a, float32[4](1.0, -2.0, 0.5, 3.0))", {"nn.multiply"},
    ),
    "an offset along the middle axis of 5": (
        "1, 2, 3, 2, 2", "nn.add(%a, float32[3, 1, 1](1.0, -2.0, 0.5))", {"nn.add"},
    ),
    "a constant tensor": (
        "1, 2, 2, 2", f"nn.add(%a, {TENSOR})",
        {"nn.add"},
    ),
    "a constant tensor as factors": (
        "1, 2, 2, 2", f"nn.multiply({TENSOR}, %a)", {"nn.multiply"},
    ),
    "a row": ("5", "nn.add(%a, %a)", {"nn.add"}),
    "a number": ("", "nn.multiply(%a, %a)", {"nn.multiply"}),
    "broadcast product": (
        "1, 3, 4, 4", "nn.multiply(%a, nn.max_pool(%a, kernel=(1, 1)))", {"nn.multiply"},
    ),
    "a gate for each channel": (
        "2, 3, 4, 4", f"nn.multiply(%a, {GATE.format(axes='2, 3')})", {"nn.multiply", "expand"},
    ),
    "a gate in front, of rows": (
        "1, 5, 7", f"nn.multiply({GATE.format(axes='2,')}, %a)", {"nn.multiply", "expand"},
    ),
    "hard sigmoid": (
        "1, 2, 3, 3", "nn.minimum(nn.maximum(nn.add(nn.multiply(%a, float32(0.2)), float32(0.5)), float32(0.0)), "
        "float32(1.0))", {"nn.maximum", "nn.minimum", "gather"},
    ),
    "the larger of a number and a value": (
        "1, 2, 3, 3", "nn.maximum(float32[1, 1](-1.5), nn.minimum(%a, float32(1.0)))", {"nn.maximum", "nn.minimum"},
    ),
    "the larger of numbers that differ": (
        "1, 2, 3, 3", "nn.maximum(%a, float32[3](-1.5, 0.0, 1.0))", {"nn.maximum"},
    ),
    "product of computed matrices": (
        "2, 3, 4, 5", "nn.matmul(%a, transpose(%a, perm=(0, 1, 3, 2)))", {"nn.multiply", "dequantise"},
    ),
    "convolution with computed weights": (
        "2, 2, 3, 3", "nn.conv2d(%a, %a, pads=(1, 1, 1, 1))", {"dequantise"},
    ),
    "table": ("1, 2, 3, 3", "nn.multiply(%a, nn.sigmoid(%a))", {"nn.sigmoid"}),
    "a table through a value of 8 bits": (
        "1, 2, 3, 3", "nn.multiply(%a, dequantise(quantise(nn.sigmoid(%a), float32(0.004), int8(-128)), "
        "float32(0.004), int8(-128)))", {"nn.sigmoid", "multiply"},
    ),
    "a table of one value beside another": (
        "1, 2, 3, 3", "nn.multiply(nn.max_pool(%a, kernel=(3, 3), pads=(1, 1, 1, 1)), dequantise(quantise("
        "nn.sigmoid(%a), float32(0.004), int8(-128)), float32(0.004), int8(-128)))", {"nn.sigmoid"},
    ),
    "table for each channel": (
        "1, 2, 3, 3", "nn.where(nn.less(%a, float32(0.0)), nn.multiply(%a, float32[2, 1, 1](0.25, -0.5)), %a)",
        {"nn.where"},
    ),
    "parts of a concatenation": ("1, 2, 3, 3", "concat(nn.sigmoid(%a), %a, axis=1)", {"nn.sigmoid"}),
    "a concatenation with a constant without elements": (
        "1, 2, 3, 3", "concat(%a, dequantise(int8[1, 0, 3, 3](), float32(0.1), int8(0)), axis=1)", set(),
    ),
    "channels without a factor": (
        "1, 3, 3, 3", "nn.add(nn.multiply(%a, float32[3, 1, 1](0.0, 150.0, 0.0)), float32[3, 1, 1](2.0, 0.3, -9000.0))",
        {"nn.add", "dequantise"},
    ),
    "a product whose channels have no factor": (
        "1, 2, 3, 3", "nn.add(nn.multiply(nn.multiply(%a, nn.max_pool(%a, kernel=(1, 1))), "
        "float32[2, 1, 1](0.0, 1.0)), float32[2, 1, 1](2.0, 0.3))", {"nn.add", "dequantise"},
    ),
    "moves": (
        "1, 4, 3, 3", "gather(slice(%a, starts=(0, 1, 0, 0), sizes=(1, 2, 3, 2), steps=(1, 1, 1, 1)), "
        "int64[3](1, 0, 1), axis=1)", {"dequantise"},
    ),
    "negative": ("1, 2, 3, 3", "nn.negative(%a)", {"nn.negative"}),
}  # fmt: skip


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_it_is_integers_and_right(name: str, unsigned: bool) -> None:
    shape, expression, gone = CASES[name]
    kind, zero = ("uint8", 131) if unsigned else ("int8", 3)
    body = A.replace("int8(3)", f"{kind}({zero})")
    module = parse(f"fn @main(%x: {kind}[{shape}]) {{ {body} return quantise({expression}, float32(0.11), int8(-4)) }}")
    after = PassManager(integer_passes(), check=True).run(module)
    assert not operators_of(after) & gone, operators_of(after) & gone
    for seed in range(3):
        inputs = random_inputs(module, seed)
        before, found = (next(iter(evaluate(each, inputs).values())).astype(int) for each in (module, after))
        assert np.abs(before - found).max(initial=0) <= 1
        assert np.mean(before == found) > 0.85


def operators_of(module: Module) -> set[str]:
    found = {str(node.op) for node in calls(module.main.body) if not isinstance(node.op, Function)}
    return found | {str(node.op) for function in module.functions for node in calls(function.body)}


def test_a_table_says_what_the_operators_say() -> None:
    """To the bit, for all 256 values, whatever the rounding inside."""
    module = parse("""fn @main(%x: uint8[16, 16]) {
        %a = dequantise(%x, float32(0.037), uint8(101))
        %b = nn.multiply(nn.multiply(%a, float32(0.5)), nn.add(nn.erf(nn.multiply(%a, float32(0.7071))), float32(1.0)))
        return quantise(%b, float32(0.021), uint8(8)) }""")
    after = PassManager(integer_passes()).run(module)
    x = np.arange(256).astype(np.uint8).reshape(16, 16)
    np.testing.assert_array_equal(*evaluate(module, {"x": x}).values(), *evaluate(after, {"x": x}).values())
    assert "nn.erf" not in operators_of(after)


def test_only_functions_of_one_value_are_tables() -> None:
    module = parse("""fn @main(%x: int8[2, 3], %y: int8[2, 3]) {
        %a = dequantise(%x, float32(0.5), int8(1))
        %b = dequantise(%y, float32(0.5), int8(1))
        return quantise(nn.sigmoid(nn.divide(%a, %b)), float32(0.01), int8(0)) }""")
    assert "gather" not in operators_of(PassManager(integer_passes(), check=True).run(module))


@pytest.mark.parametrize(
    ("zero", "start", "bound"), [(0, 0.0, 0.003125), (-7, -0.35, 0.003125), (5, 0.25, 0.003125), (5, 0.25, 0.01)]
)
def test_means_whose_halves_go_away_from_a_number_are_sums_of_integers(zero: int, start: float, bound: float) -> None:
    """A quarter of the unit of the sums is taken into them; what is larger is not, and stays right."""
    module = parse(f"""fn @main(%x: int8[1, 3, 6, 6]) {{
        %a = nn.average_pool(dequantise(%x, float32(0.05), int8({zero})), kernel=(2, 2), strides=(1, 1))
        %b = nn.add(%a, nn.clip(nn.add(%a, float32({start})), low={-bound}, high={bound}))
        return quantise(%b, float32(0.05), int8({zero})) }}""")
    after = PassManager(integer_passes()).run(module)
    if bound < 0.005:
        assert "nn.average_pool" not in operators_of(after)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(-128, 128, (1, 3, 6, 6)).astype(np.int8)
        (found,) = evaluate(after, {"x": x}).values()
        if bound < 0.005:
            q = x.astype(int)
            sums = q[..., :-1, :-1] + q[..., 1:, :-1] + q[..., :-1, 1:] + q[..., 1:, 1:]
            less = sums - 4 * (zero - round(start / 0.05))
            rounded = np.sign(less) * ((abs(less) + 2) // 4) + zero - round(start / 0.05)
            np.testing.assert_array_equal(found, rounded)
        np.testing.assert_array_equal(found, next(iter(evaluate(module, {"x": x}).values())))


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_bytes_without_a_sign_are_scattered_as_they_are(reduction: str) -> None:
    module = parse(f"""fn @main(%x: uint8[5, 4], %u: uint8[2, 4]) {{
        %y = scatter_nd(%x, int64[2, 1](3, 3), %u, reduction="{reduction}")
        return %y }}""")
    after = PassManager(integer_passes(), check=True).run(module)
    inputs = random_inputs(module, 0)
    np.testing.assert_array_equal(*(next(iter(evaluate(each, inputs).values())) for each in (module, after)))


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("nn.where(bool[1, 4](true, false, true, true), %a, float32(-9.0))", "where"),
        (
            "nn.matmul(nn.softmax(nn.where(bool[1, 4](true, true, true, false), %a, float32(-9.0)), axis=1), %a)",
            "where",
        ),
        ("gather(%a, int64[2](0, 3), axis=1)", ""),
        ("nn.dense(float32[2, 4](1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0), %a)", "dense"),
        ("nn.negative(nn.where(bool[1, 4](true, false, true, true), %a, float32(-9.0)))", "where"),
    ],
)
def test_no_operator_is_on_the_host_because_another_value_is_a_constant(expression: str, named: str) -> None:
    module = parse(f"fn @main(%x: int8[4, 4]) {{ {A} return quantise({expression}, float32(0.1), int8(0)) }}")
    after = PassManager(integer_passes(), check=True).run(module)
    reasons = [function.host_reason for function in after.functions if function.host_reason]
    assert "it is a constant" not in reasons
    assert any(named in reason for reason in reasons) or not named
