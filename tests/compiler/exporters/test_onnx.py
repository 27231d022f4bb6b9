"""ONNX files from graphs: what reads them back, and onnxruntime, computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from weft.compiler.exporters import ExportError, export_onnx
from weft.compiler.frontends import from_onnx
from weft.compiler.graph import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    TensorType,
    Tuple,
    TupleGet,
    TupleType,
    Var,
    evaluate,
)
from weft.compiler.graph.dtypes import is_float, numpy_dtype
from weft.compiler.graph.registry import AS_READ, call, operators
from weft.compiler.graph.visit import topological_order
from weft.compiler.operators import contract, nn
from weft.compiler.operators.random_graphs import random_graph
from weft.compiler.operators.samples import samples_of

from examples.precise import precise_session

from ...quantise.networks import NETWORKS, Weights, convolution, examples, image, module_of, random_network, relu

TYPES = ("float32", "float64", "int32", "uint8", "bool")

WITHOUT_A_FORM = {"nn.block_product", "nn.inverse"}

OTHER_TYPES = {
    ("nn.cumulative_product", "uint8"), ("nn.cumulative_sum", "uint8"), ("nn.less", "bool"),
    ("nn.less_equal", "bool"), ("nn.matmul", "uint8"), ("nn.max_pool", "int32"), ("nn.max_pool_indices", "int32"),
    ("nn.power", "uint8"), ("nn.reduce_mean", "uint8"), ("nn.reduce_product", "uint8"), ("nn.reduce_sum", "uint8"),
}  # fmt: skip

SCALES = {"quantise", "dequantise"}
"""Their samples have computed zero points, which the reader refuses."""


def one_output(value: Expr) -> Module:
    if isinstance(value.type, TupleType):
        value = TupleGet(value, len(value.type.fields) - 1)
    params = tuple(node for node in dict.fromkeys(topological_order(value)) if isinstance(node, Var))
    return Module(Function(params, value, Attrs({"name": "main", "outputs": ("result",)})))


def values(module: Module, seed: int = 0) -> dict[str, Array]:
    """Inputs inside of what every operator takes; no zeros in integers, by which onnxruntime refuses to divide."""
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for param in module.main.params:
        shape, dtype = param.type.shape, param.type.dtype
        if dtype == "bool":
            value = generator.random(shape) < 0.5
        elif is_float(dtype):
            value = generator.uniform(0.1, 0.9, shape)
        else:
            value = generator.integers(1, 4, shape)
        found[param.name] = np.asarray(value).astype(numpy_dtype(dtype))
    return found


def in_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Its rewriting of int8 to uint8 makes average poolings that it then refuses.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = precise_session(model.SerializeToString(), options)
    return [np.asarray(each) for each in session.run(None, inputs)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(entry.name, dtype) for entry in operators() if entry.family in AS_READ for dtype in samples_of(entry)
     if dtype in TYPES and entry.name not in SCALES],
)  # fmt: skip
def test_every_operator_is_read_back_as_it_was_or_is_refused(name: str, dtype: str) -> None:
    module = one_output(samples_of(next(entry for entry in operators() if entry.name == name))[dtype])
    signed = dtype.startswith("int") and name.startswith("nn.shift")
    floored = name == "nn.modulo" and is_float(dtype)
    if name in WITHOUT_A_FORM or signed or floored:
        with pytest.raises(ExportError, match=r"1 call has no form in ONNX:"):
            export_onnx(module)
        return
    inputs = values(module)
    if (name, dtype) in OTHER_TYPES:
        with pytest.raises(ExportError, match="ONNX has these operators for other element types alone"):
            export_onnx(module)
        return
    model = export_onnx(module)
    expected = evaluate(module, inputs)["result"]
    found = evaluate(from_onnx(model, require_quantised=False), inputs)["result"]
    assert found.dtype == expected.dtype
    if name == "nn.batch_norm":  # an epsilon in a file is a float32
        np.testing.assert_allclose(found, expected, rtol=1e-7)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "name", [entry.name for entry in operators() if entry.family in AS_READ and "float32" in samples_of(entry)
             and entry.name not in WITHOUT_A_FORM | SCALES | {"nn.modulo"}],
)  # fmt: skip
def test_onnxruntime_computes_the_same(name: str) -> None:
    module = one_output(samples_of(next(entry for entry in operators() if entry.name == name))["float32"])
    inputs = values(module)
    (found,) = in_onnxruntime(export_onnx(module), inputs)
    np.testing.assert_allclose(found, evaluate(module, inputs)["result"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_are_read_back_as_they_were(seed: int) -> None:
    graph = random_graph(seed)
    try:
        model = export_onnx(graph.module)
    except ExportError:
        return  # each operator's own test says which those are
    expected = evaluate(graph.module, graph.inputs)
    shapes = {param.name: param.type.shape for param in graph.module.main.params}  # sizes of 0 count as open
    found = evaluate(from_onnx(model, shapes, require_quantised=False), graph.inputs)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def scores(module: Module, inputs: dict[str, Array]) -> list[Array]:
    return list(weft.load(weft.compile(module, target="cpu")).run(inputs).values())


@pytest.mark.parametrize("network", ["plain", "residual", "branches", "attention", 3])
def test_quantised_networks_keep_their_integers(network: str | int) -> None:
    """Read back: to the bit. onnxruntime rounds half to even after a product of floats: a step off, here and there."""
    module = random_network(network) if isinstance(network, int) else NETWORKS[network]()
    found = weft.quantise.plan(module)
    ranges = weft.quantise.calibrate(found, examples(module))
    eight = weft.quantise.quantised(found, ranges)
    model = export_onnx(eight)
    inputs = examples(module, 1, seed=3)[0]
    expected = scores(eight, inputs)
    for one, other in zip(expected, scores(from_onnx(model), inputs), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(expected, in_onnxruntime(model, inputs), strict=True):
        step = max(each.scale for each in ranges.values())
        assert np.abs(one - other).max() <= 3 * step
        assert np.mean(np.abs(one - other) > 1e-4 * np.abs(one).max()) < 0.25


def test_what_was_trained_in_eight_bits_has_its_own_scales() -> None:
    module = NETWORKS["residual"]()
    found = weft.quantise.plan(module)
    eight = weft.quantise.trainable(found, weft.quantise.calibrate(found, examples(module)))
    changed = {name: (value * 1.01).astype(np.float32) for name, value in eight.start.items()}
    final = weft.quantise.deployed(eight, changed)
    model = export_onnx(final)
    kinds = {each.data_type for each in model.graph.initializer if each.dims and len(each.dims) == 4}
    assert kinds == {onnx.TensorProto.INT8}
    scales = [onnx.numpy_helper.to_array(each) for each in model.graph.initializer if not each.dims
              and each.data_type == onnx.TensorProto.FLOAT]  # fmt: skip
    wanted = [np.exp2(changed[f"{name}.log2_scale"]) for name in found.values]
    assert all(np.isclose(scale, scales, rtol=1e-6).any() for scale in wanted)  # equal ones stand there once
    assert len(scales) <= len(wanted)
    inputs = examples(module, 1, seed=4)[0]
    np.testing.assert_array_equal(scores(final, inputs)[0], scores(from_onnx(model), inputs)[0])


def test_sums_behind_products_are_their_biases_and_names_stay() -> None:
    w, x = Weights(), image()
    y = relu(convolution(x, w, 4))
    last = nn.add(nn.dense(contract.reshape(y, shape=(1, 144)), w(3, 144, name="kernel")), w(3))
    twice = nn.conv2d(x, w(2, 3, 1, 1))
    module = module_of(last, nn.add(twice, w(1, 2, 1, 1)), twice, params=(x,))
    model = export_onnx(module)
    nodes = [(node.op_type, len(node.input)) for node in model.graph.node]
    assert nodes == [("Conv", 3), ("Relu", 1), ("Reshape", 2), ("Gemm", 3), ("Conv", 2), ("Add", 2)]
    assert [each.name for each in model.graph.input] == ["x"]
    assert [each.name for each in model.graph.output] == ["y0", "y1", "y2"]
    assert "kernel" in {each.name for each in model.graph.initializer}


def test_outputs_may_be_inputs_constants_and_each_other(tmp_path: Path) -> None:
    x = Var("x", TensorType((2, 3), "float32"))
    y = nn.exp(x)
    body = Tuple((x, y, y, Constant(np.arange(3.0, dtype=np.float32), "c")))
    module = Module(Function((x,), body, Attrs({"name": "main", "outputs": ("a", "value", "x_1", "c")})))
    model = export_onnx(module, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == model
    inputs = values(module)
    found = evaluate(from_onnx(model, require_quantised=False), inputs)
    for name, value in evaluate(module, inputs).items():
        np.testing.assert_array_equal(found[name], value)


def test_all_that_has_no_form_is_listed() -> None:
    x = Var("x", TensorType((3, 3), "float32"))
    with pytest.raises(ExportError, match=r"(?s)2 calls have no form in ONNX:.*nn.inverse: there is no such operator.*"
                                          r"nn.modulo: of floats, ONNX has"):  # fmt: skip
        export_onnx(one_output(nn.modulo(nn.inverse(x), x)))
    inner = Call(Function((x,), nn.exp(x), Attrs({"name": "f"})), (x,), Attrs(), x.type)
    with pytest.raises(ExportError, match=r"a fused function: give the module before a target's passes"):
        export_onnx(one_output(inner))
    with pytest.raises(ExportError, match=r"'x' is an input and an output, but ONNX has one name for one value"):
        export_onnx(Module(Function((x,), nn.exp(x), Attrs({"name": "main", "outputs": ("x",)}))))
    small = Var("x", TensorType((3, 3), "int4"))
    with pytest.raises(ExportError, match=r"ONNX has these operators for other element types alone"):
        export_onnx(one_output(contract.concat(small, small, axis=0)))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_last_of_equal_keys_is_found_and_not_a_number_too(dtype: str) -> None:
    keys = [3, 1, 3, np.nan, 0] if dtype == "float32" else [3, 1, 3, 7, 0]
    x = Var("x", TensorType((2, 4), dtype))
    module = one_output(nn.find(x, Constant(np.array(keys, dtype))))
    given = [[3, 1, -0.0, np.nan], [2, 7, 3, 5]] if dtype == "float32" else [[3, 1, 0, 7], [2, 7, 3, 5]]
    inputs = {"x": np.array(given, dtype)}
    (found,) = in_onnxruntime(export_onnx(module), inputs)
    np.testing.assert_array_equal(found, evaluate(module, inputs)["result"])


@pytest.mark.parametrize(("centred", "least"), [(False, -np.inf), (True, 0.3), (False, 2.0)])
def test_boxes_that_are_dropped_leave_rows_of_minus_one(centred: bool, least: float) -> None:
    boxes, scores = Var("boxes", TensorType((2, 6, 4), "float32")), Var("scores", TensorType((2, 3, 6), "float32"))
    module = one_output(call("non_max_suppression", boxes, scores, most=5, overlap=0.1, least=least, centred=centred))
    generator = np.random.default_rng(0)
    inputs = {name: generator.random(each.type.shape).astype(np.float32) for name, each in
              (("boxes", boxes), ("scores", scores))}  # fmt: skip
    (found,) = in_onnxruntime(export_onnx(module), inputs)
    expected = evaluate(module, inputs)["result"]
    assert (expected == -1).any()
    np.testing.assert_array_equal(found, expected)


def test_windows_that_share_their_maximum_add_to_one_place() -> None:
    x = Var("x", TensorType((1, 2, 3, 3), "float32"))
    windows = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
    places = call("nn.max_pool_indices", x, **windows)
    module = one_output(call("nn.unpool", x, places, shape=(1, 2, 3, 3), **windows))
    inputs = {"x": np.random.default_rng(1).permutation(18).reshape(1, 2, 3, 3).astype(np.float32)}
    (found,) = in_onnxruntime(export_onnx(module), inputs)
    np.testing.assert_array_equal(found, evaluate(module, inputs)["result"])
