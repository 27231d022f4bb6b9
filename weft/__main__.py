"""``python -m weft``: the command, where the folder of scripts is not on the path."""

from .cli import main

main()
