"""The values of an attention are turned around on the core."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from weft.api import integer_graph
from weft.hw.config import TINY
from weft.sim.dram import DramModel
from weft.verify import verify

from tests.compiler.targets.accel.attention_layers import attention, check

BLOCK = TINY.block_in


def turned_layers(model: weft.CompiledModel) -> list[str]:
    return [layer.name for layer in model.layers if layer.device == "core" and layer.name.endswith(".turned")]


@pytest.mark.parametrize(
    ("images", "tokens", "heads", "depth"),
    [(1, BLOCK, 1, BLOCK), (2, 2 * BLOCK, 2, 2 * BLOCK), (3, 3, 2, 2 * BLOCK), (1, 5 * BLOCK - 1, 3, 3 * BLOCK)],
)
def test_values_are_turned_on_the_core(images: int, tokens: int, heads: int, depth: int) -> None:
    module = attention(images, tokens, heads, depth)
    model = check(module)
    (layer,) = [each for each in model.layers if each.name.endswith(".turned")]
    assert layer.device == "core"
    assert layer.macs == 0
    assert verify(model, integer_graph(module, model), seed=1).proved


def test_channels_that_are_no_whole_blocks_are_turned_by_the_host() -> None:
    model = check(attention(1, 2 * BLOCK, 2, BLOCK - 1))
    assert not turned_layers(model)


def test_it_is_the_same_on_the_rtl() -> None:
    model = check(attention(2, BLOCK + 1, 1, BLOCK))
    assert turned_layers(model)
    given = {"x": np.random.default_rng(1).normal(0, 3, (2, BLOCK + 1, 2 * BLOCK)).astype(np.float32)}
    device = weft.RtlDevice(TINY, dram=DramModel(latency=30, jitter=20, seed=3))
    found, wanted = (weft.load(model, each).run(given)["y"] for each in (device, "fsim"))
    np.testing.assert_array_equal(found, wanted)
