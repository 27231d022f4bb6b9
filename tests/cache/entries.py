"""The entry that the tests of the cache keep."""

from __future__ import annotations

from pathlib import Path

from weft.cache import cache_key

KEY = cache_key("something")
CONTENT = b"content of an entry" * 100


def never() -> bytes:
    raise AssertionError("made again")


def entry(folder: Path) -> Path:
    return folder / "cpu" / f"weft-{KEY}"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
