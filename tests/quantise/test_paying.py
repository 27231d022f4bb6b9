"""Weights whose 4 bits save cycles of a core: layers that wait for them, and as few as the noise allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import weft
from weft.compiler.graph import Array, Module, TensorType, Var
from weft.compiler.operators import nn
from weft.hw.config import PYNQ
from weft.quantise import Paying, QuantiseError
from weft.runtime.device import memory_of
from weft.runtime.profile_whatif import predict_runs, predicted_cycles

from .networks import Weights, module_of, relu

CORE = replace(PYNQ, weight_group=64)

WAITING = {"first": 128, "last": 256}
"""Outputs of products by the names of their weights."""


def network() -> Module:
    """Two products of one row, which wait, and a convolution whose weights come while another one computes."""
    w, x, row = (
        Weights(),
        Var("x", TensorType((1, 3, 16, 16), "float32")),
        Var("row", TensorType((1, 1024), "float32")),
    )
    y = relu(nn.conv2d(x, w(64, 3, 3, 3), pads=(1, 1, 1, 1)))
    busy = relu(nn.add(nn.conv2d(y, w(64, 64, 1, 1, name="busy")), w(1, 64, 1, 1)))
    waiting = [nn.dense(row, w(size, 1024, name=name)) for name, size in WAITING.items()]
    return module_of(*waiting, busy, params=(x, row))


def examples_of(count: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(3)
    shapes = {param.name: param.shape for param in network().main.params}
    return [
        {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(count)
    ]


def compiled_for(core: weft.CoreConfig) -> Callable[[Module], weft.CompiledModel]:
    def compiled(module: Module) -> weft.CompiledModel:
        model = weft.compile(module, core)
        assert isinstance(model, weft.CompiledModel)
        return model

    return compiled


def found(core: weft.CoreConfig = CORE, least_decibels: float = 10.0, count: int = 2) -> Paying:
    plan = weft.quantise.plan(network())
    ranges = weft.quantise.calibrate(plan, examples_of(2))
    paying: Paying = weft.quantise.four_bits_that_pay(
        plan, ranges, examples_of(count), compiled_for(core), least_decibels=least_decibels
    )
    model = compiled_for(core)(weft.quantise.quantised(plan, ranges, paying.found))
    assert paying.cycles == predicted_cycles(model, memory_of(model))
    assert paying.cycles == sum(run.result.cycles or 0 for run in predict_runs(model, memory_of(model)))
    return paying


def test_only_layers_that_wait_get_four_bits() -> None:
    paying = found()
    assert set(paying.saved) == set(paying.noise) == {"busy", "first", "last"}
    assert set(paying.found) == {"first", "last"}
    assert paying.saved["busy"] <= 0 < paying.saved["first"] < paying.saved["last"]
    assert paying.cycles < 0.7 * paying.before


def test_noise_of_a_weight_is_that_of_the_results() -> None:
    """The last weight's is its own error, a few decibels more or less for two examples."""
    paying = found()
    assert abs(paying.noise["last"] - paying.found["last"].decibels) < 3


def test_those_that_save_least_for_their_noise_go_back_where_it_is_too_much() -> None:
    paying = found()
    both = -10 * np.log10(sum(10 ** (-paying.noise[name] / 10) for name in ("first", "last")))
    assert set(found(least_decibels=both - 0.01).found) == {"first", "last"}
    assert set(found(least_decibels=both + 0.01).found) == {"last"}
    none = found(least_decibels=60)
    assert not none.found
    assert none.cycles == none.before


@pytest.mark.parametrize(
    ("core", "count", "message"),
    [(PYNQ, 2, "the core has no weights of 4 bits"), (CORE, 0, "there are no examples to measure noise with")],
)
def test_what_cannot_be_chosen_is_refused(core: weft.CoreConfig, count: int, message: str) -> None:
    with pytest.raises(QuantiseError, match=message):
        found(core, count=count)


def test_a_model_for_no_core_is_refused() -> None:
    plan = weft.quantise.plan(network())
    examples = examples_of(1)
    ranges = weft.quantise.calibrate(plan, examples)
    with pytest.raises(QuantiseError, match="compiled for no core"):
        weft.quantise.four_bits_that_pay(plan, ranges, examples, lambda module: weft.compile(module, target="cpu"))
