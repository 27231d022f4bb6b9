"""Cross-layer equalisation (Nagel et al., 2019, arXiv:1906.04721): channels that share a scale get like ranges.

A channel may be divided by a number where it is made and multiplied by it where it is read, as long as all between
is the same for x and x / s: sums, ReLU, poolings. Values that must be divided alike form a group: what is added
belongs together, so a residual stream is one group, as is what lies between two convolutions.

The paper balances the ranges of two weight tensors, because its weights have one scale a tensor. Here each output
channel has its own (docs/quantisation.md), so what a division helps is the tensor between them, and what it may hurt is
the weights that read it. Ranges of the tensor are seen on examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..compiler.graph import (
    LINEAR,
    Anchor,
    Array,
    Call,
    Constant,
    Expr,
    Function,
    Module,
    Role,
    Tuple,
    Var,
    evaluate,
    operator,
    role_of,
)
from ..compiler.graph.visit import topological_order, with_children
from .errors import QuantiseError
from .insert import LARGEST
from .plan import Plan, plan, require_examples, require_plan
from .ranges import LEVELS

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the range of a channel, and of the weights that read it, that are tried for its factor."""

SUMS = (Role.ADD, Role.SUBTRACT)

PASSED = (Role.LARGEST, Role.MEAN, Role.SUM)
"""Poolings and reductions of these kinds are the same for x and x / s."""

LEAST = 1 / 64
"""A channel counts as no smaller than this part of the largest one: what examples hardly showed is not blown up."""


HEADROOM = 2.0
"""So much larger than on the examples a channel may be elsewhere, before it leaves the range of the largest one."""


def equalised(
    plan_: Plan, examples: Iterable[Mapping[str, Array]], *, progress: Callable[[str], None] = lambda _: None
) -> Plan:
    """A plan of the same function, whose channels have ranges that fit one scale a tensor better.

    For each group of values the factors are ``range ** a / weights ** b``, with the a and b of which the least noise is
    expected, relative to what each output channel carries; a = b = 0 leaves the group as it is. A channel is not made
    larger than lets it grow to `HEADROOM` times what it is on the examples. A clamp with an upper end (ReLU6) keeps it:
    a channel that reaches the end on the examples keeps its size, and where another on other inputs grows further than
    that, it is cut off where it was not before. Without such a clamp the function is the same up to rounding of floats.

    Where values cannot be divided (inputs, outputs, functions such as a sigmoid, concatenations) all stays as it is.
    Raises `QuantiseError` without examples, and what ``evaluate`` raises for those that do not fit.
    """
    require_plan(plan_)
    require_examples(examples)
    groups = _Groups(plan_)
    free = groups.free()
    seen = _seen(plan_, groups, free, examples, progress)
    factors: dict[int, Array] = {}
    for number, group in enumerate(free, 1):
        progress(f"equalising: {number} of {len(free)}")
        factors[group.root] = _factors(group, seen[group.root])
    return plan(_divided(plan_.module, groups, factors))


@dataclass
class _Seen:
    """Of each channel of a group on the examples: the largest magnitude of its places, the largest that a clamp with
    an upper end reads, and the mean square of what products read."""

    largest: Array
    unclamped: Array
    square: Array
    count: int = 0

    @staticmethod
    def nothing(channels: int) -> _Seen:
        return _Seen(np.zeros(channels), np.zeros(channels), np.zeros(channels))


@dataclass
class _Group:
    """Values whose channels are divided alike. ``high``: the least upper end of a clamp in it."""

    root: int
    channels: int
    readers: list[tuple[Call, int]] = field(default_factory=list)
    made: bool = False
    pinned: bool = False
    high: float = math.inf


