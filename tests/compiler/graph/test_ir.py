"""Nodes, walking and rewriting, patterns, evaluation."""

from __future__ import annotations

import weakref
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Mutator,
    Span,
    TensorType,
    Tuple,
    TupleGet,
    Var,
    Visitor,
    call,
    calls,
    evaluate,
    rewrite,
    substitute,
    topological_order,
    use_counts,
)
from weft.compiler.graph.pattern import any_value, constant, one_of, op

X = Var("x", TensorType((2, 3), "float32"))


def test_equality_is_structural_and_ignores_spans() -> None:
    a = call("nn.clip", X, low=0.0, span=Span(("relu",)))
    b = call("nn.clip", Var("x", TensorType((2, 3), "float32")), low=0)
    assert a == call("nn.clip", X, low=0.0)
    assert hash(a) == hash(call("nn.clip", X, low=0.0))
    assert a != b  # the attribute is an integer there
    assert a != call("nn.clip", X, low=1.0)


def test_equality_of_a_deep_residual_network_is_fast() -> None:
    def tower() -> Expr:
        value: Expr = X
        for _ in range(2000):  # 2**2000 paths, and deeper than Python's stack
            value = call("nn.add", call("nn.clip", value, low=0.0), value)
        return value

    a, b = tower(), tower()
    assert a == b
    assert len(topological_order(a)) == 4001


def row(length: int) -> Expr:
    value: Expr = X
    for _ in range(length):
        value = call("nn.clip", value, low=0.0)
    return value


def test_an_order_that_is_remembered_is_of_that_node_alone() -> None:
    """Equal nodes have orders of their own, and an order may be changed by whoever asked for it."""
    first, second = row(100), row(100)
    for root in (first, second, first, first):
        order = topological_order(root)
        assert order[-1] is root
        assert len(order) == 101
        assert order[-2] is root.children[0]
        order.clear()


def test_an_order_that_is_remembered_keeps_no_graph_alive() -> None:
    root = row(100)
    below = weakref.ref(root.children[0])
    topological_order(root)
    del root
    assert below() is None


