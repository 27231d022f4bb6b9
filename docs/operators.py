"""Writes docs/operators.md, the table of all operators, from the registry.

python docs/operators.py
"""

from __future__ import annotations

from pathlib import Path

from weft.compiler.graph import Family, Fusion, Operator, Unsupported, dtypes, operators
from weft.compiler.graph.registry import REQUIRED
from weft.compiler.operators.samples import samples_of

PAGE = Path(__file__).with_suffix(".md")

_SETS = {
    "any": dtypes.DTYPES, "any but string": (*dtypes.ARITHMETIC, *dtypes.STORAGE), "bool, numbers": dtypes.ARITHMETIC,
    "bool, numbers, string": (*dtypes.ARITHMETIC, dtypes.STRING), "numbers": dtypes.NUMBERS,
    "integers": dtypes.INTEGERS,
    "floats": dtypes.FLOATS, "signed, floats": dtypes.SIGNED + dtypes.FLOATS,
    "integers, small types": dtypes.INTEGERS + dtypes.STORAGE,
}  # fmt: skip
_HEAD = """# Operators

What a graph may be made of. Each line is one operator: how it is called, what it takes, what it means. So does a graph
look that uses two:

    fn @main(%x: float32[2, 3]) {{ return nn.clip(nn.add(%x, %x), low=0.0) }}

Written by `python docs/operators.py` from the operators' entries (`compiler/operators/`, and
`compiler/targets/accel/` for packed tensors). [extending.md](extending.md) shows how to add one.

Types: *floats* are {floats}; *numbers* are those and the integers of 8 to 64 bits; *small types* are {small}; *any* is
all of them, bool and string. "Lowering" tells what becomes loops: **loops**, or why not.
"Gradient" is **rule** ([gradients.md](gradients.md)), **0** (the result is piecewise constant), or why there is none.
An operand with a `*` stands for any number of them. Attributes are shown with their defaults.
"""


def _types(entry: Operator) -> str:
    dtypes = tuple(samples_of(entry))
    named = next((name for name, group in _SETS.items() if set(group) == set(dtypes)), "")
    return named or ", ".join(dtypes)


def _signature(entry: Operator) -> str:
    attrs = [name if default is REQUIRED else f"{name}={default!r}" for name, default in entry.defaults.items()]
    return f"`{entry.name}({', '.join([*entry.arguments, *attrs])})`"


def row(entry: Operator) -> tuple[str, ...]:
    """The cells of one operator."""
    lowering = entry.lower.reason if isinstance(entry.lower, Unsupported) else "loops"
    return (
        _signature(entry),
        _types(entry),
        entry.fusion.value,
        entry.doc.replace("|", "\\|"),
        gradient(entry),
        lowering,
    )


def gradient(entry: Operator) -> str:
    """What there is of a gradient."""
    if not isinstance(entry.gradient, Unsupported):
        return "rule"
    return "0" if entry.gradient.is_zero else entry.gradient.reason


def page() -> str:
    """The text of the page."""
    lines = [_HEAD.format(floats=", ".join(dtypes.FLOATS), small=", ".join(dtypes.STORAGE))]
    kinds = list(Fusion)
    for family in Family:
        mine = [entry for entry in operators() if entry.family is family]
        mine.sort(key=lambda entry: kinds.index(entry.fusion))
        lines += [f"## {family.value}", ""]
        lines += ["| operator | types | fusion | meaning | gradient | lowering |", "|---|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row(entry))} |" for entry in mine]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
