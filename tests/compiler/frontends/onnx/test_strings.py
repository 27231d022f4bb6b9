"""Models with strings: read, run by every target, written and read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import weft
from onnx import helper
from weft.compiler.frontends import ModelError, NeedsValueError, from_onnx
from weft.compiler.frontends.onnx.specialise import specialise
from weft.compiler.graph import Array, GraphError, Module, constant_table, evaluate, parse, to_text
from weft.compiler.graph.dtypes import STRING, numpy_dtype
from weft.compiler.model import CompiledModel
from weft.compiler.passes.gradient import grad
from weft.compiler.targets.errors import CompileError
from weft.runtime.artifact import from_bytes, to_bytes
from weft.runtime.errors import InputError

TEXT, INT, FLOAT, BOOL = (getattr(onnx.TensorProto, name) for name in ("STRING", "INT64", "FLOAT", "BOOL"))
Tensors = dict[str, tuple[int, Sequence[int]]]


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Tensors, outputs: Tensors, constants: Sequence[onnx.TensorProto] = ()
) -> onnx.ModelProto:
    ends = [[helper.make_tensor_value_info(name, *kind) for name, kind in each.items()] for each in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ends, constants)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)], ir_version=10
    )


def ml(op: str, *args: Any, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, *args, domain="ai.onnx.ml", **attrs)


@pytest.fixture(scope="module")
def mixed() -> Module:
    """Strings and numbers in turn; results that are strings, inputs and constants."""
    nodes = [
        helper.make_node("StringConcat", ["x", "suffix"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"]),
        ml("LabelEncoder", ["c"], ["n"], keys_strings=["a!", "b!"], values_floats=[1.0, 2.0], default_float=-1.0),
        helper.make_node("Mul", ["n", "n"], ["m"]),
        helper.make_node("Cast", ["m"], ["t"], to=TEXT),
        helper.make_node("Concat", ["t", "c"], ["out"], axis=0),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["suffix"], ["const"]),
        helper.make_node("RegexFullMatch", ["out"], ["r"], pattern=r"\d\.\d|a!"),
    ]
    outputs: Tensors = {
        "out": (TEXT, [4, 2]), "same": (TEXT, [4]), "const": (TEXT, [1]), "r": (BOOL, [4, 2]), "m": (FLOAT, [2, 2])
    }  # fmt: skip
    constants = [helper.make_tensor("suffix", TEXT, [1], [b"!"]), helper.make_tensor("shape", INT, [2], [2, 2])]
    return from_onnx(model_of(nodes, {"x": (TEXT, [4])}, outputs, constants), require_quantised=False)


X = np.array(["a", "b", "c", "é\n"], object)


def test_strings_are_read_and_written_as_text(mixed: Module) -> None:
    assert parse(to_text(mixed), constant_table(mixed)) == mixed
    results = evaluate(mixed, {"x": X})
    assert results["out"].tolist() == [["1.0", "1.0"], ["4.0", "1.0"], ["a!", "c!"], ["b!", "é\n!"]]
    assert results["r"].tolist() == [[True, True], [True, True], [True, False], [False, False]]


@pytest.mark.parametrize(("target", "device"), [("cpu", None), ("cuda", "emulated"), ("accel", None)])
def test_every_target_leaves_strings_to_the_host(mixed: Module, target: str, device: str | None) -> None:
    wanted = evaluate(mixed, {"x": X})
    model = weft.compile(mixed, target=target)
    assert isinstance(model, CompiledModel)
    again = from_bytes(to_bytes(model))
    assert to_bytes(again) == to_bytes(model)
    module = weft.load(again, device)
    for given in (X, X.astype(str), X.astype(numpy_dtype(STRING)), np.char.encode(X.astype(str), "utf-8")):
        results = module.run({"x": given})
        assert {name: value.tolist() for name, value in results.items()} == {
            name: value.tolist() for name, value in wanted.items()
        }
        assert all(results[name].dtype == wanted[name].dtype for name in wanted)
    own = {"same": np.empty(4, numpy_dtype(STRING))}
    assert module.run({"x": X}, own)["same"] is own["same"]
    assert own["same"].tolist() == X.tolist()
    reasons = {layer.reason for layer in model.layers if layer.device == "numpy"}
    assert all(reasons)
    compiled = {name for layer in model.layers if layer.device != "numpy" for name in layer.operators}
    assert "nn.multiply" in compiled


def test_strings_that_are_none_are_refused(mixed: Module) -> None:
    module = weft.load(weft.compile(mixed, target="cpu"))
    with pytest.raises(InputError, match=r"input 'x' must be string\[4\], not float64\[4\]"):
        module.run({"x": np.zeros(4)})
    with pytest.raises(InputError, match=r"input 'x': .* not UTF-8"):
        module.run({"x": np.array([b"\xff"] * 4)})
    with pytest.raises(CompileError, match=r"no type string|on the host"):
        weft.compile(mixed, target="cpu", strict=True)


def test_values_without_a_result_are_refused_where_they_come_up() -> None:
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], {"x": (TEXT, [1])}, {"y": (FLOAT, [1])})
    module = weft.load(weft.compile(from_onnx(model, require_quantised=False), target="cpu"))
    assert module.run({"x": np.array(["1e3"])})["y"].tolist() == [1000.0]
    with pytest.raises(InputError, match="node 'Cast_0': 'ten' is no number"):
        module.run({"x": np.array(["ten"])})


def known(node: onnx.NodeProto, x: Array, outputs: int = 1) -> list[Any]:
    """The results of a node whose operand is known while it is read."""
    kinds: Tensors = dict.fromkeys(node.output[:outputs], (TEXT, None))  # type: ignore[dict-item]
    model = model_of([node], {"x": (TEXT, x.shape)}, kinds)
    found = specialise(model, {"x": x})
    return [value.tolist() for value in evaluate(found.module, found.inputs).values()]


def normalised(words: list[Any], **attrs: Any) -> list[Any]:
    (result,) = known(helper.make_node("StringNormalizer", ["x"], ["y"], **attrs), np.array(words, object))
    return result


def test_stop_words_are_dropped_with_or_without_their_case() -> None:
    words = ["Monday", "tuesday", "", "monday"]
    assert normalised(words, stopwords=["monday"]) == ["tuesday", ""]
    assert normalised(words, stopwords=["monday"], is_case_sensitive=1) == ["Monday", "tuesday", ""]
    assert normalised([words], stopwords=["MONDAY"], case_change_action="UPPER") == [["TUESDAY", ""]]
    assert normalised(["a"], stopwords=["a"]) == [""]
    assert normalised([["a"]], stopwords=["a"]) == [[""]]
    assert normalised(words, case_change_action="UPPER") == ["MONDAY", "TUESDAY", "", "MONDAY"]


def test_stop_words_need_strings_that_are_known() -> None:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], stopwords=["a"])
    model = model_of([node], {"x": (TEXT, [2])}, {"y": (TEXT, ["n"])})  # type: ignore[list-item]
    with pytest.raises(NeedsValueError, match="the strings, of which stop words are dropped, must be a constant"):
        from_onnx(model, require_quantised=False)


def test_strings_are_split() -> None:
    node = helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=".", maxsplit=1)
    assert known(node, np.array([["a.b.c", ""]], object), 2) == [[[["a", "b.c"], ["", ""]]], [[2, 1]]]
    blank = helper.make_node("StringSplit", ["x"], ["y", "n"])
    assert known(blank, np.array(["  a  b ", " "], object), 2) == [[["a", "b"], ["", ""]], [2, 0]]
    assert known(blank, np.array([], object), 2) == [[], []]


def run(node: onnx.NodeProto, kind: int, x: Array, result: int) -> list[Any]:
    model = model_of([node], {"x": (kind, x.shape)}, {"y": (result, None)})  # type: ignore[dict-item]
    module = from_onnx(model, require_quantised=False)
    (value,) = weft.load(weft.compile(module, target="cpu")).run({"x": x}).values()
    assert value.tolist() == evaluate(module, {"x": x})["y"].tolist()
    return list(value.tolist())


def test_labels_of_all_types() -> None:
    words = np.array(["b", "a", "z"])
    table = {"keys_strings": ["a", "b", "a"], "values_int64s": [1, 2, 3]}
    assert run(ml("LabelEncoder", ["x"], ["y"], **table), TEXT, words, INT) == [2, 3, -1]
    numbers = np.array([1.0, np.nan, 2.0], np.float32)
    back = {"keys_floats": [float("nan"), 1.0], "values_strings": ["none", "one"]}
    assert run(ml("LabelEncoder", ["x"], ["y"], **back), FLOAT, numbers, TEXT) == ["one", "none", "_Unused"]
    tensors = {
        "keys_tensor": helper.make_tensor("k", INT, [2], [5, 7]),
        "values_tensor": helper.make_tensor("v", FLOAT, [2], [0.5, 0.25]),
        "default_tensor": helper.make_tensor("d", FLOAT, [1], [-1.0]),
    }
    assert run(ml("LabelEncoder", ["x"], ["y"], **tensors), INT, np.array([7, 5, 6]), FLOAT) == [0.25, 0.5, -1.0]
    cats = {"cats_strings": ["a", "b"], "cats_int64s": [10, 20]}
    assert run(ml("CategoryMapper", ["x"], ["y"], **cats, default_int64=-5), TEXT, words, INT) == [20, 10, -5]
    assert run(ml("CategoryMapper", ["x"], ["y"], **cats, default_string="?"), INT, np.array([20, 3]), TEXT) == [
        "b",
        "?",
    ]


def test_labels_that_do_not_fit_are_refused() -> None:
    for attrs, message in (
        ({"keys_strings": ["a"], "values_int64s": [1, 2]}, "1 keys for 2 values"),
        ({"keys_strings": ["a"]}, "one attribute with values"),
        ({"keys_int64s": [1], "values_int64s": [1]}, "the keys must be string"),
    ):
        with pytest.raises(ModelError, match=message):
            run(ml("LabelEncoder", ["x"], ["y"], **attrs), TEXT, np.array(["a"]), INT)


def test_words_are_counted() -> None:
    attrs = {
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "mode": "TF", "ngram_counts": [0, 2],
        "ngram_indexes": [0, 1, 2], "pool_strings": ["a", "b", "a", "b"],
    }  # fmt: skip
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attrs)
    assert run(node, TEXT, np.array(["a", "b", "c", "a"]), FLOAT) == [2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("RegexFullMatch", {"pattern": "(?=a)"}, "invalid perl operator"),
        ("RegexFullMatch", {}, "needs the attribute 'pattern'"),
        ("StringNormalizer", {"case_change_action": "LOWER", "locale": "tr_TR"}, "locale 'tr_TR'"),
        ("StringNormalizer", {"case_change_action": "TITLE"}, "LOWER, UPPER or NONE"),
        ("Neg", {}, "must be"),
        ("ReduceMax", {}, "must be"),
    ],
)
def test_what_cannot_be_read(op: str, attrs: dict[str, Any], message: str) -> None:
    model = model_of([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": (TEXT, [2])}, {"y": (TEXT, [2])})
    with pytest.raises(ModelError, match=message):
        from_onnx(model, require_quantised=False)


def test_constants_and_sequences_of_strings() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_strings=["u", "v"]),
        helper.make_node("Constant", [], ["s"], value_string="w"),
        helper.make_node("SequenceConstruct", ["x", "c"], ["q"]),
        helper.make_node("ConcatFromSequence", ["q"], ["p"], axis=0),
        helper.make_node("StringConcat", ["p", "s"], ["r"]),
        helper.make_node("Unique", ["c"], ["d"]),
        helper.make_node("Equal", ["r", "r"], ["e"]),
        helper.make_node("Where", ["e", "r", "s"], ["f"]),
        helper.make_node("Tile", ["f", "times"], ["y"]),
    ]
    times = helper.make_tensor("times", INT, [1], [2])
    model = model_of(nodes, {"x": (TEXT, [1])}, {"y": (TEXT, [6]), "d": (TEXT, [2])}, [times])
    results = weft.load(weft.compile(model, target="cpu")).run(np.array(["k\0"], object))
    assert results["y"].tolist() == ["k\0w", "uw", "vw"] * 2
    assert results["d"].tolist() == ["u", "v"]


def test_a_loop_over_strings() -> None:
    body = helper.make_graph(
        [helper.make_node("StringConcat", ["s", "x"], ["t"]), helper.make_node("Identity", ["c"], ["d"])], "body",
        [helper.make_tensor_value_info(*each) for each in (("i", INT, []), ("c", BOOL, []), ("s", TEXT, [1]))],
        [helper.make_tensor_value_info(*each) for each in (("d", BOOL, []), ("t", TEXT, [1]))],
    )  # fmt: skip
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    trips = helper.make_tensor("trips", INT, [], [6])
    model = model_of([node], {"x": (TEXT, [1])}, {"y": (TEXT, [1])}, [trips])
    (result,) = weft.load(weft.compile(model, target="cpu")).run(np.array(["ab"])).values()
    assert result.tolist() == ["ab" * 7]


def test_there_is_no_gradient_of_strings(mixed: Module) -> None:
    with pytest.raises(GraphError, match=r"float|string"):
        grad(mixed, wrt="x", of="out")
