"""Activation functions of RNN, GRU and LSTM: all that the standard names, with numbers in their order."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.frontends.onnx.recurrent import FUNCTIONS

from benchmarks.frontends import operator_sweep, sweep_recurrent


def test_every_function_gives_what_its_formula_gives() -> None:
    cases = [case for case in sweep_recurrent.recurrent() if "activations" in str(case.model.graph.node[0].attribute)]
    named = {name for names in sweep_recurrent.OTHERS.values() for each in names for name in each}
    assert {each.lower() for each in named} == set(FUNCTIONS)
    wrong = [each for each in operator_sweep.outcomes(cases, {"weft": operator_sweep.by_weft("numpy")})
             if each.wrong or each.missing]  # fmt: skip
    assert not wrong


def rnn(attributes: str) -> onnx.ModelProto:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 1, 2] x, float[1, 3, 2] w, float[1, 3, 3] r) => (float[a, b, c, d] y) {{
            y = RNN <hidden_size = 3, {attributes}> (x, w, r) }}""")
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ('activations = ["Gelu"]', "the activation 'Gelu' is not supported; hint: supported: affine, elu, "),
        ('activations = ["Affine"]', "'Affine' has no alpha; hint: give it in activation_alpha"),
        ('activations = ["ScaledTanh"], activation_alpha = [1.0]', "'ScaledTanh' has no beta"),
    ],
)
def test_what_is_no_function_and_what_lacks_a_number_are_told(attributes: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_onnx(rnn(attributes), require_quantised=False)


def test_numbers_that_are_not_given_are_those_of_the_operator() -> None:
    found = []
    for numbers in ("", ", activation_alpha = [0.2], activation_beta = [0.5]"):
        module = from_onnx(rnn(f'activations = ["HardSigmoid"]{numbers}'), require_quantised=False)
        inputs = {each.name: np.full(each.type.shape, 0.3, np.float32) for each in module.main.params}
        found.append(next(iter(operator_sweep.evaluate(module, inputs).values())))
    np.testing.assert_array_equal(*found)
