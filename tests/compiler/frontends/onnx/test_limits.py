"""Models that ask for too much, or for files that are not theirs, are refused by name and at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import weft
from onnx import TensorProto, helper, numpy_helper
from weft.compiler.frontends.errors import ModelError
from weft.compiler.frontends.onnx.reader import from_onnx
from weft.compiler.frontends.onnx.scope import NODES_AT_MOST
from weft.compiler.model import CompiledModel


def model(
    nodes: list[onnx.NodeProto], *, functions: Sequence[onnx.FunctionProto] = (), **graph: object
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    proto = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [1, 4])], [info("y", TensorProto.FLOAT, None)], **graph
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(proto, opset_imports=opsets, functions=functions, ir_version=9)


def read(proto: onnx.ModelProto) -> None:
    started = time.perf_counter()
    try:
        from_onnx(proto.SerializeToString(), require_quantised=False)
    finally:
        assert time.perf_counter() - started < 20


def constant(values: list[int], name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def sparse(dims: list[int], index: int) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    return helper.make_sparse_tensor(values, constant([index], "i"), dims)


@pytest.mark.parametrize(
    ("dims", "index", "message"),
    [
        ([1 << 40, 1 << 20], 0, r"initializer 's' would take 4,611,686,018,427,387,904 bytes, but what is computed"),
        ([4], 9, r"initializer 's' cannot be read: index 9 is out of bounds"),
        ([-4, 4], 0, r"initializer 's' cannot be read: negative dimensions"),
    ],
)
def test_a_sparse_tensor_that_does_not_fit_is_refused(dims: list[int], index: int, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(model([helper.make_node("Add", ["x", "s"], ["y"])], sparse_initializer=[sparse(dims, index)]))


HUGE = [1 << 20, 1 << 20]


@pytest.mark.parametrize(
    ("nodes", "values"),
    [
        ([helper.make_node("ConstantOfShape", ["c"], ["k"])], HUGE),
        (
            [helper.make_node("Expand", ["one", "c"], ["h"]), helper.make_node("ReduceSum", ["h"], ["k"], keepdims=0)],
            HUGE,
        ),
        ([helper.make_node("Tile", ["one", "c"], ["k"])], [1 << 40]),
        ([helper.make_node("Range", ["zero", "many", "step"], ["k"])], [0]),
    ],
    ids=["fill", "expand", "tile", "range"],
)
def test_constants_of_terabytes_are_refused(nodes: list[onnx.NodeProto], values: list[int]) -> None:
    initialisers = [
        constant(values, "c"), constant([1], "one"), *(
            numpy_helper.from_array(np.array(value, np.int64), name)
            for name, value in (("zero", 0), ("many", 1 << 40), ("step", 1))
        ),
    ]  # fmt: skip
    rest = [helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "f"], ["y"])]
    with pytest.raises(ModelError, match=r"would take [\d,]+ bytes, but what is computed while a model is read"):
        read(model([*nodes, *rest], initializer=initialisers))


def function(name: str, *calls: str) -> onnx.FunctionProto:
    """Calls functions one after another."""
    names = ["a", *(f"t{i}" for i in range(len(calls) - 1)), "b"]
    nodes = [helper.make_node(callee, [names[i]], [names[i + 1]], domain="own" if callee.startswith("F") else "")
             for i, callee in enumerate(calls)]  # fmt: skip
    return helper.make_function(
        "own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


@pytest.mark.parametrize("shape", [[1 << 62, 1 << 62, 2], [(1 << 20) + 1, 1 << 20]])
def test_an_input_beyond_all_memory_is_refused(shape: list[int]) -> None:
    """The product of the first sizes wraps to 0 in 64 bits."""
    proto = model([helper.make_node("Relu", ["x"], ["y"])])
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    with pytest.raises(ModelError, match=r"input 'x': a tensor of shape .* has more than 1,099,511,627,776 elements"):
        read(proto)


def test_functions_that_call_themselves_are_refused() -> None:
    functions = function("F0", "Relu", "F1"), function("F1", "F0")
    with pytest.raises(ModelError, match=r"function 'own\.F0' calls itself: own\.F0 -> own\.F1 -> own\.F0"):
        read(model([helper.make_node("F0", ["x"], ["y"], domain="own")], functions=functions))


def test_functions_that_stand_for_any_number_of_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NODES_AT_MOST >= 1 << 20
    monkeypatch.setattr("weft.compiler.frontends.onnx.scope.NODES_AT_MOST", 1000)
    functions = [*(function(f"F{i}", f"F{i + 1}", f"F{i + 1}") for i in range(40)), function("F40", "Relu")]
    with pytest.raises(ModelError, match=r"the model has more than 1,000 nodes, with those of functions and loops"):
        read(model([helper.make_node("F0", ["x"], ["y"], domain="own")], functions=functions))


def test_nodes_in_reverse_order_take_linear_time() -> None:
    names = ["x", *(f"t{i}" for i in range(4000)), "y"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    started = time.perf_counter()
    module = from_onnx(model(nodes[::-1]), require_quantised=False)
    assert time.perf_counter() - started < 15
    assert module.main.output_names == ("y",)


@pytest.mark.parametrize("kind", [99, TensorProto.COMPLEX64, 0])
def test_unknown_element_types_are_refused(kind: int) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])])
    proto.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(ModelError, match=r"input 'x' is (of unknown type \d+|complex64), but must be one of bool"):
        read(proto)
    with pytest.raises(ModelError, match="node 'Cast_0'"):
        read(model([helper.make_node("Cast", ["x"], ["y"], to=kind)]))


def test_bytes_read_no_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = numpy_helper.from_array(np.full((1, 4), 2, np.float32), "w")
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], initializer=[weights])
    onnx.save(proto, "m.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    assert (tmp_path / "data.bin").exists()
    with pytest.raises(ModelError, match=r"initializer 'w' is in another file, .* hint: give the path of the model"):
        from_onnx((tmp_path / "m.onnx").read_bytes(), require_quantised=False)
    compiled = weft.compile(tmp_path / "m.onnx", target="cpu")
    assert isinstance(compiled, CompiledModel)
    np.testing.assert_array_equal(weft.load(compiled).run(np.ones((1, 4), np.float32))["y"], np.full((1, 4), 2))


def test_data_in_a_file_of_an_impossible_name(tmp_path: Path) -> None:
    outside = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="x" * 5000)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[outside]).SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx' is not a valid ONNX file: .*File name too long"):
        from_onnx(path, require_quantised=False)


@pytest.mark.parametrize("rank", [33, 64])
def test_more_dimensions_than_numpy_broadcasts(rank: int) -> None:
    proto = model([helper.make_node("Add", ["x", "x"], ["y"])])
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * (rank - 1) + [3]))
    compiled = weft.compile(proto, target="cpu")
    assert isinstance(compiled, CompiledModel)
    x = np.arange(3, dtype=np.float32).reshape(*[1] * (rank - 1), 3)
    assert weft.load(compiled).run(x)["y"].reshape(-1).tolist() == [0, 2, 4]
