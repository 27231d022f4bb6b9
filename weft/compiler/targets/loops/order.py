"""The order of a program's kernels: producers before consumers, and what they make in memory for a short time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...graph.ir import Call, Constant, Expr, Tuple, Var
from ...operators.index import index_sizes
from .fusion import FusedGroup, nbytes, roots_of

FIRST_STEPS = 3
"""Kernels that may make a value of inputs alone, one after the other, for it to be made when it is read."""


def kept_briefly(groups: list[FusedGroup], body: Expr) -> list[FusedGroup]:
    """The kernels of a body, producers first.

    What few kernels make of inputs, such as weights in another type, is made when it is first read. So is all else of
    which at least as many bytes are made as were last read: it is in memory for less long.
    """
    return Later(_inputs_late(groups), body).run()


def _inputs_late(groups: list[FusedGroup]) -> list[FusedGroup]:
    producer: dict[Expr, FusedGroup] = {group.root: group for group in groups}
    steps: dict[FusedGroup, int] = {}
    ordered = _sorted(groups, lambda group: _makers(group, producer))
    for group in ordered:
        steps[group] = 1 + max((steps[each] for each in _makers(group, producer)), default=0)
    late = [group for group in ordered if steps[group] > FIRST_STEPS]
    return _sorted([*late, *ordered], lambda group: sorted(_makers(group, producer), key=lambda each: -steps[each]))


def _makers(group: FusedGroup, producer: Mapping[Expr, FusedGroup]) -> list[FusedGroup]:
    return [producer[node] for value in group.inputs for node in roots_of(value) if node in producer]


def _sorted(groups: list[FusedGroup], makers: Callable[[FusedGroup], list[FusedGroup]]) -> list[FusedGroup]:
    """The groups and all before them, each behind its makers, which come in their order."""
    done: set[FusedGroup] = set()
    result: list[FusedGroup] = []
    for first in groups:
        stack = [(first, False)]
        while stack:
            group, ready = stack.pop()
            if group in done:
                continue
            if ready:
                done.add(group)
                result.append(group)
                continue
            stack.append((group, True))
            stack.extend((maker, False) for maker in reversed(makers(group)))
    return result


class Row:
    """Kernels in a row, in front of each of which another may be put; which of two comes first is a comparison."""

    STEP = 1 << 40
    """Between the labels of neighbours that are new, so that many fit between them."""

    def __init__(self) -> None:
        self.front: FusedGroup | None = None
        self._labels: dict[FusedGroup, int] = {}
        self._before: dict[FusedGroup, FusedGroup | None] = {}
        self._after: dict[FusedGroup, FusedGroup | None] = {}

    def __iter__(self) -> Iterator[FusedGroup]:
        group = self.front
        while group is not None:
            yield group
            group = self._after[group]

    def insert(self, group: FusedGroup, place: FusedGroup | None) -> None:
        """In front of ``place``; None is the end of a row in which nothing is yet."""
        before = None if place is None else self._before[place]
        self._before[group], self._after[group] = before, place
        if place is None:
            self.front, self._labels[group] = group, 0
            return
        self._before[place] = group
        if before is None:
            self.front, self._labels[group] = group, self._labels[place] - self.STEP
            return
        self._after[before] = group
        least = self._labels[before]
        self._labels[group] = (least + self._labels[place]) // 2
        if self._labels[group] == least:  # no room is left
            self._labels = {each: number * self.STEP for number, each in enumerate(self)}

    def first(self, groups: list[FusedGroup]) -> FusedGroup | None:
        """The one that comes before the others."""
        return min(groups, key=self._labels.__getitem__, default=None)

    def is_before(self, first: FusedGroup, second: FusedGroup) -> bool:
        return self._labels[first] < self._labels[second]


@dataclass
class Later:
    """Kernels are taken from the last to the first, and each is put before what reads it first, if that saves memory.

    A kernel that reads an input stays before all that make a result of the input's type: a step of training writes the
    next value of its state over it. So do those that look at indices, as a run that is refused must leave the state.
    """

    groups: list[FusedGroup]
    body: Expr

    def run(self) -> list[FusedGroup]:
        placed = Row()
        reads_first: dict[Expr, FusedGroup] = {}  # of what is placed so far, by what has to be there before
        reads_last: dict[Expr, FusedGroup] = {}  # by the value of this memory
        makes_first: dict[object, FusedGroup] = {}  # by the type of a result
        for group in reversed(self.groups):
            stop = None
            if self.may_move(group):
                types = {source.type for source in map(self.source, group.inputs) if isinstance(source, Var)}
                found = [reads_first.get(group.root), *map(makes_first.get, types)]
                stop = placed.first([each for each in found if each is not None])
            if stop is not None and stop is not placed.front and not group.is_alias:
                freed = sum(
                    nbytes(value) for value in self.sources[group]
                    if value not in reads_last or placed.is_before(reads_last[value], stop)
                )  # fmt: skip
                stop = stop if nbytes(group.root) >= freed else None
            placed.insert(group, stop or placed.front)
            if group.root in self.results:
                makes_first[group.root.type] = group  # it never moves, so it is in front of all
            for value in self.read[group]:
                reads_first[value] = placed.first([group, reads_first.get(value, group)]) or group
            for value in self.sources[group]:
                if value not in reads_last or placed.is_before(reads_last[value], group):
                    reads_last[value] = group
        return list(placed)

    def may_move(self, group: FusedGroup) -> bool:
        looks = any(index_sizes(node) for node in group.members)
        return not group.reason and not looks and group.root not in self.results

    @cached_property
    def results(self) -> set[Expr]:
        """What is in memory of its own, which the caller has."""
        results = self.body.fields if isinstance(self.body, Tuple) else (self.body,)
        return {source for result in results for source in (result, self.source(result))}

    @cached_property
    def read(self) -> dict[FusedGroup, set[Expr]]:
        """What has to be there before a kernel."""
        return {group: {root for value in group.inputs for root in roots_of(value)} for group in self.groups}

    @cached_property
    def sources(self) -> dict[FusedGroup, set[Expr]]:
        """The values of this memory that a kernel reads."""
        return {group: set(self._sources_of(group)) for group in self.groups}

    def _sources_of(self, group: FusedGroup) -> Iterator[Expr]:
        for value in group.inputs:
            source = self.source(value)
            if not isinstance(source, Var | Constant) and source not in self.results:
                yield source

    def source(self, value: Expr) -> Expr:
        """The value in whose memory another one is."""
        while isinstance(value, Call) and value in self._aliases:
            value = value.args[0]
        return value

    @cached_property
    def _aliases(self) -> set[Expr]:
        return {group.root for group in self.groups if group.is_alias}
