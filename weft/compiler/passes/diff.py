"""A web page that shows what each pass did to the graph: the text before and after, side by side."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .manager import PassRecord

CONTEXT = 3
"""Unchanged lines shown around a change; longer runs are folded."""

_TOKEN = re.compile(
    r"(?P<comment>#.*)|(?P<string>\"[^\"]*\")|(?P<value>%[\w.]+)|(?P<constant>@[\w.]+)"
    r"|(?P<type>\b[a-z]\w*\[[\d, ]*\])|(?P<op>\b[a-z_][\w.]*(?=\())|(?P<word>\w+)|(?P<other>\s+|.)"
)
_NUMBERED = re.compile(r"%\d+\b")


@dataclass(frozen=True)
class Change:
    """What one pass did: its record, and the module's text before and after."""

    record: PassRecord
    before: str
    after: str


@dataclass(frozen=True)
class _Row:
    """One line of the comparison; a side that has no line is None."""

    kind: str  # "same", "changed", "removed", "added"
    left: str | None
    right: str | None


def diff_page(title: str, records: Sequence[PassRecord], changes: Sequence[Change]) -> str:
    """The page: a table of all passes, then for each that changed something a section that folds."""
    links = {id(change.record): index for index, change in enumerate(changes)}
    table = "".join(_record_row(record, links.get(id(record))) for record in records)
    sections = "".join(_section(index, change) for index, change in enumerate(changes))
    titles = ("pass", "ms", "matches", "calls before", "after", "largest difference")
    head = f"<tr>{''.join(f'<th>{title}</th>' for title in titles)}</tr>"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1><table>{head}{table}</table>"
        f'<p><button onclick="all_sections(true)">open all</button> <button onclick="all_sections(false)">close all'
        f"</button></p>{sections}<script>{_SCRIPT}</script></html>\n"
    )


def _record_row(record: PassRecord, index: int | None) -> str:
    name = escape(record.name) if index is None else f'<a href="#pass{index}">{escape(record.name)}</a>'
    error = "not checked" if record.error is None else f"{record.error:.2e}"
    matches = "" if record.matches is None else str(record.matches)
    cells = (f"{record.seconds * 1e3:.1f}", matches, str(record.calls_before), str(record.calls_after), error)
    style = ' class="quiet"' if index is None else ""
    return f"<tr{style}><td>{name}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _section(index: int, change: Change) -> str:
    rows = list(_rows(change.before.splitlines(), change.after.splitlines()))
    counts = {kind: sum(row.kind == kind for row in rows) for kind in ("changed", "removed", "added")}
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "only renumbered"
    body = "".join(_folded(rows))
    return (
        f'<details class="pass" id="pass{index}" open><summary><b>{escape(change.record.name)}</b> '
        f"<span>{summary}</span></summary><div class=grid>{body}</div></details>"
    )


def _rows(before: list[str], after: list[str]) -> Iterator[_Row]:
    """Lines paired. Values are numbered in order: a line that differs by its numbers alone counts as the same."""
    old, new = ([_NUMBERED.sub("%", line) for line in side] for side in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        left, right = before[a:a_end], after[b:b_end]
        paired = min(len(left), len(right))
        kind = "same" if tag == "equal" else "changed"
        yield from (_Row(kind, *pair) for pair in zip(left[:paired], right[:paired], strict=True))
        yield from (_Row("removed", old, None) for old in left[paired:])
        yield from (_Row("added", None, new) for new in right[paired:])


def _folded(rows: list[_Row]) -> Iterator[str]:
    """The rows as HTML, long runs of unchanged lines inside a section that is closed."""
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and (rows[end].kind == "same") == (rows[start].kind == "same"):
            end += 1
        run = [_row_html(row) for row in rows[start:end]]
        first = CONTEXT if start else 0
        last = CONTEXT if end < len(rows) else 0
        hidden = run[first : len(run) - last]
        if rows[start].kind == "same" and len(hidden) > 1:
            yield "".join(run[:first])
            yield f"<details class=fold><summary>{len(hidden)} unchanged lines</summary>{''.join(hidden)}</details>"
            yield "".join(run[len(run) - last :])
        else:
            yield "".join(run)
        start = end


def _row_html(row: _Row) -> str:
    left, right = row.left, row.right
    if row.kind == "changed" and left is not None and right is not None:
        marked = _marks(left, right)
        return _cells(row.kind, _coloured(left, marked[0]), _coloured(right, marked[1]))
    return _cells(row.kind, "" if left is None else _coloured(left), "" if right is None else _coloured(right))


def _cells(kind: str, left: str, right: str) -> str:
    return f'<div class="row {kind}"><code>{left}</code><code>{right}</code></div>'


def _marks(left: str, right: str) -> tuple[set[int], set[int]]:
    """Indices of the tokens of each line that the other one does not have; none when the lines are unrelated."""
    old, new = ([token.group() for token in _TOKEN.finditer(line)] for line in (left, right))
    marks: tuple[set[int], set[int]] = (set(), set())
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < 0.5:
        return marks
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag != "equal":
            marks[0].update(range(a, a_end))
            marks[1].update(range(b, b_end))
    return marks


def _coloured(line: str, marked: Collection[int] = ()) -> str:
    """A line with its parts in the colours of their kinds, and the marked ones emphasised."""
    parts: list[str] = []
    for index, token in enumerate(_TOKEN.finditer(line)):
        text = escape(token.group())
        kind = token.lastgroup or "other"
        if kind not in ("other", "word"):
            text = f"<span class={kind}>{text}</span>"
        parts.append(f"<mark>{text}</mark>" if index in marked and not token.group().isspace() else text)
    return "".join(parts)


_STYLE = """
:root { --ground: #fff; --text: #1b1f24; --quiet: #6a737d; --line: #d8dee4; --removed: #ffeef0; --added: #e6ffec;
  --changed: #fff8e1; --mark: #ffd33d88; --value: #6639ba; --op: #0550ae; --type: #116329; --string: #953800; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --text: #e6edf3; --quiet: #8b949e; --line: #30363d;
  --removed: #3b1219; --added: #12261e; --changed: #2b2410; --mark: #bb800966; --value: #d2a8ff; --op: #79c0ff;
  --type: #7ee787; --string: #ffa657; } }
body { background: var(--ground); color: var(--text); font: 14px system-ui, sans-serif; margin: 1.5em; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid var(--line); padding: .2em .8em; text-align: right; }
td:first-child, th:first-child { text-align: left; } .quiet, .quiet a { color: var(--quiet); } a { color: var(--op); }
details.pass { border: 1px solid var(--line); border-radius: 6px; margin: 1em 0; }
summary { cursor: pointer; padding: .5em .8em; } summary span, details.fold > summary { color: var(--quiet); }
.grid { overflow-x: auto; } .row { display: grid; grid-template-columns: 1fr 1fr; }
code { border-left: 1px solid var(--line); font: 12px ui-monospace, monospace; min-height: 1.3em; padding: 0 .8em;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.removed code:first-child, .changed code:first-child { background: var(--removed); }
.added code:last-child, .changed code:last-child { background: var(--added); }
mark { background: var(--mark); color: inherit; } .comment { color: var(--quiet); } .string { color: var(--string); }
.value { color: var(--value); } .op, .constant { color: var(--op); } .type { color: var(--type); }
"""

_SCRIPT = """
function all_sections(open) { document.querySelectorAll("details.pass").forEach(section => section.open = open); }
"""
