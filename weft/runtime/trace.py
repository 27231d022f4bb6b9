"""A run as a timeline: Perfetto / Chrome trace JSON, one cycle drawn as one microsecond.

Open the file at https://ui.perfetto.dev. Each engine has tracks for its instructions (several where it works on more
than one at a time), whose slices name layer, tile and instruction, and a track that says, for every cycle, what it did
or waited for: it has no gaps, and so explains those between instructions. Arrows lead from the instruction that sends a
token to the one that waits for it. Counters show the DRAM traffic of each engine. One more track says what the array
waited for in the end, through all waits of the others.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from ..compiler.model import CompiledModel
from ..files import written_whole
from ..hw.assembly import format_instruction
from ..hw.config import CoreConfig
from ..hw.isa import ENGINE_NAMES, Engine, Instruction, Load, Vector
from ..hw.programs import disassemble
from .errors import DeviceError
from .module import HOW_TO_TRACE, LoadedModule, StepRun
from .profile_cycles import KINDS, Cause, ProgramCycles
from .trace_tokens import tokens, traffic

_ACTIVITY_TRACK = 90
_TRACKS_AN_ENGINE = 100
_CAUSE_TRACK = _TRACKS_AN_ENGINE * len(ENGINE_NAMES)

COUNTER_POINTS = 4096
"""A counter has at most so many values in a program."""

COUNTER_CYCLES = 32
"""Least cycles that one value of a counter is the mean of."""


def write_trace(module: LoadedModule, path: str | Path) -> int:
    """Write the timeline of the module's last run; number of slices written.

    :class:`DeviceError` if the run was not traced or the device does not model time.
    """
    if not isinstance(module, LoadedModule):
        raise DeviceError(f"module is {module!r:.80}, but must be a loaded model",
                          hint="weft.load makes one; a model on several cores has its own write_trace")  # fmt: skip
    runs = [run for run in module.runs if run.result.trace is not None]
    if not runs:
        raise DeviceError(
            f"there is nothing to draw: the last run on device {module.device.name!r} recorded no trace",
            hint=HOW_TO_TRACE,
        )
    return write_runs(module.model, runs, path)


def write_runs(model: CompiledModel, runs: Sequence[StepRun], path: str | Path) -> int:
    """Write the timeline of traced programs, compressed if the name ends in ``.gz``; number of slices written."""

    def events() -> Iterator[str]:
        start = 0
        for process, run in enumerate(runs):
            yield from run_events(model, run, process, start, f"program {process}")
            start += run.result.cycles or 0

    return write_events(path, model.name, events())


def write_events(path: str | Path, label: str, events: Iterable[str]) -> int:
    """Write events, compressed if the name ends in ``.gz``; number of slices written. ``label``: of the whole."""
    slices = 0
    compressed = Path(path).suffix == ".gz"
    with (
        written_whole(Path(path)) as plain,
        gzip.GzipFile(Path(path).name, "wb", 5, plain) if compressed else nullcontext(plain) as file,
    ):
        file.write(b'{"displayTimeUnit":"ns","otherData":{"unit":"1 us is 1 cycle"},"traceEvents":[\n')
        for event in events:
            slices += '"ph":"X"' in event
            file.write(f"{event},\n".encode())
        # The format allows no comma after the last event, and a name for the whole is always there to end with.
        file.write(f"{metadata('process_labels', 0, 0, 'labels', label)}\n]}}\n".encode())
    return slices


def run_events(
    model: CompiledModel, run: StepRun, process: int, origin: int, title: str, number: int = 0
) -> Iterator[str]:
    """The events of one program, called ``title``, as JSON text: there may be millions, most of them alike.
    ``number``: of the run, where a process has several."""
    trace = run.result.trace
    if trace is None:
        return
    config = model.on_core.config_of(run.step)
    instructions = disassemble(config, run.step.program)
    used: dict[int, str] = {}
    tracks: dict[int, list[tuple[int, int]]] = {}
    drawn: dict[int, tuple[int, int, int]] = {}
    for engine, instruction, start, retire in sorted(trace.events.tolist(), key=lambda event: (event[2], event[1])):
        track = engine * _TRACKS_AN_ENGINE + _free_track(tracks.setdefault(engine, []), start, retire)
        used[track] = ENGINE_NAMES[engine]
        drawn[instruction] = (track, start, max(start, retire - 1))
        layer, tile = int(run.step.layer_of[instruction]), int(run.step.tile_of[instruction])
        name = model.layers[layer].name if layer >= 0 else "set-up"
        arguments = {
            "instruction": int(instruction),
            "assembly": format_instruction(instructions[instruction]),
            "nodes": ", ".join(model.layers[layer].nodes) if layer >= 0 else "",
            "tile": tile,
        }
        label = _string(f"{name} · tile {tile} · {instruction_name(instructions[instruction])}")
        text = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
        yield (
            f'{{"name":{label},"cat":"{ENGINE_NAMES[engine]}","ph":"X","ts":{origin + start},'
            f'"dur":{max(1, retire - start)},"pid":{process},"tid":{track},"args":{text}}}'
        )
    names = {kind: name.lower() for name, kind in KINDS.items()}
    for place, token in enumerate(tokens(instructions, trace.events)):
        arrow = f'"name":"token","cat":"token","id":{(process << 20 | number) << 24 | place},"pid":{process}'
        track, _, end = drawn[token.sender]
        yield f'{{"ph":"s",{arrow},"tid":{track},"ts":{origin + end}}}'
        track, start, _ = drawn[token.receiver]
        yield f'{{"ph":"f","bp":"e",{arrow},"tid":{track},"ts":{origin + start}}}'
    yield from _counters(config, run, instructions, process, origin)
    for engine, kind, start, cycles in trace.activity.tolist():
        track = engine * _TRACKS_AN_ENGINE + _ACTIVITY_TRACK
        used[track] = f"{ENGINE_NAMES[engine]} activity"
        yield plain_slice(names[kind], "activity", origin + start, cycles, process, track)
    if len(trace.activity):
        used[_CAUSE_TRACK] = "what the array waits for"
        causes = ProgramCycles(run, config.queue_depth).causes
        ends = [*causes.starts[1:].tolist(), causes.end]
        for start, end, cause in zip(causes.starts.tolist(), ends, causes.values.tolist(), strict=True):
            yield plain_slice(Cause(cause).name.lower(), "cause", origin + start, end - start, process, _CAUSE_TRACK)
    yield metadata("process_name", process, 0, "name", title)
    yield from (metadata("thread_name", process, track, "name", name) for track, name in sorted(used.items()))


def _counters(
    config: CoreConfig, run: StepRun, instructions: Sequence[Instruction], process: int, origin: int
) -> Iterator[str]:
    """DRAM bytes a cycle of each engine, a value where it changes."""
    if run.result.trace is None or not run.result.cycles:
        return
    cycles = run.result.cycles
    width = max(COUNTER_CYCLES, -(-cycles // COUNTER_POINTS))
    edges = np.append(np.arange(0, cycles, width), cycles)
    for engine, moved in traffic(config, instructions, run.result.trace.events, edges).items():
        rates = [*np.round(moved / np.diff(edges), 3).tolist(), 0.0]
        verb = "written" if engine is Engine.STORE else "read"
        before = None
        for cycle, rate in zip(edges.tolist(), rates, strict=True):
            if rate != before:
                yield (
                    f'{{"name":"DRAM bytes {verb} by {ENGINE_NAMES[engine]}","ph":"C","ts":{origin + cycle},'
                    f'"pid":{process},"args":{{"a cycle":{rate}}}}}'
                )
            before = rate


def instruction_name(instruction: Instruction) -> str:
    """Opcode with what tells its kinds apart: the scratchpad of a LOAD, the operation of a VECTOR."""
    name = instruction.opcode.name
    if isinstance(instruction, Load):
        return f"{name} {instruction.scratchpad.name.lower()}"
    if isinstance(instruction, Vector):
        return f"{name} {instruction.op.name.lower()}"
    return name


def plain_slice(name: str, category: str, start: int, cycles: int, process: int, track: int) -> str:
    """An event: a slice without arguments."""
    return f'{{"name":"{name}","cat":"{category}","ph":"X","ts":{start},"dur":{cycles},"pid":{process},"tid":{track}}}'


def metadata(kind: str, process: int, track: int, key: str, value: str) -> str:
    """An event: the name of a process or a track."""
    return f'{{"name":"{kind}","ph":"M","pid":{process},"tid":{track},"args":{{"{key}":{_string(value)}}}}}'


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _free_track(busy: list[tuple[int, int]], start: int, retire: int) -> int:
    """A track on which nothing is drawn between ``start`` and ``retire``; ``busy`` is a heap of (end, track)."""
    track = heapq.heappop(busy)[1] if busy and busy[0][0] <= start else len(busy)
    heapq.heappush(busy, (max(retire, start + 1), track))
    return track


def layer_cycles(module: LoadedModule, runs: Sequence[StepRun] | None = None) -> list[int]:
    """Cycles of each layer: from the last result of the layers before it to its own last result.

    Layers overlap; counted so, they sum to the cycles of the whole run. Needs a traced run; host layers have 0.
    """
    totals = [0] * len(module.model.layers)
    for run in module.runs if runs is None else runs:
        if run.result.trace is None or run.result.cycles is None:
            raise DeviceError("cycles of single layers need a traced run", hint=HOW_TO_TRACE)
        for span in ProgramCycles(run, module.model.config.queue_depth).spans:
            totals[span.layer] += span.end - span.start
    return totals
