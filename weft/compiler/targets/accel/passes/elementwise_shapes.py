"""Under which shape elementwise arithmetic is computed: the one for which the least is moved, with full lanes.

A tensor of the core is (N, C) or (N, C, H, W), and channels are its lanes. Elementwise integers may be computed under
any shape of the same elements. What the model gives them is often a bad one: a row of C numbers, (1, 1, C), is an image
of one channel, and a sum of rows of tokens has tokens for channels, where the dense layers beside it have the rows as
images. Then lanes are idle, and where two shapes meet the host moves the elements, for which the core stops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ....graph import Call, Constant, Expr, Family, Function, Fusion, Module, Span, call, operator_of
from ....graph.host import HOST_STEP
from ....graph.visit import topological_order, with_children
from ....passes.manager import Pass, rule_pass
from ....passes.simplify import MOVES
from ..operators.packed_layout import PACKABLE_RANKS, Blocks, spatial
from .flatten_into_kernel import flattening
from .numbers_of_rows import can_be_in_all_lanes, in_all_lanes, is_number_of_rows, rows_fit
from .prices import Rate, entries_of

Shape = tuple[int, ...]

_moves_that_meet = rule_pass("moves", MOVES)


def elementwise_shapes(blocks: Blocks, bytes_per_cycle: int = 8) -> Pass:
    """The pass for an array of this shape, with DRAM that moves ``bytes_per_cycle`` a cycle."""
    rate = Rate(blocks, bytes_per_cycle)
    return Pass("elementwise-shapes", lambda module: _run(module, rate), needs=("legalise",), about=__doc__ or "")


def _run(module: Module, rate: Rate) -> Module:
    graph = _Graph(module.main.body)
    chosen: dict[Expr, Shape] = {}
    for group in graph.groups():
        shape = _cheapest(graph, group, rate)
        if shape is not None:
            chosen |= {root: shape for root in group if root.shape != shape}
    memo: dict[Expr, Expr] = {}
    for node in topological_order(module.main.body):
        if isinstance(node, Call) and node in chosen:
            total = _under(node, chosen[node], frozenset(graph.islands[node]), rate.blocks, memo)
            memo[node] = call("reshape", total, shape=node.shape, span=Span(node.span.nodes, node.span.tensor))
        else:
            memo[node] = _as_it_is_made(with_children(node, tuple(memo[child] for child in node.children)))
    if memo[module.main.body] is module.main.body:
        return module
    return _moves_that_meet(module.with_main(memo[module.main.body]))


def _as_it_is_made(node: Expr) -> Expr:
    """A requantise that reads the pixels that another one makes under the shape of that: so one kernel makes both.

    Its channels have numbers of their own (a scale of a normalisation), hence it is in no island.
    """
    if not isinstance(node, Call) or not _is_requantise(node) or len(node.shape) not in PACKABLE_RANKS:
        return node
    value = _before_reshapes(node.args[0])
    if not isinstance(value, Call) or not _is_requantise(value) or value.shape == node.shape:
        return node
    if len(value.shape) in PACKABLE_RANKS and _pixels(value.shape) == _pixels(node.shape):
        made = call("requantise", value, *node.args[1:], span=node.span, **node.attrs)
        return call("reshape", made, shape=node.shape, span=Span(node.span.nodes, node.span.tensor))
    return node


@dataclass
class _Graph:
    """``islands``: for each requantise that may have any shape the steps that it narrows, itself among them; for each
    table that is looked up only that."""

    body: Expr
    islands: dict[Call, Sequence[Call]] = field(default_factory=dict)
    readers: dict[Expr, list[Expr]] = field(default_factory=lambda: defaultdict(list))
    island_of: dict[Expr, list[Call]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for node in dict.fromkeys(topological_order(self.body)):
            for child in dict.fromkeys(node.children):
                self.readers[child].append(node)
            steps = _elementwise(node) if isinstance(node, Call) else []
            if isinstance(node, Call) and steps:
                self.islands[node] = steps
                for step in steps:
                    self.island_of[step].append(node)

    def groups(self) -> list[list[Call]]:
        """Islands of which one reads another, whatever reshapes are between."""
        parent: dict[Call, Call] = {root: root for root in self.islands}

        def top(root: Call) -> Call:
            while parent[root] is not root:
                root = parent[root]
            return root

        for root in self.islands:
            for source, _ in self.operands(root):
                if isinstance(source, Call) and source in self.islands:
                    parent[top(root)] = top(source)
        found: dict[Call, list[Call]] = defaultdict(list)
        for root in self.islands:
            found[top(root)].append(root)
        return list(found.values())

    def operands(self, root: Call) -> list[tuple[Expr, Expr]]:
        """The values from outside that an island reads element by element: before reshapes, and as they are read."""
        steps = self.islands[root]
        read = dict.fromkeys(
            arg
            for step in steps
            for arg in step.args
            if not _is_number(step, arg) and not _is_table(step, arg) and not is_number_of_rows(step, arg)
        )
        return [(_before_reshapes(arg), arg) for arg in read if arg not in steps]

    def may_have(self, root: Call, shape: Shape) -> bool:
        """Whether an island can be computed under a shape."""
        rows = [step for step in self.islands[root] if any(is_number_of_rows(step, arg) for arg in step.args)]
        return shape == root.shape or all(rows_fit(step, shape) for step in rows)

    def uses(self, root: Call) -> list[tuple[Expr, Expr]]:
        """The value of an island as it is read, a reshape of it perhaps, and who reads it."""
        found: list[tuple[Expr, Expr]] = []
        waiting: list[Expr] = [root]
        while waiting:
            value = waiting.pop()
            for reader in self.readers[value]:
                if isinstance(reader, Call) and reader.op == "reshape":
                    waiting.append(reader)
                else:
                    found.append((value, reader))
        return found


@dataclass(frozen=True)
class _Edges:
    """What a group of islands meets. ``sources``: values that the core makes. ``reads``: values of the group as layers
    of the core read them, with the reader. ``inner``: pairs of islands."""

    sources: Sequence[Expr]
    reads: Sequence[tuple[Call, Expr, Call]]
    moves: Sequence[tuple[Call, Call]]
    inner: Sequence[tuple[Call, Call]]

    @staticmethod
    def of(graph: _Graph, group: Sequence[Call]) -> _Edges:
        own = set(group)
        sources: dict[Expr, None] = {}
        inner: list[tuple[Call, Call]] = []
        for root in group:
            for source, _ in graph.operands(root):
                if isinstance(source, Call) and source in own:
                    inner.append((source, root))
                elif _is_made_by_core(source):
                    sources[source] = None
        reads, moves = [], []
        for root in group:
            for value, reader in graph.uses(root):
                if not isinstance(reader, Call) or not isinstance(reader.op, str):
                    continue  # the host reads it under any shape
                if any(island in own for island in graph.island_of.get(reader, ())):
                    continue
                if _is_move(reader):
                    moves += [(root, reader)] if value is root else []
                else:
                    reads.append((root, value, reader))
        return _Edges(list(sources), reads, moves, inner)

    @cached_property
    def shapes(self) -> list[Shape]:
        """Those under which the group meets others."""
        found = [*(source.shape for source in self.sources), *(value.shape for _, value, _ in self.reads)]
        return [shape for shape in dict.fromkeys(found) if len(shape) in PACKABLE_RANKS]


def _cheapest(graph: _Graph, group: Sequence[Call], rate: Rate) -> Shape | None:
    """One shape for all islands of a group; None where they had better stay as they are."""
    edges = _Edges.of(graph, group)
    best, least = None, _price(graph, edges, {root: root.shape for root in group}, rate)
    for shape in dict.fromkeys([*edges.shapes, *(root.shape for root in group)]):
        if len(shape) not in PACKABLE_RANKS or not all(graph.may_have(root, shape) for root in group):
            continue
        price = _price(graph, edges, dict.fromkeys(group, shape), rate)
        if price < least:
            best, least = shape, price
    return best


def _price(graph: _Graph, edges: _Edges, shapes: Mapping[Call, Shape], rate: Rate) -> float:
    """Cycles of the vector engine for islands under these shapes, and what the host's moves at their edges cost."""
    total = 0.0
    for root, shape in shapes.items():
        steps = len(graph.islands[root])
        total += steps * entries_of(shape, rate.blocks) if len(shape) in PACKABLE_RANKS else HOST_STEP
    different = set(shapes.values())
    for source in edges.sources:
        others = different - {source.shape}
        if any(_pixels(shape) != _pixels(source.shape) for shape in others):
            total += HOST_STEP
        elif others:  # it lies as it is read, but a reshape parts it from what could join its kernel
            total += 2 * source.tensor_type.size / rate.bytes_per_cycle
    total += HOST_STEP * sum(_pixels(shapes[first]) != _pixels(shapes[second]) for first, second in edges.inner)
    total += HOST_STEP * len({root for root, _ in edges.moves if _pixels(root.shape) != _pixels(shapes[root])})
    moved: set[tuple[Call, Shape]] = set()
    for root, value, reader in edges.reads:
        if _pixels(value.shape) == _pixels(shapes[root]):
            continue
        into_kernel = flattening(reader, value, shapes[root], rate)
        if into_kernel is not None and into_kernel < HOST_STEP:
            total += into_kernel
        else:
            moved.add((root, value.shape))
    return total + HOST_STEP * len(moved)


