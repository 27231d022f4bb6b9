"""Programs of loop kernels for a target that is no CPU: what a folder beside ``cpu/`` has to bring is a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.compiler import tensor as te
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.graph.dtypes import numpy_dtype
from weft.compiler.graph.evaluate import evaluate_function
from weft.compiler.model import CheckStep, CopyStep, HostProgram, LaunchStep, NumpyStep, Place
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.targets.errors import CompileError
from weft.compiler.targets.loops.link import link_host, program_figures
from weft.compiler.targets.loops.plain import PlainKernels
from weft.compiler.targets.loops.prepare import prepare
from weft.compiler.targets.loops.target import LoopTarget

Array = np.ndarray[Any, Any]


def leave(schedule: te.Schedule, reductions: Sequence[str] = ()) -> None:
    """A schedule that changes nothing."""


TARGET = LoopTarget("none in particular", (PlainKernels(leave),))


def run(program: HostProgram, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a program with the interpreter of the loop IR."""
    memories: dict[tuple[str, int], Array] = {
        ("arena", 0): np.full(program.arena_bytes, 0x5B, np.uint8), ("constant", 0): program.constants,
    }  # fmt: skip
    for number, tensor in enumerate(program.inputs):
        memories["input", number] = np.ascontiguousarray(inputs[tensor.name]).reshape(-1).view(np.uint8)
    outputs = [np.empty(tensor.shape, numpy_dtype(tensor.dtype)) for tensor in program.outputs]
    for number, array in enumerate(outputs):
        memories["output", number] = array.reshape(-1).view(np.uint8)

    def at(place: Place) -> Array:
        memory = memories[place.kind, place.number][place.offset : place.offset + place.nbytes]
        return memory.view(numpy_dtype(place.dtype)).reshape(place.shape)

    kernels = {code.symbol: te.parse(code.text) for code in program.kernels}
    for _, step in program.steps_in_turn():
        match step:
            case LaunchStep(symbol, places):
                func = kernels[symbol]
                given = {buffer.name: at(place) for buffer, place in zip(func.params, places, strict=True)}
                at(places[-1])[...] = te.interpret(func, given)[func.params[-1].name]
            case NumpyStep(function, sources, results):
                value = evaluate_function(function, [at(place) for place in sources])
                for place, part in zip(results, value if isinstance(value, tuple) else (value,), strict=True):
                    at(place)[...] = part
            case CopyStep(source, target):
                at(target)[...] = at(source)
            case CheckStep():
                pass
    return {tensor.name: array for tensor, array in zip(program.outputs, outputs, strict=True)}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_target_with_plain_kernels_alone_gives_what_a_graph_means(seed: int) -> None:
    graph = random_graph(seed, 6)
    module = prepare(graph.module)
    found = run(link_host(module, TARGET, 1), graph.inputs)
    for name, array in evaluate(module, graph.inputs).items():
        wanted = array.astype(np.float64)
        finite = np.isfinite(wanted)
        scale = float(np.abs(wanted[finite]).max(initial=1))
        tolerance = 2e-2 if array.dtype.itemsize == 2 else 1e-4
        np.testing.assert_array_equal(np.isnan(found[name].astype(np.float64)), np.isnan(wanted))
        difference = np.abs(found[name].astype(np.float64)[finite] - wanted[finite])
        assert difference.max(initial=0) <= (tolerance * scale if array.dtype.kind in "fV" else 0)


X = Var("x", TensorType((1, 4, 5, 6), "float32"))
WEIGHTS = Constant(np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32))


def module_of(*results: Expr) -> Module:
    names = tuple(f"out{number}" for number in range(len(results)))
    return Module(Function((X,), Tuple(results), Attrs({"name": "main", "outputs": names})))


