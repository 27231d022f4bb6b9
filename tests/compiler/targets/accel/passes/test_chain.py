"""Which layers become chains: by their structure, by measurement, and what is said of those that stay alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.compile import compile_model
from weft.compiler.graph import Attrs, Call, Function, Module, Tuple, Var, call, calls, evaluate_function
from weft.compiler.graph.visit import substitute
from weft.compiler.model import CompiledModel
from weft.compiler.targets.accel.link.chain_plan import plan_of
from weft.compiler.targets.accel.link.depthwise_split import on_array
from weft.compiler.targets.accel.passes.chain import chain, merged, on_vector_engine, why_not
from weft.compiler.targets.accel.passes.function_signature import signature
from weft.compiler.targets.target import Job, Measure
from weft.hw.config import TINY
from weft.hw.dram_rate import DramRate

from ..chains import ChainCase, LayerCase, apart, layers_of
from ..kernels import Build, run_on_fsim

LAYERS = (
    LayerCase("dense", 12),
    LayerCase("depthwise", 12, (3, 3), pads=(1, 1, 1, 1)),
    LayerCase("dense", 8, residual=True),
)
ROOMY = replace(TINY, name="tiny-sixteens", block_in=16, block_out=16, inp_depth=1024, acc_depth=1024, wgt_depth=512)
"""A core on which the layers of `BLOCK` wait for the memory."""

SAVED = 2 * 2 * 12 * 12 * 16
"""Bytes of the two results between, written and read."""

BLOCK = ChainCase((1, 8, 12, 12), LAYERS, seed=4)


def measured(*cycles: int) -> Measure:
    """Says these numbers, one program after another, and the last again and again: those of a chain in both forms, with
    its depthwise layer on the vector engine and on the array, then that of the layers apart."""
    left = list(cycles)
    return lambda config, rate, program, offset: left.pop(0) if len(left) > 1 else left[0]


def functions(module: Module) -> list[Function]:
    return [node.op for node in calls(module.main.body) if isinstance(node.op, Function)]


def compiled(module: Module, measure: Measure | None) -> CompiledModel:
    model = compile_model(module, "accel", {"config": ROOMY}, job=Job(measure=measure))
    assert isinstance(model, CompiledModel)
    return model


def test_layers_become_one_function_where_that_is_faster() -> None:
    module = apart(BLOCK, ROOMY)
    (made,) = functions(chain(module, ROOMY, DramRate(), measured(1, 1, 10**6), threads=2))
    assert made.name == "layer0+layer1+layer2"
    assert made.attrs["macs"] == sum(int(str(each.attrs.get("macs", 0))) for each in functions(module))
    plan = plan_of(made)
    assert plan is not None
    assert (plan.cycles, plan.apart, plan.saved_bytes, plan.record) == (1, 10**6, SAVED, 0)


def test_layers_stay_apart_where_that_is_faster() -> None:
    module = apart(BLOCK, ROOMY)
    alone = functions(chain(module, ROOMY, DramRate(), measured(10**6), threads=2))
    assert [each.name for each in alone] == ["layer0", "layer1", "layer2"]
    assert all("a chain would take 1,000,000 cycles" in str(each.attrs["not_chained"]) for each in alone)


@pytest.mark.parametrize("kind", ["dense", "depthwise", "grouped", "average", "maximum"])
def test_a_chain_may_end_with_any_convolution_or_pooling(kind: str) -> None:
    last = LayerCase(kind, 12, (3, 3), pads=(1, 1, 1, 1))
    module = apart(replace(BLOCK, layers=(LAYERS[0], last)), ROOMY)
    (made,) = functions(chain(module, ROOMY, DramRate(), measured(1, 10**6), threads=2))
    assert made.name == "layer0+layer1"


@pytest.mark.parametrize("size", [12, 13])
def test_layers_that_only_fit_in_parts_are_chained_or_not(size: int) -> None:
    """Of the first no tile fits by itself, so it has no estimate."""
    window = LayerCase("average", 8, (size, size))
    module = apart(ChainCase((1, 8, size, size), (window, LayerCase("dense", 8))), TINY)
    for together, names in ((1, ["layer0+layer1"]), (10**6, ["layer0", "layer1"])):
        made = functions(chain(module, TINY, DramRate(), measured(together, 10**5), threads=2))
        assert [each.name for each in made] == names


def test_a_chain_must_save_something() -> None:
    for apart_cycles, made in ((1000, 3), (1021, 1)):
        module = chain(apart(BLOCK, ROOMY), ROOMY, DramRate(), measured(1001, 1000, apart_cycles), threads=2)
        assert len(functions(module)) == made


def test_layers_of_which_no_chain_was_tried_say_so() -> None:
    """`TINY` computes longer than it moves data."""
    alone = functions(chain(apart(BLOCK, TINY), TINY, DramRate(), measured(1), threads=2))
    assert {str(each.attrs["not_chained"]) for each in alone} == {"by the estimate a chain would not be faster"}


@pytest.mark.parametrize("cycles", [(1, 1, 10**6), (10**6,)])
def test_a_network_gives_the_same_integers_with_and_without_chains(cycles: tuple[int, ...]) -> None:
    module = apart(BLOCK, ROOMY)
    x = np.random.default_rng(0).integers(-128, 128, module.main.params[0].type.shape).astype(np.int8)
    expected = evaluate_function(module.main, [x])
    results = [run_on_fsim(compiled(module, measure), {"x0": x}) for measure in (None, measured(*cycles))]
    for (result,) in (each.values() for each in results):
        np.testing.assert_array_equal(result, expected)


def test_the_report_says_what_was_chained_and_why_the_rest_was_not() -> None:
    module = apart(BLOCK, ROOMY)
    (chained,) = compiled(module, measured(1, 1, 10**6)).layers
    assert (chained.kind, chained.saved_bytes) == ("chain", SAVED)
    assert chained.operators.count("packed_conv2d") == 2
    first, *_ = compiled(module, measured(10**6)).layers
    assert any("a chain would take" in reason for reason in first.boundaries)


def test_results_that_are_to_be_kept_are_not_chained() -> None:
    job = Job(keep=True, measure=measured(1, 1, 10**6))
    model = compile_model(apart(BLOCK, ROOMY), "accel", {"config": ROOMY}, job=job)
    assert isinstance(model, CompiledModel)
    assert [layer.kind for layer in model.layers] == ["conv2d", "depthwise_conv2d", "conv2d"]


def test_the_timing_model_decides_in_weft_compile() -> None:
    module = apart(BLOCK, ROOMY)
    chained = weft.compile(module, ROOMY)
    assert isinstance(chained, CompiledModel)
    assert [layer.kind for layer in chained.layers] == ["chain"]


def test_a_core_whose_results_are_no_inputs_has_no_chains() -> None:
    wide = replace(TINY, name="tiny-wide-in", block_in=8)
    module = apart(ChainCase((1, 8, 6, 6), (LayerCase("dense", 12), LayerCase("dense", 8))), wide)
    assert chain(module, wide, DramRate(), measured(1, 1, 10**6), threads=2) is module


def twice_read() -> Module:
    """The first layer's result is read by the second layer, and is a result of the network."""
    (x,), nodes = layers_of(BLOCK, ROOMY)
    body = Tuple((nodes[0], nodes[-1]))
    return Module(Function((x,), body, Attrs({"name": "net", "outputs": ("first", "last")})), "packed")


