"""What memories hold, against one entry after the other in plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from weft.compiler.model import CompiledModel
from weft.hw.memories import Memory
from weft.hw.programs import disassemble
from weft.runtime.device import memory_of
from weft.runtime.profile_whatif import predict_runs
from weft.view.accesses import accesses, nests
from weft.view.held import Steps, held

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12)


@given(spans, st.lists(st.integers(0, 70), min_size=2, max_size=9, unique=True).map(sorted))
def test_peaks_are_the_most_in_any_cycle(intervals: list[tuple[int, int]], edges: list[int]) -> None:
    begins, lengths = np.array(intervals, np.int64).reshape(-1, 2).T
    steps = Steps.of(begins, begins + lengths, 3)
    in_cycle = [3 * sum(begin <= cycle < begin + length for begin, length in intervals) for cycle in range(71)]
    expected = [max(in_cycle[low:high]) for low, high in pairwise(edges)]
    assert steps.peaks(np.array(edges)).tolist() == expected


def test_what_a_program_holds(digits: CompiledModel) -> None:
    (run,), config = predict_runs(digits, memory_of(digits)), digits.config
    assert run.result.trace is not None
    assert digits.core is not None
    instructions, events = disassemble(config, run.step.program), run.result.trace.events
    loops, cycles = nests(instructions), run.result.cycles or 0
    found = held(config, instructions, loops, events, digits.core.window_bytes)
    lives: dict[tuple[Memory, int], list[list[int]]] = {}
    for _, number, start, retire in sorted(events.tolist(), key=lambda event: event[2]):
        for memory, entries, kind in accesses(config, instructions[number], loops[number]):
            each = range(entries.start, entries.stop) if isinstance(entries, slice) else entries.ravel().tolist()
            for entry in each:
                own = lives.setdefault((memory, entry), [])
                if kind == "write":
                    own.append([start, retire])
                elif own:
                    own[-1][1] = max(own[-1][1], retire)
    edges = np.unique(np.linspace(0, cycles, 40).astype(np.int64))
    for memory in (*config.scratchpads, Memory.DRAM):
        size = config.granule_bytes if memory is Memory.DRAM else config.entry_elements(memory) * memory.element_bytes
        level = np.zeros(cycles + 1, np.int64)
        for (where, _), own in lives.items():
            for start, end in own if where is memory else ():
                level[start:end] += size
        expected = np.maximum.reduceat(level, edges[:-1])
        expected[-1] = level[edges[-2] : edges[-1]].max()
        assert found[memory].peaks(edges).tolist() == expected.tolist()
        if memory is not Memory.DRAM and memory is not Memory.TAB:
            assert 0 < expected.max() <= config.depth(memory) * size
