"""The command ``weft``, also as ``python -m weft``, where the folder of scripts is not on the path."""

import sys

from .imports import IMPORTS

INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell has it."""


def main() -> None:
    """Entry point. Ctrl-C is quiet while the command is still being imported, too."""
    try:
        with IMPORTS:
            from .cli import main as command
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    command()


if __name__ == "__main__":  # not where it is only imported
    main()
