"""Forward values that the backward part computes again because that is cheap: fewer bytes are kept between the two.

What is made element by element, or only moved, need not be kept if that of which it is made is kept anyway: of a
convolution, batch normalisation and relu one tensor instead of three. Which values are kept is a cut of the forward
graph between what is costly (convolutions, products, reductions) and what the backward part uses, the one of the fewest
bytes, as N. Nayak et al. choose it in PyTorch's `min_cut_rematerialization_partition` (2022); flows are found by
J. Edmonds and R. Karp's way of shortest paths (1972). `recompute.py` computes more again, where a bound asks for it.

A barrier around each value that is kept sets apart what is computed again. Elementwise operators of the backward part
that one kernel may hold share one copy, so that it becomes part of that kernel and is never in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..graph import Call, Constant, Expr, Function, Fusion, Module, TensorType, Tuple, Var, call, operator_of
from ..graph.visit import with_children
from .manager import infer_types
from .recompute import Passes, is_costly, nbytes

MOST_ARITHMETIC = 100
"""Units of `Operator.cost` that computing an element again may take: one function such as erf, and some arithmetic."""

MOST_LEAVES = 3
"""Kept tensors, of at least its own size, that computing a value again may read. More are more traffic than they save;
chains of residual additions would reach back to the first one."""

SMALLEST = 4096
"""Bytes: smaller values, such as statistics of channels, are kept, since a kernel more costs more than they do."""

UNBOUNDED = 1 << 60


def rematerialised(module: Module, forward_results: int) -> Module:
    """The module with cheap forward values computed again. ``forward_results``: as of `Passes`."""
    passes = Passes(module, forward_results)
    again = computed_again(passes)
    return module if not again else _Rewriter(passes, again).run()


def computed_again(passes: Passes) -> set[int]:
    """Forward values, by identity, that the backward part uses or needs for those that it uses, and which it computes
    from what is kept."""
    cut = smallest_cut(passes)
    again: set[int] = set()
    leaves: dict[int, set[int]] = {}
    arithmetic: dict[int, int] = {}
    sizes = {id(node): nbytes(node) for node in passes.forward}
    for node in passes.forward:
        here = id(node)
        leaves[here], arithmetic[here] = {here}, 0
        if here in cut or is_costly(node):
            continue
        read = set().union(*(leaves.get(id(each), set()) for each in node.children))
        work = _cost(node) + sum(arithmetic.get(id(each), 0) for each in node.children)
        large = sum(sizes[each] >= sizes[here] for each in read)
        if large <= MOST_LEAVES and work <= MOST_ARITHMETIC:
            leaves[here], arithmetic[here] = read, work
            again.add(here)
    # Of these only what is needed for what the backward part uses.
    needed: set[int] = set(passes.saved)
    for node in reversed(passes.forward):
        if id(node) in needed & again:
            needed |= {id(each) for each in node.children}
    return again & needed


def _cost(node: Expr) -> int:
    entry = operator_of(node)
    return 0 if entry is None or entry.fusion is not Fusion.ELEMENTWISE else entry.cost


@dataclass
class _Flow:
    """A network of edges with capacities. ``ends``, ``room``: of edge n; edge n ^ 1 leads back. ``out``: by node."""

    ends: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    out: list[list[int]] = field(default_factory=list)

    def node(self) -> int:
        self.out.append([])
        return len(self.out) - 1

    def edge(self, begin: int, end: int, capacity: int) -> None:
        for first, second, room in ((begin, end, capacity), (end, begin, 0)):
            self.out[first].append(len(self.ends))
            self.ends.append(second)
            self.room.append(room)

    def saturate(self, source: int, sink: int) -> None:
        """Send as much as there is room for, each time by a shortest path."""
        while True:
            by: dict[int, int] = {source: -1}
            waiting = deque([source])
            while waiting and sink not in by:
                here = waiting.popleft()
                for edge in self.out[here]:
                    if self.room[edge] and self.ends[edge] not in by:
                        by[self.ends[edge]] = edge
                        waiting.append(self.ends[edge])
            if sink not in by:
                return
            path, here = [], sink
            while here != source:
                path.append(by[here])
                here = self.ends[by[here] ^ 1]
            amount = min(self.room[edge] for edge in path)
            for edge in path:
                self.room[edge] -= amount
                self.room[edge ^ 1] += amount

    def reaching(self, sink: int) -> set[int]:
        """Nodes from which there is room left to the sink."""
        found, waiting = {sink}, [sink]
        while waiting:
            for edge in self.out[waiting.pop()]:
                begin = self.ends[edge]
                if self.room[edge ^ 1] and begin not in found:
                    found.add(begin)
                    waiting.append(begin)
        return found


def smallest_cut(passes: Passes) -> set[int]:
    """Values that cut the backward part off from all that is costly, of the fewest bytes; of several such cuts the one
    after which the least is computed again."""
    flow = _Flow()
    source, sink = flow.node(), flow.node()
    into: dict[int, int] = {}
    results = {id(each) for each in passes.module.main.results}
    for node in passes.forward:
        into[id(node)] = flow.node()
        beyond = flow.node()
        free = id(node) in results or nbytes(node) < SMALLEST  # a result has memory of its own
        flow.edge(into[id(node)], beyond, 0 if free else nbytes(node))
        if is_costly(node) or free:
            flow.edge(source, into[id(node)], UNBOUNDED)
        else:
            for each in dict.fromkeys(map(id, node.children)):
                if each in into:
                    flow.edge(into[each] + 1, into[id(node)], UNBOUNDED)
        if id(node) in passes.saved:
            flow.edge(beyond, sink, UNBOUNDED)
    flow.saturate(source, sink)
    behind = flow.reaching(sink)
    return {node for node, first in into.items() if first not in behind and first + 1 in behind}


class _Rewriter:
    def __init__(self, passes: Passes, again: set[int]) -> None:
        self.passes = passes
        self.again = again
        self.copies: dict[tuple[int, int], Expr] = {}
        self.kernel = _kernels(passes.backward)

    def run(self) -> Module:
        main = self.passes.module.main
        memo: dict[int, Expr] = {}
        for node in self.passes.backward:
            kernel = self.kernel[id(node)]
            children = tuple(
                self._copy(each, kernel) if id(each) in self.again else memo.get(id(each), each)
                for each in node.children
            )
            memo[id(node)] = with_children(node, children)
        results = tuple(memo.get(id(each), each) for each in main.results)
        body = results[0] if len(results) == 1 else Tuple(results)
        whole = Function(main.params, body, main.attrs, main.span)
        return infer_types(Module(whole, self.passes.module.stage))

    def _copy(self, value: Expr, kernel: int) -> Expr:
        """A value that is not kept, for this kernel of the backward part."""
        stack = [value]
        while stack:
            node = stack[-1]
            made = [each for each in node.children if id(each) in self.again]
            missing = [each for each in made if (id(each), kernel) not in self.copies]
            if missing:
                stack += missing
                continue
            stack.pop()
            only_inputs = all(isinstance(each, Constant | Var) for each in node.children)
            children = tuple(
                self.copies[id(each), kernel] if id(each) in self.again
                else each if isinstance(each, Var) and not only_inputs
                else self._held(each, kernel)
                for each in node.children
            )  # fmt: skip
            self.copies[id(node), kernel] = with_children(node, children)
        return self.copies[id(value), kernel]

    def _held(self, value: Expr, kernel: int) -> Expr:
        """A kept value, or an input, set apart from the forward part and from the copies for other kernels. What is
        reshaped is kept before: elementwise operators may then go before the reshape, to the kernel of a product."""
        if isinstance(value, Constant) or not isinstance(value.type, TensorType):
            return value
        if isinstance(value, Call) and value.op == "reshape":
            return with_children(value, (self._held(value.args[0], kernel),))
        return call("barrier", value, Constant(np.array(kernel, np.int64)), span=value.span)


def _kernels(backward: Sequence[Expr]) -> Mapping[int, int]:
    """A number for each value: one for the elementwise operators that may become one kernel, 0 for all others."""
    users: dict[int, list[Expr]] = {}
    for node in backward:
        for each in node.children:
            users.setdefault(id(each), []).append(node)
    number: dict[int, int] = {}
    for node in reversed(backward):
        after = users.get(id(node), [])
        if not _is_elementwise(node):
            number[id(node)] = 0
        elif len(after) == 1 and _is_elementwise(after[0]) and after[0].type == node.type:
            number[id(node)] = number[id(after[0])]
        else:
            number[id(node)] = len(number) + 1
    return number


def _is_elementwise(node: Expr) -> bool:
    entry = operator_of(node) if isinstance(node, Call) else None
    return entry is not None and entry.fusion is Fusion.ELEMENTWISE