def test_a_program_holds_its_target_its_layers_and_what_its_memory_needs() -> None:
    value = call("nn.conv2d", call("nn.tanh", X), WEIGHTS, pads=(1,) * 4)
    program = link_host(module_of(value, call("nn.exp", value)), TARGET, 3)
    assert (program.processor, program.threads) == ("none in particular", 3)
    assert [(layer.kind, layer.device, layer.operators) for layer in program.layers] == [
        ("plain", "cpu", ("nn.tanh",)), ("plain", "cpu", ("nn.conv2d",)), ("plain", "cpu", ("nn.exp",)),
    ]  # fmt: skip
    assert [step.layer for step in program.steps if isinstance(step, LaunchStep)] == [0, 1, 2]
    figures = program_figures(program)
    assert figures["kernels"] == 3
    assert figures["arena_bytes_alive"] <= figures["arena_bytes"] == program.arena_bytes


def test_equal_kernels_are_one() -> None:
    first = call("nn.tanh", X)
    program = link_host(module_of(first, call("nn.tanh", first)), TARGET, 1)
    assert len(program.kernels) == 1
    assert len([step for step in program.steps if isinstance(step, LaunchStep)]) == 2


def test_what_a_target_refuses_is_numpys_alone_with_the_reason() -> None:
    def refuses(node: Call) -> str:
        return "exp is not for it" if node.op == "nn.exp" else ""

    module = module_of(call("nn.abs", call("nn.exp", call("nn.negative", call("nn.tanh", X)))))
    program = link_host(module, LoopTarget("none", (PlainKernels(leave),), refuses), 1)
    assert [(layer.device, layer.operators, layer.reason) for layer in program.layers] == [
        ("cpu", ("nn.tanh", "nn.negative"), ""), ("numpy", ("nn.exp",), "exp is not for it"), ("cpu", ("nn.abs",), ""),
    ]  # fmt: skip
    assert program.layers[1].boundaries == ("nn.negative of unknown place: NumPy runs nn.exp",)
    x = np.random.default_rng(0).normal(size=X.type.shape).astype(np.float32)
    np.testing.assert_allclose(run(program, {"x": x})["out0"], evaluate(module, {"x": x})["out0"], rtol=1e-6)


def test_the_work_of_numpy_is_counted_in_tables_and_not_shared_by_threads() -> None:
    product = module_of(call("nn.conv2d", X, WEIGHTS))
    (layer,) = link_host(product, TARGET, 1).layers
    refusing = LoopTarget("none", (PlainKernels(leave),), lambda node: "no products", shared_work=1)
    program = link_host(product, refusing, 4)
    assert program.layers[0].macs == layer.macs == 8 * 3 * 4 * 4 * 9
    assert program.threads == 1


def test_a_target_without_a_kind_that_fits_is_told() -> None:
    target = LoopTarget("none", kinds=())
    with pytest.raises(CompileError, match=r"kernel 'nn.tanh': no kind of kernel fits it; hint: let"):
        link_host(module_of(call("nn.tanh", X)), target, 1)


TOTAL = call("nn.add", X, X)
FLAT, TALL = (call("reshape", TOTAL, shape=shape) for shape in ((X.type.size,), (X.type.size // 2, 2)))


@pytest.mark.parametrize(
    ("results", "copied"),
    [
        ((FLAT,), 0), ((TOTAL, FLAT), 1), ((FLAT, TOTAL), 1), ((FLAT, TALL), 1), ((FLAT, FLAT), 1),
        ((FLAT, call("nn.exp", TOTAL)), 0), ((FLAT, call("nn.exp", FLAT)), 0), ((call("nn.exp", TALL), TALL), 0),
        ((call("reshape", FLAT, shape=TALL.shape),), 0), ((call("reshape", X, shape=FLAT.shape),), 1),
    ],
)  # fmt: skip
def test_a_result_that_is_reshaped_is_made_in_its_place(results: tuple[Expr, ...], copied: int) -> None:
    module = module_of(*results)
    program = link_host(module, TARGET, 1)
    reshapes = sum("reshape" in layer.operators for layer in program.layers)
    assert reshapes + sum(isinstance(step, CopyStep) for step in program.steps) == copied
    given = {"x": np.random.default_rng(2).standard_normal(X.type.shape).astype(np.float32)}
    for name, value in evaluate(module, given).items():
        np.testing.assert_allclose(run(program, given)[name], value, rtol=1e-5)