def _pixels(shape: Shape) -> Shape:
    """(N, C, H, W) of a tensor of the core; another shape as it is."""
    return spatial(shape) if len(shape) in PACKABLE_RANKS else shape


def _is_made_by_core(value: Expr) -> bool:
    return isinstance(value, Call) and isinstance(value.op, str) and not _is_move(value)


def _is_move(value: Call) -> bool:
    """Whether the host does it: a move that is no concatenation of channels."""
    entry = operator_of(value)
    return entry is not None and entry.family in (Family.MOVE, Family.INDEX) and value.op != "concat"


def _before_reshapes(value: Expr) -> Expr:
    while isinstance(value, Call) and value.op == "reshape":
        value = value.args[0]
    return value


def _elementwise(node: Call) -> Sequence[Call]:
    """The requantise ``node`` and what it narrows, down to 8-bit values, or what looks up a table; empty where
    something else than elements of equal places and numbers that are the same for all of them make it."""
    if not _narrows(node) or node.dtype != "int8" or isinstance(node.op, Function):
        return []
    found: dict[Call, None] = {}
    waiting = [node]
    while waiting:
        step = waiting.pop()
        entry = operator_of(step)
        if entry is None or entry.fusion is not Fusion.ELEMENTWISE or (step is not node and _narrows(step)):
            return []
        numbers = [arg for arg in step.args if _is_number(step, arg)]
        computed = [arg for arg in step.args if arg not in numbers and not _is_table(step, arg)]
        rows = [arg for arg in computed if is_number_of_rows(step, arg) and can_be_in_all_lanes(arg)]
        if any(arg.shape != node.shape for arg in computed if arg not in rows):
            return []
        if any(not isinstance(arg, Constant) or len(np.unique(arg.value)) != 1 for arg in numbers):
            return []
        found[step] = None
        waiting += [arg for arg in computed if isinstance(arg, Call) and arg.dtype == "int32" and arg not in rows]
    return list(found)


