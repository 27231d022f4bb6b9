"""What a network costs on a design: compiled, timed by the timing model, accounted for layer by layer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..cache import cache_key
from ..collector import collector_waits
from ..compiler.compile import compile_model, prepared
from ..compiler.frontends import for_batch, module_and_tail, read
from ..compiler.graph import Module
from ..compiler.model import CompiledModel
from ..compiler.passes.manager import PassManager
from ..compiler.passes.pipeline import integer_passes
from ..compiler.passes.wide_activations import MULTIPLIERS
from ..compiler.targets.accel.link.tuned import machine_texts
from ..compiler.targets.accel.named_memory import is_usual
from ..compiler.targets.accel.operators.packed_layout import Blocks
from ..compiler.targets.accel.passes.chain import chain
from ..compiler.targets.accel.target import AccelOptions
from ..compiler.targets.registry import find_target
from ..compiler.targets.sources import COMPILER, sources_digest
from ..compiler.targets.target import Job, target_options
from ..compiler.tune.database import Database, Key
from ..files import LitertFile
from ..hw.config import CoreConfig
from ..hw.dram_rate import DramRate
from ..roundings import HALF_UP
from ..runtime.profile import LayerProfile, profile
from ..runtime.profile_whatif import predict_runs
from ..sim.dram import DramModel
from ..sim.system_timing import cycles_together
from ..sim.timing import program_cycles
from ..tune.layers import LayerCost, LayerJudge
from .errors import ExploreError
from .host import host_work
from .processors import HostWork
from .space import Design
from .system_space import SystemDesign

LAYER_FIELDS = ("name", "kind", "cycles", "macs", "array", "vector", "memory", "dram_bytes", "verdict")
"""Of one layer: ``array``, ``vector`` and ``memory`` are its bounds in cycles."""

PART_FIELDS = ("core", "array", "vector", "bytes_read", "bytes_written")
"""Of one core of a system: its number, and what it did."""

SHAPED_BY = ("hw", "sim", "runtime")
"""Parts of weft beside the compiler that cycles and accounts of layers follow from."""


@dataclass(frozen=True)
class Network:
    """A model in a file that a front end reads; ``digest`` is of its bytes. ``choices``: of a LiteRT file, what a
    `LitertFile` has of them, where it has any."""

    name: str
    path: str
    digest: str
    choices: tuple[str | None, ...] = ()

    @property
    def file(self) -> Path | LitertFile:
        return LitertFile(Path(self.path), *self.choices) if self.choices else Path(self.path)


@dataclass(frozen=True)
class Measure:
    """A network on a design: ``cycles`` of the core for one run with ``batch`` images; ``macs`` of the core; bytes on
    the bus; ``array``: micro-ops of the array, ``vector``: cycles of the vector engine's work; a row of LAYER_FIELDS
    for each layer. ``exact``: of the linked program, equal to the RTL's; otherwise sums over its layers, each alone.
    ``host_macs``, ``host_operations``, ``host_bytes``: what is left to the host, as `host.HostWork` counts it.

    On a system ``cycles`` are those until the last of the cores has its images; ``parts`` has a row of PART_FIELDS for
    each core that had some, the one that ended last, of which the layers are, first. ``started``: cycle of the round
    in which the network was begun, where networks share it. ``rounds``: that an image takes, each in another stage; the
    layers then are those of all cores."""

    cycles: int
    batch: int
    macs: int
    array: int
    vector: int
    bytes_read: int
    bytes_written: int
    layers: tuple[tuple[Any, ...], ...]
    exact: bool = True
    host_macs: int = 0
    host_operations: int = 0
    host_bytes: int = 0
    parts: tuple[tuple[int, ...], ...] = ()
    started: int = 0
    rounds: int = 1

    @property
    def host(self) -> HostWork:
        return HostWork(self.host_macs, self.host_operations, self.host_bytes)

    @property
    def on_core(self) -> float:
        """The share of the multiply-accumulates that the core does; 1 where there are none."""
        whole = self.macs + self.host_macs
        return self.macs / whole if whole else 1.0

    @property
    def cycles_per_image(self) -> float:
        return self.cycles / self.batch

    def to_values(self) -> dict[str, Any]:
        rows = {name: [list(row) for row in getattr(self, name)] for name in ("layers", "parts")}
        return {**vars(self), **rows}

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> Measure:
        """What :meth:`to_values` described; ExploreError where it is no measure, as a stranger's file may hold."""
        try:
            rows = {name: tuple(tuple(row) for row in values[name]) for name in ("layers", "parts")}
            found = Measure(**{**values, **rows})
            if (
                any(len(layer) != len(LAYER_FIELDS) for layer in found.layers)
                or any(len(part) != len(PART_FIELDS) or min(part) < 0 for part in found.parts)
                or found.cycles < 1
                or min(found.batch, found.rounds) < 1
                or (type(found.exact) is not bool)
                or min(found.macs, found.host_macs, found.host_operations, found.host_bytes, found.started) < 0
            ):
                raise ValueError("figures out of range")
        except (TypeError, KeyError, ValueError) as error:
            raise ExploreError(f"a database holds a measurement that is none: {error}", hint="make it anew") from error
        return found


