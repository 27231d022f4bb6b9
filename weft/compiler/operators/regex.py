"""Whether a whole text matches a regular expression, by RE2: in time linear in the text, whatever the expression.

RE2 is the library whose syntax ONNX names (https://github.com/google/re2/wiki/Syntax): no back references and no
looking around, so that a model from a stranger cannot make a run hang. The extra ``text`` installs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ...errors import WeftError


class RegexError(WeftError):
    """An expression that RE2 refuses, or RE2 is missing."""


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """RE2's form of an expression."""
    try:
        import re2
    except ImportError:
        raise RegexError("regular expressions are matched by RE2, which is not installed",
                         hint="pip install 'weft[text]'") from None  # fmt: skip
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise RegexError(f"regular expression {pattern!r}: {reason}", hint="RE2's syntax holds") from None
    except UnicodeEncodeError:
        raise RegexError(f"regular expression {pattern!r} is no Unicode text") from None


def full_matches(pattern: str, texts: Iterable[str]) -> list[bool]:
    """Of each text, whether all of it matches."""
    expression = compiled(pattern)
    return [expression.fullmatch(text) is not None for text in texts]
