"""Which parts of a model become integer rows, where a user asks for all integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Call, Function, Module, calls, evaluate, parse
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.scope import Scope
from weft.compiler.targets.errors import CompileError

from benchmarks.zoo import quantised_forms, quantised_networks

HEAD = """fn @main(%x: int8[2, 3, 8]) {
    %f = dequantise(%x, float32(0.05), int8(3))"""
TAIL = """
    return quantise(%y, float32(0.03), int8(-4)) }"""

MOMENT = """
    %s = nn.multiply({0}, {0})
    %m = nn.reduce_mean(%s, axes=({1}), keepdims=true)
    %e = nn.add(%m, float32(0.00001))
    %r = nn.sqrt(%e)"""
CENTRED = """
    %a = nn.reduce_mean(%f, axes=({0}), keepdims=true)
    %c = nn.subtract(%f, %a)"""

FOUND = {
    "softmax": "\n    %y = nn.softmax(%f, axis=2)",
    "a scaled softmax": "\n    %d = nn.divide(%f, float32(2.5))\n    %y = nn.softmax(%d, axis=1)",
    "root mean squares": MOMENT.format("%f", "2,") + "\n    %y = nn.divide(%f, %r)",
    "layer": CENTRED.format("2,") + MOMENT.format("%c", "2,") + """
    %i = nn.divide(float32(1.0), %r)
    %n = nn.multiply(%i, %c)
    %g = nn.multiply(float32[3, 1](1.5, -0.5, 0.0), %n)
    %y = nn.subtract(%g, float32[1](0.25))""",
    "over two axes, from a number": CENTRED.format("1, 2") + MOMENT.format("%c", "1, 2") + """
    %n = nn.divide(%c, %r)
    %d = nn.divide(%n, float32(-2.0))
    %y = nn.subtract(float32(0.5), %d)""",
    "with powers": """
    %s = nn.power(%f, float32(2.0))
    %m = nn.reduce_mean(%s, axes=(0, 2), keepdims=true)
    %e = nn.add(float32(0.001), %m)
    %i = nn.power(%e, float32(-0.5))
    %y = nn.multiply(%f, %i)""",
    "groups of channels, clipped": """
    %v = reshape(%f, shape=(2, 3, 2, 4))
    %g = transpose(%v, perm=(0, 2, 1, 3))
    %h = reshape(%g, shape=(2, 2, 12))
    %a = nn.reduce_mean(%h, axes=(2,), keepdims=true)
    %c = nn.subtract(%h, %a)""" + MOMENT.format("%c", "2,") + """
    %n = nn.divide(%c, %r)
    %k = nn.multiply(%n, float32(1.25))
    %i = reshape(%k, shape=(2, 6, 4))
    %o = nn.multiply(%i, float32[6, 1](1.5, -0.5, 0.0, 2.0, 1.0, 0.75))
    %p = nn.add(float32[6, 1](0.1, 0.2, -0.3, 0.4, -0.5, 0.6), %o)
    %t = transpose(%p, perm=(0, 2, 1))
    %u = nn.add(%t, float32[4, 1](0.01, 0.02, -0.03, 0.04))
    %w = nn.clip(%u, low=0.0, high=2.5)
    %y = reshape(%w, shape=(2, 3, 8))""",
}  # fmt: skip

PARTS = {
    "mean square": ("mean_square", "\n    %s = nn.multiply(%f, %f)\n    %y = nn.reduce_mean(%s, axes=({axes}))"),
    "mean square of powers, and a number": (
        "mean_square",
        """
    %s = nn.power(%f, float32(2.0))
    %m = nn.reduce_mean(%s, axes=({axes}), keepdims=true)
    %y = nn.add(float32(0.25), %m)""",
    ),
    "variance": (
        "mean_square",
        CENTRED.replace("{0}", "{axes}")
        + """
    %s = nn.multiply(%c, %c)
    %m = nn.reduce_mean(%s, axes=({axes}), keepdims=true)
    %y = nn.clip(%m, low=0.0, high=3.0)""",
    ),
    "divided by a root": (
        "scale_rows",
        CENTRED.replace("{0}", "{axes}")
        + """
    %r = nn.sqrt(%v)
    %y = nn.divide(%c, %r)""",
    ),
    "turned, divided by a root": (
        "scale_rows",
        CENTRED.replace("{0}", "{axes}")
        + """
    %r = nn.sqrt(%v)
    %b = nn.divide(float32(1.0), %r)
    %d = transpose(%c, perm=(0, 1, 2))
    %y = nn.multiply(%b, %d)""",
    ),
    "not centred": (
        "scale_rows",
        """
    %a = nn.add(%v, float32(0.00001))
    %r = nn.sqrt(%a)
    %y = nn.divide(%f, %r)""",
    ),
}


def reduced(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_normalisation_is_one_operator(name: str) -> None:
    """Of random shapes, scales and zero points; also compiled."""
    operator, text = PARTS[name]
    for seed in range(8):
        generator = np.random.default_rng(seed)
        shape = tuple(int(size) for size in generator.choice([1, 2, 5, 24, 300] if seed else [7], 3))
        axes = ((2,), (1,), (0, 2), (1, 2))[seed % 4]
        scale, zero = np.exp(generator.uniform(-5, -3)), int(generator.choice([0, generator.integers(-128, 128)]))
        kind, shift = ("uint8", 128) if seed % 2 else ("int8", 0)
        given = f"%x: {kind}[{str(shape)[1:-1]}]"
        head = f"    %f = dequantise(%x, float32({scale:.6f}), {kind}({zero + shift}))"
        if operator == "scale_rows":
            given += f", %w: int8[{str(reduced(shape, axes))[1:-1]}]"
            head += "\n    %v = dequantise(%w, float32(0.01), int8(-128))"
        listed = ", ".join(map(str, axes)) + ("," if len(axes) == 1 else "")
        target = max(scale**2 * 40, 1e-4) if operator == "mean_square" else 0.05
        module = parse(
            f"fn @main({given}) {{\n{head}"
            + text.replace("{axes}", listed)
            + f"""
    return quantise(%y, float32({target:.7f}), int8(-30)) }}"""
        )
        after = PassManager(integer_passes(scope=Scope.ALL)).run(module)
        bodies = [node.op.body for node in calls(after.main.body) if isinstance(node.op, Function)]
        assert operator in [str(body.op) for body in bodies if isinstance(body, Call)]
        assert "quantise" not in [str(body.op) for body in bodies if isinstance(body, Call)]
        model = weft.compile(module, target="cpu", integers="all")
        for _ in range(2):
            info = np.iinfo(kind)
            values = {"x": generator.integers(info.min, info.max + 1, shape).astype(kind)}
            if operator == "scale_rows":  # no number comes of a root of zero
                values["w"] = generator.integers(-127, 128, reduced(shape, axes)).astype(np.int8)
            found = evaluate(after, values)["output0"]
            assert np.abs(found.astype(int) - evaluate(module, values)["output0"]).max() <= 1, (seed, shape, axes)
            np.testing.assert_array_equal(weft.load(model).run(values)["output0"], found)


LEFT = {
    "another value is divided": CENTRED.format("2,") + MOMENT.format("%c", "2,") + "\n    %y = nn.divide(%f, %r)",
    "the mean is over other axes": CENTRED.format("1,") + MOMENT.format("%c", "2,") + "\n    %y = nn.divide(%c, %r)",
    "the divisor is no mean of squares": """
    %m = nn.reduce_mean(%f, axes=(2,), keepdims=true)
    %r = nn.sqrt(%m)
    %y = nn.divide(%f, %r)""",
    "it is multiplied by the root": MOMENT.format("%f", "2,") + "\n    %y = nn.multiply(%f, %r)",
    "a factor behind a clip": MOMENT.format("%f", "2,")
    + """
    %d = nn.divide(%f, %r)
    %k = nn.clip(%d, low=0.0, high=1.0)
    %y = nn.multiply(%k, float32(2.0))""",
    "axes that have no common parts": MOMENT.format("%f", "2,")
    + """
    %d = nn.divide(%f, %r)
    %v = reshape(%d, shape=(4, 12))
    %k = nn.multiply(%v, float32(2.0))
    %y = reshape(%k, shape=(2, 3, 8))""",
    "two values inside": """
    %b = nn.exp(%f)
    %y = nn.softmax(%b, axis=2)""",
}


def legal(text: str, scope: Scope = Scope.ALL) -> tuple[Module, Module, list[str]]:
    module = parse(HEAD + text + TAIL)
    after = PassManager(integer_passes(scope=scope)).run(module)
    inner = [node.op.body for node in calls(after.main.body) if isinstance(node.op, Function)]
    return module, after, [str(body.op) for body in inner if isinstance(body, Call)]


@pytest.mark.parametrize("name", FOUND)
def test_an_island_becomes_one_operator(name: str) -> None:
    module, after, operators = legal(FOUND[name])
    assert operators == ["softmax" if "softmax" in name else "normalise"]
    generator = np.random.default_rng(0)
    for _ in range(5):
        values = {"x": generator.integers(-128, 128, (2, 3, 8)).astype(np.int8)}
        difference = evaluate(after, values)["output0"].astype(int) - evaluate(module, values)["output0"]
        assert np.abs(difference).max() <= 1
    assert "normalise" not in legal(FOUND[name], Scope.PRODUCTS)[2]


@pytest.mark.parametrize("seed", range(12))
def test_normalised_groups_of_channels(seed: int) -> None:
    """As exporters write them: over a view of the picture with the groups apart, factors a channel behind."""
    generator = np.random.default_rng(seed)
    n, groups, each, h, w = (int(size) for size in generator.integers(1, 6, 5))
    c = groups * each
    low = "0.0" if seed % 3 else "-1e9"
    factors, offsets = (", ".join(f"{value:.5f}" for value in generator.normal(1, 0.5, c)) for _ in range(2))
    whole = f"{n}, {c}, {h}, {w}"
    module = parse(
        f"""fn @main(%x: int8[{whole}]) {{
    %d = dequantise(%x, float32(0.04), int8(-7))
    %f = reshape(%d, shape=({n}, {groups}, {each * h * w}))"""
        + CENTRED.format("2,")
        + MOMENT.format("%c", "2,")
        + f"""
    %q = nn.divide(%c, %r)
    %b = reshape(%q, shape=({whole}))
    %k = nn.multiply(%b, float32[{c}, 1, 1]({factors}))
    %o = nn.add(%k, float32[{c}, 1, 1]({offsets}))
    %y = nn.clip(%o, low={low}, high=1e9)
    return quantise(%y, float32(0.03), int8(-20)) }}"""
    )
    after = PassManager(integer_passes(scope=Scope.ALL)).run(module)
    bodies = [node.op.body for node in calls(after.main.body) if isinstance(node.op, Function)]
    found = [body for body in bodies if isinstance(body, Call)]
    assert [body.op for body in found] == ["normalise"]
    parameters = [value for body in found for value in body.args[2:]]
    assert all(value.tensor_type.size <= c for value in parameters)
    for _ in range(3):
        values = {"x": generator.integers(-128, 128, (n, c, h, w)).astype(np.int8)}
        difference = evaluate(after, values)["output0"].astype(int) - evaluate(module, values)["output0"]
        assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("name", LEFT)
def test_other_islands_stay_in_floats(name: str) -> None:
    module, after, operators = legal(LEFT[name])
    assert "normalise" not in operators
    values = {"x": np.arange(-24, 24).reshape(2, 3, 8).astype(np.int8)}
    np.testing.assert_array_equal(evaluate(after, values)["output0"], evaluate(module, values)["output0"])


def module_of(name: str) -> tuple[Module, dict[str, Any]]:
    model, batches = quantised_networks.network(name)
    form = quantised_forms.Form("QDQ", "QUInt8", "QInt8")
    return from_onnx(quantised_forms.quantised(model, batches, form)), batches[0]


def test_every_row_of_a_network_is_an_integer_operator() -> None:
    module, inputs = module_of("vit-block")
    usual, whole = (PassManager(integer_passes(scope=scope)).run(module) for scope in Scope)
    bodies = [node.op.body for node in calls(whole.main.body) if isinstance(node.op, Function)]
    operators = [str(body.op) for body in bodies if isinstance(body, Call)]
    assert (operators.count("softmax"), operators.count("normalise")) == (1, 3)
    assert not {"nn.sqrt", "nn.softmax"} & set(operators)
    wanted = evaluate(usual, inputs)
    for key, value in evaluate(whole, inputs).items():
        assert np.abs(value - wanted[key]).max() <= 0.1 * np.abs(wanted[key]).max()


@pytest.mark.parametrize("form", [("QUInt8", "QInt8"), ("QUInt8", "QUInt8")])
def test_root_mean_squares_that_are_quantised_in_parts(form: tuple[str, str]) -> None:
    """Nothing between the embedding and the last dequantise is in floats."""
    model, batches = quantised_networks.network("decoder-block")
    module = from_onnx(quantised_forms.quantised(model, batches, quantised_forms.Form("QDQ", *form)))
    after = PassManager(integer_passes(16, scope=Scope.ALL)).run(module)
    bodies = [node.op.body for node in calls(after.main.body) if isinstance(node.op, Function)]
    assert [str(body.op) for body in bodies if isinstance(body, Call)].count("mean_square") == 3
    assert [body.op for body in bodies if isinstance(body, Call) and body.dtype == "float32"] == ["dequantise"]


def test_the_host_beside_a_core_runs_them() -> None:
    module, inputs = module_of("vit-block")
    wanted = evaluate(PassManager(integer_passes(scope=Scope.ALL)).run(module), inputs)
    model = weft.compile(module, "tiny", integers="all", chains=False)
    for key, value in weft.load(model, "fsim").run(inputs).items():
        np.testing.assert_array_equal(value, wanted[key])
    rows = [layer for layer in model.layers if {"softmax", "normalise"} & set(layer.operators)]
    assert len(rows) >= 4
    assert {layer.device for layer in rows} == {"cpu"}
    assert any("softmax 'softmax20' in integers, for which the core has no tables" in layer.reason for layer in rows)


@pytest.mark.parametrize("target", ["accel", "cpu", "opencl", "cuda"])
def test_another_scope_is_refused(target: str) -> None:
    with pytest.raises(CompileError, match="integers is 'some', but must be one of products, all"):
        weft.compile(parse(HEAD + FOUND["softmax"] + TAIL), target=target, integers="some")
