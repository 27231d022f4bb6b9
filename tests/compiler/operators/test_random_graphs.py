"""Random graphs of all operators and types: they print, read back, evaluate, and every pass keeps what they compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from weft.compiler.graph import Array, Module, TensorType, calls, constant_table, evaluate, operators, parse, to_text
from weft.compiler.graph.dtypes import ARITHMETIC, STRING
from weft.compiler.graph.registry import AS_READ
from weft.compiler.graph.shrink import describe, shrink
from weft.compiler.operators.random_graphs import drawable, random_graph
from weft.compiler.operators.samples import samples_of
from weft.compiler.passes import PassManager, cse, dce, fold_batch_norm, fold_constants, simplify

PASSES = (fold_constants, simplify, fold_batch_norm, cse, dce, simplify)


@pytest.mark.parametrize("block", range(4))
def test_text_values_and_passes(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        graph = random_graph(seed)
        assert random_graph(seed).module == graph.module
        assert parse(to_text(graph.module), constant_table(graph.module)) == graph.module
        PassManager(PASSES, check=True, seed=seed).run(graph.module)


def test_the_drawn_graphs_are_not_all_alike() -> None:
    graphs = [random_graph(seed).module for seed in range(60)]
    nodes = [node for graph in graphs for node in calls(graph.main.body)]
    tensors = [node for node in nodes if isinstance(node.type, TensorType)]
    assert {node.dtype for node in tensors} == set(ARITHMETIC)
    drawn = {entry.name for entry in operators() if entry.family in AS_READ}
    assert {node.op for node in nodes} <= drawn
    assert len({node.op for node in nodes}) > 80
    assert len(nodes) > 60 * 9
    assert any(0 in node.shape for node in tensors)


def test_every_operator_of_a_model_is_drawn() -> None:
    drawn = {entry.name for part in drawable() for entry in part}
    of_numbers = {entry.name for entry in operators() if {*samples_of(entry)} != {STRING}}
    assert drawn == {entry.name for entry in operators() if entry.family in AS_READ} & of_numbers


def test_a_fault_shrinks_to_the_operator_that_has_it() -> None:
    graph = next(g for g in map(random_graph, range(100)) if "nn.softmax" in {c.op for c in calls(g.module.main.body)})

    def fails(module: Module, inputs: Mapping[str, Array]) -> bool:
        assert evaluate(module, inputs)
        return any(node.op == "nn.softmax" for node in calls(module.main.body))

    small, inputs = shrink(graph.module, graph.inputs, fails)
    assert [node.op for node in calls(small.main.body)] == ["nn.softmax"]
    assert "nn.softmax(" in describe(small, inputs)
    (result,) = evaluate(small, inputs).values()
    np.testing.assert_allclose(result.astype(np.float64).sum(axis=calls(small.main.body)[0].attr("axis")), 1, rtol=0.02)
