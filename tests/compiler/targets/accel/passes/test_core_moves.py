"""Moves between layers are entries that the core moves, where whole blocks of channels change places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import weft
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.api import integer_graph
from weft.compiler.graph import Constant, Expr, Var, call
from weft.compiler.targets.accel.link import folded_moves
from weft.compiler.targets.accel.walk.emit_move import walks
from weft.compiler.targets.accel.walk.moved_loads import as_matrices
from weft.hw.config import PYNQ, TINY, CoreConfig
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel
from weft.verify import verify

from tests.compiler.targets.accel.moves import (
    BLOCK,
    READERS,
    STEPS,
    Draw,
    by_channel,
    heads_as_images,
    images_as_channels,
    part,
    rolled,
    turned,
)
from tests.compiler.targets.accel.quantised_layers import compiled, layer, module_of, quantised, variable
from tests.effort import few

SEED = 7
"""Moves and readers that have parts of depthwise layers which begin behind their tensor's first entry."""


Reader = Callable[[Expr, Draw], Expr]


def name_of(reader: Reader) -> str:
    return reader.__name__


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves are folded into loads, whatever these cost."""
    monkeypatch.setattr(folded_moves, "LONG_ROW", 1)
    monkeypatch.setattr(folded_moves, "ENTRIES_A_LOAD", 0)


def drawn_from(seed: int) -> Draw:
    random = np.random.default_rng(seed)
    return lambda size: int(random.integers(size))


def moved(x: Expr, draw: Draw, steps: int) -> Expr:
    for _ in range(steps):
        x = STEPS[draw(len(STEPS))](x, draw)
    return part(part(x, 2, 0, 1), 3, 0, 1) if x.tensor_type.size > 4000 else x


def first_layer(draw: Draw, block: int = BLOCK) -> tuple[Var, Expr]:
    x = variable(1 + draw(2), 3, 2 + draw(4), 2 + draw(4))
    return x, layer(quantised(x), block * (1 + draw(3)) - (draw(3) if draw(4) == 0 else 0))


def moved_model(draw: Draw, steps: int) -> weft.CompiledModel:
    x, body = first_layer(draw)
    return compiled(x, layer(moved(body, draw, steps), 5), TINY)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.usefixtures("always")
def test_random_moves_give_the_integers_of_the_graph(data: st.DataObject) -> None:
    moved_model(lambda size: data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 4)))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("config", few([TINY, PYNQ], 1), ids=lambda config: config.name)
@pytest.mark.parametrize("reader", READERS, ids=name_of)
def test_every_reader_of_random_moves_gives_the_integers_of_the_graph(reader: Reader, config: CoreConfig) -> None:
    """With moves behind it, too, and what reads those."""
    draw = drawn_from(SEED)
    x, body = first_layer(draw, config.block_in)
    body = reader(moved(body, draw, 1 + draw(3)), draw)
    body = moved(body, draw, draw(3))
    compiled(x, READERS[draw(len(READERS))](body, draw), config)


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
def test_moves_on_the_rtl_give_what_the_functional_simulator_gives_in_the_cycles_of_the_timing_model(seed: int) -> None:
    draw = drawn_from(seed)
    x, body = first_layer(draw)
    model = compiled(x, by_channel(moved(body, draw, 3), draw), TINY)
    values = {"x": np.random.default_rng(seed).normal(0, 3, x.tensor_type.shape).astype(np.float32)}
    wanted = weft.load(model, "fsim").run(values)["y"]
    steady, unsteady = DramModel(bytes_per_cycle=TINY.bus_bytes), DramModel(latency=30, jitter=20, seed=1, reorder=True)
    for dram in (steady, unsteady):
        on_rtl = weft.load(model, weft.RtlDevice(TINY, dram=dram))
        np.testing.assert_array_equal(on_rtl.run(values)["y"], wanted)
        assert dram is unsteady or on_rtl.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, dram))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("reader", READERS, ids=name_of)
def test_every_reader_of_moved_entries_is_proved(reader: Reader) -> None:
    draw = drawn_from(1)
    x, body = first_layer(draw)
    body = reader(moved(rolled(body, draw), draw, 1), draw)
    made = compiled(x, body, TINY)
    assert verify(made, integer_graph(module_of(x, body), made), seed=1).proved


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


@pytest.mark.parametrize(
    ("numbers", "firsts"),
    [
        ([4, 5, 6, 0, 1, 2, -3, -3, -3, 7, 8, 9], [4, 0, -3, 7]), ([4, 5, 6, 0, 1], None), ([4, 6, 7], None),
        ([4, 5, 5], None), ([-3, -3, -2], None), ([-3, -2, -1], None), ([-1, 0, 1], None), ([4, 5, -3], None),
    ],
)  # fmt: skip
def test_entries_are_matrices_where_they_stay_together(numbers: list[int], firsts: list[int] | None) -> None:
    found = as_matrices(np.array(numbers), 3)
    assert (found if found is None else found.tolist()) == firsts


def test_a_transpose_is_one_walk() -> None:
    assert len(walks(np.arange(12 * 7).reshape(12, 7).T.ravel())) == 1


def test_a_layer_that_multiplies_loads_long_rows_and_short_ones_are_copied_before() -> None:
    x = variable(1, 3, 4, 6)
    first = layer(quantised(x), 2 * BLOCK)
    for step, copies in ((part(first, 2, 1, 2), 0), (turned(first, lambda size: 0), 1)):  # two rows of six pixels
        model = compiled(x, layer(step, 5), TINY)
        assert len(model.programs) == 1
        assert [layer.kind for layer in model.layers].count("move") == copies


def test_short_rows_of_what_the_host_has_are_moved_there() -> None:
    x = variable(1, 2 * BLOCK, 4, 6)
    model = compiled(x, layer(turned(quantised(x), lambda size: 0), 5), TINY)
    assert "move" not in {layer.kind for layer in model.layers}
    assert sum(layer.device != "core" for layer in model.layers) == 2  # quantises and packs, and gives the result


def test_the_host_joins_what_it_has_for_itself() -> None:
    x = variable(1, 2 * BLOCK, 6, 4)
    rows = call("transpose", quantised(x), perm=(0, 2, 3, 1))
    turned_back = call("transpose", call("concat", part(rows, 1, 2, 4), part(rows, 1, 0, 2), axis=1), perm=(0, 3, 1, 2))
    model = compiled(x, layer(turned_back, 5), TINY)
    assert len(model.programs) == 1
    assert [layer.kind for layer in model.layers if layer.device == "core"] == ["conv2d"]


def test_kept_results_are_copied_to_places_of_their_own() -> None:
    x = variable(1, 3, 4, 6)
    body = layer(part(layer(quantised(x), 2 * BLOCK), 2, 1, 2), 5)
    module = module_of(x, body)
    model = weft.compile(module, TINY, keep=True)
    assert [layer.kind for layer in model.layers].count("move") == 1
    values = {"x": np.random.default_rng(0).normal(0, 3, x.tensor_type.shape).astype(np.float32)}
    found, wanted = (weft.load(each).run(values)["y"] for each in (model, weft.compile(module, TINY)))
    np.testing.assert_array_equal(found, wanted)
