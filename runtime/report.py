"""Tables for people: where each part of the model runs, what it costs, what the engines did."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..compiler.compiled import CompiledModel
from ..hw.interfaces import CycleClass
from ..hw.isa import Engine
from .module import LoadedModule
from .trace import layer_cycles


def placement_table(model: CompiledModel) -> RenderableType:
    """For each layer: where it runs, its share of the MACs; then why any is on the host."""
    total = sum(layer.macs for layer in model.layers) or 1
    title = f"{model.name} on {model.config.name}: placement"
    table = _table(title, "layer,kind,output,on", "MACs,share")
    for layer in model.layers:
        table.add_row(
            layer.name,
            layer.kind,
            "x".join(map(str, layer.shape)),
            layer.placement,
            f"{layer.macs:,}",
            f"{layer.macs / total:.1%}",
        )
    return Group(table, *(f"{layer.name} is on the host: {layer.reason}" for layer in model.layers if layer.reason))


def layer_table(module: LoadedModule) -> RenderableType:
    """For each layer of a traced run: placement, MACs, cycles, utilisation of the array, bytes."""
    model = module.model
    cycles = layer_cycles(module)
    table = _table(
        f"{model.name} on {model.config.name}, device {module.device.name}",
        "layer,on",
        "MACs,cycles,utilisation,loaded B,stored B",
    )
    for layer, count in zip(model.layers, cycles, strict=True):
        table.add_row(
            layer.name,
            layer.placement,
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
        f"{macs:,}",
        f"{total:,}",
        f"{utilisation(model, macs, total):.1%}",
        f"{sum(layer.bytes_loaded for layer in model.layers):,}",
        f"{sum(layer.bytes_stored for layer in model.layers):,}",
    )
    return table


def engine_table(module: LoadedModule) -> RenderableType:
    """For each class of cycles: how many each engine spent in it; each column sums to the cycles of the run."""
    table = _table("cycles of each engine by class", "class", ",".join(engine.name.lower() for engine in Engine))
    totals = [0] * len(Engine)
    for kind in CycleClass.__members__.values():
        counts = [_count(module, engine, kind) for engine in Engine]
        if any(counts):
            table.add_row(kind.name.lower().replace("_", " "), *(f"{count:,}" for count in counts))
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    table.add_section()
    table.add_row("total", *(f"{total:,}" for total in totals))
    return table


def utilisation(model: CompiledModel, macs: int, cycles: int) -> float:
    """Useful MACs / (cycles x MACs per cycle)."""
    return macs / (cycles * model.config.macs_per_cycle) if cycles else 0.0


def _table(title: str, words: str, numbers: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words.split(","):
        table.add_column(heading, no_wrap=heading in ("layer", "on"), overflow="fold")
    for heading in numbers.split(","):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _count(module: LoadedModule, engine: Engine, kind: CycleClass) -> int:
    return sum(run.result.counters.get(engine, {}).get(kind, 0) for run in module.runs)