def open_network(file: str | Path | LitertFile) -> Network:
    """The network in a file, which is read now and again by every worker."""
    path, choices = (file.path, file.choices) if isinstance(file, LitertFile) else (Path(file), ())
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ExploreError(f"cannot be read: {error.strerror or error}", at=path) from error
    made = Network(path.stem, str(path), hashlib.sha256(content).hexdigest()[:32], choices)
    read(made.file)
    return made


@lru_cache(maxsize=16)
def integer_module(
    network: Network, batch: int, block: int, tables: bool = False, rounding: str = HALF_UP, wide: bool = False
) -> Module:
    """A network after the passes that know of a core only the ``block`` of its products of computed matrices, whether
    it has tables, how it may round, and whether it takes activations of 16 bits."""
    content = Path(network.path).read_bytes()
    if hashlib.sha256(content).hexdigest()[:32] != network.digest:
        raise ExploreError("the file has changed since the exploration began", at=network.path, hint="begin again")
    source, shapes = for_batch(read(network.file), batch)
    module, _ = module_and_tail(source, shapes, require_quantised=True)
    return PassManager(integer_passes(block, tables=tables, core=True, rounding=rounding, wide=wide)).run(module)


def packed(design: Design, network: Network) -> Module:
    """A network as the design's linker takes it, before chains are made."""
    options = AccelOptions(design.config, design.rate, vthreads=design.vthreads)
    block, tables, rounding, wide = _integer_form(design.config)
    before = [each.name for each in integer_passes(block, tables=tables, core=True, rounding=rounding, wide=wide)]
    passes = find_target("accel").passes(options, quantised=True)[len(before) :]
    with collector_waits():
        return PassManager(passes, ran=before).run(integers(design, network))


def _integer_form(*cores: CoreConfig) -> tuple[int, bool, str, bool]:
    """What passes to integers know of cores that a network runs on."""
    block = min(Blocks.of(core).product_block for core in cores)
    wide = min(core.macs_per_cycle for core in cores) >= MULTIPLIERS
    return block, any(core.tables for core in cores), cores[0].rounding, wide


def integers(design: Design, network: Network) -> Module:
    """A network after the passes that designs with cores of like products share; they are done once."""
    return integer_module(network, design.config.batch, *_integer_form(design.config))


def integers_on_host(design: Design, network: Network) -> Module:
    """The same network in integers, with nothing of the core but what changes numbers: what results are held to."""
    _, _, rounding, wide = _integer_form(design.config)
    return integer_module(network, design.config.batch, 0, rounding=rounding, wide=wide)


def compiled(design: Design, network: Network, module: Module | None = None) -> CompiledModel:
    """A network compiled for a design, as a user would. ``module``: what :func:`packed` made of it, if that was called.
    It serves the usual memory; for another the faster of two compilations is taken, each packed for its own."""
    if module is None or not is_usual(design.config, design.rate):
        module = integers(design, network)
    job = Job(measure=program_cycles if design.chains else None)
    chosen = {"config": design.config, "dram": design.rate, "vthreads": design.vthreads}
    model = compile_model(module, "accel", chosen, job=job)
    assert isinstance(model, CompiledModel)  # the accelerator takes no open sizes
    return model


def in_stages(design: Design, network: Network) -> tuple[Module, CompiledModel]:
    """A network with a stage for each core of a design's system, cut for the ports that they share: as the linker takes
    it, and compiled."""
    cores = design.cores
    module = integer_module(network, design.config.batch, *_integer_form(*cores))
    target, job = find_target("accel"), Job(measure=program_cycles, together=cycles_together)
    alike = len({core.hash64 for core in cores}) == 1
    on = {"config": cores[0], "stages": len(cores)} if alike else {"cores": cores}
    chosen = {**on, "dram": design.rate, "vthreads": design.vthreads, "chains": design.chains}
    if design.system is not None and len(cores) > 1:
        chosen["ports"] = design.system.config.ports
    ready = prepared(module, target, target_options(target, chosen), job=job)
    model = compile_model(ready, target, chosen, job=job)
    assert isinstance(model, CompiledModel)  # the accelerator takes no open sizes
    return ready, model


def listed_core(design: Design, found: Measure) -> CoreConfig:
    """The core whose layers a measure has."""
    return design.cores[found.parts[0][0]] if found.parts else design.config


def used(design: Design, found: Measure) -> float:
    """The share of its cores' multipliers, over its cycles, that a network makes use of."""
    cores = [design.cores[part[0]] for part in found.parts] or [design.config]
    return found.macs / (found.cycles * sum(core.macs_per_cycle for core in cores))


