"""The manual's page of errors: every kind, and each message that says what to do, read from the code that raises it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from reference_text import cell, plain
from weft.errors import WeftError

PACKAGE = Path(__file__).parents[1] / "weft"


def page() -> str:
    """All kinds of errors that a user can meet, and messages with their cures."""
    lines = [
        "# Errors", "",
        "What weft says when something cannot be done, and what to do then. An error is one line:", "",
        "    error: input 'image' must be float32[1, 1, 8, 8], not float32[1, 1, 8, 9]; hint: sizes are fixed at "
        "compilation", "",
        "Each is a `weft.WeftError` with `message`, `at` (the place) and `hint` (what to do). The command prints all",
        "three, and ends with a status that is not 0; `--debug` shows the traceback.", "",
        "## Kinds", "",
        "| error | raised by | what it means |", "|---|---|---|",
    ]  # fmt: skip
    kinds = all_kinds()
    for kind in kinds:
        what = cell(next(iter(plain((kind.__doc__ or "").split("\n\n")[0])), ""))
        lines.append(f"| `{kind.__name__}` | `{kind.__module__.removeprefix('weft.')}` | {what} |")
    lines += ["", "## Messages, and what to do", "",
              "Those that name a cure, as they stand in the code: what is in braces is told then.", ""]  # fmt: skip
    found = messages({kind.__name__ for kind in kinds})
    for name in sorted(found):
        lines += [f"### {name}", "", "| message | what to do |", "|---|---|"]
        lines += [f"| {_quoted(message)} | {_quoted(hint)} |" for message, hint in sorted(set(found[name]))]
        lines.append("")
    return "\n".join(lines)


def all_kinds() -> list[type]:
    """Every error class of weft, by module and name."""
    for path in sorted(PACKAGE.glob("**/errors.py")):  # whatever was imported so far
        import_module(".".join(("weft", *path.relative_to(PACKAGE).with_suffix("").parts)))
    found = {kind for kind in _below(WeftError) if kind.__module__.startswith("weft.")}
    return sorted(found, key=lambda each: (each.__module__, each.__name__))


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def messages(kinds: set[str]) -> dict[str, list[tuple[str, str]]]:
    """Messages with their hints, by the class that is raised."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            hints = [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
            if name not in kinds or not hints:
                continue
            for message in _texts(node.args[0]):
                for hint in filter(None, _texts(hints[0])):
                    found[name].append((message, hint))
    return found


def sources() -> list[Path]:
    """The package's own modules."""
    return list(PACKAGE.rglob("*.py"))


def _texts(node: ast.expr) -> list[str]:
    """A text as it is written, with braces for what is put in; both texts of a choice; nothing for a variable."""
    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(_part(part) for part in parts)]
        case ast.IfExp(body=one, orelse=other):
            return [*_texts(one), *_texts(other)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in _texts(left) for b in _texts(right)]
    return []


def _part(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=text):
            return str(text)
        case ast.FormattedValue(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return "{" + name + "}"
    return "{...}"


def _quoted(text: str) -> str:
    return cell(text.replace("{", "\\{").replace("*", "\\*").replace("_", "\\_"))
