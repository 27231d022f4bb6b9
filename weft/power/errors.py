"""Errors of :mod:`weft.power`."""

from ..errors import WeftError


class PowerError(WeftError):
    """A liberty file, a netlist or a request that no power can be told from."""
