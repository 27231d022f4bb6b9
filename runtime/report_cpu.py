"""A model on a CPU: its kernels, their memory, and what fusion saves; as records, and as tables of these."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ..compiler.compiled_cpu import CpuModel
from .report import placement_records, placement_report
from .tables import Column, Record, count, records_table, words


def cpu_table(model: CpuModel, *, verbose: bool = False) -> RenderableType:
    """Which kernels there are, what NumPy runs and why, and the memory between them. ``verbose``: all, however many."""
    threads = "1 thread" if model.threads == 1 else f"{model.threads} threads"
    title = f"{model.name} on the CPU, {threads}: placement"
    return Group(placement_report(title, placement_records(model), verbose), Text(memory_text(model)))


def memory_record(model: CpuModel) -> Record:
    """What a run needs between its kernels: bytes, the most that are alive at once, and without sharing."""
    figures = model.statistics
    return {
        "arena_bytes": model.arena_bytes,
        "alive_bytes": figures["arena_bytes_alive"],
        "unshared_bytes": figures["arena_bytes_unshared"],
        "in_place": figures["in_place"],
        "tensors": len(model.memory),
    }


def memory_text(model: CpuModel) -> str:
    """:func:`memory_record` as a sentence."""
    record = memory_record(model)
    return (
        f"memory: {record['arena_bytes']:,} bytes between kernels, of which {record['alive_bytes']:,} are alive at "
        f"once; {record['unshared_bytes']:,} without sharing; {record['in_place']} of {record['tensors']} tensors are "
        "written over an operand"
    )


def fusion_records(model: CpuModel) -> list[Record]:
    """For each kernel: the memory traffic that its fusion saves, and why what makes its operands is not part of it."""
    return [
        {
            "kernel": layer.name,
            "operators": list(layer.operators),
            "saved_bytes": layer.saved_bytes,
            "not_fused": list(layer.boundaries),
        }
        for layer in model.layers
        if layer.operators  # a change of layout has none
    ]


def fusion_table(model: CpuModel) -> RenderableType:
    """:func:`fusion_records`, and their sum."""
    records = fusion_records(model)
    columns = [
        words("kernel", fold=True), words("operators", fold=True), count("saved_bytes", "bytes saved"),
        Column("not_fused", "not fused, and why", "\n".join, fold=True),
    ]  # fmt: skip
    table = records_table(f"{model.name} on the CPU: fusion", columns, records)
    fused, saved = model.statistics["fused_groups"], model.statistics["saved_bytes"]
    text = f"{fused} of {len(records)} kernels are fused, which saves {saved:,} bytes of memory traffic in a run"
    return Group(table, Text(text))
