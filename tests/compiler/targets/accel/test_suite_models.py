"""Quantised models of one operator each, from ONNX's suite: on the core, or with all of it on the host."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx.backend.test.loader import load_model_tests
from weft.compiler.frontends.errors import ModelError
from weft.compiler.model import CompiledModel
from weft.compiler.targets.errors import CompileError
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.index_inputs import index_inputs
from weft.runtime.inputs import read_inputs

from ...onnx_models import quantised_around, suite_model

EVERY = 31
"""Of the suite's models, one in so many; the long test takes all."""

SCALE = 0.05
RANDOM = ("bernoulli", "dropout", "training")


def cases(step: int) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [case for case in load_model_tests(kind="node") if not case.name.endswith("_expanded")]
    return [case for case in every if not any(word in case.name for word in RANDOM)][::step]


def wrapped_models(step: int) -> dict[str, onnx.ModelProto]:
    models = {case.name: quantised_around(suite_model(case)) for case in cases(step)}
    return {name: model for name, model in models.items() if model is not None}


def check(name: str, model: onnx.ModelProto) -> CompiledModel | None:
    """The artifact gives the CPU's results, to one step of quantisation; None where the front end refuses the model, or
    the random values that sizes depend on."""
    try:
        compiled = weft.compile(model, "tiny")
        assert isinstance(compiled, CompiledModel)
        inputs = read_inputs(compiled.inputs, None, 0, index_inputs(compiled))
        results = weft.load(from_bytes(to_bytes(compiled))).run(inputs)
    except ModelError:
        return None
    on_cpu = weft.compile(model, target="cpu")
    assert isinstance(on_cpu, CompiledModel)
    for output, expected in weft.load(on_cpu).run(inputs).items():
        np.testing.assert_allclose(
            results[output].astype(np.float64), expected.astype(np.float64), rtol=0, atol=1.01 * SCALE, err_msg=name
        )
    return compiled


@pytest.mark.parametrize("step", [EVERY, pytest.param(1, marks=pytest.mark.long)])
def test_every_quantised_model_runs_wherever_its_operators_do(step: int) -> None:
    outcomes = [check(name, model) for name, model in wrapped_models(step).items()]
    models = [outcome for outcome in outcomes if outcome is not None]
    assert len(models) > len(outcomes) / 2
    assert sum(model.core is None for model in models) > 400 / step
    assert all(layer.reason for model in models for layer in model.layers if layer.device != "core")


@pytest.mark.parametrize(
    "kind", ["gelu_tanh_1", "sum_two_inputs", "maxpool_3d_default", "attention_4d_diff_heads_mask4d_padded_kv"]
)
def test_models_that_were_refused_by_accident_run(kind: str) -> None:
    (case,) = [case for case in cases(1) if case.name == f"test_{kind}"]
    model = quantised_around(suite_model(case))
    assert model is not None
    assert check(kind, model) is not None


def test_strict_says_which_operator_the_host_would_run() -> None:
    (case,) = [case for case in cases(1) if case.name == "test_tan"]
    model = quantised_around(suite_model(case))
    with pytest.raises(CompileError, match=r"would run on the host: nn\.tan .*; hint: compile without strict"):
        weft.compile(model, "tiny", strict=True)
