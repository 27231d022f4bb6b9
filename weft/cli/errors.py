"""What the command says when something goes wrong: one line, and a status that tells whose fault it is."""

from __future__ import annotations

import json
import os
import traceback
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import cast

import typer
from rich.text import Text

from ..errors import WeftError
from ..shown import escaped, one_line
from .commands import PARTS
from .console import PlainConsole

EXPECTED = (
    WeftError, OSError, MemoryError, RecursionError, UnicodeError,
    json.JSONDecodeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What input can cause, and whoever gave it can cure."""

_ClickException = cast(type[Exception], typer.BadParameter.__mro__[2])
"""What wrong words on the command line raise; Typer gives it no public name."""

REFUSED, BROKEN = 1, 70
"""Exit status after an expected error, and after one that is a mistake in weft."""

DEBUG = "--debug"
REPORT = f"this is a mistake in weft: please report it with the command and its files; {DEBUG} shows the traceback"


def run(app: Callable[..., object], arguments: Sequence[str], console: PlainConsole) -> int:
    """Run a Typer application and give its exit status. An error becomes one line on ``console``.

    ``--debug``, anywhere before ``--``, or ``WEFT_DEBUG=1`` shows the traceback as well.
    """
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = DEBUG in before or os.environ.get("WEFT_DEBUG", "0") not in ("", "0")
    rest = [word for place, word in enumerate(arguments) if word != DEBUG or place >= len(before)]
    try:
        status = app(args=rest, prog_name="weft", standalone_mode=False)
    except _ClickException as usage:
        return _refuse_usage(usage, rest, console)
    except typer.Abort:
        return _say(console, "aborted", REFUSED)
    except Exception as error:
        if debug:
            for line in traceback.format_exception(error):
                console.print(line.rstrip("\n"), highlight=False, soft_wrap=True)
        return _say(console, describe(error), REFUSED if isinstance(error, EXPECTED) else BROKEN)
    return status if isinstance(status, int) else 0


def describe(error: Exception) -> str:
    """What to say about an error."""
    text = str(error)
    match error:
        case WeftError():
            return text
        case OSError() if error.filename is not None:
            return f"{os.fsdecode(error.filename)}: {error.strerror}"
        case OSError():
            return text or type(error).__name__
        case MemoryError():
            return f"not enough memory{text and ': '}{text}; hint: use a smaller model or a larger machine"
        case RecursionError():
            return "the input is nested too deeply"
        case _ if isinstance(error, EXPECTED):
            return f"the input cannot be read: {text}"
    return f"unexpected {type(error).__name__}{text and ': '}{text}; hint: {REPORT}"


def _say(console: PlainConsole, text: str, status: int) -> int:
    line = Text.assemble(("error: ", "bold red"), one_line(text))
    console.print(line, highlight=False, soft_wrap=True)
    return status


def _refuse_usage(usage: Exception, words: Sequence[str], console: PlainConsole) -> int:
    """What is wrong with the words of a command, in one line with where its help is; a group without a command shows
    its help."""
    status = int(getattr(usage, "exit_code", 2))
    said = str(getattr(usage, "format_message", lambda: usage)()).strip()
    path = getattr(getattr(usage, "ctx", None), "command_path", None) or _command_of(words)
    if type(usage).__name__ == "NoArgsIsHelpError":
        console.print(escaped(said, keep="\n"), highlight=False, markup=False, soft_wrap=True)
        return status
    said = said.replace("Value error, ", "")  # Pydantic's, before a message that says all
    return _say(console, f"{said[:1].lower()}{said[1:].rstrip('.')}; hint: {path} --help", status)


def _command_of(words: Sequence[str]) -> str:
    """The command whose words these are, where the error does not know it."""
    return f"weft {words[0]}" if words and words[0] in PARTS else "weft"
