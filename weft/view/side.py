"""One compilation as the page's data: its graph, its timeline, and for each layer what a click on it shows."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.model import CompiledModel, CoreStep, HostStep
from ..hw.assembly import format_instruction
from ..hw.isa import Engine, Instruction
from ..hw.memories import Memory
from ..hw.programs import disassemble
from ..hw.system_config import SystemConfig
from ..runtime.colours import CLASS_OF_CAUSE, CLASS_OF_KIND, WORDS
from ..runtime.module import StepRun
from ..runtime.profile import LayerProfile, Profile, account
from ..runtime.profile_cycles import CLASSES, Cause, ProgramCycles, totals
from ..runtime.profile_timeline import Timeline, timeline
from ..runtime.profile_whatif import predict_runs
from ..runtime.trace_tokens import tokens, traffic
from ..sim.dram import DramModel
from .accesses import Level, nests
from .flow import flow
from .held import Steps, held
from .kernels import HostCodes, kernel_records, kernels_of_layers, machine_record, work_records
from .lanes import as_one_core_has_it, is_shared, lanes, usual_system
from .layout import HEIGHT, WIDTH, layout
from .loops import loops_text

BINS = 1200
"""Of the whole timeline, and of that of a layer."""

LAYER_BINS = 500

SHARE = 250
"""What a whole bin counts in shares: a byte holds it, and no picture shows a finer one."""

NAMES = tuple(WORDS)
"""Classes of cycles, in the order in which pictures stack them; the page gets their numbers."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Program:
    """A core step that was run. ``origin``: the cycle in which it starts."""

    run: StepRun
    instructions: Sequence[Instruction]
    nests: Sequence[tuple[Level, ...]]
    held: Mapping[Memory, Steps]
    origin: int

    @property
    def events(self) -> npt.NDArray[np.void]:
        assert self.run.result.trace is not None  # predicted with one
        return self.run.result.trace.events

    @property
    def cycles(self) -> int:
        return self.run.result.cycles or 0