def layer_row(each: LayerProfile) -> tuple[Any, ...]:
    """A layer's LAYER_FIELDS."""
    bounds = each.bounds
    return (each.layer.name, each.layer.kind, each.cycles, each.layer.macs, bounds.array, bounds.vector, bounds.memory,
            each.dram_bytes, each.verdict)  # fmt: skip


def measure(design: Design, network: Network) -> Measure:
    """Compile a network for a design and time it. Raises what the compiler raises, a WeftError where it refuses."""
    module = packed(design, network)
    model, host = compiled(design, network, module), host_work(module)
    dram = DramModel(latency=design.rate.latency, bytes_per_cycle=design.rate.bytes_per_cycle)
    runs = predict_runs(model, dram)
    found = profile(model, runs, "model", dram)
    return Measure(
        cycles=found.cycles,
        batch=design.config.batch,
        macs=found.macs,
        array=sum(each.bounds.array for each in found.layers),
        vector=sum(each.bounds.vector for each in found.layers),
        bytes_read=sum(run.result.bytes_read for run in runs),
        bytes_written=sum(run.result.bytes_written for run in runs),
        layers=tuple(layer_row(each) for each in found.layers),
        host_macs=host.macs,
        host_operations=host.operations,
        host_bytes=host.nbytes,
    )


def measure_layers(design: Design, network: Network, database: str | None = None) -> Measure:
    """As :func:`measure`, as the sum of the network's layers: faster, and a few per cent more than the linked program
    takes. What layers take alone is kept in the tuning database at ``database``, for all workers."""
    judge = _judge(design.config, design.rate, design.vthreads, database)
    module = packed(design, network)
    layers, host = layers_of(design, network, judge, module), host_work(module)
    bus = design.rate.for_bus(design.config)
    rows = []
    for each in layers:
        cost, moved = each.cost, each.cost.bytes_read + each.cost.bytes_written
        bounds = {"array": cost.array, "vector": cost.vector, "memory": -(-moved // bus)}
        kind = max(bounds, key=bounds.__getitem__)
        rows.append((each.name, each.kind, cost.cycles, each.macs, *bounds.values(), moved, f"mostly {kind}"))
    costs = [each.cost for each in layers]
    return Measure(
        cycles=sum(cost.cycles for cost in costs),
        batch=design.config.batch,
        macs=sum(each.macs for each in layers),
        array=sum(cost.array for cost in costs),
        vector=sum(cost.vector for cost in costs),
        bytes_read=sum(cost.bytes_read for cost in costs),
        bytes_written=sum(cost.bytes_written for cost in costs),
        layers=tuple(rows),
        exact=False,
        host_macs=host.macs,
        host_operations=host.operations,
        host_bytes=host.nbytes,
    )


def layers_of(design: Design, network: Network, judge: LayerJudge, module: Module | None = None) -> list[LayerCost]:
    """The layers of a network on a design, with the chains that pay if the design has chains. ``module``: what
    :func:`packed` made of it, if that was called."""
    module = packed(design, network) if module is None else module
    if design.chains:
        module = chain(module, design.config, design.rate, program_cycles, threads=design.vthreads)
    return judge.layers(module)


@lru_cache(maxsize=8)
def _judge(config: CoreConfig, rate: DramRate, vthreads: int, database: str | None) -> LayerJudge:
    return LayerJudge(config, rate, vthreads, _shared(database) if database is not None else None)


@cache
def _shared(path: str) -> Database:
    """The database of a worker, open as long as its process lives."""
    return Database(path)


@cache
def measured_by() -> str:
    """A digest of the sources that a measurement follows from."""
    digests = [sources_digest(), *(sources_digest(COMPILER.parent / part) for part in SHAPED_BY)]
    return cache_key(*digests, *(Path(__file__).with_name(name).read_text() for name in ("measure.py", "rounds.py")))


def measure_key(design: Design, network: Network, *, exact: bool = True, networks: Sequence[Network] = ()) -> Key:
    """Where the database keeps what a network costs on a core with a memory, whatever the compiler's knobs.
    ``networks``: all that share the round of a system."""
    what = f"{'network' if exact else 'layers of network'} {_named(network)}"
    core, memory = machine_texts(design.config, design.rate)
    if design.system is not None:
        core, memory = system_texts(design.system)
        what += f" of {' '.join(map(_named, networks))}" if design.system.split == "networks" else ""
    return Key(what, core, memory, measured_by())


def _named(network: Network) -> str:
    """What stands for a network in keys."""
    return " ".join([network.digest, *(repr(each) for each in network.choices)])


def system_texts(system: SystemDesign) -> tuple[str, str]:
    """What stands for a system and for its memory in keys; names of cores take no part."""
    config = system.config
    cores = [{name: value for name, value in asdict(core).items() if name != "name"} for core in config.cores]
    text = {"cores": cores, "ports": config.ports, "shared_reads": config.shared_reads, "split": system.split,
            "host": system.host and [vars(system.host[0]), system.host[1]]}  # fmt: skip
    return json.dumps(text, sort_keys=True), str(system.memory)
