"""Why is it slow: a model's cycles by layer and cause, beside what each layer could reach at best.

:func:`profile` works on traced runs, whoever ran them; :mod:`.profile_report` prints the result, :mod:`.plots` draws
it, :mod:`.profile_whatif` asks what other hardware would change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compiler.model import CompiledModel, Layer
from ..files import write_atomically
from ..hw.config import CoreConfig
from ..hw.isa import Engine
from ..sim.dram import DramModel
from .errors import DeviceError
from .module import StepRun
from .profile_cycles import KINDS, Cause, ProgramCycles

NEAR_BOUND = 1.1
"""A layer that takes at most this many times its bound, or the array's work in it, is called bound by it."""


@dataclass(frozen=True)
class Bounds:
    """What a layer needs at least, in cycles, if nothing but one thing limited it.

    compute
        Useful multiply-accumulates / those that the array does in a cycle.
    array
        Micro-ops that the layer gives to the array, lanes that padding leaves without use included.
    vector
        Cycles in which the vector engine issues the layer's micro-ops or fetches operands for them.
    memory
        Bytes loaded and stored, instructions included / bytes a cycle of the DRAM or of the bus.
    """

    compute: int
    array: int
    vector: int
    memory: int

    @property
    def limit(self) -> int:
        return max(self.array, self.vector, self.memory)

    @property
    def kind(self) -> str:
        """ "array", "vector" or "memory": whichever limits."""
        return max(("array", self.array), ("vector", self.vector), ("memory", self.memory), key=lambda item: item[1])[0]


@dataclass(frozen=True)
class LayerProfile:
    """One layer on the core.

    ``start``, ``end``: its cycles, from the last result of the layers before it to its own last one, counted from the
    start of the first program. ``causes`` sum to ``cycles``; so do ``gemm``, the gemm engine's cycles by the name of
    their class. ``dram_bytes``: loaded and stored, its instructions included.
    """

    layer: Layer
    start: int
    end: int
    causes: Mapping[Cause, int]
    gemm: Mapping[str, int]
    bounds: Bounds
    dram_bytes: int

    @property
    def cycles(self) -> int:
        return self.end - self.start

    @property
    def worst(self) -> Cause | None:
        """What the layer lost most cycles to; ``None`` if it lost none."""
        lost = {cause: count for cause, count in self.causes.items() if cause is not Cause.ARRAY and count}
        return max(lost, key=lambda cause: lost[cause]) if lost else None

    @property
    def verdict(self) -> str:
        """Why it takes as long as it does, in a few words."""
        if NEAR_BOUND * self.causes[Cause.ARRAY] >= self.cycles:
            return "array-bound, padding" if self.bounds.array > NEAR_BOUND * self.bounds.compute else "array-bound"
        if NEAR_BOUND * self.bounds.limit >= self.cycles:
            return f"{self.bounds.kind}-bound"
        return f"{WHY[self.worst]} ({self.causes[self.worst] / self.cycles:.0%})" if self.worst is not None else ""


WHY = {
    Cause.RAMP: "ramp: first loads, last stores",
    Cause.INPUTS: "waits for activations",
    Cause.WEIGHTS: "waits for weights, parameters",
    Cause.STORES: "waits for stores",
    Cause.VECTOR: "waits for the vector engine",
    Cause.TOKENS: "waits for tokens on their way",
    Cause.INSTRUCTIONS: "waits for instructions",
}


@dataclass(frozen=True)
class Profile:
    """A run of a model, accounted for. ``programs`` with the cycle in which each starts."""

    name: str
    config: CoreConfig
    dram: DramModel
    device: str
    cycles: int
    layers: tuple[LayerProfile, ...]
    programs: tuple[tuple[int, ProgramCycles], ...] = field(repr=False)

    @property
    def macs(self) -> int:
        return sum(item.layer.macs for item in self.layers)

    def utilisation(self, macs: int, cycles: int) -> float:
        """Useful MACs / (cycles x MACs per cycle)."""
        return macs / (cycles * self.config.macs_per_cycle) if cycles else 0.0


def profile(
    model: CompiledModel, runs: Sequence[StepRun], device: str, dram: DramModel | None = None, *,
    starts: Sequence[int] = (),
) -> Profile:  # fmt: skip
    """Account for the cycles of a model's traced programs.

    ``dram``: the memory that the run had, which the memory bounds follow from; by default as fast as the core's bus.
    ``starts``: the cycle in which each program starts; by default, as the one before it ends. Raises
    :class:`DeviceError` if there is no program or a run recorded no trace, for a model that is split, whose programs
    are parts of layers, and for stages of unlike cores.
    """
    refuse_split(model)
    if not runs:
        raise DeviceError(f"{model.name} has no program on the core, so there are no cycles to account for")
    return account(model, runs, device, dram, starts=starts)


