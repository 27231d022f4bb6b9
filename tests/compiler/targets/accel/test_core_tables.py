"""Functions of 8-bit values as tables in the lanes of the vector engine, from the graph to fsim and the RTL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Call, Constant, Expr, Module, call, calls, evaluate
from weft.compiler.graph.visit import rewrite
from weft.compiler.passes import Pass
from weft.hw.config import PYNQ, PYNQ_TABLES, TINY, CoreConfig
from weft.hw.isa import Vector, VectorTarget
from weft.hw.programs import disassemble
from weft.runtime.profile_whatif import predict_runs
from weft.sim.dram import DramModel

from tests.compiler.targets.accel.quantised_layers import compiled, layer, module_of, quantised, variable

TABLES = replace(TINY, name="tables", tables=2)
CORES = [
    TABLES, PYNQ_TABLES, replace(TABLES, batch=2), replace(TABLES, block_in=8), replace(TABLES, block_out=8),
    replace(TABLES, tables=1),
]  # fmt: skip


def swish(x: Expr) -> Call:
    return quantised(call("nn.multiply", x, call("nn.sigmoid", x)), 0.03)


def sigmoid(x: Expr) -> Call:
    return quantised(call("nn.sigmoid", x), 1 / 256)


def through_tables(model: weft.CompiledModel) -> list[Vector]:
    """The instructions whose results pass through a table."""
    assert model.core is not None
    programs = [disassemble(model.core.config, step.program) for step in model.programs]
    return [each for program in programs for each in program if isinstance(each, Vector) and each.table]


@pytest.mark.parametrize("function", [swish, sigmoid])
@pytest.mark.parametrize(
    "config", CORES, ids=lambda core: f"{core.batch}x{core.block_in}x{core.block_out}-{core.tables}"
)
def test_a_function_joins_the_convolution_before_it(config: CoreConfig, function: Callable[[Expr], Call]) -> None:
    x = variable(2, 8, 9, 7)
    model = compiled(x, layer(function(layer(quantised(x), 12, kernel=3, pads=1)), 5), config)
    assert len(model.programs) == 1
    assert {"packed_requantise_look_up"} <= {name for each in model.layers for name in each.operators}
    assert through_tables(model)


@pytest.mark.parametrize("config", [TABLES, PYNQ_TABLES], ids=lambda config: config.name)
def test_a_function_of_a_shared_value_is_a_layer_of_its_own(config: CoreConfig) -> None:
    x = variable(1, 8, 6, 6)
    value = layer(quantised(x), 8)
    model = compiled(x, layer(quantised(call("nn.add", swish(value), layer(value, 8))), 5), config)
    assert any("packed_look_up" in each.operators for each in model.layers)
    assert len(model.programs) == 1


def test_functions_of_functions_are_one_table() -> None:
    """A sum of a value and its swish, by way of 8-bit values, too."""
    x = variable(1, 8, 6, 6)
    value = layer(quantised(x), 8)
    model = compiled(x, layer(quantised(call("nn.add", swish(value), quantised(call("nn.tanh", value)))), 5), TABLES)
    operators = [name for each in model.layers for name in each.operators]
    assert [operators.count(name) for name in ("packed_requantise_look_up", "packed_look_up")] == [1, 0]


@pytest.mark.parametrize("config", [TABLES, PYNQ_TABLES], ids=lambda config: config.name)
def test_a_function_in_front_of_a_sum_stays_in_the_accumulator(config: CoreConfig) -> None:
    x = variable(1, 8, 6, 6)
    value = layer(quantised(x), 8)
    model = compiled(x, quantised(call("nn.add", swish(layer(value, 8, kernel=3, pads=1)), value)), config)
    assert any(each.target is VectorTarget.ACC for each in through_tables(model))


@pytest.mark.parametrize("blocks", [(8, 64), (4, 4), (8, 4)], ids=lambda blocks: f"{blocks[0]}x{blocks[1]}")
@pytest.mark.parametrize("depth", [16, 32, 64])
def test_a_table_finds_room_in_any_accumulator_or_its_layer_runs_on_the_host(
    depth: int, blocks: tuple[int, int]
) -> None:
    """It passes the accumulator in parts, beside the parameters that lie there for all tiles."""
    x = variable(1, 8, 9, 7)
    core = replace(TABLES, name="shallow", acc_depth=depth, block_in=blocks[0], block_out=blocks[1])
    model = compiled(x, layer(swish(layer(quantised(x), 12)), 5), core)
    assert all("scratchpad 'acc'" in each.reason for each in model.layers if "conv2d" in each.operators)
    if blocks == (8, 64):  # of a channel group there is one entry only
        assert through_tables(model)


@pytest.mark.parametrize("tables", [1, 2])
def test_a_layer_has_one_table(tables: int) -> None:
    """Before a sum and after it."""
    x = variable(1, 8, 6, 6)
    value = layer(quantised(x), 8)
    total = quantised(call("nn.add", swish(layer(value, 8, kernel=3, pads=1)), value))
    model = compiled(x, swish(total), replace(TABLES, tables=tables))
    in_layers = [sum(name.endswith("look_up") for name in each.operators) for each in model.layers]
    assert sorted(in_layers)[-2:] == [1, 1]


def test_a_function_of_an_input_is_left_to_the_host() -> None:
    """It quantises the input anyway."""
    x = variable(1, 8, 6, 6)
    model = compiled(x, layer(swish(quantised(x)), 8), TABLES)
    assert not through_tables(model)
    assert len(model.programs) == 1


@pytest.mark.parametrize("config", [TABLES, PYNQ_TABLES], ids=lambda config: config.name)
def test_gates_and_swishes_never_leave_the_core(config: CoreConfig) -> None:
    """Expand, depthwise, squeeze and excite, project."""
    x = variable(1, 8, 10, 10)
    wide = swish(layer(quantised(x), 32))
    features = swish(layer(wide, 32, kernel=5, groups=32, pads=2))
    pooled = quantised(call("nn.average_pool", features, kernel=features.shape[2:]))
    gate = sigmoid(layer(swish(layer(pooled, 4)), 32))
    model = compiled(x, layer(quantised(call("nn.multiply", features, gate)), 8), config)
    assert len(model.programs) == 1


def test_the_rtl_computes_the_same_in_the_predicted_cycles() -> None:
    """A chain with two tables, a table to ``acc``, and gates, on one core."""
    x = variable(1, 8, 10, 10)
    value = swish(layer(quantised(x), 8))
    wide = swish(layer(swish(layer(value, 16)), 16, kernel=3, groups=16, pads=1))
    pooled = quantised(call("nn.average_pool", wide, kernel=wide.shape[2:]))
    gated = quantised(call("nn.multiply", wide, sigmoid(layer(pooled, 16))))
    body = quantised(call("nn.add", swish(layer(gated, 8)), value))
    model = compiled(x, body, TABLES)
    assert {each.target for each in through_tables(model)} >= {VectorTarget.ACC, VectorTarget.OUT}
    values = {"x": np.random.default_rng(1).normal(0, 3, x.type.shape).astype(np.float32)}
    dram = DramModel(latency=30)
    rtl = weft.load(model, weft.RtlDevice(TABLES, dram=dram))
    np.testing.assert_array_equal(rtl.run(values)["y"], weft.load(model, "fsim").run(values)["y"])
    assert rtl.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, dram))


@pytest.mark.parametrize("tables", [1, 2, 4])
def test_a_chain_has_a_table_for_each_of_its_layers(tables: int) -> None:
    x = variable(1, 16, 28, 28)
    wide = swish(layer(quantised(x), 96))
    body = layer(swish(layer(wide, 96, kernel=3, groups=96, pads=1)), 16)
    model = compiled(x, body, replace(PYNQ, name="chained", tables=tables))
    numbers = {each.table for each in through_tables(model)}
    assert len(numbers) == min(tables, 2)
    assert any(each.target is VectorTarget.INP for each in through_tables(model))
    looked_up = [sum("look_up" in name for name in each.operators) for each in model.layers if each.device == "core"]
    assert looked_up == ([2] if tables > 1 else [1, 1])  # in each chain or layer


SQUARES = np.array([min(abs(value) ** 2 // 100, 127) for value in range(-128, 128)], np.int8)
JUMPS = np.random.default_rng(3).permutation(np.arange(-128, 128)).astype(np.int8)


def with_a_table(table: np.ndarray) -> Pass:
    """A user's pass: what the first convolution makes goes through a table."""

    def run(module: Module) -> Module:
        first = next(node for node in calls(module.main.body) if node.op == "requantise")
        looked_up = call("look_up", first, Constant(table), span=first.span)
        return module.with_main(rewrite(module.main.body, lambda node: looked_up if node is first else None))

    return Pass("with-a-table", run, needs=("legalise",))


