"""Which layer reads what which other one wrote, found in what was compiled: in transfers of the core's programs, and
in the places of tensors in those of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..compiler.model import (
    ArenaTensor,
    CompiledModel,
    CopyStep,
    CorePart,
    CoreStep,
    HostStep,
    LaunchStep,
    NumpyStep,
    Place,
)
from ..hw.isa import Instruction, Load, Store
from ..sim.dma import granules, transfer_of

Source = int | str
"""Who wrote something: a layer, or an input of the model by its name."""

NOBODY = -1


@dataclass(frozen=True)
class Flow:
    """``edges``: from a layer or an input to a layer, each once, in the order of the readers. ``results``: who wrote
    each output of the model."""

    edges: tuple[tuple[Source, int], ...]
    results: tuple[tuple[Source, str], ...]


@dataclass
class _Values:
    """``makers``: of each value that steps hand each other."""

    makers: dict[str, tuple[Source, ...]]
    edges: dict[tuple[Source, int], None] = field(default_factory=dict)

    def read(self, sources: Sequence[Source], layer: int) -> None:
        for source in sources:
            if source != layer:
                self.edges[source, layer] = None


def flow(model: CompiledModel, programs: Mapping[int, Sequence[Instruction]]) -> Flow:
    """The flow of a model. ``programs``: the instructions of each core step, by its number among the steps."""
    values = _Values({each.name: (each.name,) for each in model.inputs})
    for number, step in enumerate(model.steps):
        if isinstance(step, CoreStep):
            _follow_core(model.on_core, step, programs[number], values)
        else:
            _follow_host(step, values)
    results = [(source, each.name) for each in model.outputs for source in values.makers.get(each.name, ())]
    return Flow(tuple(values.edges), tuple(results))


def _follow_core(core: CorePart, step: CoreStep, instructions: Sequence[Instruction], values: _Values) -> None:
    """Each granule of the window knows who wrote it last."""
    size = core.config.granule_bytes
    writer = np.full(-(-core.window_bytes // size) + 1, NOBODY, np.int32)
    sources: list[Source] = []

    def granules_of(name: str) -> slice:
        slot = core.slots[name]
        return slice(slot.offset // size, -(-(slot.offset + slot.nbytes) // size))

    for name in step.inputs:
        writer[granules_of(name)] = len(sources)
        sources.append(name)
    by_layer: dict[int, int] = {}
    for instruction, layer in zip(instructions, step.layer_of.tolist(), strict=True):
        if not isinstance(instruction, Load | Store) or layer < 0:
            continue
        transfer = transfer_of(core.config, instruction)
        if not transfer.bytes:
            continue
        touched = granules(core.config, transfer)
        if isinstance(instruction, Store):
            if layer not in by_layer:
                by_layer[layer] = len(sources)
                sources.append(layer)
            writer[touched] = by_layer[layer]
            continue
        for found in set(writer[touched].ravel().tolist()) - {NOBODY}:
            source = sources[found]
            values.read(values.makers.get(source, ()) if isinstance(source, str) else (source,), layer)
    for name in step.outputs:
        left = sorted(set(writer[granules_of(name)].tolist()) - {NOBODY})
        makers = [sources[each] for each in left]
        values.makers[name] = tuple(each for each in makers if isinstance(each, int))


def _follow_host(step: HostStep, values: _Values) -> None:
    program = step.program
    tensors = _Arena(program.memory)
    writers: dict[int | tuple[str, int], tuple[Source, ...]] = {}

    def written_before(place: Place, number: int) -> tuple[Source, ...]:
        if place.kind == "input":
            return values.makers.get(step.inputs[place.number], ())
        if place.kind in ("output", "strings"):
            return writers.get((place.kind, place.number), ())
        return tuple(
            source for tensor in tensors.at(place, number) if tensors.all[tensor].first < number
            for source in writers.get(tensor, ())
        )  # fmt: skip

    def write(place: Place, number: int, sources: tuple[Source, ...]) -> None:
        if place.kind in ("output", "strings"):
            writers[place.kind, place.number] = sources
        for tensor in tensors.at(place, number):
            if tensors.all[tensor].first == number:
                writers[tensor] = sources

    for number, each in enumerate(program.steps):
        match each:
            case LaunchStep():
                layer = step.first_layer + each.layer
                reads, writes = each.arguments, each.arguments
            case NumpyStep():
                layer = step.first_layer + each.layer
                reads, writes = each.inputs, each.outputs
            case CopyStep():
                write(each.target, number, written_before(each.source, number))
                continue
            case _:
                continue
        for place in reads:
            values.read(written_before(place, number), layer)
        for place in writes:
            write(place, number, (layer,))
    for number, name in enumerate(step.outputs):
        values.makers[name] = writers.get(("output", number), ())


class _Arena:
    """Tensors of a host's arena, by the step that asks and the place that it asks for."""

    def __init__(self, memory: Sequence[ArenaTensor]) -> None:
        self.all = memory
        fields = [(each.first, each.last, each.offset, each.offset + max(each.nbytes, 1)) for each in memory]
        self._first, self._last, self._start, self._end = np.array(fields, np.int64).reshape(-1, 4).T

    def at(self, place: Place, step: int) -> list[int]:
        """The tensors that have bytes of ``place`` in ``step``."""
        if place.kind != "arena":
            return []
        alive = (self._first <= step) & (step <= self._last)
        met = (self._start < place.offset + max(place.nbytes, 1)) & (place.offset < self._end)
        return np.flatnonzero(alive & met).tolist()
