"""Concatenations of channels that are not aligned to blocks: operands are made in their places, with gaps between."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Attrs, Call, Constant, Expr, Function, TensorType, Var, call, evaluate
from weft.compiler.passes import PassManager, integer_passes
from weft.compiler.targets.accel.operators.lower import Kernel
from weft.compiler.targets.accel.operators.packed_layout import Blocks
from weft.compiler.targets.accel.passes import pipeline
from weft.compiler.targets.accel.passes.place_concat import Gaps, exact, reading_gaps
from weft.hw.config import TINY, CoreConfig

from tests.compiler.targets.accel.quantised_layers import compiled, layer, module_of, quantised, variable

SIZE = (5, 3)
WIDE = replace(TINY, name="tiny-wide-in", block_in=8)


def concat(*parts: Expr) -> Call:
    return quantised(call("concat", *parts, axis=1))


@pytest.mark.parametrize("seed", range(8))
def test_networks_of_concatenations_equal_the_contract(seed: int) -> None:
    """Nested ones, operands that several read, or that stand there twice, and readers that take no gaps."""
    chance = random.Random(seed)
    x = variable(chance.choice((1, 1, 3)), 8, *SIZE)
    values: list[Expr] = [layer(quantised(x), chance.choice((3, 6, 8)))]
    for _ in range(5):
        kind = chance.choice(("layer", "concat", "concat", "pool"))
        if kind == "concat":
            values.append(concat(*chance.choices(values[-3:], k=chance.choice((2, 3)))))
        elif kind == "pool":
            values.append(call("nn.max_pool", values[-1], kernel=(3, 3), pads=(1, 1, 1, 1)))
        else:
            values.append(layer(values[-1], chance.choice((3, 5, 8)), kernel=(k := chance.choice((1, 3))), pads=k // 2))
    body: Expr = concat(*values[-2:])
    compiled(x, layer(body, 7) if chance.random() < 0.6 else body, chance.choice((TINY, WIDE)))


def concatenations(model: weft.CompiledModel) -> list[int]:
    """Bytes that each of them copies."""
    return [each.bytes_loaded for each in model.layers if each.kind == "concat"]


def test_operands_are_made_in_their_places() -> None:
    x = variable(1, 8, *SIZE)
    parts = [layer(quantised(x), channels) for channels in (3, 7, 10)]
    model = compiled(x, layer(concat(*parts), 6), TINY)
    assert concatenations(model) == [0]
    assert [layer.kind for layer in model.layers if layer.device == "core"].count("conv2d") == 4


def test_an_operand_that_stands_there_twice_is_copied_once() -> None:
    x = variable(1, 8, *SIZE)
    part = layer(quantised(x), 3)
    model = compiled(x, layer(concat(part, part), 6), TINY)
    assert concatenations(model) == [TINY.dram_block * SIZE[0] * SIZE[1]]


def test_gaps_are_closed_for_readers_that_take_none() -> None:
    x = variable(1, 8, *SIZE)
    both = concat(layer(quantised(x), 3), layer(quantised(x), 7))
    model = compiled(x, call("nn.max_pool", both, kernel=(3, 3), pads=(1, 1, 1, 1)), TINY)
    assert concatenations(model) == [0]


def test_the_host_concatenates_where_the_kernel_that_closes_gaps_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def why_not(kernel: Kernel, core: CoreConfig) -> str:
        return "no room" if kernel.name.endswith(".channels") else ""

    monkeypatch.setattr(pipeline, "why_not_kernel", why_not)
    x = variable(1, 8, *SIZE)
    both = concat(layer(quantised(x), 3), layer(quantised(x), 7))
    model = compiled(x, call("nn.max_pool", both, kernel=(3, 3), pads=(1, 1, 1, 1)), TINY)
    (reason,) = [each.reason for each in model.layers if "concat" in each.operators]
    assert "no room" in reason


@pytest.mark.parametrize(
    ("depth", "wanted_reason"), [(16, "entries of scratchpad 'acc', which has 16"), (32, "joins tensors of the host")]
)
def test_the_host_concatenates_where_the_core_is_too_small_to_move_channels(depth: int, wanted_reason: str) -> None:
    """An entry of a result in DRAM is 32 of the accumulator here, for the parameters of which there is no room; the
    layers stay on the host; in 16 there is none for a copy either."""
    core = replace(TINY, name="shallow", block_in=64, block_out=2, acc_depth=depth)
    x = variable(1, 8, *SIZE)
    both = concat(layer(quantised(x), 3), layer(quantised(x), 7))
    module = module_of(x, call("nn.max_pool", both, kernel=(3, 3), pads=(1, 1, 1, 1)))
    model = weft.compile(module, core)
    assert isinstance(model, weft.CompiledModel)
    (reason,) = [each.reason for each in model.layers if "concat" in each.operators]
    assert wanted_reason in reason
    values = {"x": np.random.default_rng(0).normal(0, 3, x.type.shape).astype(np.float32)}
    wanted = evaluate(PassManager(integer_passes()).run(module), values)["y"]
    np.testing.assert_array_equal(weft.load(model).run(values)["y"], wanted)


def test_macs_are_those_of_the_model() -> None:
    x = variable(1, 8, *SIZE)
    both = concat(layer(quantised(x), 3), layer(quantised(x), 7))
    model = compiled(x, layer(both, 6), TINY)
    assert sum(each.macs for each in model.layers) == SIZE[0] * SIZE[1] * (8 * 3 + 8 * 7 + 10 * 6)


def function(channels: int, filters: int, groups: int = 1) -> Function:
    x = Var("x0", TensorType((1, channels, *SIZE), "int8"))
    weights = np.ones((filters, channels // groups, 1, 1), np.int8)
    return Function((x,), exact(call("conv2d", x, Constant(weights), groups=groups), 1.0), Attrs({"primitive": True}))


def test_many_small_operands_are_not_worth_their_gaps() -> None:
    """Of three operands of two channels each, gaps make twelve: many filters would take longer for them."""
    blocks = Blocks.of(TINY)
    gaps = Gaps.between([(1, 2, *SIZE)] * 6, blocks.dram_block)
    assert gaps.shape[1] == 6 * blocks.dram_block
    assert reading_gaps(function(12, 4), 0, gaps, blocks) is not None
    assert reading_gaps(function(12, 400), 0, gaps, blocks) is None


def test_depthwise_readers_take_no_gaps() -> None:
    blocks = Blocks.of(TINY)
    gaps = Gaps.between([(1, 6, *SIZE)] * 2, blocks.dram_block)
    assert reading_gaps(function(12, 12, groups=12), 0, gaps, blocks) is None
