"""Where each part of a model runs and why, what it costs, what the engines did: as records, and as tables of these."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from ..compiler.model import CompiledModel, CutModel, HostStep
from ..imports import IMPORTS
from .errors import DeviceError
from .module import HOW_TO_TRACE, LoadedModule
from .tables import Record, count, records_table, shape, share, total_of, words

if TYPE_CHECKING:  # what a core needs is imported where its cycles are shown
    from ..hw.cycle_class import CycleClass
    from ..hw.isa import Engine

LAYERS_SHOWN = 40
"""A model of more layers is summarised, unless all are asked for."""

NAMES_SHOWN = 3
"""Layers that the summary of a reason names."""

_QUOTED = re.compile(r" ?'[^']*'")


def placement_records(model: CompiledModel) -> list[Record]:
    """For each layer: where it runs and why not where it was meant to, its share of the multiply-accumulates."""
    layers = (*model.layers, model.last) if isinstance(model, CutModel) else model.layers
    total = sum(layer.macs for layer in layers) or 1
    return [
        {
            "layer": layer.name,
            "nodes": list(layer.nodes),
            "kind": layer.kind,
            "operators": list(layer.operators),
            "shape": list(layer.shape),
            "on": layer.device,
            "reason": layer.reason,
            "macs": layer.macs,
            "share": layer.macs / total,
            "not_fused": list(layer.boundaries),
            "saved_bytes": layer.saved_bytes,
            "form": layer.form,
        }
        for layer in layers
    ]


def reason_records(placements: Sequence[Record]) -> list[Record]:
    """Why layers do not run where they were meant to: for each reason how many do so, the one with most MACs first.

    Reasons that differ in nothing but the names that they quote count as one, told without the names.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in placements:
        if record["reason"]:
            groups.setdefault((record["on"], _QUOTED.sub("", record["reason"])), []).append(record)
    reasons = [
        {
            "on": on,
            "reason": group[0]["reason"] if len({record["reason"] for record in group}) == 1 else unnamed,
            "layers": len(group),
            **total_of(group, "macs", "share"),
            "first": [record["layer"] for record in group[:NAMES_SHOWN]],
        }
        for (on, unnamed), group in groups.items()
    ]
    return sorted(reasons, key=lambda record: (-record["macs"], -record["layers"]))


