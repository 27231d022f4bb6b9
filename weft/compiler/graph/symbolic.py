"""Types for any size: what shape inference gives when a size of the inputs, such as the batch, is a symbol.

Type rules compute with integers, and a front end builds sizes into a graph. So types are inferred at a few sample
sizes; each dimension of each tensor is then fitted by a polynomial that is linear in each symbol, and one sample
further away verifies it. What no such polynomial describes is said to depend on the symbols in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import prod

from ...whole import require_mapping
from .ir import GraphError, TensorType

Sizes = Mapping[str, int]
Types = Mapping[str, TensorType]


@dataclass(frozen=True)
class SymbolicInput:
    """An input of a model: a dimension is a number, or the name of a symbol."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def at(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape for these sizes."""
        return tuple(sizes[size] if isinstance(size, str) else size for size in self.shape)


@dataclass(frozen=True)
class Dimension:
    """``sum(coefficient * product of symbols)``: a dimension for any size. The term without symbols is the constant."""

    terms: tuple[tuple[tuple[str, ...], Fraction], ...]

    def __str__(self) -> str:
        parts: list[str] = []
        for symbols, coefficient in self.terms:
            top, bottom = abs(coefficient.numerator), coefficient.denominator
            factors = [*([str(top)] if top != 1 or not symbols else []), *symbols]
            text = "*".join(factors) + (f"/{bottom}" if bottom != 1 else "")
            sign = "-" if coefficient < 0 else "+"
            parts.append(f" {sign} {text}" if parts else text if sign == "+" else f"-{text}")
        return "".join(parts) or "0"

    def at(self, sizes: Sizes) -> Fraction:
        """Its value for these sizes."""
        return sum(
            (factor * prod(sizes[symbol] for symbol in symbols) for symbols, factor in self.terms), start=Fraction(0)
        )


@dataclass(frozen=True)
class SymbolicType:
    """Type of a tensor for any size. ``None`` stands for a dimension, or for all of the shape, that depends on the
    symbols in a way that no `Dimension` describes."""

    shape: tuple[Dimension | None, ...] | None
    dtype: str

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"

    @property
    def is_known(self) -> bool:
        return self.shape is not None and None not in self.shape


@dataclass(frozen=True)
class SymbolicTypes:
    """What inference with symbols found.

    ``types``: of every named tensor, in the order of the graph. ``equal``: symbols that the model needs to be equal to
    another one. ``multiple``: the sizes are multiples of this number; 1 where any size is good. ``lowest``: of symbols
    whose sizes are bounded from below, that bound.
    """

    symbols: tuple[str, ...]
    types: Mapping[str, SymbolicType]
    equal: Mapping[str, str]
    multiple: int
    lowest: Mapping[str, int] = field(default_factory=dict)

    @property
    def otherwise(self) -> tuple[str, ...]:
        """The tensors whose shape depends on the symbols in another way."""
        return tuple(name for name, kind in self.types.items() if not kind.is_known)


@dataclass(frozen=True)
class _Sampling:
    """Sizes of symbol number k: ``step * (2 + 2k)``, one step further, and ``step * (far + 2k)`` to verify."""

    step: int
    far: int

    def low(self, number: int) -> int:
        return self.step * (2 + 2 * number)

    def high(self, number: int) -> int:
        return self.low(number) + self.step

    def check(self, number: int) -> int:
        return self.step * (self.far + 2 * number)


LEFT_OPEN = -1
"""In the shape that is given for an input: a size that stays as the model has it."""

SAMPLINGS = (_Sampling(1, 41), _Sampling(32, 7))
"""Small sizes first; then those of images that are halved several times, or are read through large windows."""


def infer_symbolic(inputs: Sequence[SymbolicInput], types_at: Callable[[Sizes], Types]) -> SymbolicTypes:
    """The type of every tensor for any size of the symbols in ``inputs``.

    ``types_at`` infers the types of all named tensors for given sizes, or raises `GraphError` when there are none. If
    it does so for symbols of different sizes, those that stand at the same dimension of inputs are taken as equal.
    Raises `GraphError` when no samples work, with the first reason.
    """
    axes = first_axes(inputs)
    symbols = tuple(axes)
    leaders: dict[int, str] = {}
    for symbol, axis in axes.items():
        leaders.setdefault(axis, symbol)
    groupings = [dict(zip(symbols, symbols, strict=True)), {symbol: leaders[axes[symbol]] for symbol in symbols}]
    first: GraphError | None = None
    for grouping in groupings if groupings[0] != groupings[1] else groupings[:1]:
        for sampling in SAMPLINGS:
            try:
                return _infer(symbols, grouping, sampling, types_at)
            except GraphError as error:
                first = first or error
    assert first is not None  # there is at least one way to sample
    raise first


