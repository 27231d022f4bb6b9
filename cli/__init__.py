"""The ``weft`` command."""

from . import (
    board,
    board_bench,
    compare,
    compile,
    doctor,
    explore,
    gpu,
    hardware,
    inspect,
    profile,
    replay,
    run,
    tune,
    verify,
)
from .app import app, main

__all__ = [
    "app", "board", "board_bench", "compare", "compile", "doctor", "explore", "gpu", "hardware", "inspect", "main",
    "profile", "replay", "run", "tune", "verify",
]  # fmt: skip
