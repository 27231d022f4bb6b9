"""Pages of the manual's reference that are made from the code: commands, Python, configurations, passes, errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import reference_errors
import reference_hardware
import reference_operators
import reference_primitives
import typer.main
import weft
from reference_text import cell, docstring, plain, signature
from weft.cli.app import app
from weft.cli.commands import PARTS, loaded
from weft.compiler.targets.registry import find_target, target_names
from weft.compiler.targets.target import Job
from weft.hw.config import NAMED, CoreConfig
from weft.sim.timing import program_cycles

ROOT = Path(__file__).parents[1]


def write() -> dict[str, str]:
    """All pages, by file name."""
    return {name: page() for name, page in PAGES.items()}


def pictures() -> dict[str, str]:
    """Pictures of these pages, by file name."""
    return reference_hardware.pictures()


def commands() -> str:
    """``weft`` and all that it has, with options."""
    typer.main.get_command(app)
    lines = ["# Commands", "", "What each command takes. `weft COMMAND --help` prints the same:", ""]
    lines += [
        "    weft compile --help",
        "    weft run model.onnx --target cpu --threads 2     # an argument and two options",
        "",
    ]
    for name in PARTS:
        lines += _command(loaded(name), f"weft {name}")
    return "\n".join(lines)


def _command(command: Any, path: str) -> list[str]:
    lines = [f"## {path}", "", *plain(command.help or ""), ""]
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            lines += _command(each, f"{path} {name}")
        return lines
    lines += ["| option or argument | what it is | default |", "|---|---|---|"]
    for param in command.params:
        names = ", ".join((*param.opts, *param.secondary_opts)) if param.param_type_name == "option" else param.name
        default = "" if param.default is None or callable(param.default) else f"`{param.default}`"
        help_text = cell(getattr(param, "help", "") or "")
        lines.append(f"| `{names}` | {help_text} | {default} |")
    return [*lines, ""]


def python() -> str:
    """What ``import weft`` offers."""
    lines = ["# Python", "", "All names of `weft`, with what their docstrings say. Most programs need two of them:", ""]
    lines += [
        "    model = weft.compile('model.onnx', target='cpu')",
        "    outputs = weft.load(model).run({'image': image})",
        "",
    ]
    for name in weft.__all__:
        value = getattr(weft, name)
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            lines += [f"## weft.{name}", "", f"A `{type(value).__name__}`.", ""]
            continue
        lines += [f"## weft.{name}", "", f"```python\n{name}{signature(value)}\n```", "", *docstring(value)]
        if inspect.isclass(value):
            lines += _methods(value)
    return "\n".join(lines)


def _methods(kind: type) -> list[str]:
    lines = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        takes = "" if isinstance(member, property) else signature(function)
        lines += [f"### {kind.__name__}.{name}", "", f"```python\n{name}{takes}\n```", "", *docstring(function)]
    return lines


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
        lines.append(f"| `{each.name}` | {each.default} | {values} | {cell(comments.get(each.name, ''))} |")
    lines += ["", *docstring(CoreConfig)]
    return "\n".join(lines)


def _comments(kind: type) -> dict[str, str]:
    """What stands behind each field in the source."""
    found = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(kind), flags=re.M)
    return dict(found)


def targets() -> str:
    """Options and passes of each target."""
    lines = ["# Targets and passes", "", "What `--target` takes, its options, and its passes in their order:", ""]
    lines += ["    weft compile model.onnx --target accel --vthreads 1     # a target, and an option of it", ""]
    job = Job(measure=program_cycles)  # as weft.compile has it
    for name in target_names():
        target = find_target(name)
        lines += [f"## {name}", "", f"{target.summary}.", "", "| option | default | what it is |", "|---|---|---|"]
        for each in fields(target.options):
            flag = f"--{each.name.replace('_', '-')}"
            lines.append(f"| `{flag}` | `{each.default}` | {cell(each.metadata.get('help', ''))} |")
        lines += [""]
        for quantised in (True, False):
            steps = target.passes(target.options(), quantised=quantised, job=job)
            kind = "quantised" if quantised else "float"
            lines += [
                f"### Passes of {kind} models for {name}",
                "",
                "| pass | what it does | needs | then at stage | may differ by |",
                "|---|---|---|---|---:|",
            ]
            for step in steps:
                about = cell(step.summary.replace("``", "`"))
                needs = ", ".join(step.needs)
                lines.append(f"| `{step.name}` | {about} | {needs} | {step.stage} | {step.tolerance or ''} |")
            lines += [""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "python.md": python,
    "configurations.md": configurations,
    "targets.md": targets,
    "operators-by-target.md": reference_operators.page,
    "primitives.md": reference_primitives.page,
    "instructions.md": reference_hardware.instructions,
    "intrinsics.md": reference_hardware.intrinsics,
    "errors.md": reference_errors.page,
}
