"""Operators that take elements one by one, and softmax and normalisations along the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...graph import Constant, Expr
from ...graph.dtypes import FLOATS
from . import fixed, reference
from .site import Held, Result, Site, channels_first, rule

Formula = Callable[[Site, Expr], Expr]


def _binary(site: Site, compute: Callable[[Expr, Expr], Expr], *, real: bool = True) -> Held:
    (a, b), order = site.together(0, 1, real=real)
    return Held(compute(a, b), order)


@rule("ADD", "SUB")
def _add(site: Site) -> Result:
    op = "add" if site.op == "ADD" else "subtract"
    bytes_sum = reference.summed if site.reference else fixed.weighted_sum
    return bytes_sum(site, op) or _binary(site, lambda a, b: site.activated(site(op, a, b)))


@rule("MUL")
def _multiply(site: Site) -> Result:
    return _binary(site, lambda a, b: site.activated(site("multiply", a, b)))


@rule("DIV")
def _divide(site: Site) -> Result:
    return _binary(site, lambda a, b: site.activated(site("divide", a, b)))


@rule("MAXIMUM", "MINIMUM")
def _extreme(site: Site) -> Result:
    return _binary(site, lambda a, b: site(site.op.lower(), a, b))


@rule("SQUARED_DIFFERENCE")
def _squared_difference(site: Site) -> Result:
    def compute(a: Expr, b: Expr) -> Expr:
        difference = site("subtract", a, b)
        return site("multiply", difference, difference)

    return _binary(site, compute)


@rule("POW")
def _power(site: Site) -> Result:
    return _binary(site, lambda a, b: site("power", a, b))


@rule("FLOOR_DIV")
def _floor_divide(site: Site) -> Result:
    def compute(a: Expr, b: Expr) -> Expr:
        if a.dtype in FLOATS:
            return site("floor", site("divide", a, b))
        return site("divide", site("subtract", a, site("modulo", a, b)), b)

    return _binary(site, compute)


@rule("FLOOR_MOD")
def _floor_modulo(site: Site) -> Result:
    return _binary(site, lambda a, b: site("modulo", a, b))


@rule("ADD_N")
def _add_all(site: Site) -> Result:
    values, order = site.together(*range(len(site.values)))
    total = values[0]
    for value in values[1:]:
        total = site("add", total, value)
    return Held(total, order)


_COMPARISONS: dict[str, Callable[[Site, Expr, Expr], Expr]] = {
    "EQUAL": lambda site, a, b: site("equal", a, b),
    "NOT_EQUAL": lambda site, a, b: site("not", site("equal", a, b)),
    "LESS": lambda site, a, b: site("less", a, b),
    "LESS_EQUAL": lambda site, a, b: site("less_equal", a, b),
    "GREATER": lambda site, a, b: site("less", b, a),
    "GREATER_EQUAL": lambda site, a, b: site("less_equal", b, a),
    "LOGICAL_AND": lambda site, a, b: site("and", a, b),
    "LOGICAL_OR": lambda site, a, b: site("or", a, b),
    "BITWISE_XOR": lambda site, a, b: site("bitwise_xor", a, b),
}


@rule(*_COMPARISONS)
def _compare(site: Site) -> Result:
    fine = [fixed.in_256ths(site, index) for index in (0, 1)] if len(site.values) == 2 else [None]
    if None not in fine:
        site = replace(site, values=tuple(fine), tensors=(None, None))
        (a, b), order = site.together(0, 1, real=False)
        return Held(_COMPARISONS[site.op](site, a, b), order)
    return _binary(site, lambda a, b: _COMPARISONS[site.op](site, a, b))


@rule("RIGHT_SHIFT")
def _right_shift(site: Site) -> Result:
    """A shift by the width and more counts as one by the width less 1."""

    def compute(a: Expr, b: Expr) -> Expr:
        most = np.dtype(a.dtype).itemsize * 8 - 1
        return site("shift_right", a, site("minimum", site("maximum", b, 0), most))

    return _binary(site, compute, real=False)


@rule("LOGICAL_NOT")
def _not(site: Site) -> Result:
    held = site.held(0)
    return Held(site("not", held.expr), held.order)


@rule("SELECT", "SELECT_V2")
def _select(site: Site) -> Result:
    rank = len(site.held(1).order)
    condition = site.held(0)
    if site.op == "SELECT" and len(condition.order) == 1 and rank > 1:  # one truth value for each first axis
        flags = site.reshape(site.raw(0), (condition.shape[0], *(1 for _ in range(rank - 1))))
        return site.call("nn.where", flags, site.ordered(site.real(1)), site.ordered(site.real(2)))
    (flag, a, b), order = site.together(0, 1, 2)
    return Held(site.call("nn.where", flag, a, b), order)


# Functions of one value


def _leaky(site: Site, x: Expr) -> Expr:
    return site.where(site("less", x, 0), site("multiply", x, float(site.option("alpha"))), x)


def _hard_swish(site: Site, x: Expr) -> Expr:
    gate = site.call("nn.clip", site("add", x, 3.0), low=0.0, high=6.0)
    return site("multiply", site("multiply", x, gate), 1 / 6)


def _gelu(site: Site, x: Expr) -> Expr:
    result: Expr = site.onnx("Gelu", x, approximate="tanh" if site.option("approximate") else "none")
    return result


_FUNCTIONS: dict[str, Formula] = {
    "ABS": lambda site, x: site("abs", x),
    "NEG": lambda site, x: site("negative", x),
    "EXP": lambda site, x: site("exp", x),
    "LOG": lambda site, x: site("log", x),
    "SQRT": lambda site, x: site("sqrt", x),
    "RSQRT": lambda site, x: site("divide", site.like(1, x), site("sqrt", x)),
    "SIN": lambda site, x: site("sin", x),
    "COS": lambda site, x: site("cos", x),
    "FLOOR": lambda site, x: site("floor", x),
    "CEIL": lambda site, x: site("ceil", x),
    "ROUND": lambda site, x: site("round", x),
    "SQUARE": lambda site, x: site("multiply", x, x),
    "SIGN": lambda site, x: site("sign", x),
    "RELU": lambda site, x: site.call("nn.clip", x, low=0.0),
    "RELU6": lambda site, x: site.call("nn.clip", x, low=0.0, high=6.0),
    "RELU_N1_TO_1": lambda site, x: site.call("nn.clip", x, low=-1.0, high=1.0),
    "RELU_0_TO_1": lambda site, x: site.call("nn.clip", x, low=0.0, high=1.0),
    "LEAKY_RELU": _leaky,
    "ELU": lambda site, x: site.onnx("Elu", x),
    "GELU": _gelu,
    "HARD_SWISH": _hard_swish,
    "LOGISTIC": lambda site, x: site("sigmoid", x),
    "TANH": lambda site, x: site("tanh", x),
}


@rule(*_FUNCTIONS)
def _function(site: Site) -> Result:
    if site.op == "LEAKY_RELU" and site.reference:
        table = reference.leaky(float(site.option("alpha")))
        found = reference.function(site, lambda x: _leaky(site, x), table)
    elif site.op == "LEAKY_RELU":
        found = fixed.scaled_by_bytes(site, below=float(site.option("alpha")))
    elif site.op in fixed.TABLES:
        found = fixed.corrected(site, lambda x: _FUNCTIONS[site.op](site, x), fixed.TABLES[site.op])
    elif site.op == "SQRT":
        found = fixed.rounded_down(site, lambda x: site("sqrt", x))
    else:
        found = None
    if found is not None:
        return found
    held = site.real(0)
    return Held(_FUNCTIONS[site.op](site, held.expr), held.order)


@rule("PRELU")
def _prelu(site: Site) -> Result:
    (x, slope), order = site.together(0, 1)
    return Held(site.where(site("less", x, 0), site("multiply", x, slope), x), order)


@rule("BUCKETIZE")
def _bucketize(site: Site) -> Result:
    """How many boundaries a value has reached."""
    held = site.real(0)
    total: Expr = site.like(np.zeros(held.expr.shape), "int32")
    for boundary in site.option("boundaries") or ():
        reached: Expr = site("less_equal", site.like(boundary, held.expr), held.expr)
        total = site.call("nn.add", total, site.cast(reached, "int32"))
    return Held(total, held.order)


# Types


@rule("CAST")
def _cast(site: Site) -> Result:
    """Floats are cut towards zero; integers keep their low bits; of complex numbers the real part is taken."""
    held = site.held(0)
    if held.imaginary is not None and site.results[0].dtype == "complex64":
        return held
    to = site.results[0].element
    if held.expr.dtype in FLOATS and to not in FLOATS and to != "bool":
        return Held(site.call("nn.cast", held.expr, to=to), held.order)
    if held.expr.dtype not in FLOATS and to not in FLOATS:
        return Held(site.call("nn.cast", held.expr, to=to, saturate=False), held.order)
    return Held(site.cast(held.expr, to), held.order)


@rule("QUANTIZE")
def _quantise(site: Site) -> Result:
    if site.reference:
        return reference.function(site, lambda x: x, reference.rescaled) or site.real(0)
    return fixed.scaled_by_bytes(site) or site.real(0)


@rule("DEQUANTIZE")
def _dequantise(site: Site) -> Result:
    held = site.real(0)
    if held.expr.dtype not in FLOATS:
        raise site.error("its operand has no scale")
    return Held(site.cast(held.expr, "float32"), held.order)


@rule("FAKE_QUANT")
def _fake_quantise(site: Site) -> Result:
    """Real numbers on a grid of 2**bits steps, moved so that 0 lies on it."""
    low, high, bits = site.option("min"), site.option("max"), site.option("bits")
    if not 2 <= bits <= 16 or not low < high or low > 0 or high < 0:
        raise site.error(f"the range {low:g} to {high:g} in {bits} bits has no grid with 0 on it")
    least, most = int(bool(site.option("narrow"))), (1 << bits) - 1
    scale = (high - low) / (most - least)
    zero = min(max(round(least - low / scale), least), most)
    held = site.real(0)
    bounded = site.call("nn.clip", held.expr, low=(least - zero) * scale, high=(most - zero) * scale)
    steps = site("floor", site("add", site("divide", site("subtract", bounded, (least - zero) * scale), scale), 0.5))
    return Held(site("add", site("multiply", steps, scale), (least - zero) * scale), held.order)


# Along the last axis


@rule("SOFTMAX")
def _softmax(site: Site) -> Result:
    held = site.real(0)
    if not held.order:
        raise site.error("its operand has no axis")
    beta = float(site.option("beta"))
    x = held.expr if beta == 1 else site("multiply", held.expr, beta)
    return Held(site.call("nn.softmax", x, axis=held.place(len(held.order) - 1)), held.order)


@rule("LOG_SOFTMAX")
def _log_softmax(site: Site) -> Result:
    held = site.real(0)
    return Held(site.onnx("LogSoftmax", held.expr, axis=held.place(len(held.order) - 1)), held.order)


@rule("L2_NORMALIZATION")
def _l2_normalisation(site: Site) -> Result:
    held = site.real(0)
    axes = (held.place(len(held.order) - 1),)
    total = site.call("nn.reduce_sum", site("multiply", held.expr, held.expr), axes=axes, keepdims=True)
    return Held(site.activated(site("divide", held.expr, site("maximum", site("sqrt", total), 1e-6))), held.order)


@rule("LOCAL_RESPONSE_NORMALIZATION")
def _local_response(site: Site) -> Result:
    x = site.images(0)
    size = 2 * int(site.option("radius")) + 1
    if not 1 <= size <= 1 << 16:
        raise site.error(f"its radius is {site.option('radius')}")
    result = site.onnx("LRN", x, size=size, alpha=float(site.option("alpha")) * size, beta=float(site.option("beta")),
                       bias=float(site.option("bias")))  # fmt: skip
    return Held(result, channels_first(len(x.shape)))


@rule("ATAN2")
def _angle(site: Site) -> Result:
    """Of the point (x, y), from the quotient's and the signs."""

    def compute(y: Expr, x: Expr) -> Expr:
        inner = site("atan", site("divide", y, x))
        turn = site.where(site("less", y, 0), site.like(-math.pi, y), site.like(math.pi, y))
        left = site.where(site("less", x, 0), site("add", inner, turn), inner)
        none = site("and", site("equal", x, 0), site("equal", y, 0))
        return site.where(none, Constant(np.zeros((), x.dtype)), left)

    return _binary(site, compute)
