"""Random inputs of models with indices are valid, and an index outside of its axis is refused by name."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import weft
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from weft.compiler.frontends import read
from weft.compiler.graph import evaluate
from weft.compiler.graph.dtypes import DTYPES, dtype_name
from weft.compiler.model import CompiledModel, TensorSpec
from weft.runtime.errors import InputError
from weft.runtime.index_inputs import index_inputs, module_indices
from weft.runtime.inputs import read_inputs

from ..compiler.onnx_models import suite_model

NAMES = (
    "gather_0", "gather_2d_indices", "gather_elements_1", "gathernd_example_int32_batch_dim1", "scatter_with_axis",
    "scatternd", "nllloss_NCd1_ii", "sce_mean_3d", "reversesequence_batch", "roialign_mode_max", "tensorscatter_3d",
    "ai_onnx_ml_array_feature_extractor", "maxunpool_export_without_output_shape", "rotary_embedding_3d_input",
)  # fmt: skip


@cache
def cases() -> dict[str, TestCase]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name.removeprefix("test_"): case for case in load_model_tests(kind="node")}


@pytest.mark.parametrize("name", NAMES)
def test_random_indices_are_inside_of_their_axes(name: str) -> None:
    model = suite_model(cases()[name])
    compiled = weft.compile(model, target="cpu")
    assert isinstance(compiled, CompiledModel)
    indices = index_inputs(compiled)
    assert indices
    module = weft.load(compiled)
    for seed in range(5):
        module.run(read_inputs(compiled.inputs, None, seed, indices))
    source = read(model).module({}, require_quantised=False)
    evaluate(source, read_inputs(compiled.inputs, None, 1, module_indices(source)))


def test_random_indices_reach_all_of_an_axis() -> None:
    tensor = TensorSpec("i", (100, 2), "int64")
    drawn = read_inputs([tensor], None, 0, {"i": (3, 5)})["i"]
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [[0, 1, 2], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_random_values(dtype: str) -> None:
    drawn = read_inputs([TensorSpec("x", (3, 4), dtype), TensorSpec("scalar", (), dtype)], None, 0)
    assert drawn["x"].shape == (3, 4)
    assert drawn["scalar"].shape == ()
    assert dtype_name(drawn["x"].dtype) == dtype


@pytest.mark.parametrize("name", ["scatternd", "scatter_with_axis", "roialign_mode_max"])
def test_an_index_outside_is_refused_where_numpy_runs_the_operator(name: str) -> None:
    compiled = weft.compile(suite_model(cases()[name]), target="cpu")
    assert isinstance(compiled, CompiledModel)
    indices = index_inputs(compiled)
    inputs = read_inputs(compiled.inputs, None, 0, indices)
    (wrong,) = indices
    inputs[wrong] = np.full_like(inputs[wrong], 1 << 40)
    with pytest.raises(InputError, match=r"index 1099511627776 is outside of an axis of \d+ elements"):
        weft.load(compiled).run(inputs)
