"""Text from strangers, such as names in a model, made fit to be shown: nothing in it is obeyed by a terminal."""

from __future__ import annotations

import re

LONGEST = 2000
"""Characters of a message that are shown."""


def escaped(text: str, keep: str = "") -> str:
    """``text`` with what does not print as its escape sequence, except the characters of ``keep``."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def with_article(noun: str) -> str:
    """``noun`` behind the article that it takes: an Assert, a Print, a uint8."""
    vowel = noun[:1].lower() in tuple("aeio") or re.match(r"u(?!int|ni|s|t)", noun, re.IGNORECASE) is not None
    return f"{'an' if vowel else 'a'} {noun}"


def one_line(text: str) -> str:
    """``text`` as one line of at most :data:`LONGEST` characters; lines are joined by a bar."""
    lines = (line.strip(" \t") for line in text.split("\n"))
    joined = escaped(" | ".join(line for line in lines if line))
    if len(joined) <= LONGEST:
        return joined
    head, tail = LONGEST * 3 // 4, LONGEST // 4
    return f"{joined[:head]} ... ({len(joined) - head - tail:,} characters) ... {joined[-tail:]}"
