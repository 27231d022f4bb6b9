"""Writes docs/operators.md, the table of all operators, from the registry.

    python docs/operators.py
"""

from __future__ import annotations

from pathlib import Path

from weft.compiler.graph import Operator, Unsupported, dtypes, operators
from weft.compiler.graph.registry import REQUIRED
from weft.compiler.operators import lowerings
from weft.compiler.operators.examples import examples
from weft.compiler.targets.accel import lower

PAGE = Path(__file__).with_suffix(".md")
LOWERINGS = (lower, lowerings)
"""What fills the lowering slots, when it is imported."""

_SETS = {
    "any": dtypes.DTYPES, "bool, numbers": dtypes.ARITHMETIC, "numbers": dtypes.NUMBERS, "integers": dtypes.INTEGERS,
    "floats": dtypes.FLOATS, "signed, floats": dtypes.SIGNED + dtypes.FLOATS,
    "integers, small types": dtypes.INTEGERS + dtypes.STORAGE,
}  # fmt: skip
_FAMILIES = {
    "Elementwise, `nn.*`": lambda e: e.name.startswith("nn.") and e.fusion.value == "elementwise",
    "Reductions, products, windows and the rest of `nn.*`": lambda e: e.name.startswith("nn."),
    "Packed tensors of the accelerator": lambda e: e.name.startswith("packed_") or e.name in ("pack", "unpack"),
    "Moves and indices": lambda e: e.fusion.value in ("layout", "opaque"),
    "Quantisation and the integer contract": lambda e: True,
}
_HEAD = """# Operators

Written by `python docs/operators.py` from the registry (`compiler/graph/registry.py`).
Types: *floats* are {floats}; *numbers* are those and the integers of 8 to 64 bits; *small types* are {small}; *any* is
all of them and bool. "Lowering" tells what becomes loops: **loops**, or why the operator runs on the host.
An operand with a `*` stands for any number of them. Attributes are shown with their defaults.

Missing gradients: {gradients}.
"""


def _types(entry: Operator) -> str:
    found = tuple(examples(entry))
    named = next((name for name, group in _SETS.items() if set(group) == set(found)), "")
    return named or ", ".join(found) or "int8, int32 (packed)"


def _signature(entry: Operator) -> str:
    attrs = [name if default is REQUIRED else f"{name}={default!r}" for name, default in entry.defaults.items()]
    return f"`{entry.name}({', '.join([*entry.arguments, *attrs])})`"


def row(entry: Operator) -> tuple[str, ...]:
    """The cells of one operator."""
    lowering = f"host: {entry.lower.reason}" if isinstance(entry.lower, Unsupported) else "loops"
    return _signature(entry), _types(entry), entry.fusion.value, entry.doc.replace("|", "\\|"), lowering


def page() -> str:
    """The text of the page."""
    reasons: dict[str, int] = {}
    for entry in operators():
        if isinstance(entry.gradient, Unsupported):
            reasons[entry.gradient.reason] = reasons.get(entry.gradient.reason, 0) + 1
    lines = [_HEAD.format(
        floats=", ".join(dtypes.FLOATS), small=", ".join(dtypes.STORAGE),
        gradients="; ".join(f"{reason} ({count})" for reason, count in reasons.items()),
    )]  # fmt: skip
    waiting = list(operators())
    for title, belongs in _FAMILIES.items():
        mine = [entry for entry in waiting if belongs(entry)]
        waiting = [entry for entry in waiting if entry not in mine]
        lines += [f"## {title}", "", "| operator | types | fusion | meaning | lowering |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row(entry))} |" for entry in mine]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
