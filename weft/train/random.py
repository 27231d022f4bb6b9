"""Random numbers as graphs: functions of a seed, the step and the place, on every target and with any threads.

The generator is Squares (B. Widynski, "Squares: A Fast Counter-Based RNG", arXiv:2004.06278): four squarings of a
64-bit counter times a key, the halves exchanged between them, of which the upper 32 bits are the result.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..compiler.graph import Attrs, Constant, Expr, Function, GraphError, Module, TensorType, Tuple, Var, require_module
from ..compiler.graph.dtypes import FLOATS, numpy_dtype
from ..compiler.graph.visit import topological_order, with_children
from ..compiler.operators import nn
from ..whole import require_mapping, require_number, whole

DRAWS = "draws"
"""The input that counts steps, a scalar; its next value is the output ``next_draws``."""

INDEX_BITS, STREAM_BITS = 32, 12
"""Of a counter: the element in its tensor, and the use of randomness in the graph; the rest counts steps."""

KEY_DIGITS = 8
"""Hexadecimal digits of each half of a key, which are different and none of them 0."""


def key_of(seed: int) -> int:
    """The key for a seed: as its author asks, digits of each half differ, none is 0, and the last one is odd."""
    number = whole(seed)
    if number is None or number < 0:
        raise GraphError(f"seed is {seed!r:.80}, but must be a whole number of at least 0")
    draw = np.random.Generator(np.random.Philox(number))
    digits: list[int] = []
    for half in range(2):
        while True:
            chosen = [int(each) for each in draw.permutation(np.arange(1, 16))[:KEY_DIGITS]]
            if half == 0 or chosen[-1] % 2:
                break
        digits += chosen
    return int("".join(f"{digit:x}" for digit in digits), 16)


def _number(value: int, dtype: str = "uint64") -> Constant:
    return Constant(np.array(value, numpy_dtype(dtype)))


def _places(shape: tuple[int, ...]) -> Expr:
    """The number of each element in row-major order: a sum of one short constant for each axis."""
    total: Expr = Constant(np.zeros((1,) * len(shape), np.uint64))
    stride = 1
    for axis in reversed(range(len(shape))):
        along = np.arange(shape[axis], dtype=np.uint64) * np.uint64(stride)
        total = nn.add(total, Constant(along.reshape([-1 if each == axis else 1 for each in range(len(shape))])))
        stride *= shape[axis]
    return total


def random_bits(draws: Expr, shape: tuple[int, ...], *, seed: int, stream: int) -> Expr:
    """uint32 numbers of a shape. ``draws``: uint64, the step; ``stream``: tells uses in one graph apart."""
    if not 0 <= stream < 1 << STREAM_BITS:
        raise GraphError(f"stream {stream} is not in 0..{(1 << STREAM_BITS) - 1}")
    if int(np.prod(shape, dtype=object)) > 1 << INDEX_BITS:
        raise GraphError(f"a tensor of shape {shape} has more elements than a stream has numbers")
    step = nn.shift_left(draws, _number(STREAM_BITS + INDEX_BITS))
    counter = nn.add(nn.add(_places(shape), _number(stream << INDEX_BITS)), step)
    key = _number(key_of(seed))
    y = nn.multiply(counter, key)
    z = nn.add(y, key)
    x = y
    for term in (y, z, y):
        x = nn.add(nn.multiply(x, x), term)
        x = nn.bitwise_or(nn.shift_right(x, _number(32)), nn.shift_left(x, _number(32)))
    x = nn.add(nn.multiply(x, x), z)
    return nn.cast(nn.shift_right(x, _number(32)), to="uint32")


def dropout(module: Module, rates: Mapping[str, float], *, seed: int = 0) -> Module:
    """The module with dropout behind some of its values (Srivastava et al., 2014), as it is while it trains.

    ``rates``: for the name of a node, or of its result, the share of elements that become 0; all others are divided by
    1 - rate. Which ones follows from ``seed``, the step and the element's place. The module gets an input ``draws``
    (uint64, a scalar) and an output ``next_draws``, one more: a step of training keeps it with its state, so a restored
    one goes on with the same numbers. Raises GraphError for names that no value of floats has, and rates outside 0..1.
    """
    main = require_module(module).main
    if DRAWS in {param.name for param in main.params}:
        raise GraphError(f"an input has the name {DRAWS!r} already", hint="give all rates in one call")
    require_mapping(rates, "rates", GraphError)
    for name, rate in rates.items():
        require_number(rate, f"the rate for {name!r}", GraphError)
        if not 0 <= rate < 1:
            raise GraphError(f"the rate for {name!r} is {rate}, but must be in 0 <= rate < 1")
    draws = Var(DRAWS, TensorType((), "uint64"))
    order = topological_order(main.body)
    last = {name: node for node in order for name in rates
            if name in (node.span.node, node.span.tensor) and isinstance(node.type, TensorType)
            and node.type.dtype in FLOATS and node.children}  # fmt: skip
    missing = [name for name in rates if name not in last]
    if missing:
        raise GraphError(f"no value of floats has the name {missing[0]!r}",
                         hint="names are those of the model's nodes, or of the tensors that they make")  # fmt: skip
    streams = {id(last[name]): (place, name) for place, name in enumerate(rates)}
    twice = [name for name in rates if streams[id(last[name])][1] != name]
    if twice:
        other = streams[id(last[twice[0]])][1]
        raise GraphError(f"{twice[0]!r} and {other!r} are names of the same value", hint="give one rate for it")
    memo: dict[int, Expr] = {}
    for node in order:
        value = with_children(node, tuple(memo[id(child)] for child in node.children))
        if id(node) in streams:
            stream, name = streams[id(node)]
            value = _dropped(value, draws, rates[name], seed, stream)
        memo[id(node)] = value
    body = memo[id(main.body)]
    results = body.fields if isinstance(body, Tuple) else (body,)
    attrs = Attrs(main.attrs).replace(outputs=(*main.output_names, f"next_{DRAWS}"))
    whole = Tuple((*results, nn.add(draws, _number(1))))
    return Module(Function((*main.params, draws), whole, attrs, main.span), module.stage)


def _dropped(value: Expr, draws: Expr, rate: float, seed: int, stream: int) -> Expr:
    bits = random_bits(draws, value.shape, seed=seed, stream=stream)
    stays = nn.less_equal(_number(min(round(rate * 2**32), 2**32 - 1), "uint32"), bits)
    scale = Constant(np.array(1 / (1 - rate), numpy_dtype(value.dtype)))
    return nn.multiply(value, nn.multiply(nn.cast(stays, to=value.dtype), scale))
