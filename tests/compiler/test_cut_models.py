"""Models that have results whose size, or course, depends on the values of a run: what stands before is compiled, the
rest is computed in each run, on every target, as onnxruntime does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from onnx import TensorProto, helper
from weft.compiler.frontends.errors import NeedsValueError
from weft.compiler.model import CutModel
from weft.compiler.targets.cpu.export import export_objects
from weft.compiler.targets.cpu.processor import named_target
from weft.errors import WeftError
from weft.hw.system_config import SystemConfig
from weft.runtime.profile_host import profile_host
from weft.runtime.report import placement_records

from benchmarks.zoo.placement_graph import QuantisedGraph
from examples.precise import precise_session

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


def in_a_branch(g: QuantisedGraph) -> list[str]:
    """The operator stands in a subgraph, whose node has no name; the course is known."""
    y = g.op("Relu", network(g, 4))
    inner = [helper.make_node("Greater", [y, g.constant(0.3, np.float32)], ["large"]),
             helper.make_node("NonZero", ["large"], ["places"])]  # fmt: skip
    branch = helper.make_graph(inner, "branch", [], [onnx.ValueInfoProto(name="places")])
    return [g.op("Cast", g.op("If", g.constant(True, np.bool_), then_branch=branch, else_branch=branch),
                 to=TensorProto.FLOAT), y]  # fmt: skip


def in_a_loop(g: QuantisedGraph) -> list[str]:
    """Two steps, of which each counts what is larger than its own limit."""
    y = g.op("Relu", network(g, 4))
    inner = [
        helper.make_node("Cast", ["turn"], ["limit"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["limit", g.constant(0.2, np.float32)], ["scaled"]),
        helper.make_node("Greater", [y, "scaled"], ["large"]),
        helper.make_node("NonZero", ["large"], ["places"]),
        helper.make_node("Shape", ["places"], ["count"]),
        helper.make_node("Add", ["sum", "count"], ["next"]),
        helper.make_node("Identity", ["goes"], ["on"]),
    ]
    body = helper.make_graph(
        inner, "body",
        [helper.make_tensor_value_info("turn", TensorProto.INT64, []),
         helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
         helper.make_tensor_value_info("sum", TensorProto.INT64, [2])],
        [onnx.ValueInfoProto(name="on"), onnx.ValueInfoProto(name="next")],
    )  # fmt: skip
    start = integers(g, 0, 0)
    total = g.op("Loop", g.constant(2, np.int64), g.constant(True, np.bool_), start, body=body)
    return [g.op("Cast", total, to=TensorProto.FLOAT), y]


def in_the_middle(g: QuantisedGraph) -> list[str]:
    """What follows are products again, of as many rows as there are."""
    y = g.op("Reshape", g.op("Relu", network(g, 4)), integers(g, -1, 4))
    strong = g.op("Greater", g.op("ReduceMax", y, integers(g, 1), keepdims=0), g.constant(0.4, np.float32))
    rows = g.op("Compress", y, strong, axis=0)
    random = np.random.default_rng(7)
    hidden = g.op("Relu", g.op("MatMul", rows, g.constant(random.normal(0, 1, (4, 6)), np.float32)))
    return [g.op("Softmax", g.op("MatMul", hidden, g.constant(random.normal(0, 1, (6, 3)), np.float32)), axis=1)]


def of_a_computed_size(g: QuantisedGraph) -> list[str]:
    """A size that is computed of data: as many columns as the mean says."""
    y = network(g, 4)
    largest = g.op("Floor", g.op("Mul", g.op("ReduceMean", y, keepdims=0), g.constant(300, np.float32)))
    count = g.op("Reshape", g.op("Cast", g.op("Abs", largest), to=TensorProto.INT64), integers(g, 1))
    return [g.op("Slice", g.op("Reshape", y, integers(g, 4, -1)), integers(g, 0), count, integers(g, 1))]


def of_a_computed_course(g: QuantisedGraph) -> list[str]:
    """Branches whose results have different shapes: of equal ones both are computed."""
    y = network(g, 4)
    strong = g.op("Greater", g.op("ReduceMean", y, keepdims=0), g.constant(0, np.float32))

    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, [y], [op])], op, [], [onnx.ValueInfoProto(name=op)])

    return [g.op("If", strong, then_branch=branch("Relu"), else_branch=branch("Flatten"))]


CASES: dict[str, Callable[[QuantisedGraph], list[str]]] = {
    each.__name__: each for each in (
        detector, selected, compressed, unique, on_an_input, one_after_another, in_a_branch, in_a_loop, in_the_middle,
        of_a_computed_size, of_a_computed_course,
    )
}  # fmt: skip


def model_of(name: str) -> onnx.ModelProto:
    g = QuantisedGraph(5)
    model = g.model(*CASES[name](g))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    if name not in ("selected", "unique"):  # names are a choice of the exporter
        for node in model.graph.node:
            node.ClearField("name")
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
    assert "depends on the values of a run" in compiled.last.reason
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
    assert len(sizes) > 1 or name in ("in_a_loop", "of_a_computed_course")


def test_it_is_kept_and_found_again(tmp_path: Path) -> None:
    model = model_of("selected")
    compiled = weft.compile(model, target="cpu")
    again = pickle.loads(pickle.dumps(compiled))
    inputs = inputs_of(model, 1)
    for one, other in zip(weft.load(compiled).run(inputs).values(), weft.load(again).run(inputs).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["cpu", "accel"])
def test_an_artifact_holds_all_of_it(target: str, tmp_path: Path) -> None:
    model = model_of("detector")
    compiled = weft.compile(model, target=target, **TARGETS[target][0])
    weft.save(compiled, tmp_path / "m.weft")
    inputs = inputs_of(model, 2)
    for one, other in zip(weft.load(compiled).run(inputs).items(), weft.load(tmp_path / "m.weft").run(inputs).items(),
                          strict=True):  # fmt: skip
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1], other[1])


def test_an_artifact_whose_tail_takes_what_is_not_there_is_refused(tmp_path: Path) -> None:
    compiled = weft.compile(model_of("selected"), target="cpu")
    assert isinstance(compiled, CutModel)
    tail = replace(compiled.tail, inputs=("elsewhere",))
    weft.save(replace(compiled, tail=tail), tmp_path / "m.weft")
    with pytest.raises(WeftError, match="takes 'elsewhere'"):
        weft.load(tmp_path / "m.weft")
    weft.save(replace(compiled, tail=replace(compiled.tail, model=b"no model")), tmp_path / "m.weft")
    with pytest.raises(WeftError, match="the model"):
        weft.load(tmp_path / "m.weft")


def test_the_compiled_part_is_proved(tmp_path: Path) -> None:
    model = model_of("selected")
    compiled = weft.compile(model, target="accel", config="tiny")
    assert isinstance(compiled, weft.CompiledModel)
    assert weft.certify(compiled, model).proved


def test_what_has_no_place_for_such_results_says_so(tmp_path: Path) -> None:
    compiled = weft.compile(model_of("selected"), target="accel", config="tiny")
    assert isinstance(compiled, weft.CompiledModel)
    module = weft.load(compiled)
    with pytest.raises(WeftError, match="another size in each run"):
        module.run_batch({"x": np.zeros((2, 1, 3, 8, 5), np.float32)})
    with pytest.raises(WeftError, match="another size in each run"):
        weft.load(compiled, system=SystemConfig(cores=(compiled.config,)))
    with pytest.raises(NeedsValueError, match=r"NonZero.*where compilation is not strict"):
        weft.compile(model_of("selected"), target="cpu", strict=True)
    host = weft.compile(model_of("selected"), target="cpu")
    assert isinstance(host, weft.CompiledModel)
    with pytest.raises(WeftError, match="NumPy would run the last part: NonZero"):
        export_objects(host, tmp_path, named_target("host"))


def test_sizes_may_be_open_too() -> None:
    model = model_of("selected")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    types = weft.infer_types(model).types
    assert str(types["t31"]) == "float32[N, 4, 8, 5]"
    assert model.graph.output[0].name not in types
    module = weft.load(weft.compile(model, target="cpu"))
    for seed in range(2):
        inputs = {"x": np.random.default_rng(seed).normal(0, 1, (seed + 1, 3, 8, 5)).astype(np.float32)}
        for result, wanted in zip(module.run(inputs).values(), judged(model, inputs), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)


def test_reports_name_the_last_part_and_profiles_measure_the_rest() -> None:
    model = model_of("selected")
    module = weft.load(weft.compile(model, target="cpu"))
    assert placement_records(module.model)[-1]["operators"] == ["NonZero", "Transpose", "GatherND"]
    assert len(profile_host(module, inputs_of(model, 0), runs=1)) == len(module.model.layers)


def test_integers_that_a_user_can_know_are_asked_for_where_a_module_is_made() -> None:
    """Most of such a model would be computed by NumPy without need. On targets that take open sizes it is compiled for
    the values that a run has (tests/runtime/test_decided_models.py)."""
    g = QuantisedGraph(5)
    size = g.input("size", 2, kind=TensorProto.INT64)
    model = g.model(g.op("Relu", g.op("Reshape", network(g, 4), size)))
    with pytest.raises(NeedsValueError, match=r"Reshape.*weft.from_onnx\(MODEL, values="):
        weft.from_onnx(model)


def test_a_model_of_which_nothing_would_be_compiled_is_refused() -> None:
    g = QuantisedGraph(5)
    model = g.model(g.op("Resize", g.input("x", 1, 1, 4, 4), "", g.input("scales", 4)))
    with pytest.raises(NeedsValueError, match="Resize"):
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
