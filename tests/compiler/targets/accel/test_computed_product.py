"""Products of two computed tensors on the core, as packed kernels and as models."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.api import integer_graph
from weft.compiler.compile import prepared
from weft.compiler.graph import evaluate, parse
from weft.compiler.passes.manager import random_inputs
from weft.compiler.targets.accel.cost.tile_costs import tilings
from weft.compiler.targets.accel.link import compile_kernel
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import Problem
from weft.compiler.targets.registry import find_target
from weft.compiler.targets.target import target_options
from weft.hw.config import PYNQ, TINY
from weft.sim.dram import DramModel
from weft.verify import verify

from .kernels import Build, check


@given(
    st.sampled_from([TINY, PYNQ]), st.integers(1, 3), st.integers(1, 4), st.integers(1, 60), st.integers(1, 30),
    st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=40)
def test_a_packed_product_equals_numpy(config, threads, images, rows, columns, groups, depth, seed):  # type: ignore[no-untyped-def]
    """All lanes of both operands hold data, those of padding too."""
    block, build = config.block_out, Build(config, seed)
    x = build.input(images, depth * block, rows, columns)
    w = build.input(images, depth * block, groups * block, 1)
    outputs = (groups - 1) * block + 1 + seed % block
    product = build.op("product", x, w, depth=depth * block, outputs=outputs)
    check(build.function(build.requantise(product, outputs, 74 * 74 * (depth * block) ** 0.5)), config, threads, seed)


@pytest.mark.parametrize("portion", [1, 2])
def test_one_that_is_cut_into_portions_equals_numpy(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Build(PYNQ)
    x, w = build.input(2, 80, 5, 3), build.input(2, 80, 48, 1)
    product = build.op("product", x, w, depth=80, outputs=40)
    function = build.function(build.requantise(product, 40, 100_000))
    whole = [each for each in tilings(Problem(PYNQ, lower_function(function), 1)) if each.reduction == 5]
    choices = [replace(each, portion=portion) for each in whole]
    monkeypatch.setattr(compile_kernel, "first_tilings", lambda _: choices)
    assert "unroll" in check(function, PYNQ, 1).layers[0].schedule


MATRICES = "fn @main(%x: {x}, %y: {y}) {{ %a = dequantise(%x, float32(0.05), {za}) "
MATRICES += "%b = dequantise(%y, float32(0.04), {zb}) return quantise({product}, float32({scale}), int8(-4)) }}"
CASES = {
    # name: (x, y, zero points, expression)
    "no zero points": ("int8[2, 32, 48]", "int8[2, 48, 32]", ("int8(0)", "int8(0)"), "nn.matmul(%a, %b)"),
    "one of b": ("int8[3, 20, 40]", "int8[3, 40, 7]", ("int8(0)", "int8(9)"), "nn.matmul(%a, %b)"),
    "one of a that has no negative in 8 bits": (
        "int8[2, 3, 20, 17]", "int8[2, 3, 17, 16]", ("int8(-128)", "int8(0)"), "nn.matmul(%a, %b)",
    ),
    "both": ("int8[5, 7]", "int8[7, 3]", ("int8(-128)", "int8(-128)"), "nn.matmul(%a, %b)"),
    "both, where channels are filled up": (
        "int8[2, 20, 17]", "int8[2, 17, 18]", ("int8(40)", "int8(-60)"), "nn.matmul(%a, %b)",
    ),
    "unsigned": ("uint8[1, 5, 7]", "uint8[1, 7, 3]", ("uint8(0)", "uint8(255)"), "nn.matmul(%a, %b)"),
    "of whole matrices": ("int8[2, 32, 48]", "int8[2, 48, 32]", ("int8(-128)", "int8(9)"), "nn.matmul(%a, %b)"),
    "of whole matrices, the largest": (
        "int8[2, 32, 16]", "int8[2, 16, 32]", ("int8(127)", "int8(-128)"), "nn.matmul(%a, %b)",
    ),
    "one tensor as both operands": (
        "int8[2, 32, 48]", "int8[1]", ("int8(0)", "int8(0)"), "nn.matmul(%a, transpose(%a, perm=(0, 2, 1)))",
    ),
    "its own transpose, scaled and bounded": (
        "int8[2, 9, 16]", "int8[1]", ("int8(3)", "int8(0)"),
        "nn.clip(nn.multiply(nn.matmul(%a, transpose(%a, perm=(0, 2, 1))), float32(0.25)), low=-1.0, high=0.5)",
    ),
}  # fmt: skip


def _source(name: str) -> str:
    x, y, (za, zb), product = CASES[name]
    return MATRICES.format(x=x, y=y, za=za, zb=zb, product=product, scale=0.05)


@pytest.fixture(params=["channels", "sums"])
def _zero_points(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where zero points are: in channels of the product, or, as those of large ones, in sums of the host."""
    if request.param == "sums":
        monkeypatch.setattr(import_module("weft.compiler.integers.computed_product"), "SUMS", -1)


