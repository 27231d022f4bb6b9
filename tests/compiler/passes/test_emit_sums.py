"""Sums of products that the model does not quantise apart: on the core, as close as docs/integers.md says."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, Module, TensorType, Var, call, calls, evaluate
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.passes.manager import random_inputs

Generator = np.random.Generator
KINDS = ("convolution", "by channels", "dense", "product", "elementwise", "turned", "two products")


def real(name: str, shape: tuple[int, ...], generator: Generator, scale: float) -> Call:
    zero = np.int8(generator.choice([0, generator.integers(-128, 128)]))
    return call("dequantise", Var(name, TensorType(shape, "int8")), Constant(np.float32(scale)), Constant(zero))


def weights(shape: tuple[int, ...], generator: Generator, *, by_channel: bool) -> Call:
    values = generator.integers(-127, 128, shape).astype(np.int8)
    if by_channel:
        scales = np.exp(generator.uniform(-6, -3, shape[0])).astype(np.float32)
        return call("dequantise", Constant(values), Constant(scales), Constant(np.zeros(shape[0], np.int8)), axis=0)
    return call("dequantise", Constant(values), Constant(np.float32(0.01)), Constant(np.int8(0)))


def added(kind: str, generator: Generator) -> tuple[Expr, Expr]:
    """A product, and what is added to it."""
    n, c, h, w, k = (int(each) for each in generator.integers(1, (2, 20, 7, 7, 20)))
    x_scale, other_scale = (float(np.exp(generator.uniform(-5, -2))) for _ in range(2))
    x = real("x", (n, c, h, w), generator, x_scale)
    match kind:
        case "convolution" | "by channels":
            filters = weights((k, c, 3, 3), generator, by_channel=kind == "by channels")
            y: Expr = call("nn.conv2d", x, filters, pads=(1, 1, 1, 1))
        case "dense":
            y = call("nn.dense", real("x", (n, c), generator, x_scale), weights((k, c), generator, by_channel=True))
        case "product":
            other = real("y", (n, c, w, k), generator, other_scale)
            y = call("nn.matmul", x, other)
        case "turned":
            y = call("nn.matmul", x, real("y", (n, c, w, k), generator, other_scale))
            y = call("reshape", call("transpose", y, perm=(0, 2, 1, 3)), shape=(n, h, c * k))
        case _:
            y = call("nn.multiply", x, real("y", x.shape, generator, other_scale))
    if kind == "two products":
        a, b = (real(name, x.shape, generator, other_scale) for name in "ab")
        return y, call("nn.multiply", a, b)
    return y, real("r", y.shape, generator, float(np.exp(generator.uniform(-4, -2))))


def module_of(kind: str, seed: int) -> Module:
    """``a * (product + other) + b``, perhaps clipped, in the range that a sum of random values has."""
    generator = np.random.default_rng((KINDS.index(kind), seed))
    a, b = added(kind, generator)
    op = "nn.add" if generator.random() < 0.6 else "nn.subtract"
    y: Expr = call(op, a, b) if generator.random() < 0.5 else call(op, b, a)
    if generator.random() < 0.4:
        y = call("nn.multiply", y, Constant(np.float32(generator.choice([-0.5, 1.7]))))
    if generator.random() < 0.4:
        y = call("nn.add", y, Constant(np.float32(0.3)))
    if generator.random() < 0.4:
        y = call("nn.clip", y, low=0.0, high=6.0)
    params = {node.name: node for call_ in calls(y) for node in call_.args if isinstance(node, Var)}

    def made(body: Expr) -> Module:
        attrs = Attrs({"name": "main", "outputs": ("y",)})
        return Module(Function(tuple(params[name] for name in sorted(params)), body, attrs))

    values = evaluate(made(y), random_inputs(made(y), seed))["y"]
    scale = np.float32(max(float(np.ptp(values)), 1e-2) / generator.uniform(150, 400))
    zero = np.int8(np.clip(np.rint(-float(values.mean()) / scale), -128, 127))
    return made(call("quantise", y, Constant(scale), Constant(zero)))


def operators(module: Module) -> list[str]:
    nodes = calls(module.main.body)
    return [str(node.op) if not isinstance(node.op, Function) else f"host {node.op.name}" for node in nodes]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_with_a_product_is_within_one(kind: str) -> None:
    on_core = different = compared = 0
    for seed in range(30):
        module = module_of(kind, seed)
        after = PassManager(integer_passes(16)).run(module)
        on_core += not any("quantise" in name and name.startswith("host") for name in operators(after))
        for number in range(3):
            inputs = random_inputs(module, number)
            before, found = (evaluate(each, inputs)["y"].astype(int) for each in (module, after))
            assert np.abs(before - found).max(initial=0) <= 1, (seed, number)
            different, compared = different + np.count_nonzero(before != found), compared + before.size
    assert on_core >= 20, on_core
    assert different < (0.4 if kind in ("by channels", "dense") else 0.02) * compared + 3


def test_two_convolutions_that_the_model_does_not_quantise_stay_in_floats() -> None:
    """A kernel of the core has one product."""
    generator = np.random.default_rng(0)
    x = real("x", (1, 4, 5, 5), generator, 0.03)
    a, b = (call("nn.conv2d", x, weights((6, 4, 1, 1), generator, by_channel=False)) for _ in range(2))
    y = call("quantise", call("nn.add", a, b), Constant(np.float32(0.1)), Constant(np.int8(0)))
    names = Attrs({"name": "main", "outputs": ("y",)})
    after = PassManager(integer_passes(16)).run(Module(Function((x.args[0],), y, names)))
    reasons = [node.op.host_reason for node in calls(after.main.body) if isinstance(node.op, Function)]
    assert "two products are added that the model does not quantise; quantise one of them" in reasons


@pytest.mark.parametrize("kind", KINDS)
def test_the_core_computes_them(kind: str) -> None:
    """As the integer graph does; the sum joins the product's kernel."""
    for seed in range(3):
        module = module_of(kind, seed)
        after = PassManager(integer_passes(16)).run(module)
        model = weft.compile(module, "pynq")
        assert isinstance(model, weft.CompiledModel)
        if kind in ("convolution", "by channels"):
            added = [layer for layer in model.layers if "packed_multiply_accumulate" in layer.operators]
            assert all("packed_conv2d" in layer.operators for layer in added)
        for number in range(2):
            inputs = random_inputs(module, number)
            loaded = weft.load(model, "fsim" if model.core else None)
            np.testing.assert_array_equal(loaded.run(inputs)["y"], evaluate(after, inputs)["y"])


