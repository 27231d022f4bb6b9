"""Layers as quantisers write them, and models of them whose integers have been compared with the contract's."""

from __future__ import annotations

import numpy as np
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, evaluate
from weft.compiler.passes import PassManager, integer_passes
from weft.hw.config import CoreConfig


def variable(*shape: int) -> Var:
    return Var("x", TensorType(shape, "float32"))


def quantised(x: Expr, scale: float = 0.05) -> Call:
    """Quantised and dequantised, about -3."""
    constants = Constant(np.float32(scale)), Constant(np.int8(-3))
    return call("dequantise", call("quantise", x, *constants), *constants)


def layer(x: Expr, filters: int, *, kernel: int = 1, groups: int = 1, pads: int = 0) -> Call:
    """A convolution with random weights."""
    random = np.random.default_rng(filters + kernel)
    values = random.integers(-127, 128, (filters, x.shape[1] // groups, kernel, kernel)).astype(np.int8)
    weights = call("dequantise", Constant(values), Constant(np.float32(0.01)), Constant(np.int8(0)))
    return quantised(call("nn.conv2d", x, weights, groups=groups, pads=(pads,) * 4))


def module_of(x: Var, body: Expr) -> Module:
    return Module(Function((x,), body, Attrs({"name": "main", "outputs": ("y",)})))


def compiled(x: Var, body: Expr, config: CoreConfig) -> weft.CompiledModel:
    """The model, which gives on a random input what the integers of its graph give."""
    module = module_of(x, body)
    model = weft.compile(module, config)
    assert isinstance(model, weft.CompiledModel)
    values = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    np.testing.assert_array_equal(weft.load(model, "fsim").run(values)["y"], wanted)
    return model
