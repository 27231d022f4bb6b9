"""Files beside an ONNX file that hold its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import ExternalDataInfo, uses_external_data


def external_files(path: str | Path) -> tuple[str, ...]:
    """Names of the files that the tensors of a model are in, beside its own, relative to its folder; none of a file of
    another format."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError:
        return ()
    nodes = [model.graph.node, *(function.node for function in model.functions)]
    tensors = [*_of_graph(model.graph), *(each for some in nodes for each in _of_nodes(some))]
    return tuple(sorted({ExternalDataInfo(each).location for each in tensors if uses_external_data(each)}))


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from _of_graph(graph)
