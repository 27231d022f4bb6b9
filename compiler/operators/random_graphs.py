"""Random typed graphs, for differential tests: any two ways to run one must agree.

A graph grows node by node: an operator is drawn, then operands among the values that exist (or new ones) and attributes
that may fit; the operator's type rule has the last word. Three kinds of luck would make a comparison meaningless, so
they are kept out: integers that no type holds (division by zero), operators that jump (``floor``, comparisons, ...) on
values that two right implementations may round differently, and operators that make a great difference of a small one
(a division by a sum that is nearly zero, the sine of a large value). For the last, every graph is computed twice as it
grows, the second time with errors of ``ERROR_STEPS`` put in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph.dtypes import ARITHMETIC, FLOATS, INTEGERS, NUMBERS, SIGNED, is_float, numpy_dtype, step
from ..graph.ir import Array, Attrs, Call, Constant, Expr, Function, GraphError, Module, Span, TensorType, Tuple, Var
from ..graph.registry import apply, call
from ..graph.visit import respan, topological_order

SIZES = (0, 1, 1, 2, 3, 4, 7, 17)
MAX_RANK = 4
MAX_ELEMENTS = 4096
MAX_MAGNITUDE = 1e4
"""Floats beyond it make no further values: they overflow soon, and differences say nothing any more."""

ERROR_STEPS = 8
"""Steps of its type by which an operator's result may be off, relative to the largest element."""

MAX_ERROR_STEPS = 32
"""Steps of the coarsest type on the way by which a value may be off with all errors before it."""

_BROADCAST = (
    "nn.add", "nn.subtract", "nn.multiply", "nn.minimum", "nn.maximum", "nn.divide", "nn.bitwise_and", "nn.bitwise_or",
    "nn.bitwise_xor", "nn.and", "nn.or", "nn.xor",
)  # fmt: skip
_COMPARISONS = ("nn.equal", "nn.less", "nn.less_equal")
_UNARY = {
    "nn.abs": NUMBERS, "nn.negative": SIGNED + FLOATS, "nn.not": ("bool",), "nn.bitwise_not": INTEGERS,
    **dict.fromkeys(("nn.exp", "nn.sqrt", "nn.sin", "nn.cos", "nn.tanh", "nn.erf", "nn.sigmoid", "nn.atan"), FLOATS),
}  # fmt: skip
_JUMPS = ("nn.floor", "nn.ceil", "nn.round", "nn.sign")
_REDUCTIONS = ("nn.reduce_sum", "nn.reduce_mean", "nn.reduce_max", "nn.reduce_min")
_POOLS = ("nn.max_pool", "nn.average_pool")


@dataclass(frozen=True)
class RandomGraph:
    """A module, inputs for it, and the seed that makes both again."""

    seed: int
    module: Module
    inputs: Mapping[str, Array]


@dataclass
class _Maker:
    """A graph under construction. ``exact``: values that every right implementation computes to the bit;
    ``known``: what each node is; ``shaken``: what it is with errors in all that is not exact."""

    random: np.random.Generator
    params: list[Var] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    values: list[Expr] = field(default_factory=list)
    exact: set[Expr] = field(default_factory=set)
    known: dict[Expr, Array] = field(default_factory=dict)
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
        if node not in self.known:
            self.values.append(node)
            self.known[node], self.shaken[node] = value, shaken
            if exact:
                self.exact.add(node)
        return node

    def operand(self, fits: Callable[[Expr], bool], dtypes: tuple[str, ...] = ARITHMETIC) -> Expr:
        """A value that exists and fits, newer ones more often; else a new one of a type of ``dtypes``."""
        found = [node for node in self.values if node.dtype in dtypes and fits(node)]
        if found and self.chance(0.85):
            place = int(len(found) * self.random.random() ** 0.5)
            return found[min(place, len(found) - 1)]
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
            found = [node for node in self.values if node.dtype == x.dtype and fits(node)]
            return self.pick(found)  # type: ignore[no-any-return]
        shape = tuple(1 if self.chance(0.3) else size for size in x.shape)[self.whole(0, len(x.shape)) :]
        return self.leaf(shape, x.dtype)


Draw = Callable[[_Maker], tuple[Expr, bool]]
"""Makes one node; tells whether it is exact when its operands are."""


def _broadcasting(maker: _Maker) -> tuple[Expr, bool]:
    op = maker.pick(_BROADCAST)
    dtypes: tuple[str, ...] = INTEGERS if "bitwise" in op else NUMBERS
    if op in ("nn.and", "nn.or", "nn.xor"):
        dtypes = ("bool",)
    if op == "nn.divide":
        dtypes = FLOATS
    x = maker.operand(lambda node: True, dtypes)
    args = [x, maker.like(x)]
    if maker.chance(0.5):
        args.reverse()
    return call(op, *args), op in ("nn.minimum", "nn.maximum") or not is_float(x.dtype)


