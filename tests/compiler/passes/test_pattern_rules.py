"""Rules made of patterns, and functions made of what they meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.graph import (
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Var,
    call,
    calls,
    evaluate,
    parse,
    to_text,
)
from weft.compiler.graph.pattern import any_value, constant, op
from weft.compiler.passes import Pass, PassError, PassManager, PatternRule, cse, outline, pattern_pass
from weft.compiler.passes.manager import random_inputs

CONV = op("nn.conv2d", any_value("x"), constant("w"), name="conv")
CONV_RELU = op("nn.clip", CONV.used_once(), name="relu", low=0.0)
MODEL = """
fn @main(%x: float32[1, 1, 4, 4]) {{
  %a = nn.conv2d(%x, float32[2, 1, 1, 1](0.5, -2.0))
  %b = nn.clip(%a, low=0.0)
  return {result}
}}
"""


def fuse_conv_relu() -> Pass:
    return pattern_pass("conv-relu", [PatternRule(CONV_RELU, lambda m: as_function(m["relu"], m["x"]))])


def as_function(root: Expr, x: Expr) -> Expr | None:
    return outline(root, [x], root.span.node or "conv_relu") if isinstance(root, Call) else None


def test_a_convolution_and_its_relu_become_one_function() -> None:
    module = parse(MODEL.format(result="%b"))
    fused = fuse_conv_relu()(module)
    (function,) = fused.functions
    assert function.is_primitive
    assert [node.op for node in function.body.children if isinstance(node, Call)] == ["nn.conv2d"]
    assert parse(to_text(fused)) == fused
    inputs = random_inputs(module, 0)
    np.testing.assert_array_equal(evaluate(fused, inputs)["output0"], evaluate(module, inputs)["output0"])


def test_a_convolution_with_a_second_consumer_is_left_alone() -> None:
    module = parse(MODEL.format(result="nn.add(%b, %a)"))
    assert fuse_conv_relu()(module) == module


def test_a_function_must_be_given_all_that_it_uses() -> None:
    x, y = Var("x", TensorType((2,), "float32")), Var("y", TensorType((2,), "float32"))
    with pytest.raises(PassError, match=r"function 'sum' uses %y, which is not among its inputs"):
        outline(call("nn.add", x, y), [x], "sum")


def test_rules_that_undo_each_other_are_refused() -> None:
    def swapped(match: dict[str, Expr]) -> Expr:
        return call("nn.add", match["b"], match["a"])

    endless = pattern_pass("swap", [PatternRule(op("nn.add", any_value("a"), any_value("b")), swapped)])
    with pytest.raises(PassError, match=r"pass 'swap' still finds something after 100 rounds"):
        endless(parse("fn @main(%x: float32[2], %y: float32[2]) { return nn.add(%x, %y) }"))


def test_a_rule_must_keep_the_type() -> None:
    wrong = pattern_pass("wrong", [PatternRule(op("nn.add", any_value("a"), any_value()), lambda m: m["a"])])
    with pytest.raises(PassError, match=r"pass 'wrong' puts float32\[2\] in the place of float32\[3, 2\]"):
        wrong(parse("fn @main(%x: float32[2], %y: float32[3, 2]) { return nn.add(%x, %y) }"))


def negations(node: Expr) -> bool:
    return isinstance(node, Constant) and bool(np.all(node.value == -1.0))


@given(st.lists(st.sampled_from("na"), max_size=12), st.integers(0, 3))
def test_rules_reach_a_fixpoint_and_keep_the_value(steps: list[str], seed: int) -> None:
    """Double negations vanish wherever they stand in a chain."""
    x = Var("x", TensorType((3,), "float32"))
    value: Expr = x
    for step in steps:
        other = x if step == "a" else Constant(np.full(3, -1.0, np.float32))
        value = call("nn.add" if step == "a" else "nn.multiply", value, other)
    module = Module(Function((x,), value))
    once = op("nn.multiply", any_value("x"), constant().where(negations))
    twice = op("nn.multiply", once, constant().where(negations))
    after = pattern_pass("negations", [PatternRule(twice, lambda m: m["x"])])(module)
    inputs = random_inputs(module, seed)
    np.testing.assert_array_equal(evaluate(after, inputs)["output0"], evaluate(module, inputs)["output0"])
    assert to_text(after).count("nn.multiply(") == sum(len(run) % 2 for run in "".join(steps).split("a"))


def test_a_pass_of_rules_counts_what_it_replaced_in_all_rounds() -> None:
    twice = op("nn.clip", op("nn.clip", any_value("x"), low=0.0), low=0.0)
    shorter = pattern_pass("shorter", [PatternRule(twice, lambda match: call("nn.clip", match["x"], low=0.0))])
    chain = "".join(f" %{n + 1} = nn.clip(%{n}, low=0.0)\n" for n in range(1, 5))
    module = parse("fn @main(%x: float32[2]) {\n %1 = nn.clip(%x, low=0.0)\n" + chain + " return %5\n}")
    after, matches = shorter.counted(module)
    assert len(calls(after.main.body)) == 1
    assert matches == 4
    assert shorter.counted(after) == (after, 0)
    manager = PassManager([shorter, cse])
    manager.run(module)
    assert [record.matches for record in manager.records] == [matches, None]
