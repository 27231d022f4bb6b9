"""Where parameters start: random values as functions of a seed, the same bits on every target.

All that is not exact is one product at the end, so no target can round otherwise than another. A logarithm or a cosine,
of which normal numbers are mostly made, would differ in its last digit; here they are sums of twelve uniform ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..compiler.graph import Array, Attrs, Constant, Expr, Function, GraphError, Module, Tuple, evaluate
from ..compiler.operators import nn
from ..whole import require_mapping, require_number, whole_tuple
from .random import random_bits

FRACTION_BITS = 24
"""Of a uniform number: what a float32 holds."""

WORDS = 6
"""Of 32 bits, each two halves, of which a normal number is the sum."""

HALF_BITS = 16


@dataclass(frozen=True)
class Initial:
    """A float32 tensor of random values. ``size``: the largest magnitude of ``uniform`` ones, the standard deviation of
    ``normal`` ones."""

    shape: tuple[int, ...]
    kind: Literal["uniform", "normal"]
    size: float

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "normal"):
            raise GraphError(f"there are no {self.kind!r} values", hint="uniform or normal")
        _check_shape(self.shape)
        require_number(self.size, "the size of random values", GraphError)
        if not (self.size >= 0 and math.isfinite(self.size)):
            raise GraphError(f"the size of random values is {self.size}, but must be at least 0 and finite")
        if any(size < 0 for size in self.shape):
            raise GraphError(f"there is no tensor of shape {list(self.shape)}")


def uniform(shape: tuple[int, ...], limit: float) -> Initial:
    """Even between -limit and limit, neither of which occurs."""
    return Initial(shape, "uniform", limit)


def normal(shape: tuple[int, ...], deviation: float) -> Initial:
    """Sums of twelve uniform numbers: mean 0, a kurtosis of 2.9 (Gauss has 3), none beyond 6 deviations."""
    return Initial(shape, "normal", deviation)


def glorot(shape: tuple[int, ...], gain: float = 1.0) -> Initial:
    """Uniform, with variance 2 / (inputs + outputs) (Glorot and Bengio, 2010), of weights (outputs, inputs, ...)."""
    require_number(gain, "gain", GraphError)
    inputs, outputs = _fans(shape)
    return uniform(shape, gain * math.sqrt(6 / max(1, inputs + outputs)))


def he(shape: tuple[int, ...], gain: float = math.sqrt(2)) -> Initial:
    """Normal, with deviation gain / sqrt(inputs) (He et al., 2015), of weights (outputs, inputs, ...)."""
    require_number(gain, "gain", GraphError)
    return normal(shape, gain / math.sqrt(max(1, _fans(shape)[0])))


def _check_shape(shape: object) -> None:
    if whole_tuple(shape) is None:
        raise GraphError(f"the shape of random values is {shape!r:.80}, but must be a tuple of whole numbers")


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    _check_shape(shape)
    if len(shape) < 2:
        raise GraphError(f"weights have outputs and inputs, but the shape is {list(shape)}",
                         hint="give normal() or uniform() a size")  # fmt: skip
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def initial_value(of: Initial, draws: Expr, *, seed: int, stream: int) -> Expr:
    """The values as an expression of ``draws`` (uint64, a scalar), see `random_bits`."""
    if of.kind == "uniform":
        # Odd numbers between -2**24 and 2**24: symmetric, and whole in a float32.
        bits = nn.cast(nn.shift_right(random_bits(draws, of.shape, seed=seed, stream=stream), _bits(8)), to="int32")
        whole = nn.subtract(nn.add(bits, bits), _int((1 << FRACTION_BITS) - 1))
        unit = 1 << FRACTION_BITS
    else:
        words = random_bits(draws, (WORDS, *of.shape), seed=seed, stream=stream)
        halves = nn.add(nn.shift_right(words, _bits(HALF_BITS)), nn.bitwise_and(words, _bits((1 << HALF_BITS) - 1)))
        total = nn.reduce_sum(nn.cast(halves, to="int32"), axes=(0,))
        whole = nn.subtract(total, _int(WORDS * ((1 << HALF_BITS) - 1)))
        unit = 1 << HALF_BITS  # the deviation of the sum of twelve
    return nn.multiply(nn.cast(whole, to="float32"), Constant(np.array(of.size / unit, np.float32)))


def initialised(parameters: Mapping[str, Initial | Array], *, seed: int = 0) -> dict[str, Array]:
    """A value for each parameter by name: where a training starts. Arrays stay as they are.

    A value depends on the seed and on the place of its name among all.
    """
    require_mapping(parameters, "parameters", GraphError)
    values: dict[str, Array] = {name: value for name, value in parameters.items() if not isinstance(value, Initial)}
    draws = Constant(np.array(0, np.uint64))
    drawn = {name: initial_value(value, draws, seed=seed, stream=stream)
             for stream, (name, value) in enumerate(parameters.items()) if isinstance(value, Initial)}  # fmt: skip
    if drawn:
        attrs = Attrs({"name": "main", "outputs": tuple(drawn)})
        values |= evaluate(Module(Function((), Tuple(tuple(drawn.values())), attrs)), {})
    return {name: values[name] for name in parameters}


def _bits(value: int) -> Constant:
    return Constant(np.array(value, np.uint32))


def _int(value: int) -> Constant:
    return Constant(np.array(value, np.int32))
