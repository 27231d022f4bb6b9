"""Tables for people: where each part of the model runs, what it costs, what the engines did."""

from __future__ import annotations

from rich.table import Table

from ..compiler.compiled import CompiledModel
from ..hw.interfaces import CycleClass
from ..hw.isa import Engine
from .module import LoadedModule
from .trace import layer_cycles


def placement_table(model: CompiledModel) -> Table:
    """For each layer: where it runs and why, its share of the multiply-accumulates, its bytes."""
    total = sum(layer.macs for layer in model.layers) or 1
    table = Table(title=f"{model.name} on {model.config.name}: placement")
    for heading in ("layer", "kind", "output", "placement"):
        table.add_column(heading)
    for heading in ("MACs", "share", "loaded B", "stored B"):
        table.add_column(heading, justify="right")
    for layer in model.layers:
        where = layer.placement if not layer.reason else f"{layer.placement}: {layer.reason}"
        table.add_row(
            layer.name,
            layer.kind,
            "x".join(map(str, layer.shape)),
            where,
            f"{layer.macs:,}",
            f"{layer.macs / total:.1%}",
            f"{layer.bytes_loaded:,}",
            f"{layer.bytes_stored:,}",
        )
    return table


def layer_table(module: LoadedModule) -> Table:
    """For each layer of a traced run: placement, MACs, cycles, utilisation of the array, bytes."""
    model = module.model
    cycles = layer_cycles(module)
    table = Table(title=f"{model.name} on {model.config.name}, device {module.device.name}")
    for heading in ("layer", "kind", "placement"):
        table.add_column(heading)
    for heading in ("MACs", "cycles", "utilisation", "loaded B", "stored B"):
        table.add_column(heading, justify="right")
    for layer, count in zip(model.layers, cycles, strict=True):
        table.add_row(
            layer.name,
            layer.kind,
            layer.placement if not layer.reason else f"{layer.placement}: {layer.reason}",
            f"{layer.macs:,}",
            f"{count:,}" if layer.placement == "accel" else "-",
            f"{utilisation(model, layer.macs, count):.1%}" if count else "-",
            f"{layer.bytes_loaded:,}",
            f"{layer.bytes_stored:,}",
        )
    macs, total = sum(layer.macs for layer in model.layers), sum(cycles)
    table.add_section()
    table.add_row(
        "total",
        "",
        "",
        f"{macs:,}",
        f"{total:,}",
        f"{utilisation(model, macs, total):.1%}",
        f"{sum(layer.bytes_loaded for layer in model.layers):,}",
        f"{sum(layer.bytes_stored for layer in model.layers):,}",
    )
    return table


def engine_table(module: LoadedModule) -> Table:
    """For each engine: its cycles by class; each row sums to the cycles of the run."""
    classes = CycleClass.__members__.values()
    kinds = [kind for kind in classes if any(_count(module, engine, kind) for engine in Engine)]
    table = Table(title="cycles of each engine by class")
    table.add_column("engine")
    for kind in kinds:
        table.add_column(kind.name.lower().replace("_", " "), justify="right")
    table.add_column("total", justify="right")
    for engine in Engine:
        counts = [_count(module, engine, kind) for kind in kinds]
        table.add_row(engine.name.lower(), *(f"{count:,}" for count in counts), f"{sum(counts):,}")
    return table


def utilisation(model: CompiledModel, macs: int, cycles: int) -> float:
    """Useful MACs / (cycles x MACs per cycle)."""
    return macs / (cycles * model.config.macs_per_cycle) if cycles else 0.0


def _count(module: LoadedModule, engine: Engine, kind: CycleClass) -> int:
    return sum(run.result.counters.get(engine, {}).get(kind, 0) for run in module.runs)
