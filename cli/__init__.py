"""The ``weft`` command."""

from . import board, compare, compile, hardware, inspect, profile, run
from .app import app, main

__all__ = ["app", "board", "compare", "compile", "hardware", "inspect", "main", "profile", "run"]
