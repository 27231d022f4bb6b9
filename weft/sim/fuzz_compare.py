"""Two simulators on one random program: what must be equal, byte for byte, and what a fault leaves open.

All of DRAM and of every scratchpad is read: from the functional simulator's arrays, and from the memories of the
verilated core (no instruction of the program under test is needed for it).

A legal program ends with equal memories, whatever the timing. After a fault

- the records are equal;
- entries that no instruction writes are what they were;
- of a serial program (one engine after the other) an engine stops inside its row of instructions, with all before the
  row done and none behind it begun; fetch, which runs ahead, stops some engine so;
- an instruction that is refused as the first of its row leaves equal memories;
- a deadlock leaves equal memories: where it ends does not depend on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..hw.config import PROGRAM_ALIGNMENT
from ..hw.isa import FETCH, Fault
from ..hw.memories import Memory
from ..hw.programs import assemble
from .fsim import FunctionalSimulator
from .fuzz import PROGRAM_BYTES, Case, Touched, touched
from .result import FaultRecord, RunResult
from .rtl import RtlSimulator
from .state import Bytes, Int8, Int32, shape
from .timing import predict

Simulator = FunctionalSimulator | RtlSimulator

Contents = Mapping[str, Bytes | Int8 | Int32]
"""``dram`` and every scratchpad."""

BUS_FAULTS = (Fault.BUS_READ, Fault.BUS_WRITE)


@dataclass(frozen=True)
class Comparison:
    """The first difference, or an empty text; and what both did."""

    difference: str
    reference: RunResult
    subject: RunResult
    timed: bool = False  # the cycles were compared with the timing model's


def fill(case: Case, simulator: Simulator) -> tuple[int, int]:
    """Put data and program into a simulator; returns the program's offset in the window and its length."""
    rng = np.random.default_rng(case.data_seed)
    config = case.config
    simulator.dram[...] = rng.integers(0, 256, len(simulator.dram), np.uint8)
    for name in config.scratchpads:
        size = shape(config, name)
        if name is Memory.ACC:
            span = np.int64(1) << rng.integers(0, 32, size)
            simulator.write_scratchpad(name, rng.integers(-span, span).astype(np.int32))
        else:
            simulator.write_scratchpad(name, rng.integers(-128, 128, size).astype(np.int8))
    words = case.words
    code = np.frombuffer(b"".join(word.to_bytes(config.instruction_bytes, "little") for word in words), np.uint8)
    start = case.window_start + case.program_offset
    room = max(0, len(simulator.dram) - start)  # some programs are not wholly in the memory
    simulator.dram[start : start + len(code)] = code[:room]
    return case.program_offset, len(words)


def compare(case: Case, reference: FunctionalSimulator, subject: Simulator) -> Comparison:
    """Run the case on both. ``reference`` is the functional simulator: it is also run on parts of the program."""
    first, ours = _run(case, reference)
    second, theirs = _run(case, subject)
    if first.fault != second.fault:
        return Comparison(f"faults differ: {first.fault} and {second.fault}", first, second)
    if first.fault is None:
        difference = difference_of(ours, theirs)
        timed = is_legal(case) and second.cycles is not None and not case.dram.jitter and not case.dram.reorder
        if not difference and timed:
            difference = _cycles_differ(case, second)
        return Comparison(difference, first, second, timed)
    if is_legal(case):
        return Comparison(f"a legal program faulted: {first.fault}", first, second)
    return Comparison(_after_fault(case, reference, first.fault, ours, theirs), first, second)


def difference_of(first: Contents, second: Contents) -> str:
    """The first element that differs, or an empty text."""
    for name, values in first.items():
        wrong = np.argwhere(values != second[name])
        if len(wrong):
            place = tuple(int(x) for x in wrong[0])
            return f"{name}{list(place)} is {values[place]} and {second[name][place]}; {len(wrong)} elements differ"
    return ""


def _run(case: Case, simulator: Simulator) -> tuple[RunResult, Contents]:
    if isinstance(simulator, RtlSimulator):
        simulator.set_dram(case.dram)
    else:
        simulator.bus_errors = case.dram.errors
    offset, count = fill(case, simulator)
    result = simulator.run(offset, count, window_start=case.window_start, window_bytes=case.window_bytes)
    return result, _contents(simulator)


