"""The compiler. Importing any part of it registers the operators of the graph IR."""

from . import operators

__all__ = ["operators"]
