"""What can go wrong with a tuning database."""

from ...errors import WeftError


class TuningError(WeftError):
    """A database that is locked, of another version, or has no room; a search that cannot be begun."""
