"""Two targets side by side: what agrees, and what is named when something does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner
from weft.cli import app
from weft.compare import compare, difference
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import Attrs, Function, GraphError, Module, TensorType, Var, call
from weft.compiler.graph.visit import calls

from benchmarks.zoo import quantised_forms, quantised_networks

MODEL = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
IMAGE = {"image": np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)}


@pytest.mark.parametrize("pair", [("reference", "cpu"), ("cpu", "fsim")])
def test_the_targets_make_the_same_integers_layer_by_layer(pair: tuple[str, str]) -> None:
    found = compare(from_onnx(MODEL), *pair, IMAGE, threads=2).differences
    assert len(found) >= 6
    assert found[-1].tensor == "logits"
    assert all(item.is_same and item.largest == 0 for item in found)


@pytest.mark.parametrize(
    ("name", "pairs"), [("gated-convolutions", 16), ("unet", 10), ("prelu-net", 3), ("causal-convolutions", 8)]
)
def test_each_tensor_meets_itself_and_what_one_place_lacks_is_named(name: str, pairs: int) -> None:
    """Nodes of these bear the names of their tensors; sums of 32 bits, digits and moved forms are not the tensors."""
    model, batches = quantised_networks.network(name)
    module = from_onnx(quantised_forms.quantised(model, batches, quantised_forms.Form()))
    found = compare(module, "cpu", "fsim", batches[0])
    assert [each.tensor for each in found.differences if not each.is_same] == []
    assert len(found.differences) >= pairs
    names = [each.tensor for each in found.differences]
    assert len({*names}) == len(names)
    assert not {*names} & {*found.only_first, *found.only_second}
    types = {node.span.tensor: node.dtype for node in calls(module.main.body)}
    assert all(each.dtype == types[each.tensor] for each in found.differences if each.tensor in types)


def test_the_parts_of_a_split_have_names_of_their_own() -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [8, 3])
    parts = [onnx.helper.make_tensor_value_info(f"part{i}", onnx.TensorProto.FLOAT, [2, 3]) for i in range(4)]
    split = onnx.helper.make_node("Split", ["x"], [each.name for each in parts], axis=0)
    graph = onnx.helper.make_graph([split], "g", [x], parts)
    opsets = [onnx.helper.make_opsetid("", 13)]
    module = from_onnx(onnx.helper.make_model(graph, opset_imports=opsets), require_quantised=False)
    assert [each.span.tensor for each in module.main.results] == ["part0", "part1", "part2", "part3"]


def test_a_difference_is_measured_and_judged_by_the_tensors_magnitude() -> None:
    a = np.array([100.0, 1.0, np.nan, np.inf], np.float32)
    same = difference("t", a, a + np.float32(0.001), 1e-4)
    assert same.is_same
    assert difference("t", a, a + np.float32(0.5), 1e-4).differing == 2
    wrong = difference("t", np.int8([3, 4]), np.int8([3, 6]), 1e-4)
    assert (wrong.largest, wrong.relative, wrong.differing) == (2.0, 0.5, 1)
    assert not difference("t", a, np.zeros_like(a), 1e-4).is_same


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    known = "reference, accel, cpu, opencl, cuda, null, fsim, rtl"
    with pytest.raises(GraphError, match=f"nothing called 'gpu' to compare; hint: choose {known}"):
        compare(from_onnx(MODEL), "gpu", "cpu", IMAGE)


def test_a_model_of_which_nothing_runs_on_the_core_is_not_said_to_agree() -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    module = Module(Function((x,), call("nn.tanh", x), Attrs({"name": "main"})))
    values = {"x": np.ones((2, 3), np.float32)}
    assert all(each.is_same for each in compare(module, "reference", "cpu", values).differences)
    for name in ("fsim", "accel"):
        with pytest.raises(GraphError, match=f"nothing of the model runs on the core, so '{name}' has nothing to be"):
            compare(module, "cpu", name, values)


def test_the_command_compares_and_runs() -> None:
    result = CliRunner().invoke(app, ["compare", "reference", "cpu", str(MODEL)])
    assert result.exit_code == 0
    assert "relu2_QuantizeLinear_Output" in result.output
    assert "tensors agree" in result.output
    result = CliRunner().invoke(app, ["run", str(MODEL), "--target", "cpu", "--threads", "2", "--report"])
    assert result.exit_code == 0, result.output
    assert "target cpu, 1 thread: placement" in result.output  # a small model
    assert "kernels are fused, which saves" in result.output
    assert "logits: float32[1, 10]" in result.output
