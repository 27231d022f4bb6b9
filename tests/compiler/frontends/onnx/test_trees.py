"""Ensembles of trees against plain walks from their roots to a leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import helper, numpy_helper
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.graph import Array, evaluate
from weft.compiler.model import CompiledModel

FEATURES, TARGETS = 4, 3
COMPARED = [
    lambda a, b: a <= b, lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a > b, lambda a, b: a == b,
    lambda a, b: a != b,
]  # fmt: skip
MEMBER = 6


class Forest:
    """Random trees, as the attributes of the operator, and their walk."""

    def __init__(self, seed: int, trees: int = 3, modes: tuple[int, ...] = (0, 1, 2, 3, 4, 5, MEMBER)) -> None:
        self.random = np.random.default_rng(seed)
        self.modes = modes
        self.nodes: list[dict[str, Any]] = []
        self.leaves: list[tuple[float, int]] = []
        self.roots = [self.grow(int(self.random.integers(1, 5)))[0] for _ in range(trees)]

    def grow(self, depth: int) -> tuple[int, bool]:
        """A node or leaf with all below it: its number, and whether it is a leaf."""
        if not depth:
            self.leaves.append((float(self.random.integers(-8, 9)) / 4, int(self.random.integers(TARGETS))))
            return len(self.leaves) - 1, True
        number = len(self.nodes)
        mode = int(self.random.choice(self.modes))
        node = {
            "mode": mode, "feature": int(self.random.integers(FEATURES)), "split": float(self.random.integers(3)),
            "missing": int(self.random.integers(2)),
            "members": sorted({float(each) for each in self.random.integers(0, 4, 2)}) if mode == MEMBER else [],
        }  # fmt: skip
        self.nodes.append(node)
        for side in ("true", "false"):
            node[side] = self.grow(int(self.random.integers(depth)))
        return number, False

    def attributes(self, dtype: Any) -> dict[str, Any]:
        def tensor(values: list[float], kind: Any) -> onnx.TensorProto:
            return numpy_helper.from_array(np.array(values, kind))

        members = [each for node in self.nodes if node["mode"] == MEMBER for each in (*node["members"], np.nan)]
        return {
            "n_targets": TARGETS, "tree_roots": self.roots,
            "nodes_featureids": [node["feature"] for node in self.nodes],
            "nodes_modes": tensor([node["mode"] for node in self.nodes], np.uint8),
            "nodes_splits": tensor([node["split"] for node in self.nodes], dtype),
            "nodes_missing_value_tracks_true": [node["missing"] for node in self.nodes],
            **{f"nodes_{side}nodeids": [node[side][0] for node in self.nodes] for side in ("true", "false")},
            **{f"nodes_{side}leafs": [int(node[side][1]) for node in self.nodes] for side in ("true", "false")},
            "leaf_weights": tensor([weight for weight, _ in self.leaves], dtype),
            "leaf_targetids": [target for _, target in self.leaves],
            **({"membership_values": tensor(members, dtype)} if members else {}),
        }  # fmt: skip

    def walk(self, row: Array) -> list[tuple[float, int]]:
        """The leaf of each tree."""
        found = []
        for root in self.roots:
            number, is_leaf = root, False
            while not is_leaf:
                node = self.nodes[number]
                value = float(row[node["feature"]])
                holds = (
                    value in node["members"] if node["mode"] == MEMBER else COMPARED[node["mode"]](value, node["split"])
                )
                holds = holds or (value != value and bool(node["missing"]))
                number, is_leaf = node["true" if holds else "false"]
            found.append(self.leaves[number])
        return found


def model_of(attrs: dict[str, Any], kind: int = onnx.TensorProto.FLOAT, rows: int = 20) -> onnx.ModelProto:
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    ends = [
        [helper.make_tensor_value_info(name, kind, [rows, size])] for name, size in (("x", FEATURES), ("y", TARGETS))
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(helper.make_graph([node], "g", *ends), opset_imports=opsets, ir_version=10)


def inputs(seed: int, dtype: Any) -> Array:
    random = np.random.default_rng(seed)
    values = random.integers(0, 4, (20, FEATURES)).astype(dtype)
    values[random.random(values.shape) < 0.1] = np.nan
    return values


COMBINED = [np.mean, np.sum, np.min, np.max]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", range(4))
def test_trees_are_walked_to_their_leaves(seed: int, how: int) -> None:
    dtype = (np.float32, np.float64)[seed % 2]
    forest, x = Forest(seed), inputs(seed, dtype)
    attrs = {**forest.attributes(dtype), "aggregate_function": how}
    kind = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)[seed % 2]
    (result,) = evaluate(from_onnx(model_of(attrs, kind), require_quantised=False), {"x": x}).values()
    wanted = np.full((len(x), TARGETS), [0, 0, np.finfo(dtype).max, np.finfo(dtype).min][how], dtype)
    for number, row in enumerate(x):
        leaves = forest.walk(row)
        for target in {target for _, target in leaves}:
            said = [weight for weight, other in leaves if other == target]
            wanted[number, target] = sum(said) / len(leaves) if how == 0 else COMBINED[how](said)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_the_cpu_compiles_all_of_it() -> None:
    model = model_of({**Forest(3).attributes(np.float32), "post_transform": 1})
    compiled = weft.compile(model, target="cpu")
    assert isinstance(compiled, CompiledModel)
    assert not [layer.reason for layer in compiled.layers if layer.device == "numpy"]
    x = inputs(1, np.float32)
    wanted = evaluate(from_onnx(model, require_quantised=False), {"x": x})["y"]
    np.testing.assert_allclose(weft.load(compiled).run(x)["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nodes_truenodeids", [0], "numbers for"), ("nodes_featureids", [99], "outside of 0..3"),
        ("leaf_targetids", [99], "outside of 0..2"), ("tree_roots", [1000], "'tree_roots' is outside"),
        ("tree_roots", None, "no tree"), ("membership_values", None, "0 sets of members"),
        ("post_transform", 4, "transform 4"),
        ("aggregate_function", 9, "aggregate_function"),
    ],
)  # fmt: skip
def test_trees_that_are_none_are_refused(name: str, value: Any, message: str) -> None:
    attrs = Forest(5, modes=(0, MEMBER)).attributes(np.float32) | {name: value}
    attrs = {key: given for key, given in attrs.items() if given is not None}
    with pytest.raises(ModelError, match=message):
        from_onnx(model_of(attrs), require_quantised=False)


def test_a_tree_that_leads_back_to_itself_is_refused() -> None:
    attrs = Forest(5, modes=(0,)).attributes(np.float32)
    attrs["nodes_trueleafs"] = [0] * len(attrs["nodes_trueleafs"])
    attrs["nodes_truenodeids"] = [0] * len(attrs["nodes_truenodeids"])
    with pytest.raises(ModelError, match="leads back to itself"):
        from_onnx(model_of(attrs), require_quantised=False)
