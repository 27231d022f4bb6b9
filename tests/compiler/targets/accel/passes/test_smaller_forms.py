"""Layers whose tiles small scratchpads do not take are on the core in another form, and equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import weft
from weft.api import integer_graph
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Function, Module, calls, evaluate
from weft.compiler.model import CompiledModel
from weft.compiler.passes.pipeline import PassOptions, run_passes
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import accel_passes
from weft.compiler.targets.accel.passes.fit_scratchpads import why_not
from weft.compiler.targets.accel.target import passes_to_integers
from weft.hw.config import TINY, CoreConfig

from benchmarks.zoo.placement_graph import QuantisedGraph

SHAPE = (1, 32, 5, 6)
WIDE = replace(TINY, name="wide", block_in=32, block_out=4, acc_depth=64)
WIDEST = replace(WIDE, block_in=64)
SMALL = replace(TINY, name="small", inp_depth=32, wgt_depth=8)
TALL = replace(TINY, name="tall", block_in=4, block_out=32, inp_depth=64, wgt_depth=64)


def _model(layer: str) -> onnx.ModelProto:
    g = QuantisedGraph(3)
    x = g.pair(g.input("x", *SHAPE), 0.03, -10)

    def conv(filters: int, size: int = 3, group: int = 1, **attributes: object) -> str:
        weights = g.weights(filters, 32 // group, size, size)
        return str(g.op("Conv", x, weights, pads=[size // 2] * 4, group=group, **attributes))

    y = {
        "plain": lambda: conv(16), "deep": lambda: conv(8, 5, strides=[2, 1], dilations=[1, 2]),
        "sum": lambda: g.op("Add", g.pair(conv(32), 0.02, 3), x), "depthwise": lambda: conv(32, group=32),
        "grouped": lambda: conv(16, group=4), "multiplied": lambda: conv(64, group=32),
    }[layer]()  # fmt: skip
    return g.model(g.pair(g.op("Relu", y), 0.02, -128))


def _fused(model: onnx.ModelProto, core: CoreConfig) -> tuple[Module, Module]:
    """At the stage of integers, and with forms that fit."""
    to_integers, source = passes_to_integers(core, "products"), from_onnx(model)
    forms = accel_passes(Blocks.of(core), core=core)[:-1]
    integers = run_passes(source, to_integers, PassOptions(), "integers")
    return integers, run_passes(source, [*to_integers, *forms], PassOptions(), "forms")


@pytest.mark.parametrize(
    ("layer", "core", "unfolded"),
    [
        ("plain", SMALL, True), ("plain", TALL, True), ("deep", SMALL, True), ("deep", WIDE, False),
        ("sum", SMALL, True), ("sum", replace(WIDEST, acc_depth=128), False), ("depthwise", WIDE, False),
        ("multiplied", WIDEST, False),
        ("grouped", WIDE, False), ("depthwise", replace(WIDE, wgt_depth=64), True),
    ],
)  # fmt: skip
def test_products_stay_on_the_core(layer: str, core: CoreConfig, unfolded: bool) -> None:
    before, after = _fused(_model(layer), core)
    functions = [node.op for node in calls(after.main.body) if isinstance(node.op, Function)]
    on_host = {str(node.op) for each in functions if each.host_reason for node in calls(each.body)}
    assert on_host <= {"quantise", "dequantise", "unfold"}
    assert any("scratchpads do not take it" in each.host_reason for each in functions) == unfolded
    on_core = [each for each in functions if not each.host_reason]
    assert not any(why_not(each, core) for each in on_core)
    x = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}
    for name, value in evaluate(before, x).items():
        np.testing.assert_array_equal(evaluate(after, x)[name], value)


def test_useful_work_is_that_of_the_layer() -> None:
    compiled = weft.compile(_model("depthwise"), WIDE)
    assert isinstance(compiled, CompiledModel)
    (layer,) = [each for each in compiled.layers if each.macs]
    assert (layer.device, layer.macs) == ("core", 32 * 9 * 5 * 6)
    x = {"x": np.random.default_rng(1).normal(0, 1, SHAPE).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (exact,) = evaluate(integer_graph(_model("depthwise"), compiled), x).values()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)


def test_what_fits_in_no_form_says_the_depth_that_it_needs() -> None:
    compiled = weft.compile(_model("plain"), replace(WIDEST, acc_depth=32))
    assert isinstance(compiled, CompiledModel)
    (reason,) = {each.reason for each in compiled.layers if "conv2d" in each.operators}
    assert "a core with acc_depth=64 could run it" in reason
