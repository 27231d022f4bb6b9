"""What a model does on the host: how long each layer takes, what fusion saves, how memory is shared; as records, and as
tables of these."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..compiler.model import CompiledModel, HostProgram, HostStep, LaunchStep, NumpyStep
from .module import LoadedModule
from .report import layer_records, machine
from .tables import Column, Record, count, records_table, share, total_of, words

LAYERS_SHOWN = 20
"""Of the layers on the host so many are shown, those that take longest, unless all are asked for."""


def host_table(module: LoadedModule, *, verbose: bool = False) -> RenderableType:
    """Time of the layers on the host in the last traced run, the longest first; their sum. ``verbose``: all of them."""
    layers = [record for record in layer_records(module) if record["seconds"] is not None]
    total = total_of(layers, "seconds")["seconds"]
    rows = [
        {**record, "microseconds": record["seconds"] * 1e6, "share": record["seconds"] / total if total else 0.0}
        for record in sorted(layers, key=lambda record: -record["seconds"])
    ]
    shown = rows if verbose else rows[:LAYERS_SHOWN]
    columns = [
        words("layer", fold=True), words("on"), count("macs", "MACs"),
        Column("microseconds", "us", lambda value: f"{value:,.1f}", number=True), share("share"),
        words("reason", "why not on the core" if module.model.core is not None else "why not compiled", fold=True),
    ]  # fmt: skip
    part = f", the longest {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    title = f"{module.model.name}: time on the host{part}"
    return records_table(title, columns, shown, [{"layer": "total", "microseconds": total * 1e6}])


def memory_record(model: CompiledModel) -> Record:
    """What the host needs between its kernels: bytes, the most that are alive at once, and without sharing; how many
    tensors are written over an operand."""
    programs = [step.program for step in model.steps if isinstance(step, HostStep)]
    tensors = [each for program in programs for each in program.memory]
    return {
        "arena_bytes": max((program.arena_bytes for program in programs), default=0),
        "alive_bytes": max(map(most_alive, programs), default=0),
        "unshared_bytes": sum(each.nbytes for each in tensors),
        "in_place": sum(each.reuses is not None for each in tensors),
        "tensors": len(tensors),
    }


def most_alive(program: HostProgram) -> int:
    """Bytes of the tensors that are alive in the worst step; those in one place count once."""
    return _alive(program, worst_step(program))


def worst_step(program: HostProgram) -> int:
    """The first of the steps in which the most bytes are alive; 0 where nothing is kept."""
    return max(sorted({each.first for each in program.memory}), key=lambda step: _alive(program, step), default=0)


def _alive(program: HostProgram, step: int) -> int:
    places = {(each.offset, each.nbytes) for each in program.memory if each.first <= step <= each.last}
    return sum(nbytes for _, nbytes in places)


def peak_records(program: HostProgram) -> list[Record]:
    """What is alive in the worst step, the largest first: the tensor, its bytes, the layer that makes it, the last one
    that reads it, and both steps. A tensor that is written over another in the same place stands for both."""

    def layer(step: int) -> str:
        found = program.steps[step]
        return program.layers[found.layer].name if isinstance(found, LaunchStep | NumpyStep) else "copy or check"

    at = worst_step(program)
    alive = {(each.offset, each.nbytes): each for each in program.memory if each.first <= at <= each.last}
    return [
        {
            "tensor": each.name, "bytes": each.nbytes, "first": each.first, "made": layer(each.first),
            "last": each.last, "read": layer(each.last),
        }
        for each in sorted(alive.values(), key=lambda each: (-each.nbytes, each.first))
    ]  # fmt: skip


def peak_table(program: HostProgram, *, verbose: bool = False) -> RenderableType:
    """:func:`peak_records`, and their sum. ``verbose``: all of them."""
    records = peak_records(program)
    shown = records if verbose else records[:LAYERS_SHOWN]
    columns = [
        words("tensor", fold=True), count("bytes"), words("made", "made by", fold=True), count("first", "in step"),
        words("read", "read last by", fold=True), count("last", "in step"),
    ]  # fmt: skip
    part = f", the largest {len(shown)} of {len(records)}" if len(shown) < len(records) else ""
    title = f"alive in step {worst_step(program)} of {len(program.steps)}, where most is{part}"
    total = {"tensor": "total", **total_of(records, "bytes")}
    return records_table(title, columns, shown, [total])


def memory_text(model: CompiledModel) -> str:
    """:func:`memory_record` as a sentence."""
    record = memory_record(model)
    return (
        f"memory: {record['arena_bytes']:,} bytes between kernels, of which {record['alive_bytes']:,} are alive at "
        f"once; {record['unshared_bytes']:,} without sharing; {record['in_place']} of {record['tensors']} tensors are "
        "written over an operand"
    )


def fusion_records(model: CompiledModel) -> list[Record]:
    """For each kernel: the memory traffic that its fusion saves, and why what makes its operands is not part of it."""
    return [
        {
            "kernel": layer.name,
            "operators": list(layer.operators),
            "saved_bytes": layer.saved_bytes,
            "not_fused": list(layer.boundaries),
        }
        for layer in model.layers
        if layer.operators and layer.device != "core"  # a change of layout has none
    ]


def fusion_table(model: CompiledModel) -> RenderableType:
    """:func:`fusion_records`, their sum, and the memory between kernels."""
    records = fusion_records(model)
    columns = [
        words("kernel", fold=True), words("operators", fold=True), count("saved_bytes", "bytes saved"),
        Column("not_fused", "not fused, and why", "\n".join, fold=True),
    ]  # fmt: skip
    table = records_table(f"{model.name} on {machine(model)}: fusion", columns, records)
    fused, saved = sum(len(record["operators"]) > 1 for record in records), total_of(records, "saved_bytes")
    text = (
        f"{fused} of {len(records)} kernels are fused, which saves {saved['saved_bytes']:,} bytes of memory traffic "
        "in a run"
    )
    peaks = [peak_table(step.program) for step in model.steps if isinstance(step, HostStep) and step.program.memory]
    return Group(table, Text(text), Text(memory_text(model)), *peaks)
