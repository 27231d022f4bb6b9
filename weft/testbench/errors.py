"""Errors of the test bench itself; what it finds wrong with a core fails the test instead."""

from __future__ import annotations

from ..errors import WeftError


class BenchError(WeftError):
    """A test that cannot be run as asked."""
