"""Forward values computed again for the backward part, instead of being kept until it uses them.

The forward part is cut into segments where few bytes cross. What crosses is kept; all else of a segment is computed
again from that when the backward part reaches it, as T. Chen et al., "Training Deep Nets with Sublinear Memory Cost"
(2016), do it for chains. The last segment is still there when the backward part begins.

A barrier keeps what is computed again apart from what was computed before, and holds it back until the gradients that
enter the segment are there. What is cheap is computed again without being asked for: `rematerialise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..graph import Call, Constant, Expr, Function, Module, TensorType, Tuple, TupleGet, call, topological_order
from ..graph.dtypes import numpy_dtype
from ..graph.registry import Fusion, operator
from ..graph.visit import with_children
from .manager import infer_types

NEVER = 1 << 60
"""The segment of what depends on nothing that is computed again."""


@dataclass(frozen=True)
class Passes:
    """A module's graph as a forward and a backward part. ``forward``: the first so many results; the rest is backward.

    Values are known by their identity.
    """

    module: Module
    forward_results: int

    @cached_property
    def forward(self) -> list[Expr]:
        """What the forward results follow from, in order; inputs and constants apart."""
        results = Tuple(self.module.main.results[: self.forward_results])
        return [node for node in topological_order(results)[:-1] if isinstance(node, Call | TupleGet)]

    @cached_property
    def backward(self) -> list[Expr]:
        """All other values that are computed, in order."""
        forward = {id(node) for node in self.forward}
        results = Tuple(self.module.main.results)
        return [node for node in topological_order(results)[:-1]
                if id(node) not in forward and isinstance(node, Call | TupleGet)]  # fmt: skip

    @cached_property
    def saved(self) -> dict[int, Expr]:
        """Forward values that the backward part uses."""
        forward = {id(node) for node in self.forward}
        return {id(arg): arg for node in self.backward for arg in node.children if id(arg) in forward}

    @cached_property
    def crossing(self) -> list[list[Expr]]:
        """For each place of the forward part: values up to there that the forward part uses after it."""
        last = {id(arg): place for place, node in enumerate(self.forward) for arg in node.children}
        alive: list[Expr] = []
        found = []
        for place, node in enumerate(self.forward):
            alive = [each for each in (*alive, node) if last.get(id(each), -1) > place]
            found.append(alive)
        return found

    def cuts(self, segments: int) -> list[int]:
        """Places after which the forward part is cut, so that about as much is saved in each segment."""
        sizes = [nbytes(node) if id(node) in self.saved else 0 for node in self.forward]
        portion = sum(sizes) / segments
        found: list[int] = []
        begun, filled = 0, 0.0
        for place, size in enumerate(sizes[:-1]):
            filled += size
            if filled >= portion:
                # Among the places of the segment's later half, the one where the fewest bytes cross.
                middle = begun + (place - begun) // 2
                at = min(range(middle, place + 1), key=lambda each: sum(map(nbytes, self.crossing[each])))
                found.append(at)
                begun, filled = at + 1, float(sum(sizes[at + 1 : place + 1]))
        return found


def recomputed(passes: Passes, segments: int) -> Module:
    """The module with about so many segments, all but the last of which are computed again."""
    cuts = passes.cuts(segments)
    if not cuts:
        return passes.module
    return _Rewriter(passes, cuts).run()


class _Rewriter:
    def __init__(self, passes: Passes, cuts: Sequence[int]) -> None:
        self.passes = passes
        main = passes.module.main
        kept = {id(each) for place in cuts for each in passes.crossing[place]}
        kept |= {id(each) for each in main.results[: passes.forward_results]}
        kept |= {id(each) for each in passes.forward[cuts[-1] + 1 :]}
        bounds = np.array(cuts)
        self.segment = {
            id(node): int(np.searchsorted(bounds, place))
            for place, node in enumerate(passes.forward) if id(node) not in kept
        }  # fmt: skip
        self.after = self._entering()
        self.memo: dict[int, Expr] = {}
        self.again: dict[int, Expr] = {}
        self.barriers: dict[tuple[int, int], Expr] = {}

    def _entering(self) -> Mapping[int, list[Expr]]:
        """For each segment the gradients that come into it from later ones."""
        from_forward = {id(node) for node in self.passes.forward}
        level: dict[int, int] = dict(self.segment)
        found: dict[int, dict[int, Expr]] = {}
        for node in self.passes.backward:
            level[id(node)] = min((level.get(id(each), NEVER) for each in node.children), default=NEVER)
            if any(id(each) in from_forward for each in node.children):
                from_forward.add(id(node))
            for each in node.children:
                late = id(each) not in self.segment and level.get(id(each), NEVER) > level[id(node)]
                if late and self._is_gradient(each) and id(each) in from_forward:
                    found.setdefault(level[id(node)], {})[id(each)] = each
        return {segment: list(values.values()) for segment, values in found.items()}

    def _is_gradient(self, value: Expr) -> bool:
        """Whether the backward part computes it."""
        return id(value) in self._backward_ids and isinstance(value.type, TensorType)

    @cached_property
    def _backward_ids(self) -> set[int]:
        return {id(node) for node in self.passes.backward}

    def run(self) -> Module:
        main = self.passes.module.main
        for node in self.passes.forward:
            self.memo[id(node)] = node
        backward = {id(node): node for node in self.passes.backward}

        def needs(node: Expr) -> list[Expr]:
            """Backward values that come before: operands, and what computing an operand again waits for."""
            segments = {self.segment[id(each)] for each in node.children if id(each) in self.segment}
            waits = [each for segment in segments for each in self.after.get(segment, ())]
            return [each for each in (*node.children, *waits) if id(each) in backward]

        for node in _in_order(self.passes.backward, needs):
            children = tuple(
                self._again(each) if id(each) in self.segment else self.memo.get(id(each), each)
                for each in node.children
            )
            self.memo[id(node)] = with_children(node, children)
        results = tuple(self.memo.get(id(each), each) for each in main.results)
        body = results[0] if len(results) == 1 else Tuple(results)
        whole = Function(main.params, body, main.attrs, main.span)
        return infer_types(Module(whole, self.passes.module.stage))

    def _again(self, value: Expr) -> Expr:
        """A forward value that is not kept, computed from those that are."""
        segment = self.segment[id(value)]
        for node in _in_order([value], lambda node: [each for each in node.children if id(each) in self.segment]):
            if id(node) not in self.again:
                children = tuple(
                    self.again[id(each)] if id(each) in self.segment else self._held(each, segment)
                    for each in node.children
                )
                self.again[id(node)] = with_children(node, children)
        return self.again[id(value)]

    def _held(self, value: Expr, segment: int) -> Expr:
        """A kept value behind the barrier of a segment."""
        if isinstance(value, Constant) or not isinstance(value.type, TensorType):
            return value
        key = id(value), segment
        if key not in self.barriers:
            after = [self.memo[id(each)] for each in self.after.get(segment, ())]
            self.barriers[key] = call("barrier", value, *after, span=value.span)
        return self.barriers[key]


def _in_order(roots: Sequence[Expr], needs: Callable[[Expr], Sequence[Expr]]) -> Iterator[Expr]:
    """The roots and all that they need, each once, behind what it needs itself."""
    done: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in done:
            done.add(id(node))
            stack.append((node, True))
            stack.extend((each, False) for each in reversed(needs(node)))


def is_costly(node: Expr) -> bool:
    """Whether computing a value again takes more than a pass over memory."""
    if not isinstance(node, Call) or isinstance(node.op, Function):
        return True
    return operator(node.op).fusion not in (Fusion.ELEMENTWISE, Fusion.LAYOUT)


def nbytes(node: Expr) -> int:
    """Bytes of a tensor; 0 for a tuple."""
    if isinstance(node.type, TensorType):
        return node.type.size * numpy_dtype(node.type.dtype).itemsize
    return 0
