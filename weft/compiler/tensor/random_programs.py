"""Random computations for tests that schedule at random: a few stages that read one another, on small tensors.

Most stay inside their tensors; some read beyond one, which the proof must find and the interpreter runs into.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from .compute import ReduceAxis, Reduction, Tensor, compute, lower, placeholder, product, reduce_axis
from .compute import max as largest
from .compute import min as smallest
from .compute import sum as total
from .evaluate import NUMPY_TYPES
from .expressions import exp, maximum, minimum, select, tanh
from .ir import FLOATS, INTEGER_RANGES, Const, DType, Expr, PrimFunc

Array = npt.NDArray[Any]
Index = tuple[Expr, ...]

TYPES: tuple[DType, ...] = (
    *("int8", "int8", "uint8", "int16", "int32", "int32", "int32", "int64", "uint16"),
    *("float32", "float32", "float64", "float16", "bfloat16"),
)  # fmt: skip
SIZES = (1, 2, 3, 4, 4, 5, 7, 8)
STAGES = (1, 2, 2, 3, 3)
MOST_IN_A_TENSOR = 600
STRAY = 0.04
"""How often a stage may read beyond its operand."""


def random_program(chance: random.Random) -> PrimFunc:
    """A function of one to three stages, not scheduled yet."""
    maker = _Maker(chance)
    for _ in range(chance.choice(STAGES)):
        maker.add()
    read = {source.name for tensor in maker.stages for source in tensor.inputs}
    outputs = [tensor for tensor in maker.stages if tensor.name not in read or chance.random() < 0.1]
    return lower(outputs, name="drawn")


def random_array(chance: random.Random, shape: tuple[int, ...], dtype: DType) -> Array:
    """Any integers; floats with few bits, so that sums of them are exact in whatever order they are added."""
    generator = np.random.default_rng(chance.getrandbits(32))
    if dtype in FLOATS:
        return (generator.integers(-8, 9, shape) / 4).astype(NUMPY_TYPES[dtype])
    low, high = INTEGER_RANGES[dtype]
    return generator.integers(low, high, shape, NUMPY_TYPES[dtype], endpoint=True)


@dataclass
class _Maker:
    """A computation under construction."""

    chance: random.Random
    leaves: list[Tensor] = field(default_factory=list)
    stages: list[Tensor] = field(default_factory=list)
    axes: int = 0

    def add(self) -> None:
        """One more stage, which reads the last one more often than not."""
        known = [*self.leaves, *self.stages]
        source = self.stages[-1] if self.stages and self.chance.random() < 0.8 else None
        source = source or (self.chance.choice(known) if known and self.chance.random() < 0.3 else self.leaf())
        self.chance.choice(KINDS)(self, source)

    def leaf(self, shape: tuple[int, ...] | None = None, dtype: DType | None = None) -> Tensor:
        chance = self.chance
        if shape is None:
            shape = tuple(chance.choice(SIZES) for _ in range(chance.choice((1, 2, 2, 3))))
        drawn: DType = chance.choice(TYPES)
        tensor = placeholder(shape, dtype or drawn, f"x{len(self.leaves)}")
        self.leaves.append(tensor)
        return tensor

    def stage(self, shape: tuple[int, ...], value: Callable[[Index], Any]) -> None:
        """A stage; one that would be large has less of its last axes."""
        while int(np.prod(shape)) > MOST_IN_A_TENSOR:
            place = shape.index(max(shape))
            shape = (*shape[:place], (shape[place] + 1) // 2, *shape[place + 1 :])
        self.stages.append(compute(shape, lambda *index: value(index), f"s{len(self.stages)}"))

    def arithmetic(self, x: Expr, others: tuple[Expr, ...] = ()) -> Expr:
        """One to three operators on an element."""
        chance = self.chance
        for _ in range(chance.randint(1, 3)):
            dtype = x.dtype
            other: Expr = Const(chance.randint(1, 5), dtype)
            if others and chance.random() < 0.6:
                other = chance.choice(others).astype(dtype)
            formulas = [x + other, x - other, maximum(x, other), minimum(x, other), select(x < other, x, other + other)]
            if dtype in FLOATS:
                formulas += [maximum(minimum(x, 4.0), -4.0) * 0.5, x.astype("int32")]
            else:
                few = Const(chance.randint(1, 7), dtype)
                formulas += [x * other, x >> Const(chance.randint(0, 3), dtype), x // few, x % few,
                             x.astype(chance.choice(("int8", "int16", "int32", "int64", "float32")))]  # fmt: skip
            x = chance.choice(formulas)
        return x

    def sum_type(self, dtype: DType) -> DType:
        """The type in which values are added up: of bytes often 32 bits."""
        return "int32" if dtype in ("int8", "uint8", "int16") and self.chance.random() < 0.8 else dtype

    def axis(self, extent: int) -> ReduceAxis:
        self.axes += 1
        return reduce_axis(extent, f"k{self.axes}")

    def reduction(self, value: Expr, axes: list[ReduceAxis]) -> Reduction:
        kinds = [total, total, largest, smallest]
        if value.dtype not in FLOATS:
            kinds.append(product)
        return self.chance.choice(kinds)(value, axes)


def _elementwise(maker: _Maker, x: Tensor) -> None:
    same = [each for each in (*maker.leaves, *maker.stages) if each.shape == x.shape]
    maker.stage(x.shape, lambda i: maker.arithmetic(x[i], tuple(each[i] for each in same)))


def _function(maker: _Maker, x: Tensor) -> None:
    maker.stage(x.shape, lambda i: maker.chance.choice((exp, tanh))(minimum(x[i].astype("float32") * 0.125, 4.0)))


def _broadcast(maker: _Maker, x: Tensor) -> None:
    if not x.shape:
        return _elementwise(maker, x)
    place = maker.chance.randrange(len(x.shape))
    bias = maker.leaf((x.shape[place],))
    return maker.stage(x.shape, lambda i: maker.arithmetic(x[i], (bias[i[place]],)))


def _reduce(maker: _Maker, x: Tensor) -> None:
    """Along some of the axes."""
    reduced = [place for place in range(len(x.shape)) if maker.chance.random() < 0.5] or [len(x.shape) - 1]
    if not x.shape:
        return _elementwise(maker, x)
    axes = {place: maker.axis(x.shape[place]) for place in reduced}
    kept = [place for place in range(len(x.shape)) if place not in axes]

    def value(index: Index) -> Reduction:
        at = dict(zip(kept, index, strict=False))
        read = x[tuple(axes[place] if place in axes else at[place] for place in range(len(x.shape)))]
        return maker.reduction(read.astype(maker.sum_type(x.dtype)), list(axes.values()))

    return maker.stage(tuple(x.shape[place] for place in kept) or (1,), value)


def _product(maker: _Maker, x: Tensor) -> None:
    """Rows with a matrix of weights."""
    if not x.shape:
        return _elementwise(maker, x)
    inner, columns = x.shape[-1], maker.chance.choice(SIZES)
    weights, k, dtype = maker.leaf((inner, columns), x.dtype), maker.axis(inner), maker.sum_type(x.dtype)
    return maker.stage(
        (*x.shape[:-1], columns),
        lambda i: total(x[(*i[:-1], k)].astype(dtype) * weights[k, i[-1]].astype(dtype), k),
    )


def _window(maker: _Maker, x: Tensor) -> None:
    """A sliding window over the last one or two axes, padded in the same stage or in one of its own."""
    count = min(len(x.shape), maker.chance.randint(1, 2))
    if not count:
        return _elementwise(maker, x)
    first = len(x.shape) - count
    chance = maker.chance
    pads = [chance.randint(0, 1) for _ in range(count)]
    taps = [chance.randint(1, min(3, size + 2 * pad)) for size, pad in zip(x.shape[first:], pads, strict=True)]
    strides = [chance.randint(1, 2) for _ in range(count)]

    def padded(index: Index) -> Expr:
        places = [each - pad for each, pad in zip(index[first:], pads, strict=True)]
        guards = [
            guard for place, size, pad in zip(places, x.shape[first:], pads, strict=True) if pad
            for guard in (place >= 0, place < size)
        ]  # fmt: skip
        read = x[(*index[:first], *places)]
        return select(reduce(lambda a, b: a & b, guards), read, Const(0, x.dtype)) if guards else read

    source: Callable[[Index], Expr] = padded
    if any(pads) and chance.random() < 0.5:
        shape = (*x.shape[:first], *(size + 2 * pad for size, pad in zip(x.shape[first:], pads, strict=True)))
        maker.stages.append(compute(shape, lambda *index: padded(index), f"s{len(maker.stages)}"))
        copy = maker.stages[-1]
        source = copy.__getitem__
    axes = [maker.axis(size) for size in taps]
    outer = [
        (size + 2 * pad - tap) // stride + 1
        for size, pad, tap, stride in zip(x.shape[first:], pads, taps, strides, strict=True)
    ]  # fmt: skip

    def value(index: Index) -> Reduction:
        places = [at * stride + tap for at, stride, tap in zip(index[first:], strides, axes, strict=True)]
        return maker.reduction(source((*index[:first], *places)).astype(maker.sum_type(x.dtype)), axes)

    return maker.stage((*x.shape[:first], *outer), value)


def _transpose(maker: _Maker, x: Tensor) -> None:
    order = maker.chance.sample(range(len(x.shape)), len(x.shape))
    maker.stage(tuple(x.shape[place] for place in order), lambda i: x[tuple(i[order.index(p)] for p in range(len(i)))])


def _reshape(maker: _Maker, x: Tensor) -> None:
    """All elements along one axis, from the first or from the last."""
    backwards = maker.chance.random() < 0.5
    size = int(np.prod(x.shape))

    def value(index: Index) -> Expr:
        rest: Expr = (size - 1) - index[0] if backwards else index[0]
        places: list[Expr] = []
        for extent in reversed(x.shape):
            places.insert(0, rest % extent)
            rest = rest // extent
        return maker.arithmetic(x[tuple(places)])

    maker.stage((size,), value)


def _shift(maker: _Maker, x: Tensor) -> None:
    """Neighbours along the first axis, guarded; seldom not."""
    if not x.shape:
        return _elementwise(maker, x)
    by, guarded = maker.chance.randint(-2, 2), maker.chance.random() >= STRAY

    def value(index: Index) -> Expr:
        place = index[0] + by
        moved = x[(place, *index[1:])]
        return select((place >= 0) & (place < x.shape[0]), moved, x[index]) if guarded else moved

    return maker.stage(x.shape, value)


def _gather(maker: _Maker, x: Tensor) -> None:
    """Slices along the first axis at places that are data, held inside by a clamp or a guard."""
    if not x.shape:
        return _elementwise(maker, x)
    size = x.shape[0]
    places = maker.leaf((maker.chance.choice(SIZES),), maker.chance.choice(("int8", "int32", "int64", "uint8")))
    clamped = maker.chance.random() < 0.5

    def value(index: Index) -> Expr:
        place = places[index[0]].astype("int64")
        if clamped:
            return x[(maximum(minimum(place, size - 1), 0), *index[1:])]
        return select((place >= 0) & (place < size), x[(place, *index[1:])], Const(3, x.dtype))

    return maker.stage((*places.shape, *x.shape[1:]), value)


KINDS: tuple[Callable[[_Maker, Tensor], None], ...] = (
    _elementwise, _elementwise, _function, _broadcast, _reduce, _reduce, _product, _product, _window, _window,
    _transpose, _reshape, _shift, _gather,
)  # fmt: skip