def _compare(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: node in maker.exact or isinstance(node, Var))
    y = maker.like(x)
    return call(maker.pick(_COMPARISONS), x, _exact(maker, y)), True


def _exact(maker: _Maker, node: Expr) -> Expr:
    if node not in maker.exact:
        raise GraphError("this operator needs a value that is computed to the bit")
    return node


def _where(maker: _Maker) -> tuple[Expr, bool]:
    condition = maker.operand(lambda node: True, ("bool",))
    x = maker.operand(lambda node: True)
    return call("nn.where", condition, x, maker.like(x)), True


def _one(maker: _Maker) -> tuple[Expr, bool]:
    op = maker.pick(tuple(_UNARY))
    x = maker.operand(lambda node: True, _UNARY[op])
    return call(op, x), op in ("nn.abs", "nn.negative", "nn.not", "nn.bitwise_not")


def _jump(maker: _Maker) -> tuple[Expr, bool]:
    return call(maker.pick(_JUMPS), _exact(maker, maker.operand(lambda node: True, FLOATS))), True


def _clip(maker: _Maker) -> tuple[Expr, bool]:
    low = float(maker.whole(-2, 1))
    return call("nn.clip", maker.operand(lambda node: True, FLOATS), low=low, high=low + maker.whole(0, 3)), True


def _cast(maker: _Maker) -> tuple[Expr, bool]:
    x, to = maker.operand(lambda node: True), maker.pick(ARITHMETIC)
    if is_float(x.dtype) and not is_float(to):
        _exact(maker, x)
    return call("nn.cast", x, to=to), True


def _reduce(maker: _Maker) -> tuple[Expr, bool]:
    op = maker.pick(_REDUCTIONS)
    x = maker.operand(lambda node: len(node.shape) > 0, FLOATS if op == "nn.reduce_mean" else NUMBERS)
    axes = tuple(axis for axis in range(len(x.shape)) if maker.chance(0.5))
    node = call(op, x, axes=axes or (0,), keepdims=maker.chance(0.5))
    return node, op in ("nn.reduce_max", "nn.reduce_min") or not is_float(x.dtype)


def _softmax(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape, FLOATS)
    return call("nn.softmax", x, axis=maker.whole(0, len(x.shape) - 1)), False


def _transpose(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 1)
    return call("transpose", x, perm=tuple(map(int, maker.random.permutation(len(x.shape))))), True


def _reshape(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: True)
    sizes = list(x.shape)
    if len(sizes) > 1 and maker.chance(0.6):
        axis = maker.whole(0, len(sizes) - 2)
        sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
    else:
        sizes.insert(maker.whole(0, len(sizes)), 1)
    return call("reshape", x, shape=tuple(sizes[:5]) if len(sizes) <= 5 else x.shape), True


