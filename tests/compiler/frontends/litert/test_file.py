"""Files as such: names, open sizes, what is refused and how, damage."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import weft
from ai_edge_litert import schema_py_generated as schema
from weft.compiler.frontends import ModelError, read
from weft.compiler.frontends.litert.flatbuffer import Buffer
from weft.compiler.frontends.litert.schema import ELEMENTS, OPERATORS, OPTIONS
from weft.compiler.graph import calls

from benchmarks.frontends.litert_suite import seeds, survived
from benchmarks.zoo.litert_models import ModelWriter, interpreted, options

MUTATIONS = 400


def _added(open_shape: tuple[int, int] | None = None, names: bool = False) -> bytes:
    """x + 1, of float32[1, 4]."""
    net = ModelWriter()
    x = net.tensor((1, 4), "float32", name="the x", open_shape=open_shape)
    one, y = net.constant([[1.0]], "float32"), net.tensor((1, 4), "float32", name="the y", open_shape=open_shape)
    net.op("ADD", [x, one], [y], options("AddOptions"))
    return net.finish([x], [y], [{"first": x}, {"second": y}] if names else None)


def test_tensors_name_inputs_and_outputs_unless_a_signature_does() -> None:
    source = read(_added())
    assert [each.name for each in source.inputs({})] == ["the x"]
    assert source.output_names == ("the y",)
    signed = weft.load(weft.compile(_added(names=True), target="cpu"))
    assert signed.run({"first": np.ones((1, 4), np.float32)})["second"].tolist() == [[2.0] * 4]


def _two_graphs(operator: str = "ADD", graph: int = 1) -> bytes:
    """``serving_default``: x + 1; ``stepped``: x + variable, which becomes that, after a branch that is known."""
    net = ModelWriter()
    then, otherwise = net.body(), net.body()
    branches = []
    for body, factor in ((then, 3.0), (otherwise, 5.0)):
        x, y = body.tensor((2,), "float32"), body.tensor((2,), "float32")
        body.op("MUL", [x, body.constant(factor, "float32")], [y], options("MulOptions"))
        branches.append(body.number([x], [y]))
    other = net.body()
    x, branch, y = (other.tensor((2,), "float32", name=name) for name in ("x", "branch", "y"))
    made = options("IfOptions", thenSubgraphIndex=branches[0], elseSubgraphIndex=branches[1])
    other.op("IF", [other.constant(True, "bool"), x], [branch], made)
    handle = other.tensor((), "resource")
    before = other.tensor((2,), "float32")
    other.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", sharedName="sum"))
    other.op("READ_VARIABLE", [handle], [before])
    other.op("ADD", [branch, before], [y], options("AddOptions"))
    other.op("ASSIGN_VARIABLE", [handle, y], [])
    number = other.number([x], [y])
    x, y = net.tensor((1, 4), "float32", name="the x"), net.tensor((1, 4), "float32", name="the y")
    net.op(operator, [x, net.constant(1.0, "float32")], [y], options("AddOptions") if operator == "ADD" else None)
    more = {"stepped": (number * graph, ({"first": 0}, {"second": 2}))}
    return net.finish([x], [y], [{"first": x}, {"second": y}], more)


def test_a_signature_is_chosen_with_its_graph_and_what_that_runs() -> None:
    source = weft.from_litert(_two_graphs(), signature="stepped")
    assert source.output_names == ("second", "next_sum")
    loaded = weft.load(weft.compile(source, target="cpu"))
    found = loaded.run({"first": np.array([1, 2], np.float32), "sum": np.array([10, 20], np.float32)})
    assert found["second"].tolist() == found["next_sum"].tolist() == [13, 26]
    for name in (None, "serving_default"):
        assert not weft.from_litert(_two_graphs(), signature=name).variables
    with pytest.raises(ModelError, match=r"no signature 'train'; hint: it has 'serving_default', 'stepped'$"):
        weft.from_litert(_two_graphs(), signature="train")
    with pytest.raises(ModelError, match=r"no signature 'train'; hint: it has none$"):
        weft.from_litert(_added(), signature="train")


def test_only_operators_that_a_signature_runs_must_be_readable() -> None:
    data = _two_graphs("LSH_PROJECTION")
    assert weft.from_litert(data, signature="stepped").output_names == ("second", "next_sum")
    with pytest.raises(ModelError, match="LSH_PROJECTION"):
        weft.from_litert(data)


def test_a_signature_of_no_graph_is_damage() -> None:
    with pytest.raises(ModelError, match="signature 'stepped' is of graph 30 of 4; hint: is it truncated"):
        weft.from_litert(_two_graphs(graph=10))


def test_a_shape_of_no_input_is_refused() -> None:
    with pytest.raises(ModelError, match=r"a shape is given for 'x', but the inputs are 'the x'; hint: name an input"):
        read(_added()).inputs({"x": (1, 4)})


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(_added())
    assert weft.load(weft.compile(path, target="cpu")).run({"the x": np.ones((1, 4), np.float32)})["the y"].max() == 2
    other = tmp_path / "other.tflite"
    other.write_bytes(b"no model at all")
    with pytest.raises(ModelError, match=r"other.tflite' is no LiteRT file"):
        read(other)
    with pytest.raises(ModelError, match=r"missing.tflite' cannot be read"):
        read(tmp_path / "missing.tflite")


def test_sizes_that_a_file_leaves_open_are_chosen_by_a_run() -> None:
    source = read(_added(open_shape=(-1, 4)))
    assert [str(each) for each in source.inputs({})] == ["float32[the x.0, 4]"]
    assert str(source.types({}).types["the y"]) == "float32[the x.0, 4]"
    loaded = weft.load(weft.compile(_added(open_shape=(-1, 4)), target="cpu"))
    for rows in (1, 5):
        assert loaded.run({"the x": np.zeros((rows, 4), np.float32)})["the y"].shape == (rows, 4)
    with pytest.raises(ModelError, match="open"):
        source.module({}, require_quantised=False)


def test_all_operators_that_cannot_be_read_are_named_with_their_places() -> None:
    net = ModelWriter()
    x = net.tensor((2, 4), "float32", name="x")
    a, b = net.tensor((2, 4), "float32", name="a"), net.tensor((2, 4), "float32", name="b")
    net.op("Imagined_PostProcess", [x], [a])
    net.op("LSH_PROJECTION", [x], [a])
    net.op("RANDOM_UNIFORM", [a], [b])
    with pytest.raises(ModelError) as caught:
        read(net.finish([x], [b]))
    text = str(caught.value)
    assert "3 operators of LiteRT cannot be read" in text
    assert "CUSTOM 'Imagined_PostProcess' (1 time, operator 0 ('a')): it is not of LiteRT itself" in text
    assert "LSH_PROJECTION (1 time, operator 1 ('a'))" in text
    assert "RANDOM_UNIFORM (1 time, operator 2 ('b')): it is random" in text


def test_what_is_no_tensor_of_numbers_is_refused_by_name() -> None:
    net = ModelWriter()
    x, y = net.tensor((2,), "string", name="words"), net.tensor((2,), "string")
    net.op("RESHAPE", [x], [y], options("ReshapeOptions", newShape=[2]))
    with pytest.raises(ModelError, match="input 'words' is string"):
        read(net.finish([x], [y])).inputs({})
    net = ModelWriter()
    x, state, y = (net.tensor((2,), "float32", name=name) for name in ("x", "state", "y"))
    net._tensors[state].isVariable = True
    net.op("ADD", [x, state], [y], options("AddOptions"))
    with pytest.raises(ModelError, match="tensor 'state' is a variable"):
        read(net.finish([x], [y])).module({}, require_quantised=False)


def test_models_of_keras_and_tensorflow_are_told_how_to_come(tmp_path: Path) -> None:
    keras = tmp_path / "model.keras"
    keras.write_bytes(b"PK\x03\x04")
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"")
    for path in (keras, saved):
        with pytest.raises(ModelError, match=r"export it: .*from_keras_model"):
            read(path)


def test_between_operators_on_images_nothing_is_moved() -> None:
    """Channels lie behind N from the first convolution to the flattened result, whose weights are turned instead."""
    net = ModelWriter()
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return net.constant(rng.normal(size=shape), "float32")

    x = net.tensor((1, 8, 8, 3), "float32", name="x")
    a, b, c, d, e, f, g = (net.tensor(shape, "float32") for shape in
        ((1, 8, 8, 6), (1, 8, 8, 6), (1, 8, 8, 6), (1, 4, 4, 6), (1, 4, 4, 12), (1, 192), (1, 5)))  # fmt: skip
    conv = options("Conv2DOptions", padding=0, strideH=1, strideW=1, fusedActivationFunction=1)
    net.op("CONV_2D", [x, weights(6, 3, 3, 3), weights(6)], [a], conv)
    net.op("MUL", [a, weights(6)], [b], options("MulOptions"))
    net.op("ADD", [b, a], [c], options("AddOptions"))
    pool = options("Pool2DOptions", padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2)
    net.op("MAX_POOL_2D", [c], [d], pool)
    net.op("CONCATENATION", [d, d], [e], options("ConcatenationOptions", axis=3))
    net.op("RESHAPE", [e], [f], options("ReshapeOptions", newShape=[1, 192]))
    net.op("FULLY_CONNECTED", [f, weights(5, 192), weights(5)], [g], options("FullyConnectedOptions"))
    model = net.finish([x], [g])
    module = read(model).module({}, require_quantised=False)
    moves = [node for node in calls(module.main.body) if node.op == "transpose"]
    assert [move.attr("perm") for move in moves] == [(0, 3, 1, 2), (0, 2, 3, 1)]  # the input; before it is flat
    compiled = weft.compile(model, target="cpu")
    assert sum("transpose" in layer.operators for layer in compiled.layers) <= 2
    image = rng.normal(size=(1, 8, 8, 3)).astype(np.float32)
    (got,) = weft.load(compiled).run({"x": image}).values()
    np.testing.assert_allclose(got, interpreted(model, [image])[0], rtol=1e-4, atol=1e-4)


# The schema


def test_numbers_of_operators_and_types_are_the_schemas() -> None:
    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    assert dict(enumerate(OPERATORS)) == names
    kinds = {value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")}
    assert dict(enumerate(ELEMENTS)) == kinds


def test_fields_of_options_are_the_schemas() -> None:
    """Each is written in the slot of the schema's field of about the same name."""
    kinds = {value: name for name, value in vars(schema.BuiltinOptions).items() if not name.startswith("_")}
    other = {"activation": "fused_activation_function", "count": "values_count", "bits": "num_bits", "dims":
             "squeeze_dims", "multiplier": "depth_multiplier", "filter_w": "filter_width", "filter_h": "filter_height",
             "narrow": "narrow_range", "asymmetric_inputs": "asymmetric_quantize_inputs",
             "dilation_w": "dilation_w_factor", "dilation_h": "dilation_h_factor",
             "dilation_d": "dilation_d_factor", "projection_clip": "proj_clip", "then": "then_subgraph_index",
             "otherwise": "else_subgraph_index", "condition": "cond_subgraph_index",
             "body": "body_subgraph_index", "graph": "init_subgraph_index"}  # fmt: skip
    for name, (kind, fields) in OPTIONS.items():
        for key, field in fields.items():
            words = {("SPLIT", "count"): "num_splits", ("UNPACK", "count"): "num"}.get((name, key), other.get(key, key))
            camel = "".join(word.capitalize() for word in words.split("_"))
            reader = getattr(getattr(schema, kinds[kind]), f"{camel}AsNumpy" if field.is_vector else camel)
            slots = [constant for constant in reader.__code__.co_consts if isinstance(constant, int)]
            assert 4 + 2 * field.slot in slots, (name, key)