def account(
    model: CompiledModel, runs: Sequence[StepRun], device: str, dram: DramModel | None = None, *,
    starts: Sequence[int] = (),
) -> Profile:  # fmt: skip
    """As :func:`profile`, of any stages: cycles are those of each stage's own core, bounds those of the first."""
    memory = dram or DramModel.of(model.on_core.config)
    layers: list[LayerProfile] = []
    programs: list[tuple[int, ProgramCycles]] = []
    origin = 0
    for number, run in enumerate(runs):
        program = ProgramCycles(run, model.on_core.config_of(run.step).queue_depth)
        origin = starts[number] if starts else origin
        layers.extend(_layers(model, run, program, memory, origin))
        programs.append((origin, program))
        origin += program.cycles
    return Profile(model.name, model.on_core.config, memory, device, origin, tuple(layers), tuple(programs))


def _layers(
    model: CompiledModel, run: StepRun, program: ProgramCycles, dram: DramModel, origin: int
) -> list[LayerProfile]:
    causes = program.layer_causes()
    gemm = program.layer_activity(Engine.GEMM)
    array, vector = (program.work(engine, len(model.layers)) for engine in (Engine.GEMM, Engine.VECTOR))
    config = model.on_core.config_of(run.step)
    result = []
    for place, span in enumerate(program.spans):
        layer = model.layers[span.layer]
        code = int((run.step.layer_of == span.layer).sum()) * config.instruction_bytes
        bounds = Bounds(
            compute=-(-layer.macs // config.macs_per_cycle),
            array=int(array[span.layer]),
            vector=int(vector[span.layer]),
            memory=memory_cycles(config, dram, layer.bytes_loaded + code, layer.bytes_stored),
        )
        result.append(
            LayerProfile(
                layer=layer,
                start=origin + span.start,
                end=origin + span.end,
                causes={cause: int(causes[place, cause]) for cause in Cause},
                gemm={name.lower(): int(gemm[place, kind]) for name, kind in KINDS.items()},
                bounds=bounds,
                dram_bytes=layer.bytes_loaded + code + layer.bytes_stored,
            )
        )
    return result


def memory_cycles(config: CoreConfig, dram: DramModel, read: int, written: int) -> int:
    """Cycles that this traffic takes at least: reads and writes share the DRAM, and each has a bus of its own."""
    shared = -(-(read + written) // dram.bytes_per_cycle)
    return max(shared, -(-read // config.bus_bytes), -(-written // config.bus_bytes))


def refuse_split(model: CompiledModel) -> None:
    """:class:`DeviceError` for a model whose layers are shared by cores, and for stages of unlike ones: one core has
    no cycles of them."""
    hint = "profile it on its system (weft profile --system)"
    if model.shared_by > 1:
        raise DeviceError(f"{model.name} is split, so that all cores of a system have parts of one item", hint=hint)
    if model.core is not None and model.core.cores:
        names = ", ".join(core.name for core in model.core.cores)
        raise DeviceError(f"the stages of {model.name} are for unlike cores: {names}", hint=hint)


def layer_profile_records(profile: Profile) -> list[dict[str, Any]]:
    """All figures of every layer as flat records."""
    return [
        {
            "model": profile.name,
            "config": profile.config.name,
            "device": profile.device,
            "layer": item.layer.name,
            "nodes": list(item.layer.nodes),
            "kind": item.layer.kind,
            "cycles": item.cycles,
            "macs": item.layer.macs,
            "utilisation": round(profile.utilisation(item.layer.macs, item.cycles), 4),
            "dram_bytes": item.dram_bytes,
            "verdict": item.verdict,
            **{f"cycles_{cause.name.lower()}": item.causes[cause] for cause in Cause},
            **{f"gemm_{name}": count for name, count in item.gemm.items()},
            "bound_compute": item.bounds.compute,
            "bound_array": item.bounds.array,
            "bound_vector": item.bounds.vector,
            "bound_memory": item.bounds.memory,
        }
        for item in profile.layers
    ]


def write_json(profile: Profile, path: Path, more: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write :func:`layer_profile_records`, each with what else is known of its layer."""
    records = layer_profile_records(profile)
    whole = [{**record, **each} for record, each in zip(records, more, strict=True)] if more else records
    write_atomically(path, (json.dumps(whole, indent=1) + "\n").encode())
