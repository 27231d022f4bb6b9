"""What tests of LiteRT files by the command have in common."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from typer.testing import CliRunner
from weft.cache import made_entries
from weft.cli import app


def said(*words: str) -> Any:
    """The document that a command prints."""
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def results(*words: str) -> tuple[np.ndarray, bool]:
    """What ``weft run`` gives of a model with one result, and whether that was compiled for it."""
    before = made_entries().get("models", 0)
    said("run", *words, "--output", "y.npz")
    with np.load("y.npz") as found:
        (value,) = found.values()
    return value, made_entries().get("models", 0) > before
