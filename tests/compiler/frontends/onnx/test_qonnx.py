"""QONNX nodes give what the executor of the package ``qonnx`` gives: its values are in ``qonnx_values.json``, each with
the operator, its constants behind ``X``, its attributes and the version of its domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import evaluate

from benchmarks.zoo.placement_graph import QuantisedGraph

DOMAIN = "qonnx.custom_op.general"
X = np.array([-9, -3.3, -1.75, -1.25, -0.75, -0.3, 0, 0.25, 0.6, 0.75, 1.25, 1.9, 3.3, 40], np.float32).reshape(1, 2, 7)
CASES = json.loads((Path(__file__).parent / "qonnx_values.json").read_text())


def _model(op: str, constants: list[Any], attributes: dict[str, Any], version: int, x: bool) -> onnx.ModelProto:
    values = {f"c{place}": np.asarray(value, np.float32) for place, value in enumerate(constants)}
    given = values if x else {"x": X, **values}
    node = helper.make_node(op, ["x", *values], ["y"], domain=DOMAIN, **attributes)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.FLOAT, X.shape)] if x else [], [info("y", TensorProto.FLOAT, X.shape)],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, version)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2].get('rounding_mode', '')}-{case[1]}")
@pytest.mark.parametrize("computed", [True, False], ids=["activation", "weights"])
def test_values_are_those_of_the_package(case: list[Any], computed: bool) -> None:
    op, constants, attributes, version, wanted = case
    module = from_onnx(_model(op, constants, attributes, version, computed), require_quantised=False)
    (found,) = evaluate(module, {"x": X} if computed else {}).values()
    np.testing.assert_allclose(found.ravel(), np.array(wanted, np.float32), rtol=1e-6, atol=0)


def _network(bits: int, activations: int) -> onnx.ModelProto:
    g = QuantisedGraph(4, opset=13)

    def quant(x: str, scale: Any, width: int, signed: int, narrow: int = 0) -> str:
        constants = [g.constant(scale, np.float32), g.constant(0, np.float32), g.constant(width, np.float32)]
        attributes = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
        result: str = g.op("Quant", x, *constants, domain=DOMAIN, **attributes)
        return result

    x = quant(g.input("x", 1, 4, 8, 8), 0.05, 8, 1)
    for inputs in (4, 6):
        w = g.constant(g.random.normal(0, 0.3, (6, inputs, 3, 3)), np.float32)
        scales = g.random.uniform(0.5, 1.5, (6, 1, 1, 1)) / (1 << bits - 1)
        y = g.op("Conv", x, quant(w, scales, bits, 1, 1), pads=[1] * 4)
        x = quant(g.op("Relu", y), 4 / (1 << activations), activations, 0)
    return g.model(x, domains=[DOMAIN], shapes=[(1, 6, 8, 8)])


@pytest.mark.parametrize(("bits", "activations"), [(8, 8), (4, 4), (2, 3), (3, 8), (4, 1)])
def test_a_network_of_few_bits_is_on_the_core(bits: int, activations: int) -> None:
    model = _network(bits, activations)
    compiled = weft.compile(model, target="accel", config="tiny")
    assert all(layer.device == "core" for layer in compiled.layers if layer.macs)
    x = {"x": np.random.default_rng(1).normal(0, 1, (1, 4, 8, 8)).astype(np.float32)}
    (found,) = weft.load(compiled, device="fsim").run(x).values()
    (wanted,) = evaluate(from_onnx(model), x).values()
    step = 4 / (1 << activations)
    assert np.mean(np.abs(found - wanted) > step / 2) < 0.02
    assert len(np.unique(found)) <= 1 << activations
    assert found.max() > 0


def test_what_is_not_computed_is_refused_by_name() -> None:
    g = QuantisedGraph()
    model = g.model(g.op("FloatQuant", g.input("x", 2, 3), domain=DOMAIN), domains=[DOMAIN])
    with pytest.raises(ModelError, match=r"FloatQuant: floats of few bits are not computed; hint: export"):
        from_onnx(model, require_quantised=False)
