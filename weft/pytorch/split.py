"""Graphs of which weft compiles a part: PyTorch runs operators without a rule, those on types that weft lacks, factors
of matrices, and results that are views, where sizes are open."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.utils import _pytree as pytree

from ..compiler.frontends.torch import factors, orthogonal, pivots, rotations
from ..compiler.frontends.torch.reader import CREATED, HIGHER_ORDER, NUMBERS, is_read
from ..compiler.frontends.torch.site import RULES
from ..compiler.frontends.torch.tensors import DTYPES, PARTS

LEFT = "left to PyTorch"
"""In the ``meta`` of nodes that weft could read."""

LAPACKS = frozenset(name for name, rule in RULES.items() if rule.__module__ in
                    {module.__name__ for module in (factors, orthogonal, pivots, rotations)}) | {
    "aten.linalg_inv_ex.default", "aten._linalg_solve_ex.default", "aten._linalg_det.default",
    "aten._linalg_slogdet.default"}  # fmt: skip
"""Operators that PyTorch computes by LAPACK, up to fifty times as fast as weft does by loops over rows."""


def leave_views(graph: GraphModule, *, open_sizes: bool) -> bool:
    """Have PyTorch make results that are views of inputs, or of other values; whether there are any.

    AOTAutograd makes such a result anew from its base: by the same views, or with open sizes by the strides and the
    offset that the graph's result has. An array of its own has others. So it is done for all of them then, else where
    the base does not lie in the order of its shape, as weft's arrays do. Views are made behind all else, once more.
    """
    (output,) = graph.graph.find_nodes(op="output")
    made: dict[Node, Node] = {}
    with graph.graph.inserting_before(output):
        for each in output.args[0]:
            if isinstance(each, Node) and (open_sizes or _order(_root(each)) is not None):
                _copy(graph, each, made)
    output.args = ([made.get(each, each) for each in output.args[0]],)
    graph.recompile()
    return bool(made)


def _copy(graph: GraphModule, node: Node, made: dict[Node, Node]) -> None:
    """Make a view once more, of a base that lies as it was traced."""
    if node in made or (base := _base(node)) is None:
        return
    _copy(graph, base, made)
    if base not in made:
        made[base] = _in_order(graph, base)
    made[node] = graph.graph.node_copy(node, lambda arg: made[arg] if arg is base else arg)
    made[node].meta[LEFT] = True


def _base(node: Node) -> Node | None:
    """What a node is a view of, or a part of views of; None where it is none."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    if node.target is operator.getitem:
        return node.args[0] if _base(node.args[0]) is not None else None
    return node.args[0] if isinstance(node.target, torch._ops.OpOverload) and node.target.is_view else None


def _root(node: Node) -> Node:
    while (base := _base(node)) is not None:
        node = base
    return node


def _order(node: Node) -> list[int] | None:
    """The axes of a computed value as they were traced, from the outermost in memory; None where that is the order of
    the shape."""
    value = node.meta.get("val")
    if node.op == "placeholder" or not isinstance(value, torch.Tensor):
        return None
    strides = _as_traced(value.stride())
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return order if order != sorted(order) else None


def _as_traced(numbers: Sequence[Any]) -> list[int]:
    return [number.node.hint if isinstance(number, torch.SymInt) else number for number in numbers]


def dense_order(node: Any) -> list[int] | None:
    """As `_order`; None also where a value has gaps in memory, or is no tensor."""
    if not isinstance(node, Node) or (order := _order(node)) is None:
        return None
    value, steps = node.meta["val"], 1
    sizes, strides = _as_traced(value.shape), _as_traced(value.stride())
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != steps:
            return None
        steps *= sizes[axis]
    return order


def _in_order(graph: GraphModule, node: Node) -> Node:
    """A value in memory as it was traced, which not all views can do without."""
    if (order := _order(node)) is None:
        return node
    back = [order.index(axis) for axis in range(len(order))]
    turned = graph.graph.call_function(torch.ops.aten.permute.default, (node, order))
    dense = graph.graph.call_function(
        torch.ops.aten.clone.default, (turned,), {"memory_format": torch.contiguous_format}
    )
    laid_out = graph.graph.call_function(torch.ops.aten.permute.default, (dense, back))
    for each in (turned, dense, laid_out):
        each.meta[LEFT] = True
    return laid_out


def unread(graph: GraphModule) -> Counter[str]:
    """The operators that weft cannot read or PyTorch has LAPACK for, and how often each stands in the graph."""
    return Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function"
                   and isinstance(node.target, torch._ops.OperatorBase) and str(node.target) not in HIGHER_ORDER
                   and not isinstance(node.meta.get("val"), NUMBERS) and LEFT not in node.meta
                   and not _is_read(node))  # fmt: skip


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
    if LEFT in node.meta or str(node.target) in LAPACKS:
        return False
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
