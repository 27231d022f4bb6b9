"""Products with constant matrices in every form that exporters leave them in: as integers, behind a quantiser, turned,
with axes of one element, or another matrix for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.model import CompiledModel

DEPTH, OUTPUTS = 12, 20


def product(shape: tuple[int, ...], lead: tuple[int, ...], *, floats: bool, axis: int | None, turned: bool) -> Any:
    """x (..., DEPTH) times (*lead, DEPTH, OUTPUTS), quantised before and after. ``axis``: one scale for each of it."""
    generator = np.random.default_rng(0)
    stored = (*lead, OUTPUTS, DEPTH) if turned else (*lead, DEPTH, OUTPUTS)
    weights = generator.normal(size=stored).astype(np.float32)
    scale = np.float32(0.02) if axis is None else generator.uniform(0.015, 0.03, stored[axis]).astype(np.float32)
    constants = {"s": np.float32(0.05), "z": np.int8(3), "sw": scale, "zw": np.zeros(scale.shape, np.int8)}
    along = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
    ]
    if floats:
        constants["w"] = weights
        nodes.append(helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], **along))
    else:
        shaped = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
        constants["wq"] = np.clip(np.round(weights / shaped), -127, 127).astype(np.int8)
    nodes.append(helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], **along))
    if turned:
        rank = len(stored)
        perm = [*range(rank - 2), rank - 1, rank - 2]
        nodes.append(helper.make_node("Transpose", ["wd"], ["wt"], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["xd", "wt" if turned else "wd"], ["y"]),
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("floats", [False, True], ids=["integers", "floats"])
@pytest.mark.parametrize(("axis", "turned"), [(None, False), (1, False), (0, True), (None, True)])
@pytest.mark.parametrize(
    ("shape", "lead", "one"),
    [
        ((2, DEPTH), (), True),
        ((1, 3, DEPTH), (), True),
        ((1, 3, DEPTH), (1,), True),
        ((3, DEPTH), (1, 1), True),
        ((2, 2, 3, DEPTH), (1, 1), True),
        ((1, 2, 3, DEPTH), (1, 2), False),
        ((2, 3, DEPTH), (2,), False),
    ],
)
def test_one_matrix_is_multiplied_on_the_core_and_others_are_right(
    tmp_path: Path, shape: tuple[int, ...], lead: tuple[int, ...], one: bool, floats: bool, axis: int | None,
    turned: bool,
) -> None:  # fmt: skip
    if lead and axis is not None:
        axis += len(lead)
    path = tmp_path / "model.onnx"
    onnx.save(product(shape, lead, floats=floats, axis=axis, turned=turned), path)
    model = weft.compile(path, "tiny")
    assert isinstance(model, CompiledModel)
    assert any(layer.device == "core" and layer.macs for layer in model.layers) is one
    x = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    (found,) = weft.load(model).run(x).values()
    (expected,) = weft.load(weft.compile(path, target="cpu")).run(x).values()
    np.testing.assert_array_equal(found, expected)
    assert found.std() > 0.1
