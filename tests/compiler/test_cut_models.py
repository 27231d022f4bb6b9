"""Models that end in results whose size depends on the values of a run: the network is compiled, the rest is computed
in each run, on every target, as onnxruntime does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from onnx import TensorProto
from weft.benchmarks.zoo.placement_graph import QuantisedGraph
from weft.compiler.frontends.errors import NeedsValueError
from weft.compiler.model import CutModel
from weft.errors import WeftError
from weft.examples.precise import precise_session
from weft.hw.system_config import SystemConfig
from weft.runtime.profile_host import profile_host
from weft.runtime.report import placement_records

BOXES, CLASSES = 40, 3
TARGETS: dict[str, tuple[dict[str, Any], str | None]] = {
    "cpu": ({}, None), "accel": ({"config": "tiny"}, "fsim"), "cuda": ({}, "emulated"), "opencl": ({}, None),
}  # fmt: skip


def network(g: QuantisedGraph, channels: int) -> str:
    """Two convolutions in 8 bits: (1, ``channels``, 8, 5)."""
    x = g.pair(g.conv(g.pair(g.input("x", 1, 3, 8, 5), 0.02), 3, 8), 0.02)
    return g.op("Tanh", g.pair(g.conv(g.pair(g.op("Relu", x), 0.02), 8, channels), 0.02))


def integers(g: QuantisedGraph, *values: int) -> str:
    return g.constant(values, np.int64)


def detector(g: QuantisedGraph) -> list[str]:
    """As SSD and YOLO are exported with their last step: a least score that is an input's, the kept boxes gathered."""
    made = g.op("Reshape", network(g, 4 + CLASSES), integers(g, 1, 4 + CLASSES, BOXES))
    boxes, logits = g.op("Split", made, g.constant([4, CLASSES], np.int64), axis=1, results=2)
    boxes = g.op("Transpose", boxes, perm=[0, 2, 1])
    scores = g.op("Sigmoid", logits)
    least = g.op("Mul", g.input("least", 1), g.constant([0.5], np.float32))
    most, overlap = integers(g, 7), g.constant([0.3], np.float32)
    kept = g.op("NonMaxSuppression", boxes, scores, most, overlap, least)
    places = g.op("Gather", kept, integers(g, 2), axis=1)
    places = g.op("Squeeze", places, integers(g, 1))
    found = g.op("Gather", g.op("Squeeze", boxes, integers(g, 0)), places, axis=0)
    score = g.op("GatherND", scores, kept)
    count = g.op("Shape", score)
    order = g.op("TopK", score, g.op("Min", count, integers(g, 5)), results=2)
    return [g.op("Gather", found, order[1], axis=0), order[0], g.op("Cast", kept, to=TensorProto.FLOAT)]


def selected(g: QuantisedGraph) -> list[str]:
    """A mask's places, as ``x[x > 0.1]`` is exported; the network's own result beside them."""
    y = g.op("Relu", network(g, 4))
    places = g.op("Transpose", g.op("NonZero", g.op("Greater", y, g.constant(0.1, np.float32))), perm=[1, 0])
    return [g.op("GatherND", y, places), y]


def compressed(g: QuantisedGraph) -> list[str]:
    rows = g.op("Reshape", network(g, 4), integers(g, 4, -1))
    strong = g.op("Greater", g.op("ReduceMax", rows, integers(g, 0), keepdims=0), g.constant(0.4, np.float32))
    return [g.op("Compress", rows, strong, axis=1)]


def unique(g: QuantisedGraph) -> list[str]:
    values, *others = g.op("Unique", g.op("Round", g.op("Mul", network(g, 4), g.constant(5, np.float32))), results=4)
    return [values, *(g.op("Cast", each, to=TensorProto.FLOAT) for each in others)]


def on_an_input(g: QuantisedGraph) -> list[str]:
    """One operator stands before the network, and is none of its inputs; another is an input of the one behind it."""
    rows = g.op("Cast", g.op("NonZero", g.input("mask", 3, 5)), to=TensorProto.FLOAT)
    y = g.op("Reshape", network(g, 4), integers(g, -1))
    many = g.op("Unique", g.op("Round", g.op("Mul", y, g.constant(9, np.float32))), results=1)
    return [rows, g.op("Compress", many, g.op("Greater", many, g.constant(0, np.float32)))]


def one_after_another(g: QuantisedGraph) -> list[str]:
    """Two causes of which neither depends on the other."""
    y = network(g, 4)
    first = g.op("Cast", g.op("NonZero", g.op("Greater", y, g.constant(0.3, np.float32))), to=TensorProto.FLOAT)
    return [first, g.op("Unique", g.op("Floor", y), results=1)]


