"""From the QDQ form to the integer contract (docs/integers.md). What is left in floating point goes to the host.

The walk keeps three things for every node of the source: what its value is in integers (`real`), the int8 value that
stands for it (uint8 tensors are represented by int8 ones, 128 lower), and the value as the host would compute it.
Unused expressions are never part of the result, so all three are built eagerly.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..graph import (
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Span,
    Tuple,
    Var,
    call,
    topological_order,
    use_counts,
)
from ..graph.registry import apply
from .cleanup import is_static
from .emit_integers import quantised
from .host import host_call, renumber
from .integer_form import (
    Affine,
    Concatenated,
    IntegerForm,
    Integers,
    Mapped,
    Real,
    Refusal,
    Sum,
    as_affine,
    clipped,
    moved,
    scaled,
    shifted,
    with_span,
)
from .manager import graph_pass

_NO_INTEGER_FORM = "has no integer form and is computed in float32"


@graph_pass("legalise", stage="integer", tolerance=0.25)
def legalise(module: Module) -> Module:
    """The module in integer arithmetic; every host function says why it is one."""
    return _Legaliser(module).run()


class _Legaliser:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.uses = use_counts(module.main.body)
        self.described: dict[int, IntegerForm] = {}
        self.integers: dict[int, Expr] = {}
        self.floats: dict[int, Expr] = {}

    def run(self) -> Module:
        body = self.module.main.body
        for node in topological_order(body):
            if isinstance(node, Tuple):
                continue
            if node.dtype in ("int8", "uint8") and not is_static(node):
                self._eight_bits(node)
            else:
                self._real(node)
        if isinstance(body, Tuple):
            return self.module.with_main(renumber(Tuple(tuple(self._output(item) for item in body.fields), body.span)))
        return self.module.with_main(renumber(self._output(body)))

    def _output(self, node: Expr) -> Expr:
        return self._as_given(node, f"output {node.span.tensor!r} is uint8")

    # Host

    def _host(self, op: str, args: tuple[Expr, ...], attrs: dict[str, object], reason: str, span: Span) -> Expr:
        if all(is_static(arg) for arg in args):
            return call(op, *args, span=span, **attrs)
        return host_call(op, args, attrs, reason, span)

    def _float_on_host(self, node: Expr, reason: str) -> Expr:
        if not isinstance(node, Call) or isinstance(node.op, Function):
            return node
        args = tuple(self._as_given(arg, f"{node.op} works on uint8") for arg in node.args)
        return self._host(node.op, args, dict(node.attrs), reason, node.span)

    def _as_given(self, node: Expr, reason: str) -> Expr:
        """A value as the source has it; ``reason``: why the host needs it so."""
        if id(node) in self.floats:
            return self.floats[id(node)]
        value = self.integers[id(node)]
        return self._host("to_unsigned", (value,), {}, reason, node.span) if node.dtype == "uint8" else value

    # 8-bit values

    def _eight_bits(self, node: Expr) -> None:
        """Find the int8 value that stands for an int8 or uint8 node."""
        match node:
            case Var():
                value: Expr = node
                if node.dtype == "uint8":
                    value = self._host("to_signed", (node,), {}, f"input {node.name!r} is uint8", node.span)
            case Call(op="quantise"):
                value = self._quantise(node)
            case Call(op="reshape" | "transpose" | "concat" as op):
                args = [self._signed(arg) for arg in node.args]
                value = call(op, *args, span=node.span, **node.attrs)
            case Call(op="pad"):
                fill = int(node.attr("value")) - (128 if node.dtype == "uint8" else 0)
                attrs = node.attrs.replace(value=fill)
                value = call("pad", self._signed(node.args[0]), span=node.span, **attrs)
            case Call():
                value = self._float_on_host(node, f"{node.op} has no integer form")
                if node.dtype == "uint8":
                    value = self._host("to_signed", (value,), {}, f"the result of {node.op} is uint8", node.span)
            case _:
                value = node
        self.integers[id(node)] = value

    def _signed(self, node: Expr) -> Expr:
        if id(node) in self.integers:
            return self.integers[id(node)]
        if isinstance(node, Constant) and node.dtype == "uint8":
            return Constant((node.value.astype(np.int16) - 128).astype(np.int8), node.name, node.span)
        return call("to_signed", node, span=node.span) if node.dtype == "uint8" else node

    def _quantise(self, node: Call) -> Expr:
        source, scale, zero_point = node.args
        offset = 128 if node.dtype == "uint8" else 0
        described = self.described[id(source)]
        if not (isinstance(scale, Constant) and isinstance(zero_point, Constant)):
            described = Refusal("its scale is computed while the model runs")
        elif scale.value.ndim:
            described = Refusal("activations with one scale a channel")
        reason = described.reason if isinstance(described, Refusal) else ""
        if isinstance(scale, Constant) and isinstance(zero_point, Constant) and not isinstance(described, Refusal):
            zero = int(zero_point.value) - offset
            result = quantised(described, float(scale.value), zero, node.span)
            if not isinstance(result, Refusal):
                return result
            reason = result.reason
            self.floats[id(source)] = self._float_on_host(source, reason)
        return self._quantise_on_host(node, self.floats[id(source)], reason)

    def _quantise_on_host(self, node: Call, source: Expr, reason: str) -> Expr:
        scale, zero_point = node.args[1:]
        args = (source, self.floats[id(scale)], self._signed(zero_point))
        return self._host("quantise", args, dict(node.attrs), reason, node.span)

    # Real values

    def _real(self, node: Expr) -> None:
        described = self._describe(node)
        self.described[id(node)] = described
        match node:
            case Call(op="dequantise", args=(q, scale, zero_point)) if id(q) in self.integers:
                self.floats[id(node)] = self._dequantise_on_host(node, self.integers[id(q)], scale, zero_point)
            case Call():
                reason = described.reason if isinstance(described, Refusal) else "its result is used as float32"
                self.floats[id(node)] = self._float_on_host(node, reason)
            case _:
                self.floats[id(node)] = node

    def _dequantise_on_host(self, node: Call, q: Expr, scale: Expr, zero_point: Expr) -> Expr:
        reason = "converts integers to float32 for what follows"
        args = (q, self.floats[id(scale)], self._signed(zero_point))
        return self._host("dequantise", args, dict(node.attrs), reason, node.span)

    def _describe(self, node: Expr) -> IntegerForm:
        if is_static(node):
            return Refusal("it is a constant")
        if isinstance(node, Var):
            return Refusal(f"input {node.name!r} is float32")
        if not isinstance(node, Call) or isinstance(node.op, Function):
            return Refusal("it is not an operator")
        name = f"{node.op.removeprefix('nn.')} {node.span.node!r}"
        described = self._describe_call(node, name)
        return described if isinstance(described, Refusal) else with_span(described, node.span)

    def _describe_call(self, node: Call, name: str) -> IntegerForm:
        op = str(node.op)
        match op:
            case "dequantise":
                return self._describe_dequantise(node, name)
            case "nn.conv2d":
                return self._describe_conv(node, name)
            case "nn.dense":
                return self._describe_dense(node, name)
            case "nn.add" | "nn.subtract" | "nn.multiply" | "nn.divide":
                return self._describe_binary(node, op, name)
            case "concat":
                return self._describe_concat(node, name)
        x = self.described.get(id(node.args[0]), Refusal(f"{name} works on 8-bit integers as they are"))
        if isinstance(x, Refusal):
            return x
        match op:
            case "nn.clip":
                return clipped(x, node.attr("low"), node.attr("high"))
            case "nn.max_pool" | "nn.average_pool" if len(node.attr("kernel")) != 2:
                return Refusal(f"{name} has a window of {len(node.attr('kernel'))} axes, not of 2")
            case "nn.max_pool":
                return _max_pool(x, node)
            case "nn.average_pool":
                return _average_pool(x, node, name)
            case "reshape" | "transpose":
                return moved(x, op, dict(node.attrs), node.shape, node.span)
            case "pad":
                return _pad(x, node, name)
        return Refusal(f"{name} {_NO_INTEGER_FORM}")

    def _describe_dequantise(self, node: Call, name: str) -> IntegerForm:
        q, scale, zero_point = node.args
        if id(q) not in self.integers:
            return Refusal(f"{name} is of {q.dtype}, not of 8 bits")
        if not isinstance(scale, Constant) or not isinstance(zero_point, Constant) or scale.value.ndim:
            return Refusal(f"{name} has no single scale that is known at compile time")
        zero = int(zero_point.value) - (128 if q.dtype == "uint8" else 0)
        if not -128 <= zero <= 127:
            return Refusal(f"{name} has a zero point outside of 8 bits")
        exclusive = self.uses.get(q, 0) == 1 and self.uses.get(node, 0) == 1
        return Integers(self.integers[id(q)], float(scale.value), zero, exclusive)

    def _describe_conv(self, node: Call, name: str) -> IntegerForm:
        x = self.described[id(node.args[0])]
        if not isinstance(x, Integers):
            return x if isinstance(x, Refusal) else Refusal(f"the input of {name} is not quantised")
        weights = _weights(node.args[1], name)
        if isinstance(weights, Refusal):
            return weights
        w, scale, w_name = weights
        attrs = node.attrs.replace(pad_value=x.zero_point)
        span = node.span.merged(node.args[1].span)
        accumulator = call("conv2d", x.q, Constant(w, w_name, node.args[1].span), span=span, **attrs)
        return _product(x, accumulator, w, scale, node.shape, span)

    def _describe_dense(self, node: Call, name: str) -> IntegerForm:
        x = self.described[id(node.args[0])]
        if not isinstance(x, Integers):
            return x if isinstance(x, Refusal) else Refusal(f"the input of {name} is not quantised")
        weights = _weights(node.args[1], name)
        if isinstance(weights, Refusal):
            return weights
        w, scale, w_name = weights
        w = w.reshape(*w.shape, 1, 1)
        image = call("reshape", x.q, shape=(*x.shape, 1, 1), span=node.span)
        span = node.span.merged(node.args[1].span)
        constant = Constant(w, w_name, node.args[1].span)
        accumulator = call("conv2d", image, constant, pad_value=x.zero_point, span=span)
        return _product(x, accumulator, w, scale, node.shape, span)

    def _describe_binary(self, node: Call, op: str, name: str) -> IntegerForm:
        a, b = node.args
        if is_static(a) and not is_static(b):
            if op == "nn.divide":
                return Refusal(f"{name} divides by a computed tensor")
            if op == "nn.subtract":
                x = self._with_constant(self.described[id(b)], "nn.multiply", Constant(np.array(-1, np.float32)), name)
                return self._with_constant(x, "nn.add", a, name)
            return self._with_constant(self.described[id(b)], op, a, name)
        if is_static(b):
            return self._with_constant(self.described[id(a)], op, b, name)
        x, y = self.described[id(a)], self.described[id(b)]
        if isinstance(x, Refusal) or isinstance(y, Refusal):
            return x if isinstance(x, Refusal) else y
        if a.shape != b.shape:
            return Refusal(f"{name} broadcasts a computed tensor")
        if len(a.shape) < 2:
            return Refusal(f"{name} works on a tensor without channels")
        match op:
            case "nn.add":
                return _sum(x, y, 1.0, name)
            case "nn.subtract":
                return _sum(x, y, -1.0, name)
            case "nn.multiply" if isinstance(x, Integers) and isinstance(y, Integers):
                return _elementwise_product(x, y, node)
        return Refusal(f"{name} of computed tensors has no integer form here")

    def _with_constant(self, x: IntegerForm, op: str, constant: Expr, name: str) -> IntegerForm:
        if isinstance(x, Refusal):
            return x
        value = _static_value(constant)
        rank = len(x.shape)
        if rank < 2:
            return Refusal(f"{name} works on a tensor without channels")
        shape = (1,) * (rank - value.ndim) + value.shape
        if len(shape) != rank or any(size != 1 for i, size in enumerate(shape) if i != 1):
            return Refusal(f"the constant operand of {name} has the shape {value.shape}, not one value a channel")
        if shape[1] not in (1, x.shape[1]):
            return Refusal(f"{name} broadcasts a computed tensor")
        channel = np.broadcast_to(value.reshape(-1), (x.shape[1],)).astype(np.float64)
        if op == "nn.divide":
            if np.any(channel == 0):
                return Refusal(f"{name} divides by zero")
            return scaled(x, 1 / channel, name)
        if op == "nn.multiply":
            return scaled(x, channel, name)
        return shifted(x, -channel if op == "nn.subtract" else channel, name)

    def _describe_concat(self, node: Call, name: str) -> IntegerForm:
        parts: list[Real] = []
        for arg in node.args:
            part = self.described[id(arg)]
            if isinstance(part, Refusal):
                return part
            parts.append(part)
        return Concatenated(tuple(parts), node.attr("axis"), node.shape)


def _static_value(node: Expr) -> np.ndarray:
    """The value of an expression of constants."""
    values: dict[int, np.ndarray] = {}
    for item in topological_order(node):
        if isinstance(item, Constant):
            values[id(item)] = item.value
        elif isinstance(item, Call):
            values[id(item)] = apply(item, [values[id(arg)] for arg in item.args])
    return values[id(node)]


def _weights(node: Expr, name: str) -> tuple[np.ndarray, np.ndarray, str] | Refusal:
    """int8 weights without zero point (O, ...), their scales (O,), and their name."""
    match node:
        case Call(op="dequantise", args=(Constant() as q, Constant() as scale, Constant() as zero)):
            if scale.value.ndim and node.attr("axis") != 0:
                return Refusal(f"the weights of {name} have one scale along axis {node.attr('axis')}, not a channel")
            shape = (-1,) + (1,) * (q.value.ndim - 1)
            centred = q.value.astype(np.int64) - (zero.value.reshape(shape) if zero.value.ndim else zero.value)
            if centred.min() < -128 or centred.max() > 127:
                return Refusal(
                    f"the weights of {name} minus their zero point are {centred.min()}..{centred.max()}, "
                    "which does not fit int8; quantise the weights symmetrically"
                )
            scales = np.broadcast_to(scale.value.astype(np.float64), (q.value.shape[0],))
            return centred.astype(np.int8), scales, q.name
    return Refusal(f"the weights of {name} are not quantised constants")


def _product(
    x: Integers, accumulator: Expr, w: np.ndarray, scale: np.ndarray, shape: tuple[int, ...], span: Span
) -> Affine:
    axes = tuple(range(1, w.ndim))
    total = w.astype(np.int64).sum(axis=axes)
    peak = np.abs(w.astype(np.int64)).sum(axis=axes) * 255.0
    return Affine(
        accumulator, -x.zero_point * total, x.scale * scale, np.zeros(len(scale)), peak, shape,
        span=span.merged(x.span),
    )  # fmt: skip


def _max_pool(x: Real, node: Call) -> Real:
    def apply_to(q: Expr) -> Expr:
        return call("max_pool", q, span=node.span, **node.attrs)

    if isinstance(x, Integers):
        return replace(x, q=apply_to(x.q), exclusive=False)
    return Mapped(x, apply_to, node.shape)


def _average_pool(x: Real, node: Call, name: str) -> IntegerForm:
    if not isinstance(x, Integers):
        return Refusal(f"the input of {name} is not quantised")
    if any(node.attr("pads")) and not node.attr("count_include_pad"):
        return Refusal(f"{name} divides by a number of elements that differs at the edges")
    if node.attr("dilations") != (1, 1):
        return Refusal(f"{name} is dilated")
    attrs = {key: node.attr(key) for key in ("kernel", "strides", "pads")}
    accumulator = call("sum_pool", x.q, pad_value=x.zero_point, span=node.span, **attrs)
    count = int(np.prod(node.attr("kernel")))
    channels = x.shape[1]
    return Affine(
        accumulator, np.full(channels, -x.zero_point * count, np.int64), np.full(channels, x.scale / count),
        np.zeros(channels), np.full(channels, 256.0 * count), node.shape, span=x.span,
    )  # fmt: skip


def _pad(x: Real, node: Call, name: str) -> IntegerForm:
    if not isinstance(x, Integers):
        return Refusal(f"the input of {name} is not quantised")
    value = node.attr("value") / x.scale + x.zero_point
    if not -128.5 < value < 127.5:  # also where it is infinite or no number
        return Refusal(f"the padding value of {name} is outside of the range of its input")
    padded = call("pad", x.q, pads=node.attr("pads"), value=round(value), span=node.span)
    return replace(x, q=padded, exclusive=False)


def _sum(x: Real, y: Real, sign: float, name: str) -> IntegerForm:
    zero = np.zeros(x.shape[1] if len(x.shape) > 1 else 1)
    sums: list[Sum] = []
    for value in (x, y):
        part = Sum((value,), zero, span=value.span) if isinstance(value, Integers) else value
        if not isinstance(part, Sum) or part.clamped:
            return Refusal(f"{name} adds a tensor that is not quantised; quantise both operands")
        sums.append(part)
    terms = tuple(replace(term, scale=term.scale * sign) for term in sums[1].terms)
    span = sums[0].span.merged(sums[1].span)
    return Sum(sums[0].terms + terms, sums[0].offset + sign * sums[1].offset, span=span)


def _elementwise_product(x: Integers, y: Integers, node: Call) -> Affine:
    def centred(value: Integers) -> Expr:
        if value.zero_point == 0:
            return value.q
        return call("subtract_immediate", value.q, value=value.zero_point, span=node.span)

    channels = x.shape[1]
    return replace(
        as_affine(x), accumulator=call("multiply", centred(x), centred(y), span=node.span),
        correction=np.zeros(channels, np.int64), scale=np.full(channels, x.scale * y.scale),
        peak=np.full(channels, 65536.0), span=x.span.merged(y.span),
    )  # fmt: skip