def kind_records(placements: Sequence[Record]) -> list[Record]:
    """How many layers of each kind run where, and their share of the multiply-accumulates."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in placements:
        groups.setdefault((record["on"], record["kind"]), []).append(record)
    return [
        {"on": on, "kind": kind, "layers": len(group), **total_of(group, "macs", "share")}
        for (on, kind), group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def placement_table(model: CompiledModel, *, verbose: bool = False) -> RenderableType:
    """Where the layers run, and why some do not run where they should. ``verbose``: all layers, however many."""
    return placement_report(f"{model.name} on {machine(model)}: placement", placement_records(model), verbose)


def machine(model: CompiledModel) -> str:
    """What a model is compiled for, in words."""
    if model.core is not None:
        return ", ".join(core.name for core in model.core.cores or (model.core.config,))
    threads = max((step.program.threads for step in model.steps if isinstance(step, HostStep)), default=1)
    return f"target {model.target}, {threads} thread{'s' * (threads > 1)}"


def placement_report(title: str, placements: Sequence[Record], verbose: bool) -> RenderableType:
    """Every layer if there are few or ``verbose``, else how many there are of each kind; then the reasons, summarised
    unless ``verbose``."""
    if verbose or len(placements) <= LAYERS_SHOWN:
        operators = [words("operators", fold=True)] if any(record["operators"] for record in placements) else []
        columns = [
            words("layer", fold=True), words("kind", fold=True), *operators, shape("shape", "output"), words("on"),
            count("macs", "MACs"), share("share"),
        ]  # fmt: skip
        table = records_table(title, columns, placements)
    else:
        kinds = kind_records(placements)
        columns = [words("kind"), words("on"), count("layers"), count("macs", "MACs"), share("share")]
        table = records_table(
            f"{title}, by kind", columns, kinds, [{"kind": "total", **total_of(kinds, "layers", "macs", "share")}]
        )
    if verbose:
        reasons = [f"{each['layer']} runs on {each['on']}: {each['reason']}" for each in placements if each["reason"]]
    else:
        reasons = [_reason_text(record) for record in reason_records(placements)]
    texts = (*reasons, *_chain_texts(placements, verbose), *_form_texts(placements, verbose))
    return Group(table, *map(Text, texts))


def _form_texts(placements: Sequence[Record], verbose: bool) -> Iterator[str]:
    """How layers multiply bytes, where there is a choice."""
    chosen = [record for record in placements if record["form"]]
    if verbose:
        yield from (f"{record['layer']} multiplies bytes by {record['form']}" for record in chosen)
    elif chosen:
        forms = Counter(record["form"].partition(";")[0] for record in chosen)
        yield "bytes are multiplied by " + ", ".join(
            f"{form} in {count} layer{'s' * (count > 1)}" for form, count in sorted(forms.items())
        )


def _chain_texts(placements: Sequence[Record], verbose: bool) -> Iterator[str]:
    """What chains of layers on the core save; with ``verbose`` also why the other layers are in none."""
    on_core = [record for record in placements if record["on"] == "core"]
    chains = [record for record in on_core if record["saved_bytes"]]
    if chains:
        saved = sum(record["saved_bytes"] for record in chains)
        many = "1 chain keeps its" if len(chains) == 1 else f"{len(chains)} chains keep their"
        yield f"{many} results between layers on the core, which saves {saved:,} bytes of DRAM traffic"
    for record in on_core if verbose else ():
        yield from (f"{record['layer']} is in no chain: {reason}" for reason in record["not_fused"])


def _reason_text(record: Record) -> str:
    names, others = ", ".join(record["first"]), record["layers"] - len(record["first"])
    if others:
        names += f" and {others:,} more"
    macs = f", {record['share']:.1%} of the MACs" if record["macs"] else ""
    layers = "1 layer" if record["layers"] == 1 else f"{record['layers']:,} layers"
    return f"{layers} on {record['on']}{macs}: {record['reason']} ({names})"


def layer_records(module: LoadedModule) -> list[Record]:
    """For each layer of a traced run: where it runs and why, MACs, cycles and utilisation of the array (None on the
    host, and where the device has no cycles or no trace), seconds (None on the core), bytes that the core moves.

    :class:`DeviceError` if the last run was not traced.
    """
    if len(module.seconds) != len(module.model.layers):
        raise DeviceError("the last run was not traced, so the time of its layers is not known", hint=HOW_TO_TRACE)
    with IMPORTS:
        from .trace import layer_cycles

    traced = module.runs and all(run.result.trace is not None for run in module.runs)
    cycles = layer_cycles(module) if traced else [None] * len(module.model.layers)
    return [
        {
            "layer": layer.name,
            "on": layer.device,
            "reason": layer.reason,
            "macs": layer.macs,
            "cycles": count if layer.device == "core" else None,
            "seconds": None if layer.device == "core" else seconds,
            "utilisation": utilisation(module.model, layer.macs, count) if count else None,
            "bytes_loaded": layer.bytes_loaded,
            "bytes_stored": layer.bytes_stored,
        }
        for layer, count, seconds in zip(module.model.layers, cycles, module.seconds, strict=True)
    ]


def layer_table(module: LoadedModule) -> RenderableType:
    """:func:`layer_records` of the core, and their sum; without a trace the cycles of the whole run alone."""
    model = module.model
    records = [record for record in layer_records(module) if record["on"] == "core"]
    total = {
        "layer": "total",
        **total_of(records, "macs", "bytes_loaded", "bytes_stored"),
        "cycles": module.cycles or 0,
    }
    total["utilisation"] = utilisation(model, total["macs"], total["cycles"])
    columns = [
        words("layer"), count("macs", "MACs"), count("cycles"), share("utilisation"),
        count("bytes_loaded", "loaded B"), count("bytes_stored", "stored B"),
    ]  # fmt: skip
    memory = f", {module.device.dram}" if module.device.dram is not None else ""
    title = f"{model.name} on {model.config.name}, device {module.device.name}{memory}"
    return records_table(title, columns, records, [total])


def engine_records(module: LoadedModule) -> list[Record]:
    """For each class of cycles that occurs: how many each engine spent in it; each engine's sum to the run's.

    :class:`DeviceError` if the last run has no cycles.
    """
    if module.cycles is None:
        raise DeviceError(f"the last run on device {module.device.name!r} has no cycles", hint="use 'fsim' or 'rtl'")
    with IMPORTS:
        from ..hw.cycle_class import CycleClass
        from ..hw.isa import Engine

    records = [
        {"class": kind.name.lower(), **{engine.name.lower(): _count(module, engine, kind) for engine in Engine}}
        for kind in CycleClass.__members__.values()
    ]
    return [record for record in records if any(record[engine.name.lower()] for engine in Engine)]


def engine_table(module: LoadedModule) -> RenderableType:
    """:func:`engine_records`, and their sum."""
    with IMPORTS:
        from ..hw.isa import Engine

    names = [engine.name.lower() for engine in Engine]
    records = engine_records(module)
    shown = [{**record, "class": record["class"].replace("_", " ")} for record in records]
    total = {"class": "total", **total_of(records, *names)}
    return records_table("cycles of each engine by class", [words("class"), *map(count, names)], shown, [total])


def utilisation(model: CompiledModel, macs: int, cycles: int) -> float:
    """Useful MACs / (cycles x MACs per cycle)."""
    return macs / (cycles * model.config.macs_per_cycle) if cycles else 0.0


def _count(module: LoadedModule, engine: Engine, kind: CycleClass) -> int:
    return sum(run.result.counters.get(engine, {}).get(kind, 0) for run in module.runs)