def first_axes(inputs: Sequence[SymbolicInput]) -> dict[str, int]:
    """The symbols in the order of the inputs, with the dimension at which each stands first."""
    axes: dict[str, int] = {}
    for each in inputs:
        for axis, size in enumerate(each.shape):
            if isinstance(size, str):
                axes.setdefault(size, axis)
    return axes


def _infer(
    symbols: tuple[str, ...], grouping: Mapping[str, str], sampling: _Sampling, types_at: Callable[[Sizes], Types]
) -> SymbolicTypes:
    free = tuple(dict.fromkeys(grouping.values()))
    low = {symbol: sampling.low(number) for number, symbol in enumerate(free)}
    check = {symbol: sampling.check(number) for number, symbol in enumerate(free)}

    def infer(sizes: Sizes) -> Types:
        return types_at({symbol: sizes[grouping[symbol]] for symbol in symbols})

    chosen = [(), *((symbol,) for symbol in free), *combinations(free, 2)]
    raised = {symbol: sampling.high(number) for number, symbol in enumerate(free)}
    samples = {subset: infer({**low, **{symbol: raised[symbol] for symbol in subset}}) for subset in chosen}
    verification = infer(check)
    symbolic_types: dict[str, SymbolicType] = {}
    for name, kind in samples[()].items():
        kinds = [types.get(name) for types in (*samples.values(), verification)]
        if any(other is None or other.dtype != kind.dtype or other.rank != kind.rank for other in kinds):
            symbolic_types[name] = SymbolicType(None, kind.dtype)
            continue
        shape: list[Dimension | None] = []
        for axis in range(kind.rank):
            size = _fitted({subset: types[name].shape[axis] for subset, types in samples.items()}, low, sampling.step)
            shape.append(size if size.at(check) == verification[name].shape[axis] else None)
        symbolic_types[name] = SymbolicType(tuple(shape), kind.dtype)
    return SymbolicTypes(symbols, symbolic_types, {a: b for a, b in grouping.items() if a != b}, sampling.step)


def _fitted(values: Mapping[tuple[str, ...], int], low: Sizes, step: int) -> Dimension:
    """The polynomial through ``values``, which are by the symbols that are one step above ``low``."""
    terms: dict[tuple[str, ...], Fraction] = {}

    def add(symbols: tuple[str, ...], value: Fraction) -> None:
        terms[symbols] = terms.get(symbols, Fraction(0)) + value

    for subset in values:
        # With x = (size - low) / step of each symbol, the coefficient of a product of x is a mixed difference.
        parts = [part for count in range(len(subset) + 1) for part in combinations(subset, count)]
        difference = sum((-1) ** (len(subset) - len(part)) * values[part] for part in parts)
        for part in parts:
            left = [low[symbol] for symbol in subset if symbol not in part]
            add(part, Fraction(difference * (-1) ** len(left) * prod(left), step ** len(subset)))
    ordered = sorted(terms.items(), key=lambda term: -len(term[0]))
    return Dimension(tuple((symbols, factor) for symbols, factor in ordered if factor))


def bind_sizes(inputs: Sequence[SymbolicInput], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of the symbols for inputs of these shapes; inputs without a shape are left out, and sizes of -1, which
    stay open.

    Raises `GraphError` that names the input, the symbol and what to change.
    """
    require_mapping(shapes, "shapes", GraphError)
    sizes: dict[str, int] = {}
    decided: dict[str, str] = {}
    for each in inputs:
        if each.name not in shapes:
            continue
        shape = tuple(shapes[each.name])
        free = " and ".join(dict.fromkeys(size for size in each.shape if isinstance(size, str)))
        choice = f"only {free} can be chosen" if free else "nothing in it can be chosen"
        if len(shape) != len(each.shape):
            raise GraphError(
                f"input {each.name!r} has {len(shape)} dimensions, {shape}, but must be {each}", hint=choice
            )
        for axis, (wanted, size) in enumerate(zip(each.shape, shape, strict=True)):
            if size == LEFT_OPEN:
                continue
            if isinstance(wanted, int):
                if size != wanted:
                    raise GraphError(
                        f"input {each.name!r}: dimension {axis} is {size}, but must be {wanted}: it is {each}",
                        hint=choice,
                    )
                continue
            if size < 0:
                raise GraphError(f"input {each.name!r}: dimension {axis} ({wanted!r}) is {size}, but must be 0 or more")
            if sizes.setdefault(wanted, size) != size:
                raise GraphError(
                    f"input {each.name!r}: dimension {axis} ({wanted!r}) is {size}, "
                    f"but {sizes[wanted]} in input {decided[wanted]!r}", hint=f"give both the same {wanted}",
                )  # fmt: skip
            decided.setdefault(wanted, each.name)
    return sizes


def sizes_text(sizes: Sizes) -> str:
    """``N = 3, M = 4``."""
    return ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
