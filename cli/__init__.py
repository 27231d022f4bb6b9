"""The ``weft`` command."""

from . import board, compare, compile, doctor, hardware, inspect, profile, replay, run
from .app import app, main

__all__ = ["app", "board", "compare", "compile", "doctor", "hardware", "inspect", "main", "profile", "replay", "run"]
