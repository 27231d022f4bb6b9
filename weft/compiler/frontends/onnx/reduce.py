"""Operators that combine elements along axes."""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Expr
from .node import CONVERTERS, Converted, Converter, Node, converter


def reduction_axes(node: Node, rank: int) -> tuple[int, ...]:
    """The axes, counted from the front, in order; all of them where none is given."""
    axes = node.axes(1)
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({node.checked_axis(axis, rank) for axis in axes}))


def _reduced(
    op: str, before: Callable[[Node, Expr], Expr] | None = None, after: Callable[[Node, Expr], Expr] | None = None
) -> Converter:
    """A reduction of ``before(x)``, and ``after`` of its result."""

    def convert(node: Node) -> Converted:
        x = node.input(0)
        axes, keepdims = reduction_axes(node, len(x.shape)), bool(node.integer("keepdims", 1))
        if not axes and before is None and after is None:
            return x

        def compute(value: Expr) -> Expr:
            value = before(node, value) if before is not None else value
            total: Expr = node.call(op, value, axes=axes, keepdims=keepdims) if axes else value
            return after(node, total) if after is not None else total

        return node.in_float32(x, compute)

    return convert


def _square(node: Node, x: Expr) -> Expr:
    return node.call("nn.multiply", x, x)


def _square_root(node: Node, x: Expr) -> Expr:
    if x.dtype in ("float32", "float64"):
        return node.call("nn.sqrt", x)
    return node.cast(node.call("nn.sqrt", node.cast(x, "float64")), x.dtype)


def _logarithm(node: Node, x: Expr) -> Expr:
    if x.dtype in ("float32", "float64"):
        return node.call("nn.log", x)
    return node.cast(node.call("nn.log", node.cast(x, "float64")), x.dtype)


CONVERTERS["ReduceSum"] = _reduced("nn.reduce_sum")
CONVERTERS["ReduceProd"] = _reduced("nn.reduce_product")
CONVERTERS["ReduceMax"] = _reduced("nn.reduce_max")
CONVERTERS["ReduceMin"] = _reduced("nn.reduce_min")
CONVERTERS["ReduceL1"] = _reduced("nn.reduce_sum", before=lambda node, x: node.call("nn.abs", x))
CONVERTERS["ReduceL2"] = _reduced("nn.reduce_sum", before=_square, after=_square_root)
CONVERTERS["ReduceSumSquare"] = _reduced("nn.reduce_sum", before=_square)
CONVERTERS["ReduceLogSum"] = _reduced("nn.reduce_sum", after=_logarithm)


@converter("ReduceMean")
def _reduce_mean(node: Node) -> Converted:
    x = node.input(0)
    axes, keepdims = reduction_axes(node, len(x.shape)), bool(node.integer("keepdims", 1))
    if not axes:
        return x
    if axes == (2, 3) and len(x.shape) == 4 and x.dtype == "float32" and min(x.shape[2:]):
        mean = node.call("nn.average_pool", x, kernel=x.shape[2:])  # which the accelerator has
        return mean if keepdims else node.reshape(mean, x.shape[:2])
    return node.call("nn.reduce_mean", x, axes=axes, keepdims=keepdims)


@converter("ReduceLogSumExp")
def _reduce_log_sum_exp(node: Node) -> Converted:
    """max + log(sum(exp(x - max))), where an infinite maximum counts as 0."""
    x = node.input(0)
    axes, keepdims = reduction_axes(node, len(x.shape)), bool(node.integer("keepdims", 1))
    if not axes:
        return x

    def compute(value: Expr) -> Expr:
        if not all(value.shape):
            return node.call("nn.log", node.call("nn.reduce_sum", value, axes=axes, keepdims=keepdims))
        largest = node.call("nn.reduce_max", value, axes=axes, keepdims=True)
        finite = node.call("nn.where", node.call("nn.is_infinite", largest), node.like(0, value), largest)
        powers = node.call("nn.exp", node.call("nn.subtract", value, finite))
        total = node.call("nn.log", node.call("nn.reduce_sum", powers, axes=axes, keepdims=keepdims))
        shift = finite if keepdims else node.reshape(finite, total.shape)
        return node.call("nn.add", total, shift)

    if x.dtype in ("int32", "int64", "uint32", "uint64"):
        return node.cast(compute(node.cast(x, "float64")), x.dtype)
    return node.in_float32(x, compute)


def _arg(op: str) -> Converter:
    def convert(node: Node) -> Converted:
        x = node.input(0)
        return node.call(
            op, x, axis=node.axis(len(x.shape), 0), keepdims=bool(node.integer("keepdims", 1)),
            last=bool(node.integer("select_last_index", 0)),
        )  # fmt: skip

    return convert


CONVERTERS["ArgMax"] = _arg("nn.arg_max")
CONVERTERS["ArgMin"] = _arg("nn.arg_min")


def _cumulative(op: str) -> Converter:
    def convert(node: Node) -> Converted:
        x = node.input(0)
        axis = node.checked_axis(int(node.constant(1, "the axis").reshape(())), len(x.shape))
        flags = {name: bool(node.integer(name, 0)) for name in ("exclusive", "reverse")}
        return node.call(op, x, axis=axis, **flags)

    return convert


CONVERTERS["CumSum"] = _cumulative("nn.cumulative_sum")
CONVERTERS["CumProd"] = _cumulative("nn.cumulative_product")
