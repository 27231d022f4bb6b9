"""The manual's page of operators by target: what runs as what, read from the operators' entries."""

from __future__ import annotations

from collections import Counter

from reference_text import cell
from weft.compiler.graph.registry import Family, Fusion, Operator, Unsupported, operators
from weft.compiler.targets.accel.operators.operators import packed_form

CORE, KERNEL, NUMPY = "the core", "kernel", "NumPy"


def by_target(entry: Operator, packed: set[str]) -> tuple[str, str, str]:
    """Where an operator runs for the accelerator, for processors and for GPUs."""
    kernel = NUMPY if isinstance(entry.lower, Unsupported) else KERNEL
    if packed_form(entry.name) in packed:
        accel = CORE
    elif entry.family is Family.SOURCE and entry.integer is not None:
        accel = f"8 bits: {CORE}; else host: {kernel}"
    elif entry.family is Family.SOURCE and entry.fusion is Fusion.ELEMENTWISE and len(entry.arguments) == 1:
        accel = f"8 bits: a table; else host: {kernel}"
    else:
        accel = f"host: {kernel}"
    return accel, kernel, kernel


def page() -> str:
    """The page, as Markdown."""
    entries = [entry for entry in operators() if entry.family is not Family.PACKED]
    packed = {entry.name for entry in operators() if entry.family is Family.PACKED}
    places = {entry.name: by_target(entry, packed) for entry in entries}
    counts = Counter(NUMPY in each[1] for each in places.values())
    lines = [
        "# Operators by target", "",
        "Where does an operator of my model run? `weft compile` says it for each layer, with the reason:", "",
        "    weft compile model.onnx --target accel --verbose", "",
        "This page says it for each operator. A *kernel* is a loop nest that is compiled for the processor or the GPU.",
        f"*NumPy* is the operator's own meaning on the host; {counts[True]} of {len(places)} operators need it. The",
        "reason stands beside them. *8 bits* is an operator of a quantised model: one with a rule for integers runs on",
        "the core where its shape and scales allow it, one on a single value as a table of 256 results",
        "([integers.md](../integers.md)). The placement report has the last word. What each operator means, its types",
        "and its gradient: [operators.md](../operators.md).", "",
    ]  # fmt: skip
    for family in Family:
        mine = sorted((entry for entry in entries if entry.family is family), key=lambda entry: entry.name)
        if not mine:
            continue
        lines += [f"## {family.value}", ""]
        lines += ["| operator | accel | cpu | opencl, cuda | why NumPy |", "|---|---|---|---|---|"]
        for entry in mine:
            why = entry.lower.reason if isinstance(entry.lower, Unsupported) else ""
            lines.append(f"| `{entry.name}` | {' | '.join(places[entry.name])} | {cell(why)} |")
        lines.append("")
    return "\n".join(lines)