def test_a_result_that_somebody_else_reads_goes_to_dram() -> None:
    module = chain(twice_read(), ROOMY, DramRate(), measured(1, 1, 10**6), threads=2)
    names = {each.name: each for each in functions(module)}
    assert set(names) == {"layer0", "layer1+layer2"}
    assert names["layer0"].attrs["not_chained"] == "2 layers or outputs read its result"


def pooled(build: Build, x: Var) -> Call:
    return build.op("max_pool", x, kernel=(2, 2), strides=(2, 2))


def added(build: Build, x: Var) -> Call:
    total = build.op("multiply_accumulate", build.op("multiply_immediate", x, weight=2), build.like(x), weight=1)
    return build.requantise(total, 8, 400)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (pooled, ""),
        (added, "only convolutions and poolings are chained"),
    ],
)
def test_why_a_result_does_not_stay(second: Callable[[Build, Var], Call], reason: str) -> None:
    _, nodes = layers_of(ChainCase((1, 8, 6, 6), (LayerCase("dense", 8),)), ROOMY)
    build = Build(ROOMY)
    function = build.function(second(build, build.input(1, 8, 6, 6)), "second")
    reader = call(function, nodes[0], *function.params[1:])
    assert why_not(nodes[0], reader, 0, 1) == reason


def test_a_residual_is_no_link() -> None:
    _, nodes = layers_of(ChainCase((1, 8, 6, 6), (LayerCase("dense", 8), LayerCase("dense", 8, residual=True))), ROOMY)
    inner = nodes[1].op
    assert isinstance(inner, Function)
    swapped = call(inner, nodes[1].args[1], nodes[0])
    assert why_not(nodes[0], swapped, 1, 1) == "the layer that reads it adds it to its own result"


