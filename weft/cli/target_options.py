"""Commands that take the options of targets: each is declared once, in the target's own dataclass."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from functools import lru_cache, update_wrapper
from typing import Annotated, Any

import typer

from ..compiler.targets.errors import CompileError
from ..compiler.targets.registry import find_target, target_names
from ..compiler.targets.target import target_options

Chosen = Mapping[str, Any]
"""The options of targets that the user set, by name."""


class with_target_options:  # noqa: N801 - a decorator
    """Give a command the options of all targets. Those that the user set come as its parameter ``chosen``.

    Typer reads a command's signature whenever the command line is read, so that targets may be registered at any time.
    """

    def __init__(self, command: Callable[..., None]) -> None:
        update_wrapper(self, command, ("__module__", "__name__", "__qualname__", "__doc__"))
        self._command = command
        hints = typing.get_type_hints(command, include_extras=True)
        self._own = {
            name: param.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, param in inspect.signature(command).parameters.items() if name != "chosen"
        }  # fmt: skip

    @property
    def __signature__(self) -> inspect.Signature:
        added = [param for param in _parameters(offered_options()) if param.name not in self._own]
        return inspect.Signature([*self._own.values(), *added])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {param.name: param.annotation for param in self.__signature__.parameters.values()}

    def __call__(self, **values: Any) -> None:
        own = {name: value for name, value in values.items() if name in self._own}
        others = {name: value for name, value in values.items() if name not in own and value is not None}
        self._command(**own, chosen=others)


def options_of(target: str, chosen: Chosen) -> dict[str, Any]:
    """The options that the user set, for a target. CompileError names one that it does not have, or a value that it
    does not take: both are told before a model is read."""
    owner = find_target(target)
    names = [field.name for field in fields(owner.options)]
    for name in chosen:
        if name not in names:
            flags = ", ".join(map(_flag, names)) or "none"
            raise CompileError(f"target {target!r} has no option {_flag(name)}", hint=f"its options: {flags}")
    target_options(owner, chosen)
    if chosen.get("tuned"):
        from ..compiler.tune.database import Database

        Database(chosen["tuned"], read_only=True).close()
    return dict(chosen)


def refuse_options(chosen: Chosen, why: str) -> None:
    """CompileError if the user set an option of a target."""
    for name in chosen:
        raise CompileError(f"{_flag(name)} is an option of compilation: {why}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def offered_options() -> tuple[tuple[str, type[Any]], ...]:
    """Each target that is registered now, and the dataclass of its options."""
    return tuple((target, find_target(target).options) for target in target_names())


@lru_cache(maxsize=8)
def _parameters(offered: tuple[tuple[str, type[Any]], ...]) -> list[inspect.Parameter]:
    """One parameter for each name among the options that targets offer; its help says whose it is."""
    whose: dict[str, list[str]] = {}
    declared: dict[str, tuple[Field[Any], Any]] = {}
    for target, options in offered:
        types = typing.get_type_hints(options)
        for field in fields(options):
            whose.setdefault(field.name, []).append(target)
            declared.setdefault(field.name, (field, types[field.name]))
    return [_parameter(*declared[name], targets) for name, targets in whose.items()]


def _parameter(field: Field[Any], kind: Any, targets: list[str]) -> inspect.Parameter:
    default = "" if field.default in ("", None) else f" Default: {field.default}."
    text = f"{field.metadata['help']}{default} (target {', '.join(targets)})"
    simple = kind if kind in (bool, int, float) else str
    flags = (_flag(field.name), *field.metadata["short"]) if simple is not bool else ()
    choice: Any = simple | None
    annotation = Annotated[choice, typer.Option(*flags, help=text, show_default=False)]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