@pytest.mark.usefixtures("_zero_points")
@pytest.mark.parametrize("name", CASES)
def test_a_model_has_it_on_the_core_and_every_integer_is_that_of_the_graph(name: str) -> None:
    module, accel = parse(_source(name)), find_target("accel")
    packed = prepared(module, accel, target_options(accel, {}))
    model = weft.compile(packed, "pynq")
    (layer,) = [layer for layer in model.layers if layer.device == "core" and layer.kind != "move"]
    assert layer.kind == "product"
    x, y = CASES[name][0], CASES[name][1]
    sizes = [int(size) for size in x[x.index("[") + 1 : -1].split(", ")]
    columns = int(y[:-1].split(", ")[-1]) if ", " in y else sizes[-2]
    assert layer.macs == np.prod(sizes) * columns  # neither padding nor zero points
    for seed in range(2):
        inputs = random_inputs(module, seed)
        (found,), (wanted,) = weft.load(model).run(inputs).values(), evaluate(packed, inputs).values()
        np.testing.assert_array_equal(found, wanted)
        (real,) = evaluate(module, inputs).values()
        assert np.abs(found.astype(int) - real.astype(int)).max() <= 1


@pytest.mark.parametrize("name", ["of whole matrices", "of whole matrices, the largest"])
def test_zero_points_are_channels_that_loads_bring(name: str) -> None:
    model = weft.compile(parse(_source(name)), "pynq")
    assert [layer.kind for layer in model.layers if layer.device == "core"] == ["product"]


def test_a_core_that_fills_no_matrices_copies_their_channels() -> None:
    module, config = parse(_source("of whole matrices")), replace(PYNQ, name="four", weight_group=32)
    model, inputs = weft.compile(module, config), random_inputs(module, 0)
    assert sorted(layer.kind for layer in model.layers if layer.device == "core") == ["move", "product"]
    (found,), (wanted,) = (weft.load(each).run(inputs).values() for each in (model, weft.compile(module, "pynq")))
    np.testing.assert_array_equal(found, wanted)


def test_the_zero_points_of_a_large_product_are_sums_of_the_host() -> None:
    """On the array they would take 84,672 cycles beyond the 28,224 of the product itself."""

    def host_layers(rows: int) -> list[str]:
        types = {"x": f"int8[1, {rows}, 64]", "y": f"int8[1, 64, {rows}]"}
        text = MATRICES.format(**types, za="int8(-128)", zb="int8(9)", product="nn.matmul(%a, %b)", scale=0.5)
        return [layer.reason for layer in weft.compile(parse(text), "pynq").layers if layer.device != "core"]

    assert any("sums one operand" in reason for reason in host_layers(336))
    assert not any("sums one operand" in reason for reason in host_layers(112))


@pytest.mark.usefixtures("_zero_points")
@pytest.mark.parametrize("name", CASES)
def test_it_is_proved(name: str) -> None:
    module = parse(_source(name))
    model = weft.compile(module, "pynq")
    assert verify(model, integer_graph(module, model), seed=1).proved


@pytest.mark.parametrize("name", ["one of b", "of whole matrices"])
def test_on_the_rtl(name: str) -> None:
    model = weft.compile(parse(_source(name)), TINY)
    assert any(layer.kind == "product" and layer.device == "core" for layer in model.layers)
    inputs = random_inputs(parse(_source(name)), 1)
    (wanted,) = weft.load(model, "fsim").run(inputs).values()
    (found,) = (
        weft.load(model, weft.RtlDevice(TINY, dram=DramModel(latency=30, jitter=20, seed=3))).run(inputs).values()
    )
    np.testing.assert_array_equal(found, wanted)


def test_a_core_with_a_batch_leaves_it_to_the_host() -> None:
    model = weft.compile(parse(_source("both")), replace(TINY, name="two", batch=2))
    assert all(layer.device != "core" for layer in model.layers)
    assert any("multiplies two computed tensors" in layer.reason for layer in model.layers)
