"""``python -m weft``: the command, where the folder of scripts is not on the path."""

from .cli import main

if __name__ == "__main__":  # not where it is only imported
    main()
