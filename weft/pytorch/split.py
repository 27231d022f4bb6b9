"""Graphs of which weft compiles a part: PyTorch runs operators without a rule, and those on types that weft lacks."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.utils import _pytree as pytree

from ..compiler.frontends.torch.reader import CREATED, HIGHER_ORDER, NUMBERS, is_read
from ..compiler.frontends.torch.tensors import DTYPES, PARTS


def unread(graph: GraphModule) -> Counter[str]:
    """The operators that weft cannot read, and how often each stands in the graph."""
    return Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function"
                   and isinstance(node.target, torch._ops.OperatorBase) and str(node.target) not in HIGHER_ORDER
                   and not isinstance(node.meta.get("val"), NUMBERS) and not _is_read(node))  # fmt: skip


def split(graph: GraphModule) -> tuple[GraphModule, list[Node]]:
    """``graph`` with all that weft can read in submodules, which return tuples: as few as its order allows. Beside it
    the nodes that call them."""
    parts = CapabilityBasedPartitioner(graph, _Read(), allows_single_node_partition=True).propose_partitions()
    kept = [dict(part.nodes) for part in parts if any(map(_computes, part.nodes))]
    whole = fuse_by_partitions(graph, kept, prefix="weft_", always_return_tuple=True)
    return whole, [node for node in whole.graph.nodes if node.op == "call_module"]


class _Read(OperatorSupportBase):  # type: ignore[misc]
    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node.op == "call_function" and _is_read(node)


def _is_read(node: Node) -> bool:
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and _is_read(node.args[0])
    if not isinstance(node.target, torch._ops.OperatorBase) or not is_read(node):
        return False  # also arithmetic of sizes, and operators that call graphs
    around: list[Any] = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    tensors = [each for each in pytree.tree_leaves(around) if isinstance(each, torch.Tensor)]
    return all((each.dtype in DTYPES or each.dtype in PARTS) and each.layout is torch.strided for each in tensors)


def _computes(node: Node) -> bool:
    """Whether a node is worth a part: PyTorch makes constants as well."""
    return node.target is not operator.getitem and str(node.target) not in CREATED
