"""The compiler. Importing any part of it registers all operators of the graph IR, the accelerator's among them."""

from . import operators
from .targets.accel import operators as packed_operators
from .targets.accel import window_operators

__all__ = ["operators", "packed_operators", "window_operators"]