def _contents(simulator: Simulator) -> Contents:
    scratchpads: Contents = {name: simulator.read_scratchpad(name) for name in simulator.config.scratchpads}
    return {Memory.DRAM: simulator.dram.copy(), **scratchpads}


def _cycles_differ(case: Case, result: RunResult) -> str:
    code = assemble(case.config, case.instructions)
    predicted = predict(case.config, code, case.dram, offset=case.program_offset, window_start=case.window_start)
    if predicted.cycles != result.cycles:
        return f"the core takes {result.cycles} cycles, the timing model {predicted.cycles}"
    return ""


def is_legal(case: Case) -> bool:
    """Is nothing wrong with the program, its place or the memory?"""
    end = case.program_offset + len(case.program) * case.config.instruction_bytes
    placed = case.program_offset % PROGRAM_ALIGNMENT == 0 and end <= case.window_bytes
    return placed and not case.wrong and case.finish and case.dram.errors is None


def _after_fault(
    case: Case, reference: FunctionalSimulator, fault: FaultRecord, ours: Contents, theirs: Contents
) -> str:
    refused_at_once = fault.engine == FETCH and fault.cause in (Fault.WINDOW, Fault.ALIGNMENT)
    if fault.cause is Fault.WATCHDOG or refused_at_once:
        return difference_of(ours, theirs)
    if not case.serial or fault.engine == FETCH:
        fill(case, reference)
        untouched = _with_entries(case, _contents(reference), theirs, touched(case.config, case.plain))
        if stray := difference_of(untouched, theirs):
            return f"{fault}: written by no instruction: {stray}"
    if not case.serial:
        return ""
    if fault.engine == FETCH:
        return _stopped_by_fetch(case, reference, fault, theirs)
    row = _row(case, fault)
    if row.start == fault.number and fault.cause not in BUS_FAULTS:
        return difference_of(ours, theirs)
    before = _after(case, reference, row.start)
    # What the refused instruction did before its fault is in `ours` alone.
    expected: Contents = {name: np.where(values == ours[name], values, theirs[name]) for name, values in before.items()}
    expected = _with_entries(case, expected, theirs, touched(case.config, case.plain)[row.start : row.stop])
    return difference_of(_without_program(case, expected), _without_program(case, theirs))


def _stopped_by_fetch(case: Case, reference: FunctionalSimulator, fault: FaultRecord, theirs: Contents) -> str:
    """All instructions before some one are done, none behind its engine's row has begun."""
    entries = touched(case.config, case.plain)
    starts = [0, *(n for n in range(1, len(case.plain)) if case.plain[n].engine is not case.plain[n - 1].engine)]
    for start, stop in pairwise([*starts, len(case.plain)]):
        expected = _with_entries(case, _after(case, reference, start), theirs, entries[start:stop])
        if not difference_of(_without_program(case, expected), _without_program(case, theirs)):
            return ""
    return f"{fault}: the memories are those of no beginning of the program"


def _row(case: Case, fault: FaultRecord) -> range:
    """Numbers of the instructions of the faulty engine without one of another engine between: all may be under way."""
    start = stop = fault.number
    while start > 0 and case.plain[start - 1].engine == fault.engine:
        start -= 1
    while stop < len(case.plain) and case.plain[stop].engine == fault.engine:
        stop += 1
    return range(start, stop)


def _after(case: Case, reference: FunctionalSimulator, count: int) -> Contents:
    """Memories after the first ``count`` instructions of a serial program."""
    dram = replace(case.dram, errors=None)
    start = replace(case, plain=case.plain[:count], wrong=(), finish=True, dram=dram)
    return _run(start, reference)[1]


def _with_entries(case: Case, old: Contents, new: Contents, entries: Sequence[Touched]) -> Contents:
    """``old``, but with what the given instructions write as it is in ``new``."""
    mixed = {name: values.copy() for name, values in old.items()}
    size = case.config.granule_bytes
    for part in entries:
        for name, (_, written) in part.items():
            if name != "dram":
                places = sorted(written)
                mixed[name][places] = new[name][places]
                continue
            for granule in written:
                start = case.window_start + granule * size
                mixed[name][start : start + size] = new[name][start : start + size]
    return mixed


def _without_program(case: Case, contents: Contents) -> Contents:
    """The memories with zeros where programs of different lengths lie."""
    dram = contents["dram"].copy()
    start = case.window_start + case.program_offset
    dram[start : case.window_start + PROGRAM_BYTES] = 0
    return {**contents, "dram": dram}
