"""The end of a LiteRT model in an ONNX file: what a cut leaves to NumPy, as one node of a domain of weft's own.

No file of ONNX's has such a node but those that weft writes (`exporters.with_tail`): many of LiteRT's operators have no
form in ONNX. The node has the tail's file, and the names that its tensors have there.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from ....imports import IMPORTS
from ...graph import Constant
from ...graph.tail import Tail
from .node import Converted, Node, converter

DOMAIN = "weft"
OPERATOR = "LitertTail"


def litert_tail(tail: Tail, made: Sequence[str]) -> onnx.NodeProto:
    """The node of a tail. ``made``: of the model's outputs those that it makes."""
    taken, made = list(tail.inputs), list(made)
    return helper.make_node(
        OPERATOR, taken, made, name=OPERATOR, domain=DOMAIN, file=tail.model, takes=taken, makes=made
    )


@converter(f"{DOMAIN}.{OPERATOR}")
def _litert_tail(node: Node) -> Converted:
    given, made = _names(node, "takes", len(node.inputs)), _names(node, "makes", len(node.outputs))
    file = node.attrs.get("file")
    if not isinstance(file, bytes):
        raise node.error("attribute 'file' must be bytes")
    values = {name: node.constant(place, "what it is given") for place, name in enumerate(given)}
    with IMPORTS:  # most models have none
        from ..litert.cut import Finish

    results = Finish(Tail(file, given, made, (), ""))(values)
    missing = [name for name in made if name not in results]
    if missing:
        raise node.error(f"its file makes no {missing[0]!r}", hint="write the model again: weft quantise")
    return tuple(Constant(results[name], tensor, node.span) for name, tensor in zip(made, node.outputs, strict=True))


def _names(node: Node, attribute: str, count: int) -> tuple[str, ...]:
    """Names in the tail's file, one for each tensor of the node."""
    names = node.attrs.get(attribute, [])
    if not isinstance(names, list) or len(names) != count or not all(isinstance(each, bytes) for each in names):
        raise node.error(f"attribute {attribute!r} must be {count} names")
    return tuple(each.decode() for each in names)
