"""Commands that take the options of targets: each is declared once, in the target's own dataclass."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click
import typer
import typer.core

from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target, target_names

_CHOSEN = "weft.target_options"


class TargetCommand(typer.core.TyperCommand):
    """A command with the options of all targets besides its own; `target_options` gives those that the user set."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {param.name for param in self.params}
        added = [each for each in _click_options() if each.name not in own]
        self.params += added
        self._added = {str(each.name) for each in added}

    def invoke(self, ctx: click.Context) -> Any:
        """Keep the targets' options for `target_options`; the command's function does not have them."""
        chosen = {name: ctx.params.pop(name) for name in self._added}
        ctx.meta[_CHOSEN] = {name: value for name, value in chosen.items() if value is not None}
        return super().invoke(ctx)


def target_options(target: str) -> dict[str, Any]:
    """The options that the user set for a target. CompileError names one that the target does not have."""
    chosen: Mapping[str, Any] = click.get_current_context().meta.get(_CHOSEN, {})
    names = [field.name for field in fields(find_target(target).options)]
    for name in chosen:
        if name not in names:
            known = ", ".join(f"--{each}" for each in names) or "none"
            raise CompileError(f"target {target!r} has no option --{name}", hint=f"its options: {known}")
    return dict(chosen)


def refuse_target_options(why: str) -> None:
    """CompileError if the user set an option of a target."""
    for name in click.get_current_context().meta.get(_CHOSEN, {}):
        raise CompileError(f"--{name} is an option of compilation: {why}")


def _click_options() -> list[click.Option]:
    """One option for each name among the targets' options; its help says whose it is."""
    whose: dict[str, list[str]] = {}
    first: dict[str, tuple[Any, Any]] = {}
    for target in target_names():
        options = find_target(target).options
        types = typing.get_type_hints(options)
        for field in fields(options):
            whose.setdefault(field.name, []).append(target)
            first.setdefault(field.name, (field, types[field.name]))
    return [_click_option(*first[name], targets) for name, targets in whose.items()]


def _click_option(field: Any, kind: Any, targets: list[str]) -> click.Option:
    names = [f"--{field.name.replace('_', '-')}", *field.metadata.get("short", ())]
    text = f"{field.metadata['help']} Default: {field.default}. (target {', '.join(targets)})"
    if kind is bool:
        return click.Option([f"{names[0]}/--no-{names[0][2:]}"], default=None, help=text)
    return click.Option(names, type=kind if kind in (int, float) else str, default=None, help=text)