@pytest.mark.parametrize("table", [SQUARES, JUMPS], ids=["squares", "jumps"])
@pytest.mark.parametrize("config", [TINY, TABLES], ids=["without", "with"])
def test_a_table_behind_a_requantise_runs_on_any_core(config: CoreConfig, table: np.ndarray) -> None:
    x = variable(1, 8, 6, 6)
    module = module_of(x, quantised(layer(quantised(layer(quantised(x), 8)), 8)))
    passes = weft.PassOptions(added=(with_a_table(table),))
    values = {"x": np.random.default_rng(4).normal(0, 2, (1, 8, 6, 6)).astype(np.float32)}
    found = [
        weft.load(weft.compile(module, passes=passes, **options)).run(values)
        for options in ({"target": "cpu"}, {"target": "accel", "config": config})
    ]
    for name, result in found[0].items():
        assert np.array_equal(result, found[1][name])


@pytest.mark.parametrize("config", [TINY, TABLES], ids=["without", "with"])
def test_a_reshape_in_floats_leaves_a_function_a_table(config: CoreConfig) -> None:
    x = variable(1, 8, 6, 6)
    value = call("reshape", quantised(layer(quantised(x), 8)), shape=(1, 8, 36))
    tabled = call("reshape", quantised(call("nn.sigmoid", value), 1 / 256), shape=(1, 8, 6, 6))
    module = module_of(x, quantised(layer(tabled, 4)))
    model = weft.compile(module, target="accel", config=config)
    assert "nn.sigmoid" not in {name for each in model.layers for name in each.operators}
    values = {"x": np.random.default_rng(4).normal(0, 2, (1, 8, 6, 6)).astype(np.float32)}
    found = weft.load(model).run(values)
    for name, wanted in evaluate(module, values).items():
        assert np.abs(found[name] - wanted).max() < 0.051