class _Groups:
    """Which values belong together. A value's channels lie along axis 1; there, each may have several elements, one
    behind the other, as behind a flatten."""

    def __init__(self, plan_: Plan) -> None:
        self.order = list(dict.fromkeys(topological_order(plan_.module.main.body)))
        self.weights = plan_.weights
        self.parents: list[int] = []
        self.groups: dict[int, _Group] = {}
        self.of: dict[Expr, tuple[int, int]] = {}
        """Of a value: its group, and how many elements a channel has."""
        self.clamped: set[Expr] = set()
        body = plan_.module.main.body
        for node in self.order:
            if isinstance(node, Call):
                self._call(node)
            elif isinstance(node, Var):
                self._new(node, pinned=True)
            elif isinstance(node, Tuple):
                for item in node.fields:
                    self._pin(item)
            elif not isinstance(node, Constant):
                for child in node.children:
                    self._pin(child)
                self._new(node, pinned=True)
        self._pin(body)

    def find(self, number: int) -> int:
        while self.parents[number] != number:
            self.parents[number] = self.parents[self.parents[number]]
            number = self.parents[number]
        return number

    def group(self, value: Expr) -> _Group | None:
        return self.groups[self.find(self.of[value][0])] if value in self.of else None

    def free(self) -> list[_Group]:
        """Those that something makes and something reads, and that may be divided."""
        return [group for root, group in self.groups.items()
                if self.find(root) == root and group.made and group.readers and not group.pinned]  # fmt: skip

    def _new(self, value: Expr, *, pinned: bool = False, made: bool = False) -> None:
        number = len(self.parents)
        self.parents.append(number)
        channels = value.shape[1] if isinstance(value, (Call, Var)) and len(value.shape) > 1 else 0
        self.groups[number] = _Group(number, channels, made=made, pinned=pinned or not channels)
        self.of[value] = number, 1

    def _pin(self, value: Expr) -> None:
        if (group := self.group(value)) is not None:
            group.pinned = True

    def _tie(self, node: Call, operand: Expr, each: int = 1) -> None:
        """The result belongs to the operand's group, with ``each`` elements where the operand has one."""
        number, elements = self.of[operand]
        self.of[node] = number, elements * each

    def _unite(self, one: Expr, other: Expr) -> bool:
        (first, elements), (second, others) = self.of[one], self.of[other]
        if elements != others:
            return False
        kept, left = self.groups[self.find(first)], self.groups[self.find(second)]
        if kept is not left:
            self.parents[left.root] = kept.root
            kept.readers += left.readers
            kept.made, kept.pinned = kept.made or left.made, kept.pinned or left.pinned
            kept.high = min(kept.high, left.high)
        return True

    def _call(self, node: Call) -> None:
        if not self._follows(node):
            for arg in node.args:
                self._pin(arg)
            self._new(node, pinned=True)

    def _follows(self, node: Call) -> bool:
        """Whether factors pass this call; if so its result is in a group."""
        computed = [arg for arg in node.args if not isinstance(arg, Constant)]
        if not isinstance(node.op, str) or node.dtype != "float32" or not computed or len(node.shape) < 2:
            return False
        if any(arg not in self.of or len(arg.shape) < 2 for arg in computed):
            return False
        x = computed[0]
        entry = operator(node.op)
        if entry.anchor is Anchor.CONVOLUTION or (entry.anchor is Anchor.PRODUCT and entry.weights is not None):
            if len(computed) > 1 or node.args[0] is not x or (node, 1) not in self.weights:
                return False
            self._reads(node, x)
            self._new(node, made=True)
            return True
        if entry.role in LINEAR:
            return self._arithmetic(node, computed)
        if len(computed) > 1:
            return False
        if entry.role is Role.CLAMP:
            return self._clamp(node, x)
        if (entry.anchor is Anchor.POOL and entry.role in PASSED) or (node.op == "pad" and not node.attr("value")):
            inside = node.op != "pad" or node.shape[:2] == x.shape[:2]
        elif entry.anchor is Anchor.REDUCTION and entry.role in PASSED:
            inside = all(axis > 1 for axis in node.attr("axes"))
        elif node.op == "reshape":
            return self._reshape(node, x)
        else:
            return False
        if inside:
            self._tie(node, x)
        return inside

    def _reads(self, node: Call, x: Expr) -> None:
        group = self.group(x)
        assert group is not None
        group.readers.append((node, self.of[x][1]))

    def _clamp(self, node: Call, x: Expr) -> bool:
        low, high = node.attr("low"), node.attr("high")
        if low not in (0.0, -math.inf) or high <= 0:
            return False
        self._tie(node, x)
        group = self.group(x)
        assert group is not None
        group.high = min(group.high, high)
        if not math.isinf(high):
            self.clamped.add(x)
        return True

    def _reshape(self, node: Call, x: Expr) -> bool:
        """One that leaves channels where they are, or puts all elements of a channel behind each other."""
        if node.shape[:2] == x.shape[:2]:
            self._tie(node, x)
            return True
        if len(node.shape) == 2 and node.shape[0] == x.shape[0]:
            self._tie(node, x, node.shape[1] // x.shape[1])
            return True
        return False

    def _arithmetic(self, node: Call, computed: list[Expr]) -> bool:
        role = role_of(node)
        if len(computed) == 1:
            (x,) = computed
            constant = next(arg for arg in node.args if arg is not x)
            assert isinstance(constant, Constant)
            if node.shape != x.shape or (role is Role.DIVIDE and node.args[0] is not x):
                return False
            shape = (1,) * (len(x.shape) - len(constant.shape)) + constant.shape
            by_channel = all(size == 1 for axis, size in enumerate(shape) if axis != 1)
            if role in SUMS and not (by_channel and shape[1] == x.shape[1]):
                return False
            self._tie(node, x)
            return True
        one, other = computed
        if role in SUMS and one.shape == other.shape:
            if not self._unite(one, other):
                return False
            self._tie(node, one)
            return True
        if role is Role.MULTIPLY and one != other and node.shape in (one.shape, other.shape):
            full, gate = (one, other) if one.shape == node.shape else (other, one)
            self._pin(gate)
            self._tie(node, full)
            return True
        return False


def _seen(
    plan_: Plan, groups: _Groups, free: list[_Group], examples: Iterable[Mapping[str, Array]],
    progress: Callable[[str], None],
) -> dict[int, _Seen]:  # fmt: skip
    wanted = {
        group.root: _Seen(np.zeros(group.channels), np.zeros(group.channels), np.zeros(group.channels))
        for group in free
    }
    places = set(plan_.values.values())
    read = {node.args[0] for group in free for node, _ in group.readers}

    def observe(node: Expr, value: object) -> None:
        group = groups.group(node)
        if group is None or group.root not in wanted or not isinstance(value, np.ndarray):
            return
        found = wanted[group.root]
        by_channel = np.moveaxis(value.reshape(value.shape[0], group.channels, -1), 1, 0).reshape(group.channels, -1)
        if not by_channel.size:
            return
        if node in groups.clamped:
            found.unclamped = np.maximum(found.unclamped, by_channel.max(axis=1))
        if node in places:
            found.largest = np.maximum(found.largest, np.abs(by_channel).max(axis=1))
        if node in read:
            found.square += np.square(by_channel.astype(np.float64)).mean(axis=1)
            found.count += 1

    count = 0
    for count, batch in enumerate(examples, 1):
        progress(f"channels: batch {count}")
        evaluate(plan_.module, batch, observe)
    if not count:
        raise QuantiseError("there are no examples to equalise with")
    for found in wanted.values():
        found.square /= max(1, found.count)
    return wanted


def _factors(group: _Group, seen: _Seen) -> Array:
    """Of each channel: the number that it is divided by."""
    alive = (seen.largest > 0) & (seen.square > 0)
    if not alive.any() or not np.isfinite(seen.largest).all():
        return np.ones(group.channels)
    largest = np.where(alive, np.maximum(seen.largest, LEAST * seen.largest.max()), seen.largest.max())
    weights = [_by_input_channel(node, each) for node, each in group.readers]
    share = np.max([_shares(each, group.channels) for each in weights], axis=0)
    candidates = [_limited(np.where(alive, (largest / largest.max()) ** a / share**b, 1.0), group, seen)
                  for a in EXPONENTS for b in EXPONENTS]  # fmt: skip
    noise = [sum(_noise(each, factors, largest, seen.square) for each in weights) for factors in candidates]
    return candidates[int(np.argmin(noise))]


def _limited(factors: Array, group: _Group, seen: _Seen) -> Array:
    """Factors that leave each channel room, below the largest one or below the clamp."""
    if math.isinf(group.high):
        factors = factors / factors[np.argmax(seen.largest)]
        return np.asarray(np.maximum(factors, np.minimum(HEADROOM * seen.largest / seen.largest.max(), 1.0)))
    least = np.minimum(HEADROOM * seen.unclamped / group.high, 1.0)
    return np.asarray(np.where(seen.unclamped >= group.high, 1.0, np.maximum(factors, least)))


@dataclass(frozen=True)
class _Read:
    """Weights by what they read: ``energy`` and ``largest`` of those for (output, input channel of its group);
    ``inputs``: the channels of each output's group, which start at ``first``; ``taps``: weights of one output and one
    input channel."""

    energy: Array
    largest: Array
    channels: Array
    taps: int


def _by_input_channel(node: Call, each: int) -> _Read:
    constant = node.args[1]
    assert isinstance(constant, Constant)
    value = constant.value.astype(np.float64)
    outputs, inputs = value.shape[0], value.shape[1] // each
    split = np.abs(value.reshape(outputs, inputs, -1))
    channels = _read_by(node, inputs)
    return _Read(np.square(split).sum(axis=2), split.max(axis=2, initial=0), channels, split.shape[2])


def _read_by(node: Call, inputs: int) -> Array:
    """Which channels each output of a product reads, (outputs, inputs)."""
    outputs: int = node.args[1].shape[0]
    groups: int = node.attr("groups") if "groups" in node.attrs else 1
    return np.asarray((np.arange(outputs) // (outputs // groups) * inputs)[:, None] + np.arange(inputs))


def _shares(read: _Read, channels: int) -> Array:
    """Of each input channel: its largest weight, as a share of the largest of an output."""
    rows = read.largest.max(axis=1, keepdims=True)
    result = np.zeros(channels)
    np.maximum.at(result, read.channels, read.largest / np.where(rows > 0, rows, 1))
    return np.where(result > 0, np.maximum(result, LEAST), 1.0)


def _noise(read: _Read, factors: Array, largest: Array, square: Array) -> float:
    """Mean over the outputs of the noise of both roundings, as a share of what the output carries."""
    s, v = factors[read.channels], square[read.channels]
    signal = (read.energy * v).sum(axis=1)
    step = (largest / factors).max() / LEVELS
    steps = (read.largest * s).max(axis=1) / LARGEST
    noise = step**2 * (read.energy * s**2).sum(axis=1) + steps**2 * read.taps * (v / s**2).sum(axis=1)
    carries = signal > 0
    return float((noise[carries] / signal[carries]).mean()) if carries.any() else 0.0


def _divided(module: Module, groups: _Groups, factors: Mapping[int, Array]) -> Module:
    """Constants divided where a group is made, multiplied where it is read."""

    def of(value: Expr) -> Array | None:
        group = groups.group(value)
        if group is None or group.root not in factors:
            return None
        return np.repeat(factors[group.root], groups.of[value][1])

    memo: dict[int, Expr] = {}
    for node in topological_order(module.main.body):
        children = [memo[id(child)] for child in node.children]
        if isinstance(node, Call):
            for place, arg in enumerate(node.args):
                if isinstance(arg, Constant):
                    children[place] = _constant(node, arg, of)
        memo[id(node)] = with_children(node, tuple(children))
    main = module.main
    return Module(Function(main.params, memo[id(main.body)], main.attrs, main.span), module.stage)


def _constant(node: Call, constant: Constant, of: Callable[[Expr], Array | None]) -> Constant:
    value = constant.value
    made = of(node)
    if isinstance(node.op, str) and operator(node.op).anchor is not None and node.args[1] is constant:
        taken = of(node.args[0])
        if taken is None and made is None:
            return constant
        scaled = value.astype(np.float64)
        if taken is not None:
            read = _read_by(node, value.shape[1])
            scaled *= taken[read].reshape(*value.shape[:2], *[1] * (value.ndim - 2))
        if made is not None:
            scaled /= made.reshape(-1, *[1] * (value.ndim - 1))
    elif role_of(node) in SUMS and made is not None:
        scaled = value / made.reshape([-1 if size > 1 else 1 for size in value.shape])
    else:
        return constant
    return Constant(scaled.astype(value.dtype), constant.name, constant.span)