def side(
    model: CompiledModel, dram: DramModel | None, loops: Mapping[str, str], codes: HostCodes | None = None,
    system: SystemConfig | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The data of one compilation, fit for JSON.

    ``dram``: the memory that its cycles are predicted for; None where nothing runs on a core. ``loops``: loop nests
    that are known beside those in the model, by the name of the layer. ``codes``: code of the kernels for a processor
    or a GPU. ``system``: of a model that cores share, by default each with a port of its own. Where cores have parts of
    each layer, all but the lanes is of the core that has the most to do.
    """
    whole, shared = model, None
    if dram is not None and is_shared(model):
        shared, busiest = lanes(model, system or usual_system(model), dram)
        if model.shared_by > 1:
            model = as_one_core_has_it(model, busiest)
    programs = _programs(model, dram)
    measured = account(model, [each.run for each in programs.values()], "model", dram) if programs else None
    found = flow(whole, _instructions(whole) if programs else {})
    numbers = {id(layer): number for number, layer in enumerate(model.layers)}
    profiles = {} if measured is None else {numbers[id(item.layer)]: item for item in measured.layers}
    cycles = [] if measured is None else [each for _, each in measured.programs]
    details = _details(model, list(zip(programs.values(), cycles, strict=True)), loops)
    work = dict(enumerate(work_records(codes)))
    return {
        "name": model.name,
        "target": model.target,
        "facts": _facts(model, measured, codes),
        "cycles": measured.cycles if measured is not None else 0,
        "graph": _graph(model, found.edges, found.results),
        "machine": machine_record(codes),
        "layers": [
            _layer(model, number, profiles.get(number)) | ({"work": work[number]} if number in work else {})
            for number in range(len(model.layers))
        ],
        "lanes": shared,
        "timeline": None if measured is None else _binned(timeline(measured, BINS)),
        "held": _memories(model, programs, BINS) if programs else None,
        "details": [_packed(each) for each in details],
        "kernels": {symbol: _packed(each) for symbol, each in kernel_records(model, codes).items()},
    }


def _instructions(model: CompiledModel) -> dict[int, list[Instruction]]:
    """Of each program, by the number of its step."""
    return {
        number: disassemble(model.on_core.config_of(step), step.program)
        for number, step in enumerate(model.steps) if isinstance(step, CoreStep)
    }  # fmt: skip


def _programs(model: CompiledModel, dram: DramModel | None) -> dict[int, _Program]:
    if model.core is None or dram is None:
        return {}
    runs = iter(predict_runs(model, dram))
    result, origin = {}, 0
    for number, step in enumerate(model.steps):
        if not isinstance(step, CoreStep):
            continue
        config = model.core.config_of(step)
        run, instructions = next(runs), disassemble(config, step.program)
        loops = nests(instructions)
        assert run.result.trace is not None
        kept = held(config, instructions, loops, run.result.trace.events, model.core.window_bytes)
        result[number] = _Program(run, instructions, loops, kept, origin)
        origin += run.result.cycles or 0
    return result


def _facts(model: CompiledModel, measured: Profile | None, codes: HostCodes | None) -> list[tuple[str, str]]:
    """What stands at the head of the page: pairs of a name and a figure."""
    kernels = sum(len(step.program.kernels) for step in model.steps if isinstance(step, HostStep))
    facts = [("layers", f"{len(model.layers):,}")]
    if measured is None:
        facts += [("target", model.target), ("kernels", f"{kernels:,}")]
        facts += [("processor", codes.processor)] if codes is not None else []
        arena = sum(step.program.arena_bytes for step in model.steps if isinstance(step, HostStep))
        return [*facts, ("arena", f"{arena:,} bytes")]
    moved = sum(item.dram_bytes for item in measured.layers)
    return [
        ("core", ", ".join(core.name for core in model.on_core.cores) or measured.config.name), *facts,
        ("cycles", f"{measured.cycles:,}"),
        *([] if model.on_core.cores else
          [("of the array's peak", f"{measured.utilisation(measured.macs, measured.cycles):.1%}")]),
        ("instructions", f"{sum(len(step.layer_of) for step in model.programs):,}"),
        ("DRAM traffic", f"{moved:,} bytes"),
        ("DRAM", f"{measured.dram.bytes_per_cycle} bytes a cycle, latency {measured.dram.latency}"),
    ]  # fmt: skip


def _graph(
    model: CompiledModel, edges: Sequence[tuple[int | str, int]], results: Sequence[tuple[int | str, str]]
) -> dict[str, Any]:
    """Boxes are the inputs, the layers in their order, the outputs; edges are pairs of boxes."""
    inputs = [each.name for each in model.inputs]
    outputs = [each.name for each in model.outputs]
    box = {name: number for number, name in enumerate(inputs)}

    def of(source: int | str) -> int:
        return box[source] if isinstance(source, str) else len(inputs) + source

    after = len(inputs) + len(model.layers)
    pairs = [(of(source), len(inputs) + target) for source, target in edges]
    pairs += [(of(source), after + outputs.index(name)) for source, name in results]
    kept = sorted({(one, other) for one, other in pairs if one < other})
    placed = layout(after + len(outputs), kept)
    return {
        "inputs": [f"{each.name}: {each.dtype}{list(each.shape)}" for each in model.inputs],
        "outputs": [f"{each.name}: {each.dtype}{list(each.shape)}" for each in model.outputs],
        "box": [WIDTH, HEIGHT], "size": placed.size, "places": placed.places,
        "edges": [[*pair, route] for pair, route in zip(kept, placed.routes, strict=True)],
    }  # fmt: skip


def _layer(model: CompiledModel, number: int, item: LayerProfile | None) -> dict[str, Any]:
    layer = model.layers[number]
    record: dict[str, Any] = {
        "name": layer.name, "nodes": layer.nodes, "kind": layer.kind, "device": layer.device,
        "operators": [each.removeprefix("packed_") for each in layer.operators], "shape": layer.shape,
        "macs": layer.macs, "reason": layer.reason, "loaded": layer.bytes_loaded, "stored": layer.bytes_stored,
        "boundaries": layer.boundaries, "saved": layer.saved_bytes,
    }  # fmt: skip
    if item is not None:
        bounds = item.bounds
        record |= {
            "start": item.start, "end": item.end, "causes": [item.causes[cause] for cause in Cause],
            "verdict": item.verdict, "bounds": [bounds.compute, bounds.array, bounds.vector, bounds.memory],
        }  # fmt: skip
    return record


def _binned(found: Timeline) -> dict[str, Any]:
    """A timeline in shares of its bins: for each engine, then for the causes, a row of classes that occur."""
    widths = np.diff(found.edges)
    rows = [{CLASS_OF_KIND[kind]: found.kinds[engine][:, kind] for kind in CLASS_OF_KIND} for engine in Engine]
    rows.append({CLASS_OF_CAUSE[cause]: found.causes[:, cause] for cause in Cause})
    return {
        "edges": [int(found.edges[0]), int(found.edges[-1])],
        "bins": len(widths),
        "rows": [_shares(row, widths) for row in rows],
    }


def _shares(row: Mapping[str, Integers], widths: Integers) -> dict[int, list[int]]:
    """By the number of a class: its share of each bin."""
    return {
        NAMES.index(name): np.rint(SHARE * counts / widths).astype(int).tolist()
        for name, counts in row.items() if name in NAMES and counts.any()
    }  # fmt: skip


def _edges(start: int, end: int, bins: int) -> Integers:
    found: Integers = np.unique(np.linspace(start, end, min(bins, max(end - start, 1)) + 1).astype(np.int64))
    return found


def _memories(model: CompiledModel, programs: Mapping[int, _Program], bins: int) -> dict[str, Any]:
    """What memories hold in the whole run."""
    cycles = sum(each.cycles for each in programs.values())
    edges = _edges(0, cycles, bins)
    curves: dict[Memory, Integers] = {}
    for each in programs.values():
        own = np.clip(edges - each.origin, 0, each.cycles)
        inside = np.flatnonzero(np.diff(own) > 0)
        cuts = np.append(own[inside], own[inside[-1] + 1]) if len(inside) else own[:1]
        for memory, steps in each.held.items():
            curve = curves.setdefault(memory, np.zeros(len(edges) - 1, np.int64))
            if len(inside):
                curve[inside] = steps.peaks(cuts)
    return _curves(model, curves)


def _curves(model: CompiledModel, curves: Mapping[Memory, Integers]) -> dict[str, Any]:
    room = {memory: max(config.depth(memory) * config.entry_elements(memory) * memory.element_bytes
                        for config in model.on_core.cores or (model.config,))
            for memory in model.on_core.config.scratchpads}  # fmt: skip
    return {
        str(memory): {"room": room.get(memory, 0), "values": curve.tolist()}
        for memory, curve in curves.items() if curve.any()
    }  # fmt: skip


def _details(
    model: CompiledModel, programs: Sequence[tuple[_Program, ProgramCycles]], loops: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What a click on each layer shows."""
    result: list[dict[str, Any]] = []
    for number, (layer, kernels) in enumerate(zip(model.layers, kernels_of_layers(model), strict=True)):
        nest = loops.get(layer.name, "")
        result.append({"schedule": layer.schedule, "loops": nest, "kernels": kernels, "number": number})
    for program, cycles in programs:
        fine = _Fine.of(model, program, cycles) if cycles.spans else None  # a core may have nothing in a turn
        spans = {span.layer: span for span in cycles.spans}
        code = _Code.of(program)
        layers = program.run.step.layer_of
        for number in np.unique(layers[layers >= 0]).tolist():
            mine = np.flatnonzero(layers == number)
            result[number] |= code.part(mine)
            if fine is not None and number in spans:
                result[number] |= fine.part(model, spans[number].start, spans[number].end, program.origin)
    return result


@dataclass(frozen=True)
class _Code:
    """A program's instructions in time. ``waits``: by the number of an instruction, those whose tokens it waits for."""

    program: _Program
    starts: Integers
    ends: Integers
    waits: Mapping[int, list[int]]

    @staticmethod
    def of(program: _Program) -> _Code:
        starts, ends = (np.zeros(len(program.instructions), np.int64) for _ in range(2))
        events = program.events
        starts[events["number"]], ends[events["number"]] = events["start"], events["retire"]
        waits: dict[int, list[int]] = {}
        for token in tokens(program.instructions, events):
            waits.setdefault(token.receiver, []).append(token.sender)
        return _Code(program, starts, ends, waits)

    def part(self, numbers: Integers) -> dict[str, Any]:
        """Some of them, in columns; what grows is told by its steps."""
        program, starts = self.program, self.starts[numbers]
        chosen = [program.instructions[each] for each in numbers.tolist()]
        return {
            "nests": loops_text(chosen, [program.nests[each] for each in numbers.tolist()]),
            "code": {
                "number": np.diff(numbers, prepend=0).tolist(),
                "engine": [int(each.engine) for each in chosen],
                "tile": program.run.step.tile_of[numbers].tolist(),
                "start": np.diff(starts, prepend=0).tolist(),
                "length": (self.ends[numbers] - starts).tolist(),
                "waits": [self.waits.get(each, []) for each in numbers.tolist()],
                "text": [format_instruction(each) for each in chosen],
                "origin": program.origin,
            },
        }


@dataclass(frozen=True)
class _Fine:
    """Timeline, memories and traffic of a whole program in the bins of all of its layers, added up in one go."""

    edges: Integers
    kinds: Mapping[Engine, Integers]
    causes: Integers
    held: Mapping[Memory, Integers]
    moved: Mapping[Engine, npt.NDArray[np.float64]]

    @staticmethod
    def of(model: CompiledModel, program: _Program, cycles: ProgramCycles) -> _Fine:
        edges = np.unique(np.concatenate([_edges(span.start, span.end, LAYER_BINS) for span in cycles.spans]))
        return _Fine(
            edges,
            {engine: totals(edges, [cycles.activity[engine]], [CLASSES]) for engine in Engine},
            cycles.causes_between(edges),
            {memory: steps.peaks(edges) for memory, steps in program.held.items()},
            traffic(model.on_core.config_of(program.run.step), program.instructions, program.events, edges),
        )

    def part(self, model: CompiledModel, start: int, end: int, origin: int) -> dict[str, Any]:
        """What the page shows of the cycles of one layer."""
        first, last = np.searchsorted(self.edges, [start, end]).tolist()
        if first == last:
            return {}
        inside, edges = slice(first, last), self.edges[first : last + 1]
        kinds = {engine: rows[inside] for engine, rows in self.kinds.items()}
        widths = np.diff(edges)
        moved = {engine.name.lower(): np.round(each[inside] / widths, 2) for engine, each in self.moved.items()}
        return {
            "timeline": _binned(Timeline(edges + origin, kinds, self.causes[inside])),
            "held": _curves(model, {memory: each[inside] for memory, each in self.held.items()}),
            "traffic": {name: each.tolist() for name, each in moved.items() if each.any()},
        }


def _packed(detail: Mapping[str, Any]) -> str:
    """A detail as text that takes little room: the page opens it when it is asked for."""
    text = json.dumps(detail, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()
