"""The command's frame: its name, its version, its entry point, and what becomes of errors."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated, NoReturn

import typer

from . import errors
from .commands import CommandsOnDemand
from .output import err, out

app = typer.Typer(
    name="weft",
    cls=CommandsOnDemand,
    help="Co-design of tensor accelerators and their compiler: from a model to exact cycles.",
    no_args_is_help=True,
    epilog="--debug with any command shows the traceback of an error.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

board_app = typer.Typer(
    name="board",
    help="Boards: what they are, what fits them, building for one, and running on one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(board_app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        out.print(f"weft {version('weft')}", highlight=False)
        raise typer.Exit


@app.callback()
def weft(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Co-design of tensor accelerators and their compiler: from a model to exact cycles."""


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    """Entry point."""
    # Amaranth warns of each part of a design that Ctrl-C or an error left behind.
    warnings.filterwarnings("ignore", message=".* created but never used$")
    signal.signal(signal.SIGTERM, _end)  # as Ctrl-C does: temporary folders go, and tools that run for the command
    sys.exit(errors.run(app, sys.argv[1:], err))
