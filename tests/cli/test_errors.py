"""What the command says when something goes wrong, and that names are shown and never obeyed."""

from __future__ import annotations

import errno
import io
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.table import Table
from weft.cli.app import app
from weft.cli.console import PlainConsole
from weft.cli.errors import BROKEN, REFUSED, run
from weft.cli.output import err
from weft.errors import WeftError
from weft.shown import escaped, one_line, with_article

HOSTILE = "a\x1b[31mb\x07\r\n\x9b2J[red]c[/red]:smile:\u202e\u2028\udcff\x00"
SHOWN = r"a\x1b[31mb\x07\r"


def outcome(raised: Callable[[], object], *arguments: str) -> tuple[int, str]:
    """Status and text of an application with one command that does this."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def command() -> None:
        raised()

    file = io.StringIO()
    return run(app, arguments, PlainConsole(file=file)), file.getvalue()


def throw(error: BaseException) -> Callable[[], object]:
    def raised() -> None:
        raise error

    return raised


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (throw(WeftError("wrong", at="node 'a'", hint="right")), "node 'a': wrong; hint: right"),
        (lambda: Path("/none/file").read_bytes(), "/none/file: No such file or directory"),
        (throw(OSError("odd")), "odd"),
        (throw(OSError(errno.ENOSPC, "No space left on device", b"/a/\xff")), r"/a/\udcff: No space left on device"),
        (throw(OSError()), "OSError"),
        (lambda: bytearray(1 << 62), "not enough memory; hint: use a smaller model or a larger machine"),
        (throw(MemoryError("8 TiB")), "not enough memory: 8 TiB; hint: use a smaller model or a larger machine"),
        (lambda: json.loads("[" * 100_000), "the input is nested too deeply"),
        (lambda: json.loads("{"), "the input cannot be read: Expecting property name enclosed in double quotes: line"),
        (lambda: zipfile.ZipFile(io.BytesIO(b"no")), "the input cannot be read: File is not a zip file"),
        (lambda: zlib.decompress(b"no"), "the input cannot be read: Error -3 while decompressing data: incorrect"),
        (lambda: b"\xff".decode(), "the input cannot be read: 'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_what_input_can_cause_is_one_line(raised: Callable[[], object], text: str) -> None:
    status, output = outcome(raised)
    assert status == REFUSED
    assert output.startswith(f"error: {text}")
    assert output.count("\n") == 1
    assert output.endswith("\n")


@pytest.mark.parametrize("error", [KeyError("a"), ValueError("v\nw"), AssertionError(), TypeError("t")])
def test_what_nobody_expected_is_one_line_that_asks_for_a_report(error: Exception) -> None:
    status, output = outcome(throw(error))
    assert status == BROKEN
    assert output.count("\n") == 1
    assert output.startswith(f"error: unexpected {type(error).__name__}")
    assert "hint: this is a mistake in weft: please report it with the command and its files; --debug shows" in output


def test_articles() -> None:
    an, a = ("Assert", "int", "Unknown", "output"), ("Print", "uint8", "Union", "user", "ndarray")
    assert [with_article(word) for word in an + a] == [f"an {word}" for word in an] + [f"a {word}" for word in a]


def test_debug_shows_the_traceback_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, status in ((KeyError("key"), BROKEN), (WeftError("wrong"), REFUSED)):
        got, output = outcome(throw(error), "--debug")
        assert got == status
        assert "Traceback (most recent call last)" in output
        assert "test_errors.py" in output
        assert output.splitlines()[-1].startswith("error: ")
        monkeypatch.setenv("WEFT_DEBUG", "1")
        assert "Traceback" in outcome(throw(error))[1]
        monkeypatch.setenv("WEFT_DEBUG", "0")
        assert "Traceback" not in outcome(throw(error))[1]


def test_debug_after_two_dashes_is_a_word_like_others() -> None:
    app = typer.Typer()

    @app.command()
    def command(words: list[str]) -> None:
        raise WeftError(" ".join(words))

    file = io.StringIO()
    assert run(app, ["a", "--", "--debug"], PlainConsole(file=file)) == REFUSED
    assert file.getvalue() == "error: a --debug\n"


@pytest.mark.parametrize(
    ("raised", "status"), [(lambda: None, 0), (throw(typer.Exit(3)), 3), (throw(KeyboardInterrupt()), 130)]
)
def test_other_ends_keep_their_status_and_say_nothing(raised: Callable[[], object], status: int) -> None:
    assert outcome(raised) == (status, "")


def test_a_usage_error_is_one_line_too() -> None:
    status, text = outcome(lambda: None, "--none\x1b[31m")
    assert status == 2
    assert text.startswith("error: no such option: --none")
    assert text.endswith("; hint: weft --help\n")
    assert "\x1b" not in text


# Names


def test_what_does_not_print_is_escaped() -> None:
    text = escaped(HOSTILE)
    assert text.isprintable()
    assert text.startswith(SHOWN)
    assert escaped("plain text, ümläut, 漢字") == "plain text, ümläut, 漢字"


def test_a_message_is_one_line_of_limited_length() -> None:
    assert one_line("a\n  b\n\n") == "a | b"
    long = one_line("x" * 100_000)
    assert len(long) < 2100
    assert "... (98,000 characters) ..." in long


def test_hostile_names_in_errors_are_shown() -> None:
    _, output = outcome(throw(WeftError(f"there is no layer {HOSTILE}")))
    assert output.rstrip("\n").isprintable()
    assert SHOWN in output
    assert "[red]c[/red]:smile:" in output


@pytest.mark.parametrize("terminal", [False, True])
def test_consoles_show_names_and_interpret_nothing(terminal: bool) -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=terminal, width=200, highlight=False, no_color=True)
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    console.print(HOSTILE, table, soft_wrap=True)
    if not terminal:
        with console.status(HOSTILE) as status:
            status.update(HOSTILE)
    text = file.getvalue()
    assert "\x1b[31m" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert text.count("[red]c[/red]:smile:") == 4
    assert text.count(r"\x1b[31m") == 4


def test_progress_shows_names() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=200, no_color=True)
    with console.status("start") as status:
        status.update(HOSTILE)
        console.print(status.renderable)
    assert r"a\x1b[31mb" in file.getvalue()
    assert "[red]c[/red]" in file.getvalue()
    assert "\x1b[31m" not in file.getvalue()


@pytest.mark.parametrize("words", [["run"], ["compile"], ["disasm"], ["run", "--device"], ["compile", "m", "--shape"]])
def test_hostile_words_on_the_command_line_are_shown(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[31m[red]x[/red]\x9b"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(app, [*words, name], err) in (REFUSED, 2)
    for stream in capsys.readouterr():
        assert "\x1b" not in stream
        assert "\x9b" not in stream
        assert "Traceback" not in stream
