"""Each pass: text before and after, and what it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from weft.compiler.graph import (
    Call,
    Constant,
    Function,
    GraphError,
    Module,
    TensorType,
    Var,
    call,
    calls,
    constant_table,
    evaluate,
    parse,
    to_text,
)
from weft.compiler.graph.ir import Attrs, Expr, Span
from weft.compiler.passes import (
    Pass,
    PassError,
    PassManager,
    PassRecord,
    check_stage,
    cse,
    dce,
    fold_batch_norm,
    fold_constants,
    graph_pass,
    infer_types,
    legalise,
    simplify,
)
from weft.compiler.passes.fold_batch_norm import split_computed_norms
from weft.compiler.passes.manager import largest_difference, random_inputs
from weft.compiler.passes.simplify import flatten_into_kernel
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import fuse_with_report, pack_layout


def module_of(body: str, params: str) -> Module:
    return parse(f"fn @main({params}) {{ {body} }}")


def check(item: Pass, params: str, before: str, after: str) -> None:
    """``before`` becomes ``after``, and both compute the same."""
    source, wanted = module_of(before, params), module_of(after, params)
    got = item(source)
    assert got == wanted, f"got:\n{to_text(got)}\nwanted:\n{to_text(wanted)}"
    inputs = random_inputs(source, 0)
    assert largest_difference(evaluate(source, inputs), evaluate(got, inputs)) <= item.tolerance


def silent(item: Pass, params: str, body: str) -> None:
    source = module_of(body, params)
    assert item(source) == source


F = "%x: float32[1, 4, 6, 5]"
Q = "%x: int8[1, 4, 6, 5]"
PARAMS = ", ".join(f"int32[4]({', '.join([str(value)] * 4)})" for value in (3, 1 << 23, 25))
NUMBERS = ", ".join(map(str, range(-60, 60)))
SIMPLIFICATIONS = {
    "transposes compose": (
        F, "return transpose(transpose(%x, perm=(0, 2, 3, 1)), perm=(0, 2, 1, 3))",
        "return transpose(%x, perm=(0, 3, 2, 1))",
    ),
    "transposes cancel": (F, "return nn.clip(transpose(transpose(%x, perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2)), low=0.0)",
                          "return nn.clip(%x, low=0.0)"),
    "a transpose of unit axes is a reshape": (
        "%x: int8[1, 4, 1, 5]", "return transpose(%x, perm=(2, 1, 0, 3))", "return %x",
    ),
    "reshapes compose": (F, "return reshape(reshape(%x, shape=(4, 30)), shape=(1, 120))",
                         "return reshape(%x, shape=(1, 120))"),
    "a reshape to the same shape": (F, "return nn.clip(reshape(%x, shape=(1, 4, 6, 5)), low=0.0)",
                                    "return nn.clip(%x, low=0.0)"),
    "clips merge": (F, "return nn.clip(nn.clip(%x, low=0.0), low=-1.0, high=6.0)",
                    "return nn.clip(%x, low=0.0, high=6.0)"),
    "neutral operands": (F, "return nn.multiply(float32(1.0), nn.add(%x, float32(0.0)))", "return %x"),
    "quantise of dequantise": (
        Q, "return quantise(dequantise(%x, float32(0.5), int8(3)), float32(0.5), int8(3))", "return %x",
    ),
    "padding joins the convolution": (
        Q, "return conv2d(pad(%x, pads=(1, 0, 2, 0), value=-7), int8[1, 4, 1, 1](1, 2, 3, 4), pads=(0, 1, 0, 0), "
        "pad_value=-7)",
        "return conv2d(%x, int8[1, 4, 1, 1](1, 2, 3, 4), pads=(1, 1, 2, 0), pad_value=-7)",
    ),
    "transposes sink": (
        Q, "%a = transpose(%x, perm=(0, 1, 3, 2)) "
        f"return requantise(multiply_accumulate(multiply_immediate(%a, weight=2), %a, weight=3), {PARAMS})",
        f"%a = requantise(multiply_accumulate(multiply_immediate(%x, weight=2), %x, weight=3), {PARAMS}) "
        "return transpose(%a, perm=(0, 1, 3, 2))",
    ),
    "reshapes sink": (
        Q, "%a = reshape(%x, shape=(1, 4, 1, 30)) "
        f"return requantise(multiply(%a, int8[1, 4, 1, 30]({NUMBERS})), {PARAMS})",
        f"%a = requantise(multiply(%x, int8[1, 4, 6, 5]({NUMBERS})), {PARAMS}) "
        "return reshape(%a, shape=(1, 4, 1, 30))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMPLIFICATIONS)
def test_simplify(name: str) -> None:
    check(simplify, *SIMPLIFICATIONS[name])


FLATTENINGS = {
    "of a picture": (
        "%x: int8[2, 2, 1, 3]",
        "return conv2d(reshape(%x, shape=(2, 6, 1, 1)), int8[1, 6, 1, 1](1, 2, 3, 4, 5, 6))",
        "return conv2d(%x, int8[1, 2, 1, 3](1, 2, 3, 4, 5, 6))",
    ),
    "of channels last": (
        "%x: int8[2, 2, 2, 2]",
        "return conv2d(reshape(transpose(%x, perm=(0, 2, 3, 1)), shape=(2, 8, 1, 1)), "
        "int8[1, 8, 1, 1](1, 2, 3, 4, 5, 6, 7, 8))",
        "return conv2d(%x, int8[1, 2, 2, 2](1, 3, 5, 7, 2, 4, 6, 8))",
    ),
}


@pytest.mark.parametrize("name", FLATTENINGS)
def test_flatten_into_kernel(name: str) -> None:
    check(flatten_into_kernel, *FLATTENINGS[name])


@pytest.mark.parametrize(
    ("params", "body"),
    [
        (F, "return transpose(%x, perm=(0, 2, 3, 1))"),
        (F, "return nn.clip(nn.clip(%x, high=-1.0), low=1.0)"),
        ("%x: float32[4]", "return nn.add(%x, float32[2, 4](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))"),
        (Q, "return quantise(dequantise(%x, float32(0.5), int8(3)), float32(0.5), int8(2))"),
        (Q, "return conv2d(pad(%x, pads=(1, 0, 2, 0), value=-7), int8[1, 4, 1, 1](1, 2, 3, 4), pad_value=-6)"),
        (Q, "return max_pool(pad(%x, pads=(1, 0, 2, 0), value=-7), kernel=(2, 2))"),
        (  # only one operand is moved, and an int32 value cannot be
            f"{Q}, %y: int8[1, 4, 5, 6]",
            "%a = transpose(%x, perm=(0, 1, 3, 2)) "
            f"return requantise(multiply_accumulate(multiply_immediate(%a, weight=2), %y, weight=3), {PARAMS})",
        ),
    ],
)
def test_simplify_leaves_alone(params: str, body: str) -> None:
    silent(simplify, params, body)


def test_fold_constants() -> None:
    check(fold_constants, F, "return nn.add(%x, nn.add(float32(1.0), nn.clip(float32(-2.0), low=0.0)))",
          "return nn.add(%x, float32(1.0))")  # fmt: skip
    check(fold_constants, F, "return nn.add(%x, nn.clip(quantise(float32(1.0), float32(0.5), int8(0)), low=0.0))"
          .replace("nn.clip(", "dequantise(").replace(", low=0.0)", ", float32(0.5), int8(0))"),
          "return nn.add(%x, dequantise(int8(2), float32(0.5), int8(0)))")  # fmt: skip
    silent(fold_constants, F, "return nn.add(%x, dequantise(int8(2), float32(0.5), int8(0)))")


def test_cse_computes_equal_values_once() -> None:
    x = Var("x", TensorType((2,), "float32"))
    body = call("nn.add", call("nn.clip", x, low=0.0), call("nn.clip", x, low=0.0))
    module = Module(Function((x,), body, Attrs({"name": "main"})))
    assert len(calls(module.main.body)) == 3
    assert len(calls(cse(module).main.body)) == 2
    assert len(calls(PassManager([cse]).run(module).main.body)) == 2


def test_dce_drops_unused_parameters_and_fields() -> None:
    text = """
    fn @f(%a: float32[2], %b: float32[2]) {host="test"} { return nn.clip(%b, low=0.0) }
    fn @main(%x: float32[2]) { %0 = (@f(nn.sigmoid(%x), %x), %x)  return %0[0] }
    """
    after = dce(parse(text))
    assert [node.op if isinstance(node.op, str) else node.op.name for node in calls(after.main.body)] == ["f"]
    assert evaluate(after, {"x": np.array([-1, 2], np.float32)})["output0"].tolist() == [0, 2]


def test_fold_batch_norm() -> None:
    one, two = "float32[2](1.0, 1.0)", "float32[2](2.0, 2.0)"
    check(
        fold_batch_norm,
        "%x: float32[1, 2, 3, 3]",
        f"return nn.batch_norm(%x, {two}, {one}, {one}, {two}, epsilon=2.0)",
        "return nn.add(nn.multiply(%x, float32[1, 2, 1, 1](1.0, 1.0)), float32[1, 2, 1, 1](0.0, 0.0))",
    )
    w, scaled = "float32[2, 1, 1, 1](1.0, 2.0)", "float32[2, 1, 1, 1](3.0, 10.0)"
    check(
        fold_batch_norm,
        "%x: float32[1, 1, 3, 3]",
        f"return nn.multiply(nn.conv2d(%x, {w}), float32[1, 2, 1, 1](3.0, 5.0))",
        f"return nn.conv2d(%x, {scaled})",
    )
    ones, twos = one.replace("32", "64"), two.replace("32", "64")
    check(
        fold_batch_norm,
        "%x: float64[1, 2, 3, 3]",
        f"return nn.batch_norm(%x, {twos}, {ones}, {ones}, {twos}, epsilon=2.0)",
        "return nn.add(nn.multiply(%x, float64[1, 2, 1, 1](1.0, 1.0)), float64[1, 2, 1, 1](0.0, 0.0))",
    )
    halves = [text.replace("float32", "bfloat16") for text in (one, two)]
    silent(fold_batch_norm, "%x: bfloat16[1, 2, 3, 3]", f"return nn.batch_norm(%x, {', '.join([*halves, *halves])})")
    params = "%x: float32[1, 2, 3, 3], %m: float32[2]"
    silent(fold_batch_norm, params, f"return nn.batch_norm(%x, {two}, {one}, %m, {two})")


TWO_READERS = """
fn @main(%x: float32[1, 1, 3, 3]) {
  %c = nn.conv2d(%x, float32[2, 1, 1, 1](1.0, 2.0))
  %s = nn.add(nn.multiply(%c, float32[1, 2, 1, 1](3.0, 5.0)), float32[1, 2, 1, 1](7.0, 9.0))
  return nn.add(%c, nn.conv2d(%s, float32[2, 2, 1, 1](1.0, 2.0, 3.0, 4.0)))
}
"""


def test_a_convolution_with_two_readers_is_not_doubled_by_a_normalisation_of_one() -> None:
    after = fold_batch_norm(parse(TWO_READERS))
    assert [node.op for node in calls(after.main.body)].count("nn.conv2d") == 2
    assert "nn.multiply" not in to_text(after)  # the weights behind it hold the factor
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    wanted, found = (evaluate(module, {"x": x})["output0"] for module in (parse(TWO_READERS), after))
    np.testing.assert_array_equal(found, wanted)  # all numbers are small and whole


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_weights_behind_a_normalisation_hold_it(groups: int) -> None:
    rng = np.random.default_rng(groups)
    x = Var("x", TensorType((2, 6, 7, 5), "float32"))
    factor, offset = (Constant(rng.normal(size=(1, 6, 1, 1)).astype(np.float32)) for _ in range(2))
    w = Constant(rng.normal(size=(12, 6 // groups, 3, 2)).astype(np.float32))
    normalised = call("nn.add", call("nn.multiply", x, factor), offset)

    def module_of(pads: tuple[int, ...]) -> Module:
        body = call("nn.conv2d", normalised, w, groups=groups, strides=(2, 1), pads=pads, dilations=(1, 2))
        return Module(Function((x,), body, Attrs({"name": "main"})))

    module = module_of((0, 0, 0, 0))
    after = fold_batch_norm(module)
    assert [node.op for node in calls(after.main.body)] == ["nn.conv2d", "nn.add"]
    inputs = {"x": rng.normal(size=(2, 6, 7, 5)).astype(np.float32)}
    wanted, found = (evaluate(each, inputs)["output0"] for each in (module, after))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    padded = module_of((0, 0, 1, 0))  # what is padded is no x * factor + offset
    assert fold_batch_norm(padded) == padded


NORM = "return nn.batch_norm(%x, %g, %b, %m, nn.multiply(%v, %v), epsilon=0.5)"


def of_norm(dtype: str = "float32", image: str = "2, 3, 4, 2", channels: int = 3) -> str:
    of_channels = "".join(f", %{name}: {dtype}[{channels}]" for name in "gbmv")
    return f"%x: {dtype}[{image}]{of_channels}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("image", ["2, 3, 4, 2", "5, 3", "1, 3, 2, 1, 2"])
def test_a_computed_normalisation_is_a_factor_and_an_offset_of_each_channel(dtype: str, image: str) -> None:
    source = module_of(NORM, of_norm(dtype, image))
    got = split_computed_norms(source)
    assert "nn.batch_norm" not in {node.op for node in calls(got.main.body)}
    large = {node.op for node in calls(got.main.body) if node.shape == source.main.body.shape}
    assert large == {"nn.multiply", "nn.add"}, "roots and quotients are taken once a channel"
    inputs = random_inputs(source, 0)
    assert largest_difference(evaluate(source, inputs), evaluate(got, inputs)) <= split_computed_norms.tolerance


def test_a_normalisation_far_from_zero_loses_no_more_than_its_operand_has() -> None:
    source = module_of(NORM, of_norm())
    inputs = random_inputs(source, 0)
    inputs["m"] = np.full_like(inputs["m"], 1000)
    inputs["x"] = inputs["x"] + np.float32(1000)
    exact = evaluate(source, inputs)["output0"]
    got = evaluate(split_computed_norms(source), inputs)["output0"]
    factor = np.abs(inputs["g"]) / np.sqrt(inputs["v"] ** 2 + 0.5)
    allowed = 4 * 1000 * np.finfo(np.float32).eps * factor.reshape(1, -1, 1, 1)
    assert (np.abs(got - exact) <= allowed + 1e-6).all()


def test_a_normalisation_of_16_bits_is_rounded_once() -> None:
    silent(split_computed_norms, of_norm("bfloat16"), NORM)


def host_reasons(module: Module) -> dict[str, str]:
    functions = [node.op for node in calls(module.main.body) if isinstance(node.op, Function)]
    return {function.name: function.host_reason for function in functions if function.host_reason}


QDQ = """
fn @main(%x: int8[1, 2, 4, 4]) {
  %0 = dequantise(%x, float32(0.5), int8(3))
  %1 = dequantise(int8[1, 2, 1, 1](1, -2), float32(0.25), int8(0))
  %2 = nn.add(nn.conv2d(%0, %1, pads=(1, 1, 1, 1)), float32[1, 1, 1, 1](1.0))
  return quantise(nn.clip(%2, low=0.0), float32(0.5), int8(-100))
}
"""


def test_legalise_a_convolution() -> None:
    body = legalise(parse(QDQ)).main.body
    wanted = module_of(
        "%0 = conv2d(%x, int8[1, 2, 1, 1](1, -2), pads=(1, 1, 1, 1), pad_value=3) "
        # bias: 1.0 / (0.5 * 0.25) + 3 * (2 - 1); factor: 0.125 / 0.5 = 2**23 / 2**25
        "return requantise(%0, int32[1](11), int32[1](8388608), int32[1](25), zero_point=-100, low=-100)",
        "%x: int8[1, 2, 4, 4]",
    )
    assert body == wanted.main.body


def test_legalise_a_sum_of_tensors_with_other_zero_points() -> None:
    source = module_of(
        "%a = dequantise(%x, float32(0.5), int8(30)) %b = dequantise(%y, float32(0.25), int8(-50)) "
        "return quantise(nn.add(%a, %b), float32(0.5), int8(7))",
        "%x: int8[1, 2, 4, 4], %y: int8[1, 2, 4, 4]",
    )
    integers = legalise(source)
    assert "requantise" in to_text(integers)
    inputs = random_inputs(source, 0)
    assert largest_difference(evaluate(source, inputs), evaluate(integers, inputs)) < 1 / 100, "more than a digit"


REASONS = {
    "sigmoid": ("nn.sigmoid(%a)", "nn.sigmoid of one 8-bit value, as a table"),
    "softmax": ("nn.softmax(%a)", "softmax '' has no integer form"),
    "unquantised sum": (
        "nn.add(nn.clip(%a, low=0.0), nn.max_pool(%a, kernel=(1, 1)))", "adds a tensor that is not quantised",
    ),
    "broadcast": (
        "nn.multiply(%a, nn.reduce_max(%a, axes=(3,), keepdims=true))", "repeats a computed tensor along an axis",
    ),
    "windows in the padding": ("nn.average_pool(%a, kernel=(1, 1), pads=(1, 1, 1, 1))", "windows without an element"),
    "average of a sum": (
        "nn.average_pool(nn.add(%a, %a), kernel=(2, 2))", "the input of average_pool '' is not quantised",
    ),
    "large bias": (
        "nn.add(nn.conv2d(%a, dequantise(int8[1, 2, 1, 1](1, 2), float32(1e-6), int8(0))), float32[1, 1, 1, 1](9e5))",
        "the bias of channel 0 does not fit 32 bits",
    ),
    "distant scales": ("nn.add(%a, dequantise(%x, float32(1e-30), int8(0)))", ""),
    "constant in two axes": (
        "nn.add(nn.max_pool(%a, kernel=(4, 4)), float32[1, 2](1.0, 2.0))", "repeats a computed tensor along the axes",
    ),
    "float constant": (
        f"nn.add(nn.max_pool(%a, kernel=(1, 1)), float32[4, 4]({', '.join(f'{n}.5' for n in range(16))}))",
        "the constant operand of add '' has",
    ),
    "infinite constant": ("nn.add(%a, float32(inf))", "as a table"),
    "infinite padding": ("pad(%a, pads=(0, 0, 1, 1, 0, 0, 0, 0), value=-inf)", "the padding value of pad"),
    "division by a tensor": (
        "nn.divide(nn.max_pool(%a, kernel=(1, 1)), nn.add(nn.softmax(%a), nn.clip(%a, low=1.0)))",
        "divides by a computed tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", ["max", "average"])
def test_pools_over_three_axes_go_to_the_host(op: str) -> None:
    value = "dequantise(%x, float32(0.5), int8(3))"
    pool = f"nn.{op}_pool({value}, kernel=(2, 2, 2), strides=(1, 1, 1), pads=(0, 0, 0, 0, 0, 0), dilations=(1, 1, 1))"
    source = parse(f"fn @main(%x: int8[1, 2, 4, 4, 4]) {{ return quantise({pool}, float32(1.0), int8(0)) }}")
    reasons = host_reasons(PassManager([legalise], check=True).run(source))
    assert any("has a window of 3 axes, not of 2" in reason for reason in reasons.values()), reasons


@pytest.mark.parametrize("name", REASONS)
def test_what_stays_on_the_host_says_why(name: str) -> None:
    expression, reason = REASONS[name]
    text = (
        "fn @main(%x: int8[1, 2, 4, 4]) { %a = dequantise(%x, float32(0.5), int8(3)) "
        f"return quantise({expression}, float32(0.25), int8(1)) }}"
    )
    source = parse(text)
    after = PassManager([legalise], check=True).run(source)
    reasons = host_reasons(after)
    if reason:
        assert any(reason in given for given in reasons.values()), reasons
    else:
        assert not reasons


def test_fusion_and_its_report() -> None:
    module = parse("""
    fn @main(%x: int8[1, 1, 4, 4]) {
      %0 = conv2d(%x, int8[1, 1, 1, 1](3))  # "a"
      %1 = requantise(%0, int32[1](1), int32[1](8388608), int32[1](25))  # "a" -> "a_out"
      %2 = conv2d(%1, int8[1, 1, 1, 1](5))  # "b"
      %3 = requantise(%2, int32[1](1), int32[1](8388608), int32[1](25), zero_point=4)  # "b"
      %4 = multiply_immediate(%3, weight=1024)  # "add"
      %5 = multiply_accumulate(%4, %1, weight=700)  # "add"
      return requantise(%5, int32[1](-4096), int32[1](8388608), int32[1](33))
    }
    """)
    fused, report = fuse_with_report(module)
    check_stage(fused, "fused")
    assert [item.name for item in report] == ["a", "b"]
    assert report[1].operators == ("conv2d", "requantise", "multiply_accumulate", "requantise")
    assert report[1].boundaries == ("requantise of node 'a': it is the added operand, which is read from memory",)
    assert "not joined: requantise of node 'a'" in str(report[1])
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(fused, inputs)) == 0
    shifted = next(node for node in calls(fused.functions[1].body) if node.op == "requantise")
    assert shifted.attr("left_shift") == 10


def test_a_value_with_two_consumers_is_not_fused_away() -> None:
    module = parse("""
    fn @main(%x: int8[1, 1, 4, 4]) {
      %0 = conv2d(%x, int8[1, 1, 1, 1](3))
      %1 = requantise(%0, int32[1](1), int32[1](8388608), int32[1](25))
      %2 = requantise(multiply_immediate(%1, weight=2), int32[1](1), int32[1](8388608), int32[1](25))
      %3 = requantise(%0, int32[1](7), int32[1](8388608), int32[1](25))
      return (%1, %2, %3)
    }
    """)
    fused, report = fuse_with_report(module)
    assert len(report) == 3
    assert any("2 consumers" in reason for item in report for reason in item.boundaries)
    assert sum(item.anchor == "conv2d" for item in report) == 2  # the accumulator is computed by both that need it
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(fused, inputs)) == 0


TO_EIGHT_BITS = "int32[1](1), int32[1](8388608), int32[1](25)"
HARD_SWISH = f"""
      %1 = requantise(conv2d(%x, int8[1, 1, 1, 1](3)), {TO_EIGHT_BITS})
      %2 = requantise(multiply_immediate(subtract_immediate(%1, value=5), weight=3), {TO_EIGHT_BITS}, low=0)
      %3 = requantise(multiply(%1, subtract_immediate(%2, value=-128)), {TO_EIGHT_BITS})