CASES: dict[str, Callable[[QuantisedGraph], list[str]]] = {
    each.__name__: each for each in (detector, selected, compressed, unique, on_an_input, one_after_another)
}


def model_of(name: str) -> onnx.ModelProto:
    g = QuantisedGraph(5)
    model = g.model(*CASES[name](g))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    made = {"x": random.normal(0, 1, (1, 3, 8, 5)), "least": np.array([1.0 + 0.1 * seed]),
            "mask": random.integers(0, 2, (3, 5))}  # fmt: skip
    return {value.name: made[value.name].astype(np.float32) for value in model.graph.input}


def judged(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    """By onnxruntime without its rewrites: those round biases, which moves results by a step."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(precise_session(model.SerializeToString(), options).run(None, inputs))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_it_runs_as_onnxruntime_runs_it(name: str, target: str) -> None:
    model = model_of(name)
    options, device = TARGETS[target]
    compiled = weft.compile(model, target=target, **options)
    assert isinstance(compiled, CutModel)
    network_on = {"accel": "core", "cpu": "cpu"}.get(target, "gpu")
    assert sum(layer.device == network_on and layer.macs > 0 for layer in compiled.layers) >= 2
    assert compiled.last.device == "numpy"
    assert "size of its result" in compiled.last.reason
    module = weft.load(compiled, device=device) if device else weft.load(compiled)
    sizes = set()
    for seed in range(3):
        inputs = inputs_of(model, seed)
        found = module.run(inputs)
        assert list(found) == [value.name for value in model.graph.output]
        for result, wanted in zip(found.values(), judged(model, inputs), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)
        sizes.add(tuple(result.shape for result in found.values()))
    assert len(sizes) > 1


def test_it_is_kept_and_found_again(tmp_path: Path) -> None:
    model = model_of("selected")
    compiled = weft.compile(model, target="cpu")
    again = pickle.loads(pickle.dumps(compiled))
    inputs = inputs_of(model, 1)
    for one, other in zip(weft.load(compiled).run(inputs).values(), weft.load(again).run(inputs).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_has_no_place_for_such_results_says_so(tmp_path: Path) -> None:
    compiled = weft.compile(model_of("selected"), target="accel", config="tiny")
    assert isinstance(compiled, weft.CompiledModel)
    with pytest.raises(WeftError, match=r"an artifact has fixed sizes.*NonZero: the size of its result"):
        weft.save(compiled, tmp_path / "m.weft")
    module = weft.load(compiled)
    with pytest.raises(WeftError, match="another size in each run"):
        module.run_batch({"x": np.zeros((2, 1, 3, 8, 5), np.float32)})
    with pytest.raises(WeftError, match="another size in each run"):
        weft.load(compiled, system=SystemConfig(cores=(compiled.config,)))
    with pytest.raises(NeedsValueError, match="NonZero"):
        weft.compile(model_of("selected"), target="cpu", strict=True)


def test_reports_name_the_last_part_and_profiles_measure_the_rest() -> None:
    model = model_of("selected")
    module = weft.load(weft.compile(model, target="cpu"))
    assert placement_records(module.model)[-1]["operators"] == ["NonZero", "Transpose", "GatherND"]
    assert len(profile_host(module, inputs_of(model, 0), runs=1)) == len(module.model.layers)


def test_other_causes_are_refused_as_before() -> None:
    """A size that is computed of data, in the middle of a network, decides how it is compiled."""
    g = QuantisedGraph(5)
    y = network(g, 4)
    size = g.op("Cast", g.op("Abs", g.op("ReduceMax", y, keepdims=0)), to=TensorProto.INT64)
    model = g.model(g.op("Reshape", y, g.op("Concat", g.op("Reshape", size, integers(g, 1)), integers(g, -1), axis=0)))
    with pytest.raises(NeedsValueError, match="Reshape"):
        weft.compile(model, target="cpu")


def test_a_value_that_the_rest_does_not_allow_is_an_error_that_names_the_node() -> None:
    g = QuantisedGraph(5)
    y = g.op("Relu", network(g, 4))
    places = g.op("NonZero", g.op("Greater", y, g.constant(1e9, np.float32)))
    best = g.op("TopK", g.op("Cast", g.op("Gather", places, integers(g, 0), axis=0), to=TensorProto.FLOAT),
                integers(g, 3), results=2)  # fmt: skip
    model = g.model(best[0])
    module = weft.load(weft.compile(model, target="cpu"))
    with pytest.raises(WeftError, match="TopK"):
        module.run(inputs_of(model, 0))
