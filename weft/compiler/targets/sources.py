"""What stands for the compiler itself in keys of results that it shaped."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

COMPILER = Path(__file__).parents[1]
"""The folder of ``weft.compiler``."""


SUFFIXES = (".py", ".cpp", ".h")


def sources_digest(folder: Path | None = None) -> str:
    """Stands for the compiler itself: a digest of all its sources, since any of them may shape code. Or for another
    part of weft that results follow from."""
    return _digest_of(folder or COMPILER)


@cache
def _digest_of(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(
        os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names if name.endswith(SUFFIXES)
    ):  # hundreds, at each start: `Path` takes as long as reading them
        with open(path, "rb") as file:
            digest.update(f"{path[len(str(folder)) :]}\n".encode() + file.read())
    return digest.hexdigest()