"""


@pytest.mark.parametrize(("results", "functions", "refused"), [("%3", 1, 0), ("(%3, %1)", 2, 1), ("(%3, %2)", 3, 3)])
def test_a_value_joins_when_all_of_its_consumers_are_in_the_function(
    results: str, functions: int, refused: int
) -> None:
    """Here the second consumer joins only after the first has been asked for it."""
    module = parse(f"fn @main(%x: int8[1, 1, 4, 4]) {{ {HARD_SWISH} return {results} }}")
    fused, report = fuse_with_report(module)
    check_stage(fused, "fused")
    assert len(report) == functions
    reasons = [reason for item in report for reason in item.boundaries]
    assert sum("consumers, 1 of them outside" in reason for reason in reasons) == refused
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(fused, inputs)) == 0


@pytest.mark.parametrize(("uses", "joins"), [(1, True), (2, False)])
def test_what_is_repeated_joins_for_one_consumer_only(uses: int, joins: bool) -> None:
    """A gate with ramps would be computed for every tile of the pixels."""
    gate = "multiply_immediate(%1, weight=1)"
    for place in range(uses - 1):
        gate = f"multiply_accumulate({gate}, maximum_immediate(%1, value={place}), weight=2)"
    module = parse(f"""
    fn @main(%x: int8[1, 1, 4, 4], %g: int8[1, 1, 1, 1]) {{
      %1 = requantise(conv2d(%g, int8[1, 1, 1, 1](3)), {TO_EIGHT_BITS})
      return requantise(multiply(%x, {gate}), {TO_EIGHT_BITS})
    }}
    """)
    fused, report = fuse_with_report(module)
    assert len(report) == (1 if joins else 2)
    assert joins or any("computed for every tile" in reason for reason in report[-1].boundaries)
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(fused, inputs)) == 0


@pytest.mark.parametrize("sizes", [(16, 4), (4, 16)])
def test_a_concat_of_the_host_for_the_host_stays_there(sizes: tuple[int, int]) -> None:
    a, b = sizes
    module = parse(f"fn @main(%a: int8[1, {a}, 2, 2], %b: int8[1, {b}, 2, 2]) {{ return concat(%a, %b, %a) }}")
    packed = pack_layout(Blocks(1, 4, 4)).run(module)
    check_stage(packed, "packed")
    assert "joins tensors of the host for the host" in host_reasons(packed)["host_concat_0"]
    inputs = random_inputs(module, 0)
    assert largest_difference(evaluate(module, inputs), evaluate(packed, inputs)) == 0


def test_concat_of_rows_goes_to_the_host() -> None:
    module = parse("fn @main(%x: int8[1, 4, 2, 2]) { return concat(%x, %x, axis=2) }")
    reasons = host_reasons(pack_layout(Blocks(1, 4, 4)).run(module))
    assert "only channels of (N, C, H, W) tensors are concatenated" in reasons["host_concat_0"]


def test_moves_go_to_the_host_with_a_reason() -> None:
    module = parse("fn @main(%x: int8[1, 4, 2, 2]) { return transpose(%x, perm=(0, 1, 3, 2)) }")
    reasons = host_reasons(pack_layout(Blocks(1, 4, 4)).run(module))
    assert "a transpose between layers moves data" in reasons["host_transpose_0"]


# The manager


def test_the_order_of_passes_is_checked() -> None:
    with pytest.raises(PassError, match="pass 'pack-layout' needs 'fuse' before it"):
        PassManager([pack_layout(Blocks(1, 4, 4))])


def test_a_pass_that_changes_results_is_caught() -> None:
    @graph_pass("break")
    def damage(module: Module) -> Module:
        return module.with_main(call("nn.multiply", module.main.body, module.main.body))

    module = module_of("return nn.clip(%x, low=0.0)", F)
    with pytest.raises(PassError, match=r"pass 'break' changed the results by .* of the largest output"):
        PassManager([damage], check=True).run(module)
    assert PassManager([damage]).run(module) != module


def test_the_first_tensor_that_differs_is_named() -> None:
    def node(op: str, tensor: str, *args: Expr, **attrs: float) -> Call:
        return call(op, *args, span=Span((tensor,), tensor), **attrs)

    def model(high: float) -> Module:
        x = Var("x", TensorType((4, 5), "float32"))
        first = node("nn.clip", "first", x, low=-9.0)
        second = node("nn.clip", "second", first, low=0.0, high=high)
        return Module(Function((x,), node("nn.add", "third", second, first)))

    wrong = Pass("narrow", lambda module: model(0.5))
    with pytest.raises(PassError, match=r"pass 'narrow' .*the first tensor that differs is 'second', by"):
        PassManager([wrong], check=True).run(model(1.5))


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([np.inf, 2.0], [np.inf, 2.5], 0.25),
        ([np.inf, 2.0], [-np.inf, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_differences_of_values_that_are_no_numbers(before: list[float], after: list[float], wanted: float) -> None:
    assert largest_difference({"y": np.array(before)}, {"y": np.array(after)}) == wanted


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "int64", "bfloat16", "float64"])
def test_random_inputs_have_the_type_of_the_parameter(dtype: str) -> None:
    values = random_inputs(module_of("return %x", f"%x: {dtype}[40]"), 1)["x"]
    assert values.dtype.name == dtype
    assert len(np.unique(values)) == (2 if dtype == "bool" else 40) or dtype in ("int8", "bfloat16")


def test_a_pass_that_leaves_something_illegal_is_caught() -> None:
    wrong = Pass("claim", lambda module: module, stage="packed")
    with pytest.raises(PassError, match=r"after pass 'claim': nn.clip is not legal at stage 'packed'"):
        PassManager([wrong]).run(module_of("return nn.clip(%x, low=0.0)", F))
    with pytest.raises(GraphError, match="there is no stage 'done'"):
        check_stage(module_of("return %x", F), "done")


def test_wrong_types_are_caught() -> None:
    x = Var("x", TensorType((2,), "float32"))
    body = Call("nn.clip", (x,), call("nn.clip", x).attrs, TensorType((3,), "float32"))
    with pytest.raises(PassError, match=r"nn.clip is marked float32\[3\], but is float32\[2\]"):
        infer_types(Module(Function((x,), body)))


def test_records_and_show() -> None:
    shown: list[tuple[PassRecord, str, str]] = []
    manager = PassManager([simplify, cse], check=True, show=lambda *change: shown.append(change))
    manager.run(module_of("return nn.clip(nn.clip(%x, low=0.0), high=6.0)", F))
    assert [record.changed for record in manager.records] == [True, False]
    assert manager.records[0].error == 0
    assert "2 -> 1 calls" in str(manager.records[0])
    assert [record for record, _, _ in shown] == manager.records[:1]
    assert parse(shown[0][2]) == manager.run(parse(shown[0][1]))


def test_functions_are_rewritten_by_the_text_too() -> None:
    module = parse("""
    fn @kernel(%x: int8[1, 1, 4, 4]) {primitive=true} {
      return requantise(conv2d(%x, int8[1, 1, 1, 1](3)), int32[1](1), int32[1](8388608), int32[1](25))
    }
    fn @main(%x: int8[1, 1, 4, 4]) { return @kernel(%x) }
    """)
    packed = pack_layout(Blocks(2, 2, 4)).run(module)
    assert parse(to_text(packed), constant_table(packed)) == packed
    kernel = next(function for function in packed.functions if function.is_primitive)
    assert (kernel.attrs["macs"], kernel.attrs["shape"]) == (16, (1, 1, 4, 4))
    body: Expr = kernel.body
    assert body.shape == (1, 1, 4, 4, 2, 2, 2)
