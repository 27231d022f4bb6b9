"""Loops between layers of the core: the host runs them as loops, whatever the number of steps."""

from __future__ import annotations

import numpy as np
import weft
from weft.compiler.compile import prepared
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Tuple, Var, call, evaluate
from weft.compiler.graph.scan import scan
from weft.compiler.model import CompiledModel, HostStep
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options

WIDTH = 16


def quantised(x: Expr) -> Call:
    """Through 8 bits."""
    scale, zero = Constant(np.float32(0.02)), Constant(np.int8(3))
    return call("dequantise", call("quantise", x, scale, zero), scale, zero)


def dense(x: Expr, seed: int) -> Call:
    values = np.random.default_rng(seed).integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.002)), Constant(np.int8(0)))
    return quantised(call("nn.dense", x, weights))


def recurrent(steps: int) -> Module:
    """A layer, a loop of which both the states and the last one are used, and a layer for each."""
    x = Var("x", TensorType((steps, WIDTH), "float32"))
    state, item = (Var(name, TensorType((1, WIDTH), "float32")) for name in ("state", "item"))
    kept = Constant(np.random.default_rng(3).normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32))
    after = call("nn.tanh", call("nn.add", call("nn.dense", state, kept), item))
    body = Function((state, item), Tuple((after, after)), Attrs({"name": "step"}))
    items = call("reshape", dense(quantised(x), 1), shape=(steps, 1, WIDTH))
    start = Constant(np.zeros((1, WIDTH), np.float32))
    last, states = scan(body, [start], [items], steps=steps)
    results = dense(quantised(last), 2), dense(quantised(call("reshape", states, shape=(steps, WIDTH))), 4)
    return Module(Function((x,), Tuple(results), Attrs({"name": "main", "outputs": ("last", "all")})))


def compiled(steps: int) -> tuple[CompiledModel, Module]:
    accel = find_target("accel")
    packed = prepared(recurrent(steps), accel, target_options(accel, {"config": "tiny"}))
    model = weft.compile(packed, "tiny")
    assert isinstance(model, CompiledModel)
    return model, packed


def test_more_steps_are_no_more_layers() -> None:
    short, long = compiled(6)[0], compiled(60)[0]
    assert [layer.name for layer in short.layers] == [layer.name for layer in long.layers]
    assert not any(layer.device == "numpy" for layer in long.layers)


def test_a_loop_with_two_results_runs_once_and_says_why_it_is_on_the_host() -> None:
    model, packed = compiled(7)
    loops = [loop for step in model.steps if isinstance(step, HostStep) for loop in step.program.loops]
    assert len(loops) == 1
    assert any("a loop of floats" in layer.reason for layer in model.layers if "nn.tanh" in layer.operators)
    values = {"x": np.random.default_rng(0).normal(size=(7, WIDTH)).astype(np.float32)}
    wanted = evaluate(packed, values)
    for key, value in weft.load(model, "fsim").run(values).items():
        np.testing.assert_array_equal(value, wanted[key])