# Damage


def test_a_file_may_be_cut_off_anywhere() -> None:
    whole = _added(names=True)
    for size in range(len(whole)):
        if size < 8:
            continue
        with pytest.raises(ModelError, match=r"is not a complete LiteRT file|has \d+ bytes of data"):
            read(whole[:size]).module({}, require_quantised=False)


def test_damaged_files_are_refused_by_one_named_error_each() -> None:
    ends, wrong = survived(seeds(), MUTATIONS, seed=7)
    assert wrong == []
    assert ends["refused"] > MUTATIONS / 4
    assert ends["read"] > MUTATIONS / 20  # changes that keep a file whole reach the rules


def test_vectors_that_lie_on_each_other_do_not_make_a_small_file_large() -> None:
    data = np.zeros(4096, "<u4")
    data[0] = 1000
    buffer = Buffer(data.tobytes(), "it")
    buffer.spend(4 * len(data.tobytes()))
    with pytest.raises(ModelError, match="its parts are larger than the whole"):
        buffer.spend(2000)


def test_a_part_ends_with_the_file() -> None:
    """Python would give what is there of it."""
    buffer = Buffer(bytes(8), "it")
    assert len(buffer.part(4, 4)) == 4
    for place, size in ((4, 5), (-1, 1), (4, -1)):
        with pytest.raises(ModelError, match="it refers to bytes"):
            buffer.part(place, size)


def test_a_distance_does_not_lead_before_the_file() -> None:
    """Python would count from the end."""
    data = bytearray(_added())
    root = int.from_bytes(data[:4], "little")
    data[root : root + 4] = (root + 16).to_bytes(4, "little")
    with pytest.raises(ModelError, match=r"refers to byte -16 of"):
        read(bytes(data))


def test_constants_must_have_all_their_data() -> None:
    net = ModelWriter()
    x, y = net.tensor((4,), "float32"), net.tensor((4,), "float32")
    net.op("ADD", [x, net.tensor((4,), "float32", data=b"\0" * 12)], [y], options("AddOptions"))
    with pytest.raises(ModelError, match=re.escape("of shape [4] has 12 bytes of data, not 16")):
        read(net.finish([x], [y])).module({}, require_quantised=False)


def test_the_example_of_the_manual_runs() -> None:
    page = (Path(__file__).parents[4] / "docs" / "litert.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S):
        exec(compile(block, "litert.md", "exec"), {})
