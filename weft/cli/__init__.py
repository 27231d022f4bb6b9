"""The ``weft`` command. Each command's module is imported when the command is called (`commands`)."""

from .app import app, main

__all__ = ["app", "main"]
