"""Pages of the manual's reference that are made from the code: commands, Python, configurations, passes, errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
import weft
from weft.cli.app import app
from weft.cli.commands import PARTS, loaded
from weft.compiler.targets.registry import find_target, target_names
from weft.compiler.tensor import Schedule
from weft.errors import WeftError
from weft.hw.config import NAMED, CoreConfig

ROOT = Path(__file__).parents[1]


def write() -> dict[str, str]:
    """All pages, by file name."""
    return {name: page() for name, page in PAGES.items()}


def commands() -> str:
    """``weft`` and all that it has, with options."""
    typer.main.get_command(app)
    lines = ["# Commands", "", "Made from the commands themselves; `weft COMMAND --help` prints the same.", ""]
    for name in PARTS:
        lines += _command(loaded(name), f"weft {name}")
    return "\n".join(lines)


def _command(command: Any, path: str) -> list[str]:
    lines = [f"## {path}", "", *_plain(command.help or ""), ""]
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            lines += _command(each, f"{path} {name}")
        return lines
    lines += ["| option or argument | what it is | default |", "|---|---|---|"]
    for param in command.params:
        names = ", ".join((*param.opts, *param.secondary_opts)) if param.param_type_name == "option" else param.name
        default = "" if param.default is None or callable(param.default) else f"`{param.default}`"
        help_text = _cell(getattr(param, "help", "") or "")
        lines.append(f"| `{names}` | {help_text} | {default} |")
    return [*lines, ""]


def python() -> str:
    """What ``import weft`` offers."""
    lines = ["# Python", "", "All names of `weft`, with what their docstrings say.", ""]
    for name in weft.__all__:
        value = getattr(weft, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            lines += [f"## weft.{name}", "", f"A `{type(value).__name__}`.", ""]
            continue
        lines += [f"## weft.{name}", "", f"```python\n{name}{_signature(value)}\n```", "", *_docstring(value)]
        if inspect.isclass(value):
            lines += _methods(value)
    return "\n".join(lines)


def _methods(kind: type) -> list[str]:
    lines = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        signature = "" if isinstance(member, property) else _signature(function)
        lines += [f"### {kind.__name__}.{name}", "", f"```python\n{name}{signature}\n```", "", *_docstring(function)]
    return lines


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) < 90 else "(\n    " + re.sub(r", (?=\*?\*?\w+[:=,)])", ",\n    ", text[1:])


def _docstring(value: Any) -> list[str]:
    return [*_plain(inspect.getdoc(value) or ""), ""]


def _plain(text: str) -> list[str]:
    """A docstring as Markdown: double backticks and roles become code."""
    text = re.sub(r":\w+:`[~.]*([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    blocks = (re.sub(r"^([\w, *]+)\n    (?=\S)", r"- **\1**: ", part, flags=re.M) for part in text.split("\n\n"))
    return "\n\n".join(re.sub(r"\n- \*\*", "\n\n- **", block) for block in blocks).splitlines()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def configurations() -> str:
    """The fields of a core, and the values of those that have names."""
    names = list(NAMED)
    lines = [
        "# Configurations", "",
        "A core is a `weft.CoreConfig`, or a JSON file with its fields; one that is left out has its default.", "",
        f"| field | default | {' | '.join(f'`{name}`' for name in names)} | what it is |",
        f"|---|---:|{'---:|' * len(names)}---|",
    ]  # fmt: skip
    comments = _comments(CoreConfig)
    for each in fields(CoreConfig):
        values = " | ".join(str(getattr(NAMED[name], each.name)) for name in names)
        lines.append(f"| `{each.name}` | {each.default} | {values} | {_cell(comments.get(each.name, ''))} |")
    lines += ["", *_docstring(CoreConfig)]
    return "\n".join(lines)


def _comments(kind: type) -> dict[str, str]:
    """What stands behind each field in the source."""
    found = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), flags=re.M)
    return dict(found)


def targets() -> str:
    """Options and passes of each target."""
    lines = ["# Targets and passes", "", "What `--target` takes, its options, and its passes in their order.", ""]
    for name in target_names():
        target = find_target(name)
        lines += [f"## {name}", "", f"{target.summary}.", "", "| option | default | what it is |", "|---|---|---|"]
        for each in fields(target.options):
            flag = f"--{each.name.replace('_', '-')}"
            lines.append(f"| `{flag}` | `{each.default}` | {_cell(each.metadata.get('help', ''))} |")
        lines += [""]
        for quantised in (True, False):
            steps = target.passes(target.options(), quantised=quantised)
            kind = "quantised" if quantised else "float"
            lines += [
                f"### Passes of {kind} models for {name}",
                "",
                "| pass | needs | then at stage | may differ by |",
                "|---|---|---|---:|",
            ]
            for step in steps:
                lines.append(f"| `{step.name}` | {', '.join(step.needs)} | {step.stage} | {step.tolerance or ''} |")
            lines += [""]
    return "\n".join(lines)


def primitives() -> str:
    """The steps of a schedule."""
    lines = [
        "# Schedule primitives",
        "",
        "Each is a method of a schedule; [schedules.md](../schedules.md) shows them at work.",
        "",
    ]
    for name, member in vars(Schedule).items():
        if name.startswith("_") or not inspect.isfunction(member) or not member.__doc__:
            continue
        lines += [f"## {name}", "", f"```python\n{name}{_signature(member)}\n```", "", *_docstring(member)]
    return "\n".join(lines)


def errors() -> str:
    """All kinds of errors that a user can meet."""
    lines = [
        "# Errors", "",
        "Each is a `weft.WeftError` with `message`, `at` (the place) and `hint` (what to do). The command prints all",
        "three, and ends with a status that is not 0; `--debug` shows the traceback.", "",
        "| error | raised by | what it means |", "|---|---|---|",
    ]  # fmt: skip
    for path in sorted(ROOT.glob("**/errors.py")):  # whatever was imported so far
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in weft_parts():
            import_module(".".join(("weft", *parts)))
    for kind in sorted(set(_kinds(WeftError)), key=lambda each: (each.__module__, each.__name__)):
        if kind.__module__.startswith("weft."):
            what = _cell(next(iter(_plain((kind.__doc__ or "").split("\n\n")[0])), ""))
            lines.append(f"| `{kind.__name__}` | `{kind.__module__.removeprefix('weft.')}` | {what} |")
    return "\n".join([*lines, ""])


def weft_parts() -> set[str]:
    """Folders of the package."""
    return {path.parent.name for path in ROOT.glob("*/__init__.py")}


def _kinds(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "python.md": python,
    "configurations.md": configurations,
    "targets.md": targets,
    "primitives.md": primitives,
    "errors.md": errors,
}
