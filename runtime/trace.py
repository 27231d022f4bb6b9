"""A run as a timeline: Perfetto / Chrome trace JSON, one cycle drawn as one microsecond.

Open the file at https://ui.perfetto.dev. Each engine has tracks for its instructions (several where it works on more
than one at a time) and a track that says, for every cycle, what it did or waited for.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..hw.interfaces import CycleClass
from ..hw.isa import ENGINE_NAMES, disassemble, format_instruction
from .errors import DeviceError
from .module import LoadedModule, StepRun

_ACTIVITY_TRACK = 90
_TRACKS_AN_ENGINE = 100


def write_trace(module: LoadedModule, path: str | Path) -> int:
    """Write the timeline of the module's last run; number of slices written.

    :class:`DeviceError` if the run was not traced or the device does not model time.
    """
    runs = [run for run in module.runs if run.result.trace is not None]
    if not runs:
        raise DeviceError(
            f"there is nothing to draw: the last run on device {module.device.name!r} recorded no trace",
            hint="use device 'rtl' and run(..., trace=True)",
        )
    events: list[dict[str, Any]] = []
    start = 0
    for number, run in enumerate(runs):
        events.extend(_run_events(module, run, number, start))
        start += run.result.cycles or 0
    text = {"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"unit": "1 us is 1 cycle"}}
    Path(path).write_text(json.dumps(text, separators=(",", ":"), ensure_ascii=False))
    return sum(event["ph"] == "X" for event in events)


def _run_events(module: LoadedModule, run: StepRun, process: int, origin: int) -> Iterator[dict[str, Any]]:
    trace = run.result.trace
    if trace is None:
        return
    instructions = disassemble(module.model.config, run.step.program)
    layers = module.model.layers
    used: set[int] = set()
    tracks: dict[int, list[tuple[int, int]]] = {}
    for engine, number, start, retire in sorted(trace.events.tolist(), key=lambda event: (event[2], event[1])):
        track = engine * _TRACKS_AN_ENGINE + _free_track(tracks.setdefault(engine, []), start, retire)
        used.add(track)
        layer = int(run.step.layer_of[number])
        name = layers[layer].name if layer >= 0 else "set-up"
        yield {
            "name": f"{name} · {instructions[number].opcode.name}",
            "cat": ENGINE_NAMES[engine],
            "ph": "X",
            "ts": origin + start,
            "dur": max(1, retire - start),
            "pid": process,
            "tid": track,
            "args": {
                "instruction": int(number),
                "assembly": format_instruction(instructions[number]),
                "nodes": ", ".join(layers[layer].nodes) if layer >= 0 else "",
                "tile": int(run.step.tile_of[number]),
            },
        }
    for engine, kind, start, cycles in trace.activity.tolist():
        track = engine * _TRACKS_AN_ENGINE + _ACTIVITY_TRACK
        used.add(track)
        yield {
            "name": CycleClass(kind).name.lower(),
            "cat": "activity",
            "ph": "X",
            "ts": origin + start,
            "dur": cycles,
            "pid": process,
            "tid": track,
        }
    yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": f"program {process}"}}
    yield from (_track_name(process, track) for track in sorted(used))


def _free_track(busy: list[tuple[int, int]], start: int, retire: int) -> int:
    """A track on which nothing is drawn between ``start`` and ``retire``; ``busy`` is a heap of (end, track)."""
    track = heapq.heappop(busy)[1] if busy and busy[0][0] <= start else len(busy)
    heapq.heappush(busy, (max(retire, start + 1), track))
    return track


def _track_name(process: int, track: int) -> dict[str, Any]:
    engine, lane = divmod(track, _TRACKS_AN_ENGINE)
    name = f"{ENGINE_NAMES[engine]} activity" if lane == _ACTIVITY_TRACK else ENGINE_NAMES[engine]
    return {"name": "thread_name", "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def layer_cycles(module: LoadedModule, runs: Sequence[StepRun] | None = None) -> list[int]:
    """Cycles of each layer: from the last result of the layers before it to its own last result.

    Layers overlap; counted so, they sum to the cycles of the whole run. Needs a traced run; host layers have 0.
    """
    totals = [0] * len(module.model.layers)
    for run in module.runs if runs is None else runs:
        if run.result.trace is None or run.result.cycles is None:
            raise DeviceError("cycles of single layers need a traced run", hint="run(..., trace=True) on device 'rtl'")
        ends: dict[int, int] = {}
        for _, number, _, retire in run.result.trace.events.tolist():
            layer = int(run.step.layer_of[number])
            ends[layer] = max(ends.get(layer, 0), retire)
        before, order = 0, sorted(layer for layer in ends if layer >= 0)
        for layer in order:
            end = run.result.cycles if layer == order[-1] else max(before, ends[layer])
            totals[layer] += end - before
            before = end
    return totals
