"""A network's cycles as the sum of its layers: each kernel compiled and timed alone, once by shape.

Faster than a linked program, since networks repeat their kernels and a database keeps what each took. A linked program
loads weights ahead, in cycles of earlier layers in which the bus is free, as far as there is room for them
(`compiler.targets.accel.stream.prefetch`): what a layer waits for its weights alone is taken off so far. What else a
layer overlaps with the one before it stays in, so the sum is somewhat more than what the linked program takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache

from ..cache import cache_key
from ..collector import collector_waits
from ..compiler.graph.ir import Call, Module
from ..compiler.targets.accel.link.alone import slice_program
from ..compiler.targets.accel.link.phases import function_of, split_phases
from ..compiler.targets.accel.link.slices import KernelSlice, slices_of
from ..compiler.targets.accel.link.tuned import machine_texts
from ..compiler.targets.errors import CompileError
from ..compiler.targets.sources import COMPILER, sources_digest
from ..compiler.tune.database import Database, Key, Result
from ..compiler.tune.errors import TuningError
from ..hw.config import CoreConfig
from ..hw.cycle_class import CycleClass
from ..hw.dram_rate import DramRate
from ..hw.isa import Engine, Scratchpad
from ..sim.dram import DramModel
from ..sim.timing import predict

ROOM = 0.75
"""Of ``wgt``, for weights of later layers: the rest is what the layers before them work with. Sums of ResNet-18 and -50
and MobileNetV2 are by that 0.9 to 1.3 % above linked programs on ``pynq``, 1.4 % below to 2.1 % above on ``wide``."""

BUSY, WEIGHTS = CycleClass.__members__["BUSY"], CycleClass.__members__["TOKEN_LOADW"]


@dataclass(frozen=True)
class KernelCost:
    """What a kernel's own program takes: cycles, those in which the array waits for weights, busy ones of the array and
    of the vector engine, bytes on the bus."""

    cycles: int
    waits: int
    array: int
    vector: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class LayerCost:
    """What the kernels of one layer take together."""

    name: str
    kind: str
    macs: int
    cost: KernelCost


@dataclass
class LayerJudge:
    """Judges networks on one core with one memory. Costs are kept in ``database``, if there is one, and here."""

    config: CoreConfig
    rate: DramRate
    vthreads: int
    database: Database | None = None
    judged: int = 0
    """Kernels that were compiled, because nothing was known of them."""
    _known: dict[str, KernelCost | str] = field(default_factory=dict)

    def layers(self, module: Module) -> list[LayerCost]:
        """The layers on the core of a packed module. CompileError where one cannot be compiled."""
        found = []
        with collector_waits():
            for phase in split_phases(module):
                found += [self._layer(node) for node in (phase.calls if phase.on_core else ())]
        return loaded_ahead(found, self.config, self.rate)

    def _layer(self, node: Call) -> LayerCost:
        function = function_of(node)
        parts = slices_of(node, self.config, self.rate, self.vthreads)
        costs = [self._kernel(part, function.name) for part in parts]
        total = KernelCost(*(sum(getattr(cost, name) for cost in costs) for name in asdict(costs[0])))
        return LayerCost(function.name, parts[0].kind, int(str(function.attrs.get("macs", 0))), total)

    def _kernel(self, part: KernelSlice, name: str) -> KernelCost:
        text = "\n".join(each.kernel.signature for each in (part, *part.turns))
        if part.move is not None:
            text += f"\nmove {part.move.digest}"
        if text not in self._known:
            self._known[text] = self._stored(text) or self._measured(part, text)
        found = self._known[text]
        if isinstance(found, str):
            raise CompileError(found, at=f"function {name!r}")
        return found

    def _key(self, text: str) -> Key:
        return Key(f"alone {text}", *machine_texts(self.config, self.rate), judged_by())

    @property
    def _point(self) -> Mapping[str, int]:
        return {"vthreads": self.vthreads}

    def _stored(self, text: str) -> KernelCost | str | None:
        results: Iterator[Result] = iter(self.database.results(self._key(text)) if self.database is not None else ())
        found = next((each for each in results if each.point == self._point), None)
        if found is None:
            return None
        return found.refusal if found.cost is None else _stored_cost(found)

    def _measured(self, part: KernelSlice, text: str) -> KernelCost | str:
        self.judged += 1
        found: KernelCost | str
        try:
            program, end = slice_program(part, self.config, self.rate, self.vthreads)
        except CompileError as error:
            found = error.message
        else:
            dram = DramModel(latency=self.rate.latency, bytes_per_cycle=self.rate.bytes_per_cycle)
            run = predict(self.config, program, dram, offset=end)
            array, vector = run.counters[Engine.GEMM], run.counters[Engine.VECTOR]
            found = KernelCost(run.cycles or 0, array.get(WEIGHTS, 0), array.get(BUSY, 0), vector.get(BUSY, 0),
                               run.bytes_read, run.bytes_written)  # fmt: skip
        if self.database is not None:
            if isinstance(found, str):
                self.database.add(self._key(text), self._point, None, refusal=found)
            else:
                self.database.add(self._key(text), self._point, float(found.cycles), features=asdict(found))
        return found


def loaded_ahead(layers: Sequence[LayerCost], config: CoreConfig, rate: DramRate) -> list[LayerCost]:
    """The layers of a network with the cycles that each adds: its waits for weights are less by what the bus had time
    for in the layers before it, and ``wgt`` has room for."""
    room = int(ROOM * config.wgt_depth * Scratchpad.WGT.dram_bytes(config)) // rate.bytes_per_cycle
    free, found = 0, []
    for layer in layers:
        cost = layer.cost
        ahead = min(cost.waits, free)
        idle = max(0, cost.cycles - (cost.bytes_read + cost.bytes_written) // rate.bytes_per_cycle)
        free = min(free - ahead + idle, room)
        found.append(replace(layer, cost=replace(cost, cycles=cost.cycles - ahead, waits=cost.waits - ahead)))
    return found


def _stored_cost(result: Result) -> KernelCost:
    names = KernelCost.__dataclass_fields__.keys()
    values = result.features
    if values.keys() != names or any(type(value) is not int or value < 0 for value in values.values()):
        raise TuningError(f"a database holds {dict(values)!r}, which is no cost of a kernel", hint="make it anew")
    return KernelCost(**values)


@cache
def judged_by() -> str:
    """A digest of the sources that costs of kernels follow from."""
    return cache_key(sources_digest(), *(sources_digest(COMPILER.parent / part) for part in ("hw", "sim")))
