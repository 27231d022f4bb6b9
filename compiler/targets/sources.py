"""What stands for the compiler itself in keys of results that it shaped."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

COMPILER = Path(__file__).parents[1]
"""The folder of ``weft.compiler``."""


@cache
def sources_digest() -> str:
    """Stands for the compiler itself: a digest of all its sources, since any of them may shape code."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(COMPILER.rglob("*.py")):
        digest.update(f"{path.relative_to(COMPILER)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
