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
    return _Later(_inputs_late(groups), body).run()


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


@dataclass
class _Later:
    """Kernels are taken from the last to the first, and each is put before what reads it first, if that saves memory.

    A kernel that reads an input stays before all that make a result of the input's type: a step of training writes the
    next value of its state over it. So do those that look at indices, as a run that is refused must leave the state.
    """

    groups: list[FusedGroup]
    body: Expr

    def run(self) -> list[FusedGroup]:
        placed: list[FusedGroup] = []
        for group in reversed(self.groups):
            placed.insert(self._place(group, placed) if self._may_move(group) else 0, group)
        return placed

    def _place(self, group: FusedGroup, placed: list[FusedGroup]) -> int:
        """How many of the kernels behind a group come before it after all."""
        types = {source.type for source in map(self._source, group.inputs) if isinstance(source, Var)}
        stops = (
            at for at, other in enumerate(placed)
            if group.root in self._read[other] or (other.root in self._results and other.root.type in types)
        )  # fmt: skip
        at = next(stops, 0)
        if not at or group.is_alias:
            return at
        freed = sum(
            nbytes(value) for value in self._sources[group]
            if not any(value in self._sources[other] for other in placed[at:])
        )  # fmt: skip
        return at if nbytes(group.root) >= freed else 0

    def _may_move(self, group: FusedGroup) -> bool:
        looks = any(index_sizes(node) for node in group.members)
        return not group.reason and not looks and group.root not in self._results

    @cached_property
    def _results(self) -> set[Expr]:
        """What is in memory of its own, which the caller has."""
        results = self.body.fields if isinstance(self.body, Tuple) else (self.body,)
        return {source for result in results for source in (result, self._source(result))}

    @cached_property
    def _read(self) -> dict[FusedGroup, set[Expr]]:
        """What has to be there before a kernel."""
        return {group: {root for value in group.inputs for root in roots_of(value)} for group in self.groups}

    @cached_property
    def _sources(self) -> dict[FusedGroup, set[Expr]]:
        """The values of this memory that a kernel reads."""
        return {group: set(self._sources_of(group)) for group in self.groups}

    def _sources_of(self, group: FusedGroup) -> Iterator[Expr]:
        for value in group.inputs:
            source = self._source(value)
            if not isinstance(source, Var | Constant) and source not in self._results:
                yield source

    def _source(self, value: Expr) -> Expr:
        """The value in whose memory another one is."""
        while isinstance(value, Call) and value in self._aliases:
            value = value.args[0]
        return value

    @cached_property
    def _aliases(self) -> set[Expr]:
        return {group.root for group in self.groups if group.is_alias}
