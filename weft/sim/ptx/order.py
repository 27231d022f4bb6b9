"""Which of a warp's ways goes on first, so that its threads meet again as soon as they can.

A block of instructions waits for all blocks from which it can be reached, and what is behind a loop for all of the
loop: priorities as of Diamos et al., "SIMD Re-Convergence At Thread Frontiers" (MICRO 2011). Where blocks stand in the
text says nothing: compilers put them into any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Ways = Mapping[int, Sequence[int]]
"""Where each block leads to."""


def waiting_order(successors: Sequence[Sequence[int]]) -> list[int]:
    """All blocks, by number: each behind those that lead to it, apart from ways back to the head of a loop; blocks of a
    loop stand together. ``successors``: of each block; block 0 is the first."""
    entries = _turned(dict(enumerate(successors)))
    order: list[int] = []
    waiting: list[Ways] = [dict(enumerate(successors))]
    while waiting:
        ways = waiting.pop()
        if len(ways) == 1:
            order += ways
            continue
        parts = [_without_ways_back(blocks, ways, entries) for blocks in _components(ways)]
        waiting += reversed(parts)
    return order


def _without_ways_back(blocks: Sequence[int], ways: Ways, entries: Ways) -> Ways:
    """The ways among the blocks of a loop, but those to its head, where it is entered."""
    inside = set(blocks)
    head = min((block for block in blocks if block == 0 or set(entries[block]) - inside), default=min(blocks))
    return {block: [each for each in ways[block] if each in inside and each != head] for block in blocks}


def _components(ways: Ways) -> list[list[int]]:
    """Blocks that reach each other, together; each such set behind those that lead to it (Kosaraju's algorithm)."""
    seen: set[int] = set()
    finished = [block for start in ways for block in _finished(start, ways, seen)]
    back = _turned(ways)
    seen = set()
    parts = (list(_finished(start, back, seen)) for start in reversed(finished))
    return [part for part in parts if part]


def _finished(start: int, ways: Ways, seen: set[int]) -> Iterator[int]:
    """The blocks that can be reached and were not seen, each behind all that it leads to."""
    path: list[tuple[int, Iterator[int]]] = []
    found: int | None = start if start not in seen else None
    while found is not None or path:
        if found is None:
            yield path.pop()[0]
        else:
            seen.add(found)
            path.append((found, iter(ways[found])))
        found = next((each for each in path[-1][1] if each not in seen), None) if path else None


def _turned(ways: Ways) -> dict[int, list[int]]:
    turned: dict[int, list[int]] = {block: [] for block in ways}
    for block, leads in ways.items():
        for each in leads:
            turned[each].append(block)
    return turned