def _slice(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape)
    starts = tuple(maker.whole(0, size - 1) for size in x.shape)
    steps = tuple(maker.whole(1, 3) for _ in x.shape)
    sizes = tuple(
        maker.whole(0, 1 + (size - 1 - start) // stride)
        for size, start, stride in zip(x.shape, starts, steps, strict=True)
    )
    return call("slice", x, starts=starts, sizes=sizes, steps=steps), True


def _pad(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 0)
    pads = tuple(maker.whole(0, 2) for _ in range(2 * len(x.shape)))
    return call("pad", x, pads=pads, value=float(maker.whole(0, 1))), True


def _expand(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: 1 in node.shape)
    shape = tuple(maker.whole(1, 4) if size == 1 else size for size in x.shape)
    return call("expand", x, shape=shape), True


def _concat(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 0)
    same = [node for node in maker.values if node.tensor_type == x.tensor_type]
    return call("concat", x, maker.pick(same), axis=maker.whole(0, len(x.shape) - 1)), True


def _gather(maker: _Maker) -> tuple[Expr, bool]:
    x = maker.operand(lambda node: len(node.shape) > 0 and 0 not in node.shape)
    axis = maker.whole(0, len(x.shape) - 1)
    indices = maker.random.integers(0, x.shape[axis], maker.shape()[:1])
    return call("gather", x, Constant(indices.astype(np.int64)), axis=axis), True


def _matmul(maker: _Maker) -> tuple[Expr, bool]:
    a = maker.operand(lambda node: len(node.shape) >= 2, ("float32", "float64"))
    b = maker.leaf((a.shape[-1], maker.whole(1, 20)), a.dtype)
    return call("nn.matmul", a, b), False


def _conv(maker: _Maker) -> tuple[Expr, bool]:
    groups = maker.pick((1, 1, 2))
    channels, size = groups * maker.whole(1, 9), (maker.whole(1, 9), maker.whole(1, 9))
    existing = [node for node in maker.values if len(node.shape) == 4 and node.dtype == "float32"]
    if existing and maker.chance(0.7):
        x = maker.pick(existing)
        groups, channels = 1, x.shape[1]
    else:
        x = maker.leaf((maker.whole(1, 2), channels, *size), "float32")
    filters = groups * maker.whole(1, 20)
    kernel = (maker.whole(1, 3), maker.whole(1, 3))
    w = maker.leaf((filters, channels // groups, *kernel), "float32")
    return call("nn.conv2d", x, w, groups=groups, **_window(maker)), False


def _window(maker: _Maker) -> dict[str, Any]:
    return {
        "strides": (maker.whole(1, 2), maker.whole(1, 2)),
        "pads": tuple(maker.whole(0, 2) for _ in range(4)),
        "dilations": (maker.whole(1, 2), maker.whole(1, 2)),
    }


def _pool(maker: _Maker) -> tuple[Expr, bool]:
    op = maker.pick(_POOLS)
    x = maker.operand(lambda node: len(node.shape) == 4 and 0 not in node.shape, FLOATS)
    kernel = (maker.whole(1, 3), maker.whole(1, 3))
    window = {**_window(maker), "pads": tuple(maker.whole(0, 1) for _ in range(4)), "dilations": (1, 1)}
    return call(op, x, kernel=kernel, **window), op == "nn.max_pool"


_DRAWS: tuple[Draw, ...] = (
    _broadcasting, _broadcasting, _broadcasting, _compare, _where, _one, _one, _jump, _clip, _cast, _reduce, _reduce,
    _softmax, _transpose, _reshape, _slice, _pad, _expand, _concat, _gather, _matmul, _conv, _pool,
)  # fmt: skip


def random_graph(seed: int, nodes: int = 12) -> RandomGraph:
    """A graph of up to ``nodes`` operators; the same for the same arguments. Its last values are its outputs."""
    maker = _Maker(np.random.default_rng(seed))
    maker.leaf((maker.whole(1, 2), maker.whole(1, 9), maker.whole(1, 9), maker.whole(1, 9)), "float32")
    for _ in range(maker.whole(1, 2)):
        maker.leaf(maker.shape(), maker.pick(ARITHMETIC))
    made: list[Expr] = []
    for _ in range(nodes * 3):
        if len(made) == nodes:
            break
        try:
            node, keeps = maker.pick(_DRAWS)(maker)
            value = _value(maker, node)
            exact = keeps and all(arg in maker.exact or isinstance(arg, Constant) for arg in node.children)
            shaken = value if exact else _shaken(maker, node, value)
        except GraphError:
            continue
        if node not in maker.known:
            made.append(maker.add(respan(node, Span((f"n{len(made)}",), f"t{len(made)}")), value, shaken, exact))
    used = {child for node in made for child in node.children}
    results = tuple(node for node in made if node not in used) or (maker.values[0],)
    names = tuple(f"y{index}" for index in range(len(results)))
    body = results[0] if len(results) == 1 else Tuple(results)
    main = Function(tuple(maker.params), body, Attrs({"name": "main", "outputs": names}))
    return RandomGraph(seed, Module(main), maker.inputs)


def _value(maker: _Maker, node: Expr) -> Array:
    """What a new node computes. Raises `GraphError` when it is too large, or nothing that can be compared."""
    if not isinstance(node, Call):
        raise GraphError("only calls are drawn")
    value = _apply(node, maker.known)
    if value.size > MAX_ELEMENTS:
        raise GraphError("too large")
    if is_float(node.dtype) and value.size:
        wide = value.astype(np.float64)
        if not np.isfinite(wide).all() or np.abs(wide).max() > MAX_MAGNITUDE:
            raise GraphError("not in range")
    return value


def _shaken(maker: _Maker, node: Expr, value: Array) -> Array:
    """What a node may be with all errors before it and its own. Raises `GraphError` when that is another value."""
    if not isinstance(node, Call) or not is_float(node.dtype) or not value.size:
        return value
    largest = max(1.0, float(np.abs(value.astype(np.float64)).max()))
    noise = maker.random.choice((-1.0, 1.0), value.shape) * (ERROR_STEPS * step(node.dtype) * largest)
    shaken = _apply(node, maker.shaken).astype(np.float64) + noise
    coarsest = max(step(before.dtype) for before in topological_order(node) if is_float(before.dtype))
    if not np.abs(shaken - value.astype(np.float64)).max() <= MAX_ERROR_STEPS * coarsest * largest:
        raise GraphError("small errors make a great difference")
    return shaken.astype(value.dtype)


def _apply(node: Call, values: Mapping[Expr, Array]) -> Array:
    return apply(node, [arg.value if isinstance(arg, Constant) else values[arg] for arg in node.args])