def test_a_sum_whose_scales_leave_no_room_for_bits() -> None:
    """The product's accumulator is added to as it is: its scale is some 2^21 times finer than the other value's."""
    generator = np.random.default_rng(0)
    x, y = real("x", (1, 8, 6, 6), generator, 0.02), real("y", (1, 8, 6, 6), generator, 0.05)
    w = call("dequantise", Constant(generator.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8)),
             Constant(np.float32(1e-6)), Constant(np.int8(0)))  # fmt: skip
    total = call("nn.add", call("nn.conv2d", x, w), y)
    result = call("quantise", total, Constant(np.float32(0.05)), Constant(np.int8(0)))
    module = Module(Function((x.args[0], y.args[0]), result, Attrs({"name": "main"})))
    compiled = weft.compile(module, target="accel", config="tiny")
    inputs = random_inputs(module, 1)
    (found,) = weft.load(compiled, device="fsim").run(inputs).values()
    (wanted,) = evaluate(module, inputs).values()
    np.testing.assert_array_equal(found, wanted)
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)


CODES = np.arange(-128, 128).astype(np.int8)


def whole_sum(op: str, first: tuple[int, ...], other: Expr, bits: int, params: int) -> Module:
    """A sum of an 8-bit value times 1972837 and another one, in parts of 2**-bits."""
    step = Constant(np.float32(1972837))
    x = call("dequantise", Var("x", TensorType(first, "int8")), step, Constant(np.int8(-7)))
    y = call("quantise", call(op, other, x), Constant(np.float32(2.0**bits)), Constant(np.int8(3)))
    operands = [Var("x", TensorType(first, "int8")), Var("y", TensorType(first, "int8"))][:params]
    named = {node.name: node for call_ in calls(y) for node in call_.args if isinstance(node, Var)}
    body = Function(tuple(named[each.name] for each in operands), y, Attrs({"name": "main", "outputs": ("y",)}))
    return PassManager(integer_passes(16)).run(Module(body))


@pytest.mark.parametrize("op", ["nn.add", "nn.subtract"])
def test_a_sum_that_is_whole_in_parts_of_a_step_is_rounded_once(op: str) -> None:
    """All pairs. Weights relative to one of them, of 20 bits, are not these."""
    sign = 1 if op == "nn.add" else -1
    zero, step = Constant(np.int8(11)), Constant(np.float32(987653))
    other = call("dequantise", Var("y", TensorType((256, 256), "int8")), step, zero)
    after = whole_sum(op, (256, 256), other, 21, 2)
    a, b = np.meshgrid(CODES, CODES, indexing="ij")
    found = evaluate(after, {"x": np.ascontiguousarray(a), "y": np.ascontiguousarray(b)})["y"]
    total = (b.astype(np.int64) - 11) * 987653 + sign * (a.astype(np.int64) + 7) * 1972837
    np.testing.assert_array_equal(found, np.clip(((total + (1 << 20)) >> 21) + 3, -128, 127))
    assert not any(name.startswith("host") for name in operators(after))


@pytest.mark.parametrize("op", ["nn.add", "nn.subtract"])
def test_so_is_one_with_constants_along_the_last_axis(op: str) -> None:
    sign = 1 if op == "nn.add" else -1
    known = np.random.default_rng(0).integers(-(1 << 23), 1 << 23, (1, 1, 1, 512)).astype(np.float32)
    after = whole_sum(op, (1, 8, 32, 512), Constant(known), 21, 1)
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 32, 512)).astype(np.int8)
    total = known.astype(np.int64) + sign * (x.astype(np.int64) + 7) * 1972837
    wanted = np.clip(((total + (1 << 20)) >> 21) + 3, -128, 127)
    np.testing.assert_array_equal(evaluate(after, {"x": x})["y"], wanted)
    assert not any(name.startswith("host") for name in operators(after))
