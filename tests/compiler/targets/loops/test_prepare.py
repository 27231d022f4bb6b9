"""Empty tensors on a CPU: what depends on nothing else is known when a model is compiled, and nothing runs for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.compile import is_quantised
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import (
    Attrs,
    Constant,
    Expr,
    Function,
    Module,
    Span,
    TensorType,
    Tuple,
    Var,
    call,
    calls,
    evaluate,
    evaluate_function,
    topological_order,
)
from weft.compiler.graph.dtypes import is_float, step
from weft.compiler.model import HostStep
from weft.compiler.operators.random_graphs import MAX_ERROR_STEPS, random_graph
from weft.compiler.passes import PassManager
from weft.compiler.targets.cpu.target import Cpu
from weft.compiler.targets.loops.prepare import MOST_OPERANDS, in_parts, loop_passes, prepare

DIGITS = Path(weft.__file__).parents[1] / "examples" / "digits" / "digits.onnx"
NOTHING = Var("nothing", TensorType((0, 3), "float32"))
ROWS = Var("rows", TensorType((2, 3), "float32"))
POWERS = call("nn.exp", NOTHING)
SUM = call("nn.reduce_sum", POWERS, axes=(0,))
ONES = Constant(np.ones(3, np.float32))
PLACES = Constant(np.zeros((0, 1), np.int64))


def module_of(*results: Expr) -> Module:
    names = tuple(f"out{number}" for number in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    return Module(Function((NOTHING, ROWS), body, Attrs({"name": "main", "outputs": names})))


def values() -> dict[str, Any]:
    return {"nothing": np.zeros((0, 3), np.float32), "rows": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.mark.parametrize(
    ("result", "kinds"),
    [
        (NOTHING, []),
        (POWERS, []),
        (SUM, []),
        (call("nn.add", SUM, ONES), []),
        (call("nn.reduce_max", NOTHING, axes=(0,)), []),
        (call("nn.matmul", call("transpose", NOTHING, perm=(1, 0)), POWERS), []),
        (call("concat", POWERS, ROWS, NOTHING, axis=0), []),
        (call("concat", ROWS, NOTHING, ROWS, axis=0), ["plain"]),
        (call("nn.add", ROWS, call("nn.negative", SUM)), ["plain"]),
        (call("slice", ROWS, starts=(0, 0), sizes=(0, 3), steps=(1, 1)), []),
        (call("gather", ROWS, Constant(np.zeros((0, 2), np.int64)), axis=0), []),
        (call("scatter_nd", ROWS, PLACES, NOTHING), ["numpy"]),
    ],
)
def test_nothing_runs_for_tensors_without_elements(result: Expr, kinds: list[str]) -> None:
    module = module_of(result, POWERS)
    model = weft.compile(module, target="cpu")
    assert isinstance(model, weft.CompiledModel)
    assert [layer.kind for layer in model.layers] == kinds
    found = weft.load(model).run(values())
    for name, array in evaluate(module, values()).items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_weights_that_are_quantised_alone_make_a_fast_convolution() -> None:
    image = Var("image", TensorType((1, 16, 6, 6), "float32"))
    integers = Constant(np.arange(-64, 64, dtype=np.int8).reshape(8, 16, 1, 1))
    weights = call("dequantise", integers, Constant(np.float32([0.5])[0]), Constant(np.int8([3])[0]), axis=0)
    module = Module(Function((image,), call("nn.conv2d", image, weights), Attrs({"name": "main", "outputs": ("out",)})))
    model = weft.compile(module, target="cpu")
    assert isinstance(model, weft.CompiledModel)
    assert [layer.kind for layer in model.layers if layer.operators] == ["convolution"]
    given = {"image": np.random.default_rng(0).standard_normal((1, 16, 6, 6), np.float32)}
    expected = evaluate(module, given)["out"]
    np.testing.assert_allclose(weft.load(model).run(given)["out"], expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_values_stay_and_a_graph_without_empty_tensors_is_left_alone(seed: int) -> None:
    graph = random_graph(seed)
    before, after = graph.module, prepare(graph.module)
    expected, found = (evaluate(module, graph.inputs) for module in (before, after))
    kinds = [node.type for node in topological_order(before.main.body)]
    is_known = any(all(isinstance(arg, Constant) for arg in node.args) for node in calls(before.main.body))
    is_rewritten = any(node.op in ("nn.einsum", "nn.conv2d", "nn.conv3d") for node in calls(before.main.body))
    floats = [kind.dtype for kind in kinds if isinstance(kind, TensorType) and is_float(kind.dtype)]
    allowed = MAX_ERROR_STEPS * max(map(step, floats)) if is_rewritten else 0.0
    for name, array in expected.items():
        error = np.abs(found[name].astype(np.float64) - array.astype(np.float64)).max(initial=0.0)
        limit = allowed if is_float(array.dtype.name) else 0.0
        assert error <= limit * max(1.0, np.abs(array.astype(np.float64)).max(initial=0.0))
    is_moved = any(node.op == "reshape" for node in calls(before.main.body))  # behind what is elementwise
    if (
        not is_known
        and not is_rewritten
        and not is_moved
        and all(kind.size for kind in kinds if isinstance(kind, TensorType))
    ):
        assert after.main.body is before.main.body
    assert all(0 not in arg.shape for node in calls(after.main.body) for arg in node.args)


def spread_convolution() -> Module:
    x = Var("x", TensorType((1, 3, 4, 5), "float32"))
    weights = Constant(np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32))
    value = call("nn.conv2d", call("dilate", x, factors=(2, 2)), weights, pads=(1, 1, 2, 2))
    return Module(Function((x,), value, Attrs({"outputs": ("out",)})))


def einsum() -> Module:
    a, b = Var("a", TensorType((2, 3, 4), "float32")), Var("b", TensorType((4, 5), "float32"))
    return Module(Function((a, b), call("nn.einsum", a, b, equation="bij,jk->kbi"), Attrs({"outputs": ("out",)})))


@pytest.mark.parametrize(
    ("module", "changing"),
    [
        (spread_convolution(), ["plain-convolutions", "phases-last"]),
        (einsum(), ["einsum-to-matmul"]),
        (module_of(call("concat", ROWS, NOTHING, axis=0)), ["remove-empty-tensors"]),
        (module_of(call("nn.add", ROWS, call("nn.negative", ONES))), ["fold-known-values"]),
    ],
)
def test_the_pass_manager_checks_each_pass_by_itself(module: Module, changing: list[str]) -> None:
    manager = PassManager(loop_passes(), check=True)
    assert manager.run(module).main == prepare(module).main != module.main
    assert [record.name for record in manager.records[1:] if record.changed] == changing


def test_the_pass_manager_checks_them_on_a_network_in_integers() -> None:
    source = from_onnx(DIGITS)
    passes = Cpu().passes(Cpu.options(), quantised=is_quantised(source))
    manager = PassManager(passes, check=True)
    manager.run(source)
    assert [record.name for record in manager.records] == [item.name for item in passes]


def test_calls_of_one_function_keep_the_nodes_of_the_user_apart() -> None:
    kind = TensorType((4,), "float32")
    x, y = Var("x", kind), Var("y", kind)
    function = Function((x,), call("nn.exp", x, span=Span(("first",))), Attrs({"name": "f", "host": "a test"}))
    results = tuple(call(function, arg, span=Span((name,))) for arg, name in ((x, "first"), (y, "second")))
    main = Function((x, y), Tuple(results), Attrs({"name": "main", "outputs": ("a", "b")}))
    inlined = prepare(Module(main, "host")).main.results
    assert [node.span.node for node in inlined] == ["first", "second"]


@pytest.mark.parametrize("count", [1, 2, MOST_OPERANDS, MOST_OPERANDS + 1, 300, MOST_OPERANDS**2 + 1])
def test_a_concatenation_of_many_operands_is_one_of_concatenations(count: int) -> None:
    chance = np.random.default_rng(count)
    values = [chance.integers(0, 99, (2, size), np.int8) for size in chance.integers(1, 4, count).tolist()]
    variables = [Var(f"x{number}", TensorType(value.shape, "int8")) for number, value in enumerate(values)]
    whole = call("concat", *variables, axis=1)
    parts = in_parts(whole)
    if count <= MOST_OPERANDS:
        assert parts is None
        return
    assert parts is not None
    assert all(len(node.args) <= MOST_OPERANDS for node in calls(parts))
    function = Function(tuple(variables), parts)
    np.testing.assert_array_equal(evaluate_function(function, values), np.concatenate(values, axis=1))


def test_parts_of_a_concatenation_are_kernels_of_their_own() -> None:
    """A kernel of all operands takes a time that grows with their square."""
    count = 2 * MOST_OPERANDS
    variables = [Var(f"x{number}", TensorType((3, 2), "float32")) for number in range(count)]
    body = call("concat", *variables, axis=0)
    module = Module(Function(tuple(variables), body, Attrs({"name": "main", "outputs": ("y",)})))
    model = weft.compile(module, target="cpu")
    programs = [step.program for step in model.steps if isinstance(step, HostStep)]
    parameters = [len(kernel.nbytes) for program in programs for kernel in program.kernels]
    assert max(parameters) <= MOST_OPERANDS + 1
    inputs = {variable.name: np.full((3, 2), number, np.float32) for number, variable in enumerate(variables)}
    expected = np.repeat(np.arange(count, dtype=np.float32), 3)[:, None].repeat(2, axis=1)
    np.testing.assert_array_equal(weft.load(model).run(inputs)["y"], expected)
