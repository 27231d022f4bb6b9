"""Activation functions of RNN, GRU and LSTM: all that the standard names, with numbers in their order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime.quantization import QuantType, quantize_dynamic
from weft.compiler.frontends import ModelError, from_onnx
from weft.compiler.frontends.onnx.recurrent import FUNCTIONS
from weft.compiler.graph.scan import scans_of

from benchmarks.frontends import operator_sweep, sweep_recurrent
from examples.precise import precise_session


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


def dynamic_lstm(folder: Path, direction: str, kind: str, per_channel: bool) -> tuple[bytes, bytes]:
    """An LSTM in floats, and what onnxruntime's tool makes of it; with uint8 weights the same numbers, moved: the tool
    itself makes int8 only."""
    generator = np.random.default_rng(0)
    directions, hidden = 2 if direction == "bidirectional" else 1, 12
    shapes = {"W": (directions, 4 * hidden, 10), "R": (directions, 4 * hidden, hidden), "B": (directions, 8 * hidden)}
    weights = [numpy_helper.from_array((0.4 * generator.standard_normal(shape)).astype(np.float32), name)
               for name, shape in shapes.items()]  # fmt: skip
    node = helper.make_node("LSTM", ["x", *shapes], ["y", "h", "c"], hidden_size=hidden, direction=direction)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 3, 10])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "g", [x], outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), folder / "f.onnx")
    quantize_dynamic(folder / "f.onnx", folder / "q.onnx", weight_type=QuantType.QInt8, per_channel=per_channel)
    made = onnx.load(folder / "q.onnx")
    if kind == "uint8":
        zeros = {"W": 128, "R": 127}
        for tensor in made.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.int8:  # weights of -127 to 127, and their zero points
                moved = (values.astype(np.int16) + zeros[tensor.name[0]]).astype(np.uint8)
                tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return (folder / "f.onnx").read_bytes(), made.SerializeToString()


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_an_lstm_with_weights_of_bytes_is_onnxruntimes(
    direction: str, kind: str, per_channel: bool, tmp_path: Path
) -> None:
    floats, dynamic = dynamic_lstm(tmp_path, direction, kind, per_channel)
    assert [node.op_type for node in onnx.load_from_string(dynamic).graph.node] == ["DynamicQuantizeLSTM"]
    x = np.random.default_rng(1).standard_normal((7, 3, 10)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # of several, each quantises its part of the batch by itself
    wanted, exact = (precise_session(file, options).run(None, {"x": x}) for file in (dynamic, floats))
    found = weft.load(weft.compile(dynamic, target="cpu")).run({"x": x})
    for array, right, real in zip(found.values(), wanted, exact, strict=True):
        off, error = np.abs(array - right), np.abs(right - real)
        assert np.median(off) < 1e-6, "a state may lie between two steps, and take the other one"
        assert off.max() < error.max() / 2


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def two_directions(
    op: str, batch: int, hidden: int = 6, *, extra: bool = True, **attributes: object
) -> onnx.ModelProto:
    """A bidirectional node over 5 steps of 4 values; ``extra``: sequences have lengths, and states begin anywhere."""
    random, rows = np.random.default_rng(2), GATES[op] * hidden
    shapes = {"w": (2, rows, 4), "r": (2, rows, hidden), "b": (2, 2 * rows)}
    names, states = ["x", *shapes], ["h0", "c0"][: 1 + (op == "LSTM")]
    weights = [numpy_helper.from_array((0.5 * random.standard_normal(shape)).astype(np.float32), name)
               for name, shape in shapes.items()]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, batch, 4])]
    if extra:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [batch]))
        inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, batch, hidden]) for name in states]
        names += ["lengths", *states]
    results = ["y", "h", "c"][: 2 + (op == "LSTM")]
    node = helper.make_node(op, names, results, hidden_size=hidden, direction="bidirectional", **attributes)
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 7])
@pytest.mark.parametrize("op", GATES)
def test_two_directions_give_what_onnxruntime_gives(op: str, batch: int, extra: bool) -> None:
    """Whether they are one loop or two."""
    model, random = two_directions(op, batch, extra=extra), np.random.default_rng(3)
    inputs = {}
    for each in model.graph.input:
        shape = [size.dim_value for size in each.type.tensor_type.shape.dim]
        values = random.integers(1, 6, shape).astype(np.int32), random.standard_normal(shape).astype(np.float32)
        inputs[each.name] = values[each.name != "lengths"]
    wanted = precise_session(model.SerializeToString()).run(None, inputs)
    found = operator_sweep.evaluate(from_onnx(model, require_quantised=False), inputs)
    for array, right in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(array, right, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "hidden", "attributes", "loops"),
    [
        (1, 6, {}, 1), (4, 6, {}, 1), (5, 6, {}, 2), (1, 512, {}, 2),
        (1, 6, {"activations": ["Sigmoid", "Tanh", "Tanh"] * 2}, 1),
        (1, 6, {"activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Relu"]}, 2),
        (1, 6, {"activations": ["HardSigmoid", "Tanh", "Tanh"] * 2, "activation_alpha": [0.2, 0.3]}, 2),
    ],
)  # fmt: skip
def test_directions_that_differ_in_weights_alone_are_one_loop(
    batch: int, hidden: int, attributes: dict[str, object], loops: int
) -> None:
    module = from_onnx(two_directions("LSTM", batch, hidden, extra=False, **attributes), require_quantised=False)
    assert len(scans_of(module.main.body)) == loops