def test_a_reader_that_also_adds_its_operand_is_no_link() -> None:
    """Its product and its residual are the same value: nobody keeps that until the sum."""
    _, nodes = layers_of(ChainCase((1, 8, 6, 6), (LayerCase("dense", 8), LayerCase("dense", 8, residual=True))), ROOMY)
    inner = nodes[1].op
    assert isinstance(inner, Function)
    data, added_to, *others = inner.params
    same = Function((data, *others), substitute(inner.body, {added_to: data}), inner.attrs)
    reader = call(same, nodes[0], *nodes[1].args[2:])
    assert why_not(nodes[0], reader, 0, 1) == "the layer that reads it adds it to its own result"
    assert why_not(nodes[0], nodes[1], 0, 1) == ""


def test_layers_that_differ_in_numbers_only_are_measured_once() -> None:
    first, second = (layers_of(replace(BLOCK, seed=seed), ROOMY)[1] for seed in (1, 2))
    wider = layers_of(replace(BLOCK, shape=(1, 8, 12, 13)), ROOMY)[1]
    assert [signature(node.op) for node in first] == [signature(node.op) for node in second]
    assert signature(first[0].op) != signature(wider[0].op)


def test_a_chain_means_what_its_layers_mean() -> None:
    (x,), nodes = layers_of(BLOCK, ROOMY)
    value = np.random.default_rng(1).integers(-128, 128, x.type.shape).astype(np.int8)
    whole = evaluate_function(Function((x,), nodes[-1]), [value])
    for form in (on_vector_engine, on_array):
        np.testing.assert_array_equal(evaluate_function(merged(nodes, form), [value]), whole)


WITH_MODE = replace(ROOMY, name="sixteens-with-the-mode", depthwise=1)


def anchors(function: Function) -> set[str]:
    """Operators of all layers of a chain."""
    return {
        str(node.op) for each in calls(function.body) if isinstance(each.op, Function) for node in calls(each.op.body)
    }


def test_depthwise_layers_of_a_chain_take_the_mode() -> None:
    module = apart(BLOCK, WITH_MODE)
    (made,) = functions(chain(module, WITH_MODE, DramRate(), measured(1, 2, 10**6), threads=2))
    assert "packed_tapped_conv2d" in anchors(made)
    assert not anchors(made) & {"packed_depthwise_conv2d", "packed_grouped_conv2d"}


@pytest.mark.parametrize(("cycles", "other"), [((7, 5, 10**6), True), ((5, 7, 10**6), False)])
def test_of_two_programs_in_the_mode_the_faster_is_taken(cycles: tuple[int, ...], other: bool) -> None:
    module = apart(BLOCK, WITH_MODE)
    (made,) = functions(chain(module, WITH_MODE, DramRate(), measured(*cycles), threads=2))
    (first,) = functions(chain(module, WITH_MODE, DramRate(), measured(1, 2, 10**6), threads=2))
    chosen, usual = plan_of(made), plan_of(first)
    assert chosen is not None
    assert usual is not None
    assert (chosen.tiling != usual.tiling) == other


def test_what_the_mode_cannot_compute_keeps_its_forms() -> None:
    dilated = replace(LAYERS[1], dilations=(2, 1), pads=(2, 1, 2, 1))
    module = apart(replace(BLOCK, layers=(LAYERS[0], dilated, LAYERS[2])), WITH_MODE)
    (made,) = functions(chain(module, WITH_MODE, DramRate(), measured(2, 1, 10**6), threads=2))
    assert "packed_grouped_conv2d" in anchors(made)


def test_a_network_in_the_mode_gives_the_integers_of_its_layers() -> None:
    for case in (BLOCK, replace(BLOCK, layers=(replace(LAYERS[1], channels=8), replace(LAYERS[0], kernel=(1, 1))))):
        module = apart(case, WITH_MODE)
        model = compile_model(module, "accel", {"config": WITH_MODE}, job=Job(measure=measured(1, 1, 10**6)))
        assert isinstance(model, CompiledModel)
        assert model.layers[-1].kind == "chain"
        x = np.random.default_rng(5).integers(-128, 128, module.main.params[0].tensor_type.shape).astype(np.int8)
        (found,) = run_on_fsim(model, {module.main.params[0].name: x}).values()
        np.testing.assert_array_equal(found, evaluate_function(module.main, [x]))
