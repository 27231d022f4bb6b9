"""Operators on strings. Strings that decide on the shape of a result must be known while the model is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Array, Constant, Expr
from ...graph.dtypes import STRING, numpy_dtype
from .node import Converted, Node, converter
from .types import check_constant_size

_LANGUAGES_WITH_OWN_CASES = ("az", "lt", "tr")
_ITEM_BYTES = numpy_dtype(STRING).itemsize


def text_of(node: Node, value: Any) -> str:
    """A string of a model as text; `ModelError` for bytes that are not UTF-8."""
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise node.error(f"a string is not UTF-8: {error}") from None


def strings_of(node: Node, name: str) -> Array:
    """Attribute ``name``, a list of strings, as an array of one axis."""
    return np.array([text_of(node, value) for value in node.attrs.get(name) or ()], numpy_dtype(STRING))


def _strings(node: Node, index: int) -> Expr:
    x = node.input(index)
    if x.dtype != STRING:
        raise node.error(f"operand {index} must be strings, not {x.tensor_type}")
    return x


@converter("StringConcat")
def _string_concat(node: Node) -> Converted:
    return node.call("nn.string_concat", _strings(node, 0), _strings(node, 1))


@converter("RegexFullMatch")
def _regex_full_match(node: Node) -> Converted:
    if "pattern" not in node.attrs:
        raise node.error("needs the attribute 'pattern'")
    return node.call("nn.regex_full_match", _strings(node, 0), pattern=text_of(node, node.attrs["pattern"]))


@converter("StringNormalizer")
def _string_normalizer(node: Node) -> Converted:
    """Elements that are stop words are dropped, the others get another case."""
    x = _strings(node, 0)
    if not (len(x.shape) == 1 or (len(x.shape) == 2 and x.shape[0] == 1)):
        raise node.error(f"its operand must be (C) or (1, C), not {x.tensor_type}")
    action = node.string("case_change_action", "NONE")
    if action not in ("LOWER", "UPPER", "NONE"):
        raise node.error(f"attribute 'case_change_action' must be LOWER, UPPER or NONE, not {action!r}")
    locale = node.string("locale", "en_US")
    if action != "NONE" and locale[:2].lower() in _LANGUAGES_WITH_OWN_CASES:
        raise node.error(f"letters of the locale {locale!r} are not supported", hint="those of most others are: en_US")
    stopwords = {str(word) for word in strings_of(node, "stopwords").tolist()}
    kept: Expr = x
    if stopwords:
        kept = _without(node, node.known(x, "the strings, of which stop words are dropped,"), stopwords)
    return kept if action == "NONE" else node.call("nn.string_case", kept, to=action.lower())


def _without(node: Node, strings: Array, stopwords: set[str]) -> Constant:
    """What is left of strings along the last axis; an empty one where nothing is."""
    if node.integer("is_case_sensitive", 0):
        left = [text for text in strings.reshape(-1).tolist() if text not in stopwords]
    else:
        folded = {word.casefold() for word in stopwords}
        left = [text for text in strings.reshape(-1).tolist() if text.casefold() not in folded]
    return Constant(np.array(left or [""], numpy_dtype(STRING)).reshape((*strings.shape[:-1], -1)))


@converter("StringSplit")
def _string_split(node: Node) -> Converted:
    """Each string in its parts, filled up with empty ones, and how many there are."""
    strings = node.known(_strings(node, 0), "what is split")
    delimiter = node.string("delimiter", "") or None
    most = node.integer("maxsplit", -1)
    parts = [text.split(delimiter, most) for text in strings.reshape(-1).tolist()]
    longest = max(map(len, parts), default=0)
    check_constant_size((*strings.shape, longest), _ITEM_BYTES, "its result")
    filled = [part + [""] * (longest - len(part)) for part in parts]
    flat = np.array([text for part in filled for text in part], numpy_dtype(STRING))
    counts = np.array([*map(len, parts)], np.int64).reshape(strings.shape)
    return Constant(flat.reshape(*strings.shape, longest)), Constant(counts)


def number_of_words(node: Node, x: Expr, words: Array) -> Expr:
    """The place of each string among the words, as int64; one that is none of them has their number."""
    return node.call("nn.find", x, Constant(words))
