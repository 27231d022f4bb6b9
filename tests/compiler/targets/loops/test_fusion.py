"""What becomes one kernel, what each limit of a target stops, and that no edge is left without a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, TupleGet, Var, call, evaluate
from weft.compiler.graph.visit import topological_order
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.cpu.processor import host_target, named_target
from weft.compiler.targets.loops import fusion
from weft.compiler.targets.loops.fusion import FusedGroup, group_calls
from weft.compiler.targets.loops.fusion_limits import FusionLimits
from weft.compiler.targets.loops.order import kept_briefly
from weft.compiler.targets.loops.prepare import prepare

X = Var("x", TensorType((4, 8), "float32"))
"""128 bytes."""


def operators(groups: list[FusedGroup]) -> list[tuple[str, ...]]:
    return [tuple(str(node.op) for node in group.members) for group in groups]


def chain(length: int) -> Expr:
    value: Expr = X
    for number in range(length):
        value = call("nn.add", value, Constant(np.float32(number)))
    return value


def test_a_value_joins_when_all_that_use_it_are_in_the_kernel() -> None:
    v = call("nn.add", X, X)
    swish = call("nn.multiply", v, call("nn.sigmoid", v))
    assert operators(group_calls(swish, FusionLimits())) == [("nn.add", "nn.sigmoid", "nn.multiply")]


def test_a_value_that_another_kernel_uses_is_written_to_memory() -> None:
    v = call("nn.add", X, X)
    total = call("nn.reduce_sum", v, axes=(1,), keepdims=True)
    groups = group_calls(call("nn.divide", call("nn.exp", v), total), FusionLimits())
    assert operators(groups) == [("nn.add",), ("nn.reduce_sum",), ("nn.exp", "nn.divide")]
    assert [group.boundaries for group in groups] == [
        (),
        ("nn.add of unknown place: nn.reduce_sum stands first in its kernel",),
        (
            "nn.add of unknown place: 2 uses, 1 of them in this kernel",
            "nn.reduce_sum of unknown place: its shape (4, 1) is not (4, 8)",
        ),
    ]


BEFORE = FusionLimits(before_reductions=True)


def test_a_reduction_computes_what_it_alone_needs() -> None:
    row = Var("row", TensorType((8,), "float32"))
    centred = call("nn.subtract", X, row)
    total = call("nn.reduce_sum", call("nn.multiply", X, centred), axes=(1,))
    assert operators(group_calls(total, FusionLimits())) == [("nn.subtract", "nn.multiply"), ("nn.reduce_sum",)]
    (group,) = group_calls(call("nn.exp", total), BEFORE)
    assert operators([group]) == [("nn.subtract", "nn.multiply", "nn.reduce_sum", "nn.exp")]
    assert set(group.inputs) == {X, row}


def test_a_reduction_of_images_in_blocks_computes_its_operand_in_blocks() -> None:
    draw = np.random.default_rng(0)
    image = Var("image", TensorType((2, 16, 6, 6), "float32"))
    kernel = Constant(draw.normal(0, 0.1, (32, 16, 3, 3)).astype(np.float32))
    y = call("nn.clip", call("nn.conv2d", image, kernel), low=0.0, high=np.inf)
    means = call("nn.reduce_mean", call("nn.multiply", y, call("nn.exp", y)), axes=(2, 3), keepdims=True)
    module = Module(Function((image,), call("nn.multiply", y, means), Attrs({"name": "main", "outputs": ("out",)})))
    model = weft.compile(module, target="cpu")
    assert isinstance(model, weft.CompiledModel)
    made = {layer.operators: layer.kind for layer in model.layers}
    assert made["nn.exp", "nn.multiply", "nn.reduce_mean"] == "blocked"
    given = {"image": draw.normal(size=(2, 16, 6, 6)).astype(np.float32)}
    np.testing.assert_allclose(weft.load(model).run(given)["out"], evaluate(module, given)["out"], rtol=1e-5, atol=1e-6)


def test_what_a_reduction_does_not_compute() -> None:
    product = call("nn.matmul", X, Constant(np.ones((8, 8), np.float32)))
    behind = call("nn.reduce_sum", call("nn.exp", product), axes=(1,))
    assert operators(group_calls(behind, BEFORE)) == [("nn.matmul", "nn.exp"), ("nn.reduce_sum",)]
    v = call("nn.exp", X)
    shared = call("nn.add", v, call("nn.reduce_sum", v, axes=(1,), keepdims=True))
    assert len(group_calls(shared, BEFORE)) == 3
    square = call("nn.reduce_sum", call("nn.multiply", v, v), axes=(1,))
    assert operators(group_calls(square, replace(BEFORE, recompute_intensity=1.0)))[0] == ("nn.exp",)
    several = call("nn.softmax", call("nn.add", X, X), axis=1)  # it reads elements more than once
    assert operators(group_calls(several, BEFORE)) == [("nn.add",), ("nn.softmax",)]


def test_a_value_that_the_first_operator_reads_too_is_written_to_memory() -> None:
    v = call("nn.add", X, X)
    product = call("nn.matmul", v, Constant(np.ones((8, 8), np.float32)))
    groups = group_calls(call("nn.add", product, v), FusionLimits())
    assert operators(groups) == [("nn.add",), ("nn.matmul", "nn.add")]
    assert groups[1].boundaries == ("nn.add of unknown place: 2 uses, 1 of them in this kernel",)


def test_depth_is_the_number_of_operators_in_a_kernel() -> None:
    groups = group_calls(chain(7), FusionLimits(depth=3))
    assert [len(group.members) for group in groups] == [1, 3, 3]
    stop = "nn.add of unknown place: the kernel has 3 operators, the most for this target (depth)"
    assert [group.boundaries for group in groups] == [(), (stop,), (stop,)]


def test_input_bytes_bound_what_is_alive_while_a_kernel_runs() -> None:
    a, b, c = (Var(name, X.tensor_type) for name in "abc")
    total = call("nn.add", call("nn.negative", a), call("nn.add", call("nn.negative", b), call("nn.negative", c)))
    assert len(group_calls(total, FusionLimits(input_bytes=3 * 128))) == 1
    groups = group_calls(total, FusionLimits(input_bytes=2 * 128))
    assert operators(groups)[-1] == ("nn.negative", "nn.add")
    assert groups[-1].boundaries == (
        "nn.add of unknown place: the kernel would read 384 bytes, more than 256 (input_bytes)",
    )


def test_an_operator_that_reads_more_than_the_limit_by_itself_still_takes_what_adds_nothing() -> None:
    v = call("nn.exp", call("nn.add", X, Var("y", X.tensor_type)))
    assert operators(group_calls(v, FusionLimits(input_bytes=1))) == [("nn.add", "nn.exp")]


def test_recomputing_must_be_worth_the_traffic_that_it_saves() -> None:
    v = call("nn.exp", X)  # 16 operations a use, for 8 bytes that are neither written nor read
    twice = call("nn.multiply", v, call("nn.negative", v))
    assert len(group_calls(twice, FusionLimits(recompute_intensity=2))) == 1
    groups = group_calls(twice, FusionLimits(recompute_intensity=1.9))
    assert operators(groups) == [("nn.exp",), ("nn.negative", "nn.multiply")]
    assert groups[1].boundaries == (
        "nn.exp of unknown place: it would be computed 2 times: 2 operations for each byte saved, more than 1.9 "
        "(recompute_intensity)",
    )


def test_repetitions_multiply_along_a_kernel() -> None:
    value: Expr = X
    for _ in range(12):  # computed 1, 2, 4, ... times
        value = call("nn.multiply", value, call("nn.negative", value))
    groups = group_calls(value, FusionLimits(recompute_intensity=4))
    assert max(len(group.members) for group in groups) <= 2 * 6  # (2 ** 5 - 1) / 8 operations a byte
    assert "it would be computed 64 times" in groups[-1].boundaries[0]


def test_bytes_saved_are_those_of_members_that_are_not_results() -> None:
    v = call("nn.add", X, X)
    (group,) = group_calls(call("nn.multiply", v, call("nn.sigmoid", v)), FusionLimits())
    assert group.saved_bytes == 128 * 3 + 128 * 2  # v: one write, two reads; its sigmoid: a write and a read
    wide = call("nn.cast", call("nn.cast", X, to="float64"), to="bool")
    (group,) = group_calls(wide, FusionLimits())
    assert group.saved_bytes == 256 * 2


def test_a_kernel_is_cut_where_the_fewest_bytes_cross() -> None:
    data = Var("data", TensorType((1, 4, 6, 6), "int8"))
    numbers = Constant(np.ones(8, np.int32))

    def narrow(value: Expr) -> Expr:
        return call("requantise", value, numbers, numbers, numbers)

    one, other = (narrow(call("conv2d", data, Constant(np.full((8, 4, 1, 1), value, np.int8)))) for value in (1, 2))
    both = call("multiply_accumulate", call("multiply_immediate", one, weight=3), other, weight=5)
    first, second = group_calls(narrow(both), FusionLimits())
    assert operators([first]) == [("conv2d", "requantise")]  # not the sums, nor the product, of four bytes each
    assert second.boundaries == (
        "requantise of unknown place: the kernel has conv2d already; cut where the fewest bytes cross",
    )


def test_small_processors_have_other_limits() -> None:
    assert named_target("armv7a").fusion.input_bytes < host_target().fusion.input_bytes


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.builds(FusionLimits, st.integers(1, 9), st.sampled_from([0, 500, 10**9]),
                                         st.sampled_from([0.0, 0.5, 4.0])))  # fmt: skip
def test_every_edge_is_inside_of_a_kernel_or_has_a_reason(seed: int, limits: FusionLimits) -> None:
    body = prepare(random_graph(seed).module).main.body
    groups = kept_briefly(group_calls(body, limits), body)
    members = [member for group in groups for member in group.members]
    assert len(members) == len(set(members))
    assert set(members) == {node for node in topological_order(body) if isinstance(node, Call)}
    done: set[Expr] = set()
    for group in groups:
        made = [value for value in group.inputs if isinstance(value, Call | TupleGet)]
        assert len(group.boundaries) == len(made)
        assert all(stop.split(": ", 1)[1] for stop in group.boundaries)
        assert all(value in done for value in made if isinstance(value, Call))  # producers come first
        assert group.root not in group.inputs
        assert len(group.members) <= limits.depth or group.reason
        done.add(group.root)


def test_a_long_chain_becomes_several_kernels() -> None:
    module = Module(Function((X,), chain(500)))
    values = {"x": np.ones(X.shape, np.float32)}
    model = weft.compile(replace(module, stage="operators"), target="cpu")
    assert len(model.layers) == -(-500 // host_target().fusion.depth)
    for found, wanted in zip(weft.load(model).run(values).values(), evaluate(module, values).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_elementwise_operators_read_a_part_where_it_lies() -> None:
    """What a gated unit does: both halves of a product, one of them through a sigmoid."""
    x = Var("x", TensorType((5, 16), "float32"))
    halves = [call("slice", x, starts=(0, start), sizes=(5, 8), steps=(1, 1)) for start in (0, 8)]
    gated = call("nn.multiply", call("nn.sigmoid", halves[0]), halves[1])
    assert [sorted(each) for each in operators(group_calls(gated, FusionLimits()))] == [
        ["nn.multiply", "nn.sigmoid", "slice", "slice"]
    ]
    also_used = call("nn.dense", gated, halves[1])
    assert ("slice",) in operators(group_calls(also_used, FusionLimits()))
    image = Var("image", TensorType((1, 8, 4, 4), "float32"))
    part = call("nn.tanh", call("slice", image, starts=(0, 4, 0, 0), sizes=(1, 4, 4, 4), steps=(1,) * 4))
    assert operators(group_calls(part, FusionLimits())) == [("slice",), ("nn.tanh",)]


def test_a_reduction_of_products_reads_a_part_where_it_lies() -> None:
    limits = FusionLimits(before_reductions=True)

    def of_part(shape: tuple[int, ...], starts: tuple[int, ...], sizes: tuple[int, ...]) -> Call:
        x, w = Var("x", TensorType(shape, "float32")), Var("w", TensorType(sizes, "float32"))
        part = call("slice", x, starts=starts, sizes=sizes, steps=(1,) * len(sizes))
        return call("nn.reduce_sum", call("nn.multiply", part, w), axes=tuple(range(len(sizes) - 1)))

    total = of_part((6, 5, 16), (1, 0, 0), (4, 3, 16))
    assert [sorted(each) for each in operators(group_calls(total, limits))] == [
        ["nn.multiply", "nn.reduce_sum", "slice"]
    ]
    module = Module(
        Function(tuple(node for node in topological_order(total) if isinstance(node, Var)), total), stage="operators"
    )
    draw = np.random.default_rng(0)
    values = {each.name: draw.normal(size=each.type.shape).astype(np.float32) for each in module.main.params}
    found = weft.load(weft.compile(module, target="cpu")).run(values)["output0"]
    np.testing.assert_allclose(found, evaluate(module, values)["output0"], rtol=1e-5, atol=1e-5)

    image = of_part((2, 8, 4, 4), (0, 4, 0, 0), (2, 4, 4, 4))
    assert ("slice",) in operators(group_calls(image, limits)), "kernels of images may read blocks of channels"
    product = total.args[0]
    assert isinstance(product, Call)
    also_used = call("nn.add", call("reshape", total, shape=(1, 1, 16)), product.args[0])
    assert ("slice",) in operators(group_calls(also_used, limits))


@pytest.mark.parametrize("row", [False, True])
def test_no_kernel_takes_a_walk_of_the_whole_graph(row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at for each kernel does not grow with the graph: time is linear in its nodes."""
    visited: list[int] = []
    ordered = fusion.ordered_members

    def counted(root: Call, members: Any) -> tuple[Call, ...]:
        found = ordered(root, members)
        visited.append(len(found))
        return found

    monkeypatch.setattr(fusion, "ordered_members", counted)
    walks = []
    monkeypatch.setattr(fusion, "topological_order", lambda root: walks.append(root) or topological_order(root))
    limits = FusionLimits(before_reductions=True, row_statistics=row)
    for count in (100, 400):
        value: Any = Var("x", TensorType((4, 64), "float32"))
        for number in range(count):
            value = call(("nn.tanh", "nn.negative", "nn.sigmoid")[number % 3], value)
        visited.clear()
        walks.clear()
        groups = group_calls(value, limits)
        assert sum(len(group.members) for group in groups) == count
        assert len(walks) == 1
        assert sum(visited) <= 4 * limits.depth * len(groups)