def _is_requantise(node: Call) -> bool:
    return node.op == "requantise"


def _narrows(node: Call) -> bool:
    return _is_requantise(node) or (_looks_up(node) and isinstance(node.args[1], Constant))


def _looks_up(node: Call) -> bool:
    return node.op == "look_up"


def _is_table(step: Call, arg: Expr) -> bool:
    return _looks_up(step) and arg is step.args[1]


def _is_number(step: Call, arg: Expr) -> bool:
    """Whether an operand is one number a channel."""
    return _is_requantise(step) and arg is not step.args[0]


def _under(node: Expr, shape: Shape, steps: frozenset[Call], blocks: Blocks, memo: Mapping[Expr, Expr]) -> Expr:
    """``node`` with all of its elements under another shape."""
    if isinstance(node, Call) and node in steps:
        args: list[Expr] = []
        for arg in node.args:
            if isinstance(arg, Constant) and _is_number(node, arg):
                args.append(Constant(np.full(shape[1], arg.value.flat[0], arg.value.dtype)))
            elif _is_table(node, arg):
                args.append(arg)
            elif is_number_of_rows(node, arg):
                args.append(in_all_lanes(arg, shape, blocks, memo))
            else:
                args.append(_under(arg, shape, steps, blocks, memo))
        return call(node.op, *args, span=node.span, **node.attrs)
    value = memo[node]
    if isinstance(value, Constant):
        return Constant(value.value.reshape(shape), value.name, value.span)
    value = _before_reshapes(value)
    return value if value.shape == shape else call("reshape", value, shape=shape, span=Span(value.span.nodes))
