"""Which of the source's tensors the values of a packed module are."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph.ir import Call, Expr, Module
from ....graph.visit import calls, tensor_ends
from .phases import function_of


def inner_tensors(module: Module, names: Mapping[Expr, str]) -> dict[str, str]:
    """By a value's name in ``names``, the source's tensor that it is. The same in the core's layout, made by the host,
    is left out: it is padded.

    The span of a call counts, not those inside of its function, which equal calls share.
    """
    ends = tensor_ends(node for node in calls(module.main.body) if not _is_pack(node))
    return {names[node]: tensor for tensor, node in ends.items()}


def _is_pack(node: Call) -> bool:
    body = function_of(node).body
    return isinstance(body, Call) and body.op == "pack"
