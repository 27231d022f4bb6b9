"""Moves between layers are entries that the core moves, where whole blocks of channels change places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import weft
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.compiler.graph import Constant, Expr, call
from weft.compiler.targets.accel.link import folded_moves
from weft.compiler.targets.accel.walk.emit_move import walks
from weft.hw.config import TINY
from weft.sim.dram import DramModel
from weft.tests.compiler.targets.accel.quantised_layers import compiled, layer, module_of, quantised, variable

BLOCK = TINY.block_in


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves are folded into loads, whatever these cost."""
    monkeypatch.setattr(folded_moves, "LONG_ROW", 1)
    monkeypatch.setattr(folded_moves, "ENTRIES_A_LOAD", 0)


Draw = Callable[[int], int]
"""A number below another."""


def part(x: Expr, axis: int, first: int, count: int, step: int = 1) -> Expr:
    starts, sizes, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    starts[axis], sizes[axis], steps[axis] = first, count, step
    return call("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def rolled(x: Expr, draw: Draw) -> Expr:
    axis = 2 + draw(2)
    size = x.shape[axis]
    shift = draw(size - 1) + 1 if size > 1 else 0
    return call("concat", part(x, axis, shift, size - shift), part(x, axis, 0, shift), axis=axis) if shift else x


def windows(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    high, wide = (side // 2 if side % 2 == 0 and draw(2) else side for side in (h, w))
    split = call("reshape", x, shape=(n, c, h // high, high, w // wide, wide))
    turned = call("transpose", split, perm=(0, 2, 4, 1, 3, 5))
    return call("reshape", turned, shape=(n * (h // high) * (w // wide), c, high, wide))


def turned(x: Expr, draw: Draw) -> Expr:
    return call("transpose", x, perm=((0, 1, 3, 2), (2, 1, 0, 3), (3, 1, 2, 0))[draw(3)])


def heads_as_images(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    heads = c // BLOCK if c % BLOCK == 0 else 1
    split = call("reshape", x, shape=(n, heads, c // heads, h, w))
    return call("reshape", call("transpose", split, perm=(1, 0, 2, 3, 4)), shape=(heads * n, c // heads, h, w))


def images_as_channels(x: Expr, draw: Draw) -> Expr:
    n, c, h, w = x.shape
    return call("reshape", x, shape=(1, n * c, h, w)) if c % BLOCK == 0 and n * c < 65 else x


def padded(x: Expr, draw: Draw) -> Expr:
    return call("pad", x, pads=(0, 0, draw(2), draw(3), 0, 0, draw(3), 1), value=0.5)


def every_other(x: Expr, draw: Draw) -> Expr:
    axis, first = 2 + draw(2), draw(2)
    return part(x, axis, first, (x.shape[axis] - first + 1) // 2, 2) if x.shape[axis] > 2 else x


def joined(x: Expr, draw: Draw) -> Expr:
    shape = list(x.shape)
    axis = (0, 2, 3)[draw(3)]
    shape[axis] = 1
    numbers = Constant(np.full(shape, draw(20), np.int8))
    same = call("dequantise", numbers, Constant(np.float32(0.05)), Constant(np.int8(-3)))
    return quantised(call("concat", x, *([same] if draw(2) else []), x, axis=axis))


STEPS = (rolled, windows, turned, heads_as_images, images_as_channels, padded, every_other, joined)


def moved_model(draw: Draw, steps: int) -> weft.CompiledModel:
    channels = BLOCK * (1 + draw(3)) - (draw(3) if draw(4) == 0 else 0)
    x = variable(1 + draw(2), 3, 2 + draw(4), 2 + draw(4))
    body: Expr = layer(quantised(x), channels)
    for _ in range(steps):
        body = STEPS[draw(len(STEPS))](body, draw)
    if int(np.prod(body.shape)) > 4000:
        body = part(part(body, 2, 0, 1), 3, 0, 1)
    return compiled(x, layer(body, 5), TINY)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.usefixtures("always")
def test_random_moves_give_the_integers_of_the_graph(data: st.DataObject) -> None:
    moved_model(lambda size: data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 4)))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("step", STEPS)
def test_each_kind_of_move_stays_on_the_core(step: Callable[[Expr, Draw], Expr]) -> None:
    x = variable(1, 3, 4, 6)
    body = step(layer(quantised(x), 2 * BLOCK), lambda size: size - 1)
    model = compiled(x, layer(body, 5), TINY)
    assert len(model.programs) == 1
    assert "move" not in {layer.kind for layer in model.layers} or step in (heads_as_images, images_as_channels)


@pytest.mark.usefixtures("always")
def test_channels_that_are_no_whole_blocks_stay_together_in_their_entries() -> None:
    x = variable(1, 3, 4, 6)
    model = compiled(x, layer(rolled(layer(quantised(x), BLOCK + 1), lambda size: size - 1), 5), TINY)
    assert len(model.programs) == 1


def test_a_value_that_is_renamed_twice_lies_in_one_place_and_is_copied_to_the_other() -> None:
    x = variable(1, 3, 4, 6)
    first = layer(quantised(x), 2 * BLOCK)
    high, wide = (call("reshape", first, shape=(1, 2 * BLOCK, *size)) for size in ((6, 4), (24, 1)))
    parts = layer(high, 5, kernel=3, pads=1), layer(wide, 5, kernel=3, pads=1)
    total = call("nn.add", parts[0], call("reshape", parts[1], shape=parts[0].shape))
    model = compiled(x, quantised(total), TINY)
    assert len(model.programs) == 1
    moved = [layer for layer in model.layers if layer.kind == "move"]
    assert sorted(bool(layer.bytes_stored) for layer in moved[:2]) == [False, True]


def test_channels_that_change_places_in_their_entries_are_no_move_of_entries() -> None:
    x = variable(1, 3, 4, 6)
    swapped = Constant(np.arange(2 * BLOCK, dtype=np.int64) ^ 1)
    body = rolled(call("gather", layer(quantised(x), 2 * BLOCK), swapped, axis=1), lambda size: size - 1)
    model = compiled(x, layer(body, 5), TINY)
    assert len(model.programs) == 2


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(2))
def test_moves_on_the_rtl_give_what_the_functional_simulator_gives(seed: int) -> None:
    random = np.random.default_rng(seed)
    model = moved_model(lambda size: int(random.integers(size)), 3)
    (spec,) = model.inputs
    values = {"x": random.normal(0, 3, spec.shape).astype(np.float32)}
    unsteady = DramModel(latency=30, jitter=20, seed=seed, reorder=True)
    found = weft.load(model, weft.RtlDevice(TINY, dram=unsteady)).run(values)["y"]
    np.testing.assert_array_equal(found, weft.load(model, "fsim").run(values)["y"])


@given(st.lists(st.integers(-8, 30), min_size=1, max_size=60))
def test_walks_are_the_list_in_its_order(places: list[int]) -> None:
    found = []
    for walk in walks(np.array(places)):
        assert walk.first == len(found)
        assert all(stride >= 0 for _, stride in walk.loops)
        starts = [walk.start]
        for extent, stride in walk.loops:
            starts = [start + number * stride for start in starts for number in range(extent)]
        found += starts
    assert found == places


def test_a_transpose_is_one_walk() -> None:
    assert len(walks(np.arange(12 * 7).reshape(12, 7).T.ravel())) == 1


def test_a_layer_that_multiplies_loads_long_rows_and_short_ones_are_left_to_the_host() -> None:
    x = variable(1, 3, 4, 6)
    first = layer(quantised(x), 2 * BLOCK)
    assert len(compiled(x, layer(part(first, 2, 1, 2), 5), TINY).programs) == 1  # two rows of six pixels a block
    assert len(compiled(x, layer(turned(first, lambda size: 0), 5), TINY).programs) == 2


def test_kept_results_are_copied_to_places_of_their_own() -> None:
    x = variable(1, 3, 4, 6)
    body = layer(part(layer(quantised(x), 2 * BLOCK), 2, 1, 2), 5)
    module = module_of(x, body)
    model = weft.compile(module, TINY, keep=True)
    assert [layer.kind for layer in model.layers].count("move") == 1
    values = {"x": np.random.default_rng(0).normal(0, 3, x.tensor_type.shape).astype(np.float32)}
    found, wanted = (weft.load(each).run(values)["y"] for each in (model, weft.compile(module, TINY)))
    np.testing.assert_array_equal(found, wanted)
