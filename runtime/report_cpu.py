"""Tables for people about models on a CPU: which kernels there are, what each does, what NumPy runs and why."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..compiler.compiled_cpu import CpuModel


def cpu_table(model: CpuModel) -> RenderableType:
    """For each kernel: its operators, where it runs, its share of the multiply-accumulates; then reasons and memory."""
    total = sum(layer.macs for layer in model.layers) or 1
    threads = "1 thread" if model.threads == 1 else f"{model.threads} threads"
    table = Table(title=f"{model.name} on the CPU, {threads}: placement", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("kernel", "kind", "operators", "output", "on"):
        table.add_column(heading, overflow="fold")
    for heading in ("MACs", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in model.layers:
        table.add_row(
            layer.name, layer.kind, " + ".join(layer.operators), "x".join(map(str, layer.shape)), layer.device,
            f"{layer.macs:,}", f"{layer.macs / total:.1%}",
        )  # fmt: skip
    reasons = (f"{layer.name} runs in NumPy: {layer.reason}" for layer in model.layers if layer.reason)
    return Group(table, *reasons, memory_text(model))


def memory_text(model: CpuModel) -> str:
    """What a run needs between its kernels."""
    figures = model.statistics
    alive, unshared = figures["arena_bytes_alive"], figures["arena_bytes_unshared"]
    return (
        f"memory: {model.arena_bytes:,} bytes between kernels, of which {alive:,} are alive at once; {unshared:,} "
        f"without sharing; {figures['in_place']} of {len(model.memory)} tensors are written over an operand"
    )


def fusion_table(model: CpuModel) -> RenderableType:
    """For each kernel: the memory traffic that its fusion saves, and why what makes its operands is not part of it."""
    table = Table(title=f"{model.name} on the CPU: fusion", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("kernel", "operators"):
        table.add_column(heading, overflow="fold")
    table.add_column("bytes saved", justify="right", no_wrap=True)
    table.add_column("not fused, and why", overflow="fold")
    layers = [layer for layer in model.layers if layer.operators]  # a change of layout has none
    for layer in layers:
        table.add_row(layer.name, " + ".join(layer.operators), f"{layer.saved_bytes:,}", "\n".join(layer.boundaries))
    fused, saved = model.statistics["fused_groups"], model.statistics["saved_bytes"]
    text = f"{fused} of {len(layers)} kernels are fused, which saves {saved:,} bytes of memory traffic in a run"
    return Group(table, text)
