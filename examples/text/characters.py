"""Text that every Python has: the docstrings of its standard library, as numbers of characters."""

from __future__ import annotations

import ast
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHARACTERS = 63
"""The most frequent ones; all others become spaces."""


@dataclass(frozen=True)
class Text:
    """``numbers``: each a place in ``alphabet``."""

    numbers: NDArray[np.int64]
    alphabet: str

    def unigram_entropy(self) -> float:
        """In nats: what a model loses that knows how frequent characters are, and nothing more."""
        shares = np.bincount(self.numbers) / len(self.numbers)
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    def written(self, numbers: NDArray[np.int64]) -> str:
        return "".join(self.alphabet[number] for number in numbers)


def docstrings() -> str:
    """Of modules, classes and functions in the library's own folder, in the order of their names."""
    parts = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        parts += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(part for part in parts if part)


def read_text() -> Text:
    """The docstrings in small letters."""
    text = docstrings().lower()
    common = sorted(character for character, _ in Counter(text).most_common(CHARACTERS))
    alphabet = "".join(sorted({" ", *common}))
    places = {character: number for number, character in enumerate(alphabet)}
    numbers = np.array([places.get(character, places[" "]) for character in text], np.int64)
    return Text(numbers, alphabet)
