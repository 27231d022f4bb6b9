"""Random typed graphs, for differential tests: any two ways to run one must agree.

A graph grows node by node: an operator is drawn, then operands among the values that exist (or new ones) and attributes
that may fit. Entries know how (`Operator.draw`), or are drawn as their sample shows; the type rule has the last word.
Two kinds of luck would make a comparison meaningless, so they are kept out: operators that jump (`Accuracy.JUMPS`) on
values that two right implementations may round differently, and operators that make a great difference of a small one
(a division by a sum that is nearly zero, the sine of a large value). For these, every graph is computed twice as it
grows, the second time with errors of ``ERROR_STEPS`` put in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ..graph.dtypes import ARITHMETIC, is_float, numpy_dtype, step
from ..graph.ir import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    Function,
    GraphError,
    Module,
    Span,
    TensorType,
    Tuple,
    TupleGet,
    TupleType,
    Var,
)
from ..graph.registry import AS_READ, REQUIRED, Accuracy, Fusion, Operator, apply, apply_all, call, operators
from ..graph.visit import respan, topological_order
from .samples import samples_of

SIZES = (0, 1, 1, 2, 3, 4, 7, 17)
MAX_RANK = 4
MAX_ELEMENTS = 4096
MAX_MAGNITUDE = 1e4
"""Floats beyond it make no further values: they overflow soon, and differences say nothing any more."""

ERROR_STEPS = 8
"""Steps of its type by which an operator's result may be off, relative to the largest element."""

MAX_ERROR_STEPS = 32
"""Steps of the coarsest type on the way by which a value may be off with all errors before it."""


@dataclass(frozen=True)
class RandomGraph:
    """A module, inputs for it, and the seed that makes both again."""

    seed: int
    module: Module
    inputs: Mapping[str, Array]


