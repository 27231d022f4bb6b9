"""What is said of operators that no converter reads: the nearest names that are read, and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from ...graph import Span
from ..errors import ModelError
from .node import CONVERTERS

_NEAREST = 3

_WAYS_OUT = {
    "com.microsoft": "onnxruntime writes it when it optimises or its tools fuse: save the model before that "
                     "(ORT_DISABLE_ALL keeps ONNX's own operators)",
    "com.microsoft.nchwc": "onnxruntime laid this model out for one processor: save it with ORT_ENABLE_EXTENDED "
                           "or less",
    "com.amd.quark": "let Quark write QuantizeLinear and DequantizeLinear (QDQ format with 8-bit types)",
    "com.vai.quantize": "let Vitis AI's quantiser write QuantizeLinear and DequantizeLinear (QuantFormat.QDQ)",
}  # fmt: skip
_A_FUNCTION = "the model may define it as a function (ModelProto.functions) of operators that are read"


def unknown_operators(nodes: Sequence[tuple[str, str, str]]) -> ModelError:
    """The error for nodes whose operators are not read: name, domain and operator of each, at least one."""
    name, domain, op = nodes[0]
    called = _called(domain, op)
    others = sorted({_called(*other) for _, *other in nodes[1:]} - {called})
    more = f"; neither are {', '.join(map(repr, others))}" if others else ""
    hints = []
    plain = op in CONVERTERS and domain not in ("", "ai.onnx")
    if plain:
        hints.append(f"{op!r} of ONNX's own domain is read")
    nearest = get_close_matches(op, [known for known in CONVERTERS if known != op], _NEAREST, 0.75)
    if nearest and not plain:
        hints.append(f"nearest that are read: {', '.join(nearest)}")
    hints.append(_WAYS_OUT.get(domain, _A_FUNCTION))
    return ModelError(f"operator {called!r} is not supported{more}", at=Span((name,)), hint="; ".join(hints))


def _called(domain: str, op: str) -> str:
    return op if domain in ("", "ai.onnx") else f"{domain}.{op}"