def test_nodes_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        X.name = "y"  # type: ignore[misc]
    value = Constant(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        value.value[0] = 1


def test_a_constant_keeps_its_own_copy() -> None:
    source = np.zeros(3, np.float32)
    held = Constant(source)
    source[0] = 5
    assert held.value[0] == 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: call("nn.add", X, Var("y", TensorType((4,), "float32"))), r"nn.add: float32\[2, 3\] and float32\[4"),
        (lambda: call("nn.clip", X, X), r"nn.clip takes 1 operands \(x\), not 2"),
        (lambda: call("nn.max_pool", X), r"nn.max_pool needs the attribute 'kernel'"),
        (lambda: call("reshape", X, shape=(4, 2)), r"float32\[2, 3\] has 6 elements, but the new shape \(4, 2\) has 8"),
        (lambda: call("requantise", X, X, X, X), r"the input must be int8 or int32, not float32"),
        (lambda: TensorType((1,), "int5"), r"'int5' is not an element type"),
        (lambda: TupleGet(Tuple((X,)), 1), r"there is no field 1"),
        (lambda: Attrs({"a": object()}), r"an attribute must be"),
        (lambda: call("what", X), r"there is no operator 'what'; hint: docs/operators\.md lists all"),
        (lambda: call("nn.con2d", X), r"there is no operator 'nn\.con2d'; hint: nearest: nn\.conv2d, "),
        (lambda: call("sigmoid", X), r"there is no operator 'sigmoid'; hint: 'nn\.sigmoid' is one of floats"),
        (lambda: call("requantize", X), r"there is no operator 'requantize'; hint: nearest: requantise"),
    ],
)
def test_wrong_nodes_are_refused(build: object, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build()  # type: ignore[operator]


def test_an_error_names_the_users_node() -> None:
    with pytest.raises(GraphError, match=r"^node 'conv_7': reshape: "):
        call("reshape", X, shape=(7,), span=Span(("conv_7",)))


def test_a_function_checks_its_operands() -> None:
    function = Function((X,), call("nn.clip", X), Attrs({"name": "f"}))
    with pytest.raises(GraphError, match=r"function 'f' takes \(float32\[2, 3\]\), but is called with \(int8\[1\]\)"):
        call(function, Var("q", TensorType((1,), "int8")))


def test_visitor_sees_every_node_once() -> None:
    seen: list[str] = []

    class Names(Visitor):
        def visit_call(self, node: Call) -> None:
            seen.append(str(node.op))

        def visit_var(self, node: Var) -> None:
            seen.append(node.name)

    shared = call("nn.clip", X, low=0.0)
    Names().run(call("nn.add", shared, shared))
    assert seen == ["x", "nn.clip", "nn.add"]


def test_mutator_keeps_sharing_and_returns_unchanged_graphs_as_they_are() -> None:
    shared = call("nn.clip", X, low=0.0)
    root = call("nn.add", shared, shared)
    assert Mutator().run(root) is root

    class Wider(Mutator):
        def rewrite_call(self, node: Call) -> Expr:
            return call("nn.clip", node.args[0], low=-1.0) if node.op == "nn.clip" else node

    changed = Wider().run(root)
    assert isinstance(changed, Call)
    assert changed.args[0] is changed.args[1]


def test_rewrite_repeats_until_the_rule_is_silent() -> None:
    def shrink(node: Call) -> Expr | None:
        return call("nn.clip", X, low=node.attr("low") - 1) if node.op == "nn.clip" and node.attr("low") > 0 else None

    assert rewrite(call("nn.clip", X, low=3.0), shrink) == call("nn.clip", X, low=0.0)


def test_substitute_and_use_counts() -> None:
    y = Var("y", X.type)
    root = call("nn.add", X, call("nn.add", X, y))
    assert use_counts(root)[X] == 2
    assert substitute(root, {X: y}) == call("nn.add", y, call("nn.add", y, y))
    assert len(calls(root)) == 2


def test_patterns() -> None:
    zero = Constant(np.zeros((), np.float32))
    root = call("nn.add", zero, call("nn.clip", X, low=0.0))
    relu = op("nn.clip", any_value("x"), low=0.0)
    biased = op("nn.add", relu, constant("c"), commutative=True)
    found = biased.match(root)
    assert found == {"x": X, "c": zero}
    assert op("nn.add", relu, constant("c")).match(root) is None
    assert op("nn.clip", any_value(), low=1.0).match(root.args[1]) is None
    assert one_of(constant("c"), relu).match(root.args[1]) == {"x": X}
    assert any_value("v").typed("int8").match(X) is None
    assert any_value("v").typed("float32", 2).match(X) == {"v": X}
    same = op("nn.add", any_value("a"), any_value("a"))
    assert same.match(root) is None
    assert same.match(call("nn.add", X, X)) == {"a": X}


def test_patterns_can_ask_for_a_single_consumer() -> None:
    relu = call("nn.clip", X, low=0.0)
    once, twice = call("nn.add", relu, X), call("nn.add", relu, relu)
    pattern = op("nn.add", op("nn.clip", any_value()).used_once(), any_value())
    assert pattern.match(once, use_counts(once)) is not None
    assert pattern.match(twice, use_counts(twice)) is None
    assert (constant("a") | any_value("b")).match(X) == {"b": X}


def test_evaluate_returns_outputs_by_name_and_shows_intermediates() -> None:
    relu = call("nn.clip", X, low=0.0)
    module = Module(Function((X,), Tuple((relu, call("nn.add", relu, X))), Attrs({"outputs": ("a", "b")})))
    seen: dict[Expr, Array] = {}
    value = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    results = evaluate(module, {"x": value}, lambda node, got: seen.update({node: got}))  # type: ignore[dict-item]
    assert np.array_equal(results["b"], np.maximum(value, 0) + value)
    assert np.array_equal(seen[relu], results["a"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'x' \(float32\[2, 3\]\) is missing"),
        ({"x": np.zeros((2, 3))}, r"input 'x' must be float32\[2, 3\], not float64\[2, 3\]"),
        ({"x": np.zeros((2, 3), np.float32), "y": np.zeros(1)}, r"there is no input 'y'; hint: the inputs are: x"),
    ],
)
def test_wrong_inputs_are_refused(inputs: dict[str, Array], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        evaluate(Module(Function((X,), X)), inputs)
