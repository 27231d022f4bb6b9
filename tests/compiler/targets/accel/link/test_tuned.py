"""Settings of a database: read as they were written, refused where they are none; forms of layers and chains that
compile to NumPy's integers, and that no core is given which does not have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from hypothesis import given, settings
from weft.compiler.graph import Attrs, Call, Function, Module, Span, call, evaluate_function
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.cost.tile_costs import buffers_of
from weft.compiler.targets.accel.cost.tiles import Tiles
from weft.compiler.targets.accel.link import forms
from weft.compiler.targets.accel.link.alone import Program
from weft.compiler.targets.accel.link.phases import function_of, split_phases
from weft.compiler.targets.accel.link.slices import form_of, form_slices, slices_of
from weft.compiler.targets.accel.link.tuned import CHAIN, LAYER, Setting, point_setting
from weft.compiler.targets.accel.operators.lower import lower_function
from weft.compiler.targets.accel.schedule.tiling import LOOP_ORDERS, ChainTiling, Tiling
from weft.compiler.tune.database import Database
from weft.compiler.tune.errors import TuningError
from weft.hw.config import TINY, CoreConfig
from weft.hw.dram_rate import USUAL_RATE, DramRate
from weft.sim.timing import program_cycles
from weft.tune.task import RefusedError, Task
from weft.tune.tasks import ChainTask, KernelTask, LayerTask, tasks_of

from ..chains import SQUARE, ChainCase, LayerCase, apart
from ..kernels import program_of, run_on_fsim
from ..test_kernels import Case as KernelCase
from .test_depthwise_split import Case, cases

TILED = Tiling(2, 3, 4, 1, "cyx", 1, 2, 2)
CHAINED = ChainTiling(2, 3, 4, 1, "yxc", 1, 2, 1, resident=False)
ROOMY = replace(TINY, name="tiny-sixteens", block_in=16, block_out=16, inp_depth=1024, acc_depth=1024, wgt_depth=512)
MODES = replace(ROOMY, depthwise=1)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("{}", Setting(TILED)),
        (LAYER, Setting(TILED, forms.VECTOR)),
        (LAYER, Setting(TILED, forms.MODE)),
        (LAYER, Setting(None, forms.SHARED, 3)),
        (CHAIN, Setting(CHAINED)),
        (CHAIN, Setting(CHAINED, forms.ARRAY)),
    ],
)
def test_a_setting_is_read_as_it_was_written(text: str, setting: Setting) -> None:
    assert point_setting(text, setting.point) == setting


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("{}", {}),
        ("{}", Setting(TILED, forms.VECTOR).point),
        ("{}", Setting(CHAINED).point),
        ("{}", Setting(None, forms.SHARED, 3).point),
        (LAYER, Setting(TILED).point),
        (LAYER, Setting(CHAINED, forms.VECTOR).point),
        (LAYER, Setting(TILED, "both").point),
        (LAYER, Setting(TILED, forms.SHARED, 1).point | {"groups": 0}),
        (LAYER, {"form": forms.SHARED}),
        (LAYER, {"form": forms.SHARED, "on_array": -1}),
        (LAYER, {"form": forms.SHARED, "on_array": True}),
        (LAYER, {"form": forms.VECTOR, "on_array": 2}),
        (LAYER, {"form": ["vector"]}),
        (CHAIN, Setting(None, forms.SHARED, 2).point),
        (CHAIN, Setting(TILED).point),
        (CHAIN, Setting(CHAINED).point | {"order": "cyx"}),
        ("{}", Setting(TILED).point | {"order": "xx"}),
        ("{}", Setting(TILED).point | {"order": True}),
        (CHAIN, Setting(CHAINED).point | {"resident": 1}),
    ],
)
def test_what_is_no_setting_is_refused(text: str, point: Mapping[str, Any]) -> None:
    with pytest.raises(TuningError, match=r"a tuning database holds .* which .*; hint: make it anew"):
        point_setting(text, point)


def only_call(module: Module) -> Call:
    ((node,),) = (phase.calls for phase in split_phases(module) if phase.on_core)
    return node


def module_of(case: Case | KernelCase) -> Module:
    function = case.function()
    body = call(function, *function.params, span=Span((function.name,), "result"))
    return Module(Function(function.params, body, Attrs({"name": "net", "outputs": ("output",)})), "packed")


def record(path: Path, task: Task, setting: Setting, cycles: float = 1.0) -> None:
    with Database(path) as database:
        database.add(task.key, setting.point, cycles)


def forced(path: Path, module: Module, config: CoreConfig, task: Task, setting: Setting) -> CompiledModel:
    """A module compiled with nothing in its database but this setting."""
    path.unlink(missing_ok=True)
    record(path, task, setting)
    model = weft.compile(module, config, tuned=str(path))
    assert isinstance(model, CompiledModel)
    return model


FORMS = [
    (TINY, forms.VECTOR), (TINY, forms.ARRAY), (TINY, forms.SHARED), (MODES, forms.MODE), (MODES, forms.VECTOR),
    (replace(TINY, batch=2), forms.ARRAY), (replace(TINY, batch=2), forms.SHARED),
]  # fmt: skip


@pytest.mark.parametrize(("config", "form"), FORMS)
def test_a_depthwise_layer_takes_the_form_of_its_record(config: CoreConfig, form: str, tmp_path: Path) -> None:
    module = module_of(Case(config, batch=3, channels=4 * config.block_in, size=(9, 9), seed=5))
    (task,) = tasks_of(module, config, USUAL_RATE, 2)
    assert isinstance(task, LayerTask)
    points = [point for point in task.points.values() if point.setting.form == form]
    chosen = points[len(points) // 3].setting
    model = forced(tmp_path / "t.sqlite", module, config, task, chosen)
    assert model.statistics["tuned_kernels"] > 0
    (layer,) = (each for each in model.layers if each.device == "core")
    assert layer.schedule.startswith("# record 1 of the tuning database: 1 cycles alone, form")
    assert repr(form) in layer.schedule
    x = np.random.default_rng(0).integers(-128, 128, module.main.params[0].type.shape).astype(np.int8)
    (found,) = run_on_fsim(model, {"x0": x}).values()
    np.testing.assert_array_equal(found, evaluate_function(module.main, [x]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", LOOP_ORDERS)
def test_every_order_of_loops_loads_what_is_expected(order: str, threads: int, tmp_path: Path) -> None:
    """With several tiles along all axes, none of them smaller: what is loaded again follows from the order."""
    case = KernelCase("conv", TINY, channels=12, filters=12, size=(12, 9), kernel=(1, 1), pads=(0, 0, 0, 0))
    module = module_of(case)
    (task,) = tasks_of(module, TINY, USUAL_RATE, 2)
    assert isinstance(task, KernelTask)
    tiling = Tiling(1, 4, 3, 3, order, 1, 2, threads)
    model = forced(tmp_path / "t.sqlite", module, TINY, task, Setting(tiling))
    (layer,) = model.layers
    assert layer.schedule.startswith("# record 1 ")
    buffers = list(buffers_of(replace(task.problem, threads=threads), Tiles.of([tiling])))
    expected = sum(float((each.entries * each.loads * each.entry_bytes)[0]) for each in buffers
                   if not isinstance(each.loads, int))  # fmt: skip
    assert layer.bytes_loaded == expected
    x = np.random.default_rng(0).integers(-128, 128, module.main.params[0].type.shape).astype(np.int8)
    (found,) = run_on_fsim(model, {"x0": x}).values()
    np.testing.assert_array_equal(found, evaluate_function(module.main, [x]))


@pytest.mark.parametrize(
    ("config", "form", "on_array"),
    [
        (TINY, forms.MODE, 0),
        (replace(TINY, name="tiny-wide", block_out=8), forms.ARRAY, 0),
        (replace(TINY, name="tiny-wide", block_out=8), forms.SHARED, 1),
        (TINY, forms.SHARED, 4),
    ],
)
def test_a_form_that_the_core_lacks_is_not_taken(config: CoreConfig, form: str, on_array: int, tmp_path: Path) -> None:
    """As after a change by hand: it is neither in the space, nor compiled."""
    module = module_of(Case(config, channels=16))
    (task,) = tasks_of(module, config, USUAL_RATE, 2)
    setting = Setting(None if on_array else TILED, form, on_array)
    node = only_call(module)
    assert form_slices(node, lower_function(function_of(node)), config, setting) is None
    assert not any((point.setting.form, point.setting.on_array) == (form, on_array) for point in task.points.values())
    assert forced(tmp_path / "t.sqlite", module, config, task, setting).statistics["tuned_kernels"] == 0


@settings(max_examples=12)
@given(case=cases())
def test_the_default_is_a_form_of_the_space_and_no_setting_is_below_the_bound(case: Case) -> None:
    case = replace(case, group=0)
    module = module_of(case)
    (task,) = tasks_of(module, case.config, USUAL_RATE, 2)
    assert isinstance(task, LayerTask)
    form, on_array = form_of(slices_of(only_call(module), case.config, USUAL_RATE, 2))
    first = next(iter(task.settings()))
    assert (first.form, first.on_array) == (form, on_array)
    assert form == forms.SHARED or first.point in [each.setting.point for each in task.points.values()]
    texts = list(task.points)
    for text in [*texts[:2], texts[len(texts) // 2], texts[-1]]:
        assert (cycles_or_none(task, task.points[text].setting) or task.bound) >= task.bound


BLOCK = ChainCase(
    (1, 8, 12, 12),
    (
        LayerCase("dense", 12),
        LayerCase("depthwise", 12, (3, 3), pads=(1, 1, 1, 1)),
        LayerCase("dense", 8, residual=True),
    ),
    seed=4,
)
SLOW = DramRate(bytes_per_cycle=2)


@pytest.fixture(scope="module", params=[0, 1], ids=["plain", "mode"])
def chains(request: pytest.FixtureRequest) -> list[ChainTask]:
    config = replace(ROOMY, depthwise=request.param)
    found = [task for task in tasks_of(apart(BLOCK, config), config, SLOW, 2) if isinstance(task, ChainTask)]
    assert found
    return found


def test_the_space_of_a_chain_holds_all_forms_and_the_default(chains: list[ChainTask]) -> None:
    for task in chains:
        named = {point.setting.form for point in task.points.values()}
        modes = {forms.MODE} if task.config.depthwise else set()
        assert named == {forms.VECTOR, forms.ARRAY} | modes or named == {""}
        assert set(task.defaults) <= task.points.keys()
        best = min(task.points.values(), key=lambda each: each.estimate)
        assert task.cycles(best.setting) >= task.bound


def test_a_chain_takes_the_setting_of_its_record(chains: list[ChainTask], tmp_path: Path) -> None:
    """What was measured as the best of a chain is how it is compiled. The chain was measured alone, and the program has
    its beginning and its end beside other layers, so it may be a little slower than without."""
    config, path = chains[0].config, tmp_path / "t.sqlite"
    module = apart(BLOCK, config)
    for task in chains:
        costs = {}
        for text in [*task.defaults, *list(task.points)[:2]]:
            costs[text] = cycles_or_none(task, task.points[text].setting) or 10**9
        best = min(costs, key=costs.__getitem__)
        record(path, task, task.points[best].setting, costs[best])
    plain, model = compiled(module, config, ""), compiled(module, config, str(path))
    (chained,) = (layer for layer in model.layers if layer.kind == "chain")
    assert " cycles alone, form" in chained.schedule.partition("\n")[0]
    assert model.statistics["tuned_kernels"] == 1
    before, after = (program_cycles(config, SLOW, *where(each)) for each in (plain, model))
    assert after <= 1.01 * before
    x = np.random.default_rng(0).integers(-128, 128, module.main.params[0].type.shape).astype(np.int8)
    (result,) = run_on_fsim(model, {"x0": x}).values()
    np.testing.assert_array_equal(result, evaluate_function(module.main, [x]))


def where(model: CompiledModel) -> Program:
    step = program_of(model)
    return step.program, step.program_offset


def cycles_or_none(task: Task, setting: Setting) -> int | None:
    try:
        return task.cycles(setting)
    except RefusedError:
        return None


def test_records_of_the_layers_can_say_that_they_stay_apart(chains: list[ChainTask], tmp_path: Path) -> None:
    config, path = chains[0].config, tmp_path / "t.sqlite"
    module = apart(BLOCK, config)
    assert [layer.kind for layer in compiled(module, config, "").layers] != ["conv2d", "depthwise_conv2d", "conv2d"]
    for task in tasks_of(module, config, SLOW, 2):
        if not isinstance(task, ChainTask):
            record(path, task, next(iter(task.settings())))  # one cycle each
    kinds = [layer.kind for layer in compiled(module, config, str(path)).layers]
    assert kinds == ["conv2d", "depthwise_conv2d", "conv2d"]


def compiled(module: Module, config: CoreConfig, tuned: str) -> CompiledModel:
    model = weft.compile(module, config, dram=SLOW, tuned=tuned)
    assert isinstance(model, CompiledModel)
    return model


def test_squares_have_every_form() -> None:
    for config in SQUARE:
        (task,) = tasks_of(module_of(Case(config, channels=4 * config.block_in)), config, USUAL_RATE, 2)
        named = {point.setting.form for point in task.points.values()}
        assert named >= {forms.VECTOR, forms.ARRAY}
