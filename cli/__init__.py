"""The ``weft`` command."""

from . import compare, compile, hardware, inspect, profile, run
from .app import app, main

__all__ = ["app", "compare", "compile", "hardware", "inspect", "main", "profile", "run"]
