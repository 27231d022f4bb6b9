"""Products of bytes that a graph computes in floats, as the integer contract's ``product``, which multiplies bytes.

Where both operands of a product are computed, quantised models mean sums of ``(a - za) * (b - zb)`` over bytes. Floats
hold such sums exactly, and graphs say it so; but an instruction multiplies and adds up four bytes a lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...graph.dtypes import EXACT_IN_FLOAT32, LARGEST_BYTE
from ...graph.ir import Call, Constant, Expr, Span
from ...graph.registry import call

EXACT_SUMS = {"float32": EXACT_IN_FLOAT32, "float64": 1 << 31}
"""Below these sums of whole numbers are exact in such floats, and are whole numbers of 32 bits."""

FEWEST_PRODUCTS = 4
"""That an element adds up: an instruction takes as many at once."""

_BYTES = range(-128, 128)


@dataclass(frozen=True)
class _Bytes:
    """The whole numbers ``q - zero_point``, q int8."""

    q: Expr
    zero_point: int


def as_product_of_bytes(node: Call) -> Expr | None:
    """int32(nn.matmul(float(a) - za, float(b) - zb)) of int8 or uint8 a, b  ->  product(b, a turned around)"""
    match node:
        case Call(op="nn.cast", args=(Call(op="nn.matmul", args=(first, second)) as matmul,)) if node.dtype == "int32":
            pass
        case _:
            return None
    if 0 in (*first.shape, *second.shape) or first.shape[-1] < FEWEST_PRODUCTS:
        return None
    if LARGEST_BYTE**2 * first.shape[-1] >= EXACT_SUMS.get(matmul.dtype, 0):
        return None
    a, b = _whole_bytes(first), _whole_bytes(second)
    if a is None or b is None or isinstance(a.q, Constant) or isinstance(b.q, Constant):
        return None
    span = Span(node.span.merged(matmul.span).nodes, node.span.tensor)
    lead = matmul.shape[:-2]
    left, right = _repeated(a.q, lead), _repeated(b.q, lead)
    (rows, depth), columns, images = left.shape[-2:], right.shape[-1], prod(lead)
    rank, inner = len(left.shape), Span(span.nodes)
    turned = call("transpose", left, perm=(*range(rank - 2), rank - 1, rank - 2), span=inner)
    w = call("reshape", turned, shape=(images, depth, rows, 1), span=inner)
    x = call("reshape", right, shape=(images, depth, columns, 1), span=inner)
    zero_points = (b.zero_point, a.zero_point)
    product = call("product", x, w, depth=depth, outputs=rows, zero_points=zero_points, span=inner)
    return call("reshape", product, shape=node.shape, span=span)


def _whole_bytes(value: Expr) -> _Bytes | None:
    """The bytes and the zero point of which a value of whole numbers is the difference; None for any other."""
    match value:
        case Call(op="nn.cast", args=(Call(op="dequantise") as x,)) if value.dtype == "float64":
            return _whole_bytes(x)
        case Call(op="nn.cast", args=(q,)) if q.dtype in ("int8", "uint8"):
            return _signed(q, 0)
        case Call(op="nn.subtract", args=(Call(op="nn.cast", args=(q,)), Constant() as zero)) if zero.value.size == 1:
            number = float(zero.value.reshape(()))
            return _signed(q, int(number)) if zero.shape == () and number.is_integer() else None
        case Call(op="dequantise", args=(q, Constant() as scale, Constant() as zero)):
            single = scale.shape == zero.shape == () and float(scale.value) == 1
            return _signed(q, int(zero.value)) if single else None
    return None


def _signed(q: Expr, zero_point: int) -> _Bytes | None:
    """int8 values that stand for an int8 or uint8 value."""
    if q.dtype == "uint8":
        q, zero_point = call("to_signed", q, span=Span(q.span.nodes)), zero_point - 128
    return _Bytes(q, zero_point) if q.dtype == "int8" and zero_point in _BYTES else None


def _repeated(value: Expr, lead: tuple[int, ...]) -> Expr:
    """Matrices as often as broadcasting repeats them."""
    shape = (*lead, *value.shape[-2:])
    if prod(shape) == prod(value.shape):
        return value if value.shape == shape else call("reshape", value, shape=shape, span=Span(value.span.nodes))
    return call("expand", value, shape=shape, span=Span(value.span.nodes))
