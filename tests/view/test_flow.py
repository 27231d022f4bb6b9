"""Who reads what: as the graph says that was compiled."""

from __future__ import annotations

import numpy as np
import onnx
import weft
from onnx import TensorProto, helper
from weft.compiler.graph import Call
from weft.compiler.graph.visit import calls
from weft.compiler.model import CompiledModel
from weft.hw.programs import disassemble
from weft.view.flow import Flow, flow


def flow_of(model: CompiledModel) -> Flow:
    programs = {
        number: disassemble(model.config, step.program)
        for number, step in enumerate(model.steps)
        if step in model.programs
    }
    return flow(model, programs)


def test_programs_of_the_core_read_what_the_packed_graph_says(digits: CompiledModel) -> None:
    assert digits.witness is not None
    nodes = calls(digits.witness.module().main.body)
    name_of = {id(node): name for node, name in zip(nodes, digits.witness.names, strict=True)}
    layers = {layer.output: number for number, layer in enumerate(digits.layers) if layer.device == "core"}
    expected = set()
    for node in nodes:
        if (target := layers.get(name_of[id(node)])) is not None:
            for argument in node.args:
                if isinstance(argument, Call) and (source := layers.get(name_of[id(argument)])) is not None:
                    expected.add((source, target))
    assert expected
    found = {(source, target) for source, target in flow_of(digits).edges if source in layers.values()}
    assert {pair for pair in found if pair[1] in layers.values()} == expected


def test_everything_comes_from_the_input_and_reaches_the_output(digits: CompiledModel) -> None:
    found = flow_of(digits)
    readers: dict[int | str, set[int]] = {}
    for source, target in found.edges:
        readers.setdefault(source, set()).add(target)
    reached, ahead = set[int](), list(readers["image"])
    while ahead:
        layer = ahead.pop()
        if layer not in reached:
            reached.add(layer)
            ahead += readers.get(layer, ())
    assert reached == set(range(len(digits.layers)))
    assert [source for source, _ in found.results] == [len(digits.layers) - 1]


def test_kernels_of_a_processor_read_what_the_graph_says() -> None:
    """A fork, a join, and a result that is also read further down."""
    shape = [1, 8, 12, 12]
    weights = [helper.make_tensor(f"w{n}", TensorProto.FLOAT, [8, 8, 3, 3], np.ones(576, np.float32)) for n in range(3)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], "left", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["c"], "right", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], "below", pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["b"], ["e"], "soft", axis=1),
        helper.make_node("Concat", ["e", "d"], ["y"], "join", axis=1),
    ]
    value = helper.make_tensor_value_info
    outputs = [value("y", TensorProto.FLOAT, [1, 16, 12, 12]), value("b", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "fork", [value("x", TensorProto.FLOAT, shape)], outputs, weights)
    model = weft.compile(onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), target="cpu")
    assert isinstance(model, CompiledModel)
    found = flow_of(model)
    doing = [set(layer.nodes) for layer in model.layers]

    def reads(reader: str, maker: str) -> bool:
        """Whether a way leads from what makes one to what makes the other, over layers of no node or of one of both."""
        ahead = [number for number, nodes in enumerate(doing) if maker in nodes]
        seen = set(ahead)
        while ahead:
            layer = ahead.pop()
            if reader in doing[layer]:
                return True
            for source, target in found.edges:
                if source == layer and target not in seen and doing[target] <= {reader, maker}:
                    seen.add(target)
                    ahead.append(target)
        return False

    for reader, maker in (("left", "first"), ("right", "first"), ("below", "right"), ("soft", "left"), ("join", "soft"),
                          ("join", "below")):  # fmt: skip
        assert reads(reader, maker), (reader, maker, doing, found.edges)
    for reader, maker in (("below", "left"), ("soft", "right"), ("left", "right"), ("right", "left")):
        assert not reads(reader, maker), (reader, maker, doing, found.edges)
    assert {name for _, name in found.results} == {"y", "b"}
