"""What a kernel of loops is, whatever its names and constants: what its best schedule depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...graph.ir import Constant, Expr
from .fusion import FusedGroup
from .layouts import Layout


def group_signature(group: FusedGroup, layouts: Mapping[Expr, Layout], layout: Layout) -> str:
    """A text that is the same for groups of the same operators on the same shapes, types and layouts. ``layouts``: of
    the group's inputs; ``layout``: of its result."""
    numbers: dict[Expr, int] = {value: number for number, value in enumerate(group.inputs)}
    inputs = [[str(value.type), _layout(layouts[value])] for value in group.inputs]
    members = []
    for node in group.members:
        operands: list[Any] = [
            f"constant {arg.type}" if isinstance(arg, Constant) else numbers[arg] for arg in node.args
        ]
        numbers[node] = len(numbers)
        attributes = {name: str(value) for name, value in node.attrs.items()}
        members.append([str(node.op), operands, attributes, str(node.type)])
    described = {"inputs": inputs, "members": members, "result": _layout(layout)}
    return json.dumps(described, sort_keys=True, separators=(",", ":"))


def _layout(layout: Layout) -> list[Any]:
    return [layout.block, list(layout.halo), layout.fill]
