"""Docstrings and signatures as Markdown, for the pages of the reference."""

from __future__ import annotations

import inspect
import re
from typing import Any


def signature(value: Any) -> str:
    """A function's parameters with their types, on several lines where they are long."""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) < 90 else "(\n    " + re.sub(r", (?=\*?\*?\w+[:=,)])", ",\n    ", text[1:])


def docstring(value: Any) -> list[str]:
    """A docstring as lines of Markdown, with an empty one behind them."""
    return [*plain(inspect.getdoc(value) or ""), ""]


def plain(text: str) -> list[str]:
    """A docstring as Markdown: double backticks and roles become code."""
    text = re.sub(r":\w+:`[~.]*([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    blocks = (re.sub(r"^([\w, *]+)\n    (?=\S)", r"- **\1**: ", part, flags=re.M) for part in text.split("\n\n"))
    return "\n\n".join(re.sub(r"\n- \*\*", "\n\n- **", block) for block in blocks).splitlines()


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