@dataclass
class _Maker:
    """A graph under construction. ``exactly``: values that every right implementation computes to the bit;
    ``arrays``: the value of each node; ``shaken``: the same with errors in all that is not exact."""

    random: np.random.Generator
    params: list[Var] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    values: list[Expr] = field(default_factory=list)
    exactly: set[Expr] = field(default_factory=set)
    arrays: dict[Expr, Array] = field(default_factory=dict)
    shaken: dict[Expr, Array] = field(default_factory=dict)

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def pick(self, items: Any) -> Any:
        return items[int(self.random.integers(len(items)))]

    def whole(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        return int(self.random.integers(low, high + 1))

    def shape(self) -> tuple[int, ...]:
        shape = tuple(int(self.pick(SIZES)) for _ in range(self.whole(0, MAX_RANK)))
        return shape if int(np.prod(shape)) <= MAX_ELEMENTS else shape[:2]

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Values with which arithmetic stays in range: small integers, normal floats."""
        if is_float(dtype):
            return self.random.normal(size=shape).astype(numpy_dtype(dtype))
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        low = 0 if dtype.startswith("u") else -9
        return self.random.integers(low, 10, shape).astype(numpy_dtype(dtype))

    def leaf(self, shape: tuple[int, ...], dtype: str) -> Expr:
        """A new input or constant."""
        value = self.array(shape, dtype)
        new: Expr
        if self.chance(0.3):
            new = Constant(value)
        else:
            new = Var(f"x{len(self.params)}", TensorType(shape, dtype))
            self.params.append(new)
            self.inputs[new.name] = value
        return self.add(new, value, value, True)

    def add(self, node: Expr, value: Array, shaken: Array, exact: bool) -> Expr:
        if node not in self.arrays:
            self.values.append(node)
            self.arrays[node], self.shaken[node] = value, shaken
            if exact:
                self.exactly.add(node)
        return node

    def operand(self, fits: Callable[[Expr], bool], dtypes: Sequence[str] = ARITHMETIC) -> Expr:
        """A value that exists and fits, newer ones more often; else a new one of a type of ``dtypes``."""
        candidates = [node for node in self.values if node.dtype in dtypes and fits(node)]
        if candidates and self.chance(0.85):
            place = int(len(candidates) * self.random.random() ** 0.5)
            return candidates[min(place, len(candidates) - 1)]
        shapes = [self.shape() for _ in range(20)]
        for shape in shapes:
            candidate = Var("probe", TensorType(shape, self.pick(dtypes)))
            if fits(candidate):
                return self.leaf(shape, candidate.dtype)
        raise GraphError("no value fits")

    def like(self, x: Expr) -> Expr:
        """A second operand of the type of ``x`` that broadcasts with it."""

        def fits(node: Expr) -> bool:
            try:
                return int(np.prod(np.broadcast_shapes(x.shape, node.shape))) <= MAX_ELEMENTS
            except ValueError:
                return False

        if self.chance(0.5):
            candidates = [node for node in self.values if node.dtype == x.dtype and fits(node)]
            return self.pick(candidates)  # type: ignore[no-any-return]
        shape = tuple(1 if self.chance(0.3) else size for size in x.shape)[self.whole(0, len(x.shape)) :]
        return self.leaf(shape, x.dtype)

    def exact(self, x: Expr) -> Expr:
        """``x``; raises GraphError unless every right implementation computes it to the bit."""
        if x not in self.exactly and not isinstance(x, Constant):
            raise GraphError("this operator needs a value that is computed to the bit")
        return x

    def typed(self, x: Expr) -> Expr:
        """A value of the type of an operand of a sample; what is constant there stays so."""
        if isinstance(x, Constant):
            return x
        same = [node for node in self.values if node.type == x.type]
        return self.pick(same) if same and self.chance(0.5) else self.leaf(x.shape, x.dtype)


@cache
def _samples(entry: Operator) -> dict[str, Call]:
    """Samples of the element types that graphs are drawn with."""
    return {dtype: node for dtype, node in samples_of(entry).items() if dtype in ARITHMETIC}


def drawable() -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """The operators that random graphs consist of: those whose entries draw them, and those with a sample."""
    entries = [entry for entry in operators() if entry.family in AS_READ]
    others = tuple(entry for entry in entries if entry.draw is None and _samples(entry))
    return tuple(entry for entry in entries if entry.draw is not None), others


def _drawn(maker: _Maker) -> tuple[Expr, bool]:
    """A call of a random operator, and whether it is exact when its operands are."""
    entry = maker.pick(maker.pick(drawable()))
    node = entry.draw(maker) if entry.draw is not None else _from_sample(maker, entry)
    if entry.accuracy is Accuracy.JUMPS:
        for arg in node.children:
            maker.exact(arg)
    return node, entry.accuracy is not Accuracy.ROUNDED or not any(is_float(arg.dtype) for arg in node.children)


def _from_sample(maker: _Maker, entry: Operator) -> Expr:
    """An elementwise operator on operands that broadcast; any other as in its sample, on operands of these types."""
    dtype, sample = maker.pick(list(_samples(entry).items()))
    alike = all(arg.dtype == dtype for arg in sample.args)
    if entry.fusion is Fusion.ELEMENTWISE and alike and REQUIRED not in entry.defaults.values():
        x = maker.operand(lambda node: True, (dtype,))
        args = [x, *(maker.like(x) for _ in sample.args[1:])]
        if maker.chance(0.5):
            args.reverse()
        try:
            return call(entry.name, *args)
        except GraphError:  # its operands are not alike: as in the sample
            pass
    return call(entry.name, *(maker.typed(arg) for arg in sample.args), **sample.attrs)


def random_call(entry: Operator, seed: int) -> tuple[Call, dict[str, Array]]:
    """A random call of an operator that draws itself, on inputs and constants, and values for the inputs.

    Raises `GraphError` when nothing that fits was drawn.
    """
    if entry.draw is None:
        raise GraphError(f"{entry.name} does not draw itself")
    maker = _Maker(np.random.default_rng(seed))
    node = entry.draw(maker)
    if not isinstance(node, Call):
        raise GraphError("only calls are drawn")
    return node, maker.inputs


def random_graph(seed: int, nodes: int = 12) -> RandomGraph:
    """A graph of up to ``nodes`` operators; the same for the same arguments. Its last values are its outputs."""
    maker = _Maker(np.random.default_rng(seed))
    maker.leaf((maker.whole(1, 2), maker.whole(1, 9), maker.whole(1, 9), maker.whole(1, 9)), "float32")
    for _ in range(maker.whole(1, 2)):
        maker.leaf(maker.shape(), maker.pick(ARITHMETIC))
    calls: list[Expr] = []
    for _ in range(nodes * 3):
        if len(calls) == nodes:
            break
        try:
            node, keeps = _drawn(maker)
            if isinstance(node.type, TupleType):
                node = TupleGet(node, maker.whole(0, len(node.type.fields) - 1))
            value = _value(maker, node)
            exact = keeps and all(arg in maker.exactly or isinstance(arg, Constant) for arg in node.children)
            shaken = value if exact else _shaken(maker, node, value)
        except GraphError:
            continue
        if node not in maker.arrays:
            calls.append(maker.add(respan(node, Span((f"n{len(calls)}",), f"t{len(calls)}")), value, shaken, exact))
    used = {child for node in calls for child in node.children}
    results = tuple(node for node in calls if node not in used) or (maker.values[0],)
    names = tuple(f"y{index}" for index in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    main = Function(tuple(maker.params), body, Attrs({"name": "main", "outputs": names}))
    return RandomGraph(seed, Module(main), maker.inputs)


def _value(maker: _Maker, node: Expr) -> Array:
    """What a new node computes. Raises `GraphError` when it is too large, or nothing that can be compared."""
    value = _apply(node, maker.arrays)
    if value.size > MAX_ELEMENTS:
        raise GraphError("too large")
    if is_float(node.dtype) and value.size:
        wide = value.astype(np.float64)
        if not np.isfinite(wide).all() or np.abs(wide).max() > MAX_MAGNITUDE:
            raise GraphError("not in range")
    return value


def _shaken(maker: _Maker, node: Expr, value: Array) -> Array:
    """What a node may be with all errors before it and its own. Raises `GraphError` when that is another value."""
    if not is_float(node.dtype) or not value.size:
        return value
    largest = max(1.0, float(np.abs(value.astype(np.float64)).max()))
    noise = maker.random.choice((-1.0, 1.0), value.shape) * (ERROR_STEPS * step(node.dtype) * largest)
    shaken = _apply(node, maker.shaken).astype(np.float64) + noise
    before = (each for each in topological_order(node) if isinstance(each.type, TensorType))
    coarsest = max(step(each.dtype) for each in before if is_float(each.dtype))
    if not np.abs(shaken - value.astype(np.float64)).max() <= MAX_ERROR_STEPS * coarsest * largest:
        raise GraphError("small errors make a great difference")
    return shaken.astype(value.dtype)


def _apply(node: Expr, values: Mapping[Expr, Array]) -> Array:
    match node:
        case TupleGet(Call() as several, index):
            operands = [arg.value if isinstance(arg, Constant) else values[arg] for arg in several.args]
            return apply_all(several, operands)[index]
        case Call():
            pass
        case _:
            raise GraphError("only calls are drawn")
    return apply(node, [arg.value if isinstance(arg, Constant) else values[arg] for arg in node.args])
