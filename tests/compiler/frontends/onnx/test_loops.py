"""Recurrent layers, Scan and Loop: as onnxruntime computes them, and as one body for any number of steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Array, calls, evaluate
from weft.compiler.graph.scan import SCAN, scans_of
from weft.compiler.passes.scans import unroll_loops

from examples.precise import precise_session

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str], constants: dict[str, Array]
) -> onnx.ModelProto:
    ends = [onnx.ValueInfoProto(name=name) for name in outputs]
    initialisers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "loops", inputs, ends, initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def recurrent(op: str, steps: int, direction: str, *, lengths: bool, hidden: int = 5, **attrs: Any) -> onnx.ModelProto:
    """A recurrent layer with biases and given first states."""
    batch, directions = 3, 2 if direction == "bidirectional" else 1
    random = np.random.default_rng(steps)
    rows = GATES[op] * hidden
    shapes = {"w": (rows, 3), "r": (rows, hidden), "b": (2 * rows,)}
    constants = {name: random.normal(0, 0.3, (directions, *shape)).astype(np.float32) for name, shape in shapes.items()}
    inputs = [tensor("x", steps, batch, 3), tensor("h", directions, batch, hidden)]
    if lengths:
        inputs.append(tensor("lengths", batch, kind=TensorProto.INT32))
    operands = ["x", "w", "r", "b", "lengths" if lengths else "", "h"]
    node = helper.make_node(op, operands, ["y", "last"], hidden_size=hidden, direction=direction, **attrs)
    return model_of([node], inputs, ["y", "last"], constants)


def inputs_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    random, values = np.random.default_rng(seed), {}
    for each in model.graph.input:
        shape = [size.dim_value for size in each.type.tensor_type.shape.dim]
        if each.type.tensor_type.elem_type == TensorProto.INT32:
            values[each.name] = random.integers(1, model.graph.input[0].type.tensor_type.shape.dim[0].dim_value + 1,
                                                shape).astype(np.int32)  # fmt: skip
        else:
            values[each.name] = random.normal(size=shape).astype(np.float32)
    return values


def as_onnxruntime(model: onnx.ModelProto, **options: Any) -> None:
    inputs = inputs_of(model)
    wanted = precise_session(model.SerializeToString()).run(None, inputs)
    found = weft.load(weft.compile(model, target="cpu", **options)).run(inputs)
    for value, array in zip(wanted, found.values(), strict=True):
        np.testing.assert_allclose(array, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent_layers_agree_with_onnxruntime(op: str, direction: str, lengths: bool) -> None:
    more = {"linear_before_reset": 1} if op == "GRU" and lengths else {}
    as_onnxruntime(recurrent(op, 7, direction, lengths=lengths, **more), threads=1 if lengths else 2)
    as_onnxruntime(recurrent(op, 2, direction, lengths=lengths, **more))  # too few steps for a loop


@pytest.mark.parametrize("op", GATES)
def test_a_program_is_as_long_for_many_steps_as_for_few(op: str) -> None:
    few, many = (weft.compile(recurrent(op, steps, "bidirectional", lengths=True), target="cpu") for steps in (5, 3000))
    (short,), (long,) = few.steps, many.steps
    assert isinstance(short, type(long))
    assert [loop.count for loop in long.program.loops] == [3000]  # type: ignore[union-attr]
    assert len(short.program.steps) == len(long.program.steps)  # type: ignore[union-attr]
    assert len(few.layers) == len(many.layers)


def test_threads_share_every_round() -> None:
    model = recurrent("LSTM", 300, "bidirectional", lengths=False, hidden=64)
    (step,) = weft.compile(model, target="cpu", threads=2).steps
    assert step.program.threads == 2  # type: ignore[union-attr]
    as_onnxruntime(model, threads=2)


def loop_model(body: list[onnx.NodeProto], results: list[str], steps: int = 6) -> onnx.ModelProto:
    """A Loop of a state (2, 3), whose body may use ``step``, ``a``, and the outer ``x`` and ``w``."""
    inner = helper.make_graph(
        [helper.make_node("Identity", ["goes"], ["on"]), *body], "body",
        [tensor("step", kind=TensorProto.INT64), tensor("goes", kind=TensorProto.BOOL), tensor("a", 2, 3)],
        [tensor("on", kind=TensorProto.BOOL), *(onnx.ValueInfoProto(name=name) for name in results)],
    )  # fmt: skip
    outputs = ["last", *(f"stacked{number}" for number in range(len(results) - 1))]
    node = helper.make_node("Loop", ["count", "true", "x"], outputs, body=inner)
    constants = {"count": np.array(steps, np.int64), "true": np.array(True),
                 "w": np.linspace(-0.4, 0.4, 9, dtype=np.float32).reshape(3, 3)}  # fmt: skip
    return model_of([node], [tensor("x", 2, 3)], outputs, constants)


STEP = [helper.make_node("Cast", ["step"], ["number"], to=TensorProto.FLOAT)]
PRODUCT = [*STEP, helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "number"], ["q"])]


@pytest.mark.parametrize(
    ("body", "results"),
    [
        (PRODUCT, ["q", "q", "p"]),  # the state is stacked, too, and what it is made of
        (PRODUCT, ["q", "a", "q", "q"]),  # the state before, and the same twice
        ([helper.make_node("Identity", ["a"], ["b"])], ["b", "b"]),  # nothing but copies
        (STEP, ["a", "number"]),  # a state that stays, and what depends on the step alone
        ([*PRODUCT, helper.make_node("Add", ["q", "x"], ["r"])], ["r", "r"]),  # an outer value
        (PRODUCT, ["q"]),  # nothing stacked
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_loops_agree_with_onnxruntime(body: list[onnx.NodeProto], results: list[str], threads: int) -> None:
    model = loop_model(body, results)
    assert [node.op for node in calls(from_onnx(model, require_quantised=False).main.body)].count(SCAN) == 1
    as_onnxruntime(model, threads=threads)


def test_a_loop_in_a_loop_keeps_the_values_of_both_apart() -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["goes2"], ["on2"]), helper.make_node("Add", ["b", "a"], ["c"]),
         helper.make_node("Tanh", ["c"], ["b2"])], "inner",
        [tensor("step2", kind=TensorProto.INT64), tensor("goes2", kind=TensorProto.BOOL), tensor("b", 2, 3)],
        [tensor("on2", kind=TensorProto.BOOL), tensor("b2", 2, 3)],
    )  # fmt: skip
    body = [*PRODUCT, helper.make_node("Loop", ["count", "true", "q"], ["z"], body=inner)]
    as_onnxruntime(loop_model(body, ["z", "q"], steps=5))


def test_a_loop_whose_shapes_depend_on_the_step_is_unrolled() -> None:
    body = [helper.make_node("Unsqueeze", ["step", "zero"], ["place"]),
            helper.make_node("Mod", ["place", "two"], ["axis"]),  # along which it sums
            helper.make_node("ReduceSum", ["a", "axis"], ["sum"], keepdims=1),
            helper.make_node("Sub", ["a", "sum"], ["q"])]  # fmt: skip
    model = loop_model(body, ["q"], steps=4)
    for name, value in (("zero", np.array([0], np.int64)), ("two", np.array([2], np.int64))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    assert not scans_of(from_onnx(model, require_quantised=False).main.body)
    as_onnxruntime(model)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scans_go_along_any_axis_in_both_directions(backwards: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["s2"]), helper.make_node("Mul", ["s2", "y"], ["p"]),
         helper.make_node("Sub", ["s", "y"], ["q"]), helper.make_node("Identity", ["s2"], ["same"])], "body",
        [tensor("s", 3), tensor("x", 3), tensor("y", 3)],
        [tensor("s2", 3), tensor("p", 3), tensor("q", 3), tensor("same", 3)],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["start", "xs", "ys"], ["end", "ps", "qs", "ss"], body=body, num_scan_inputs=2,
        scan_input_axes=[1, 0], scan_input_directions=[backwards, 1], scan_output_axes=[1, 0, 0],
        scan_output_directions=[0, backwards, backwards],
    )  # fmt: skip
    inputs = [tensor("start", 3), tensor("xs", 3, 7), tensor("ys", 7, 3)]
    model = model_of([node], inputs, ["end", "ps", "qs", "ss"], {})
    assert scans_of(from_onnx(model, require_quantised=False).main.body)
    as_onnxruntime(model)


def test_unrolling_keeps_every_bit() -> None:
    module = from_onnx(recurrent("GRU", 6, "bidirectional", lengths=True), require_quantised=False)
    flat = unroll_loops(module)
    assert scans_of(module.main.body)
    assert not scans_of(flat.main.body)
    inputs = inputs_of(recurrent("GRU", 6, "bidirectional", lengths=True))
    for name, value in evaluate(module, inputs).items():
        np.testing.assert_array_equal(evaluate(flat, inputs)[name], value)
