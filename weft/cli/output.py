"""What commands print, as tables for people or as JSON for programs, and the options that they share."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.table import Table

from ..hw.config import NAMED
from ..runtime.errors import InputError
from .console import PlainConsole

REPORT_COLUMNS = 180
"""Width of a report's tables in files and pipes."""

out = PlainConsole()
err = PlainConsole(stderr=True)


def input_file(*names: str, help: str, **how: Any) -> Any:
    """An option that names a file to be read, or several: they are opened before the command starts. OSError names the
    path."""

    def check(given: Path | list[Path] | None) -> Path | list[Path] | None:
        for path in given if isinstance(given, list) else [] if given is None else [given]:
            path.open("rb").close()
        return given

    return typer.Option(*names, help=help, callback=check, **how)


ConfigOption = Annotated[
    str, typer.Option("--config", "-c", help=f"Core: {', '.join(NAMED)}, or a JSON file with the fields of CoreConfig.")
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Shape of a dynamic input, as NAME=1x3x224x224, or 1x3x48x? where a size stays open; repeat for more.",
    ),
]
InputOption = Annotated[
    Path | None, input_file("--input", "-i", help="A .npz with one array per input, or a .npy. Default: random.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of random inputs.")]
CalibrateOption = Annotated[
    Path | None,
    input_file("--calibrate", metavar="FILE", help="Quantise a float model by the examples in FILE (.npz or .npy)."),
]
Kernels = Literal["default", "reference"]
"""As `compiler.frontends.litert.kernels.KERNELS`, which takes a compiler to import."""

KernelsOption = Annotated[
    Kernels | None,
    typer.Option("--kernels", help="Of a LiteRT file: the set of LiteRT's kernels whose integers are meant."),
]
SignatureOption = Annotated[
    str | None,
    typer.Option("--signature", help="Of a LiteRT file with several: the signature whose graph is meant."),
]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Load what was compiled before, if nothing has changed.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def beside(source: Path, ending: str) -> Path:
    """Where a command's result goes by default: beside the file that it is made from."""
    if not source.name:
        raise InputError("a folder, where a file is wanted", at=repr(str(source)))
    return source.with_suffix(ending)


def check_places(*paths: Path | None) -> None:
    """Refuse, before long work, results that could not be written at its end. OSError names the path."""
    for path in (each for each in paths if each is not None):
        folder = Path(os.path.realpath(path)).parent
        if path.is_dir():
            number = errno.EISDIR
        elif not folder.is_dir():
            number = errno.ENOTDIR if folder.exists() else errno.ENOENT
        elif path.exists() and not os.access(path, os.W_OK):
            number = errno.EACCES
        elif (path.is_file() or not path.exists()) and not os.access(folder, os.W_OK | os.X_OK):
            number = errno.EACCES  # files are replaced by a rename
        else:
            continue
        raise OSError(number, os.strerror(number), str(path))


def check_folders(*paths: Path | None) -> None:
    """As :func:`check_places`, for folders; one that is missing will be made, with those above it."""
    for path in (each for each in paths if each is not None):
        real = Path(os.path.realpath(path))
        there = next(each for each in (real, *real.parents) if each.exists())
        if not there.is_dir():
            number = errno.ENOTDIR
        elif not os.access(there, os.W_OK | os.X_OK):
            number = errno.EACCES
        else:
            continue
        raise OSError(number, os.strerror(number), str(path))


def output_file(*names: str, help: str, **how: Any) -> Any:
    """An option that names a file to be written: its place is tried before the command starts."""

    def check(path: Path | None) -> Path | None:
        check_places(path)
        return path

    return typer.Option(*names, help=help, callback=check, **how)


def output_folder(*names: str, help: str, **how: Any) -> Any:
    """An option that names a folder to be written into, as :func:`output_file`."""

    def check(path: Path | None) -> Path | None:
        check_folders(path)
        return path

    return typer.Option(*names, help=help, callback=check, **how)


def wide_console() -> PlainConsole:
    """Where wide tables go: the terminal as it is, or a pipe that is wide enough."""
    return out if out.is_terminal else PlainConsole(width=REPORT_COLUMNS)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json_text(document))


def json_text(document: Any) -> str:
    """A document as JSON prints it here, in files, too. Floats that JSON lacks are texts: NaN, Infinity, -Infinity."""
    try:
        return json.dumps(document, indent=1, default=str, allow_nan=False) + "\n"
    except ValueError:
        return json.dumps(_finite(document), indent=1, default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, named: int = 0) -> Table:
    """A table of figures; column ``named`` holds words."""
    result = Table(title=title)
    for place, column in enumerate(columns):
        result.add_column(column, justify="left" if place in (0, named) else "right", overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def print_report(tables: Sequence[RenderableType], path: Path) -> None:
    """Tables into a file, at full width."""
    from ..files import write_atomically

    text = StringIO()
    PlainConsole(file=text, width=REPORT_COLUMNS).print(*tables)
    write_atomically(path, text.getvalue().encode())


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """``--shape`` options, as `weft.compile` takes them; InputError for one that is none."""
    shapes = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        try:
            shapes[name] = tuple(-1 if size == "?" else int(size) for size in sizes.split("x"))
        except ValueError:
            raise InputError(f"--shape {text!r} is not NAME=1x3x224x224") from None
    return shapes
