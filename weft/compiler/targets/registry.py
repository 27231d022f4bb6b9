"""The targets that there are: those of this package, and those that installed packages or a program add.

A package that wants to add a target names it in its ``pyproject.toml``:

    [project.entry-points."weft.targets"]
    npu = "my_package.my_module:NpuTarget"
"""

from __future__ import annotations

from importlib import import_module

from ...imports import IMPORTS
from ...plugins import load_plugin, plugins
from .errors import CompileError
from .target import Target

GROUP = "weft.targets"

OWN = {
    "accel": ("accel.target", "Accel"),
    "cpu": ("cpu.target", "Cpu"),
    "opencl": ("gpu.target", "OpenCl"),
    "cuda": ("gpu.target", "Cuda"),
}
"""Where this package's targets stand: a target is imported when it is first asked for."""

_targets: dict[str, Target] = {}


def register_target(target: Target) -> None:
    """Make a target known by its name; CompileError if the name is another's."""
    if target.name in target_names():
        raise CompileError(f"there is a target {target.name!r} already")
    _targets[target.name] = target


def target_names() -> tuple[str, ...]:
    """The names of all targets; nothing is imported for that."""
    return tuple(dict.fromkeys((*OWN, *_targets, *plugins(GROUP))))


def find_target(name: str) -> Target:
    """The target called ``name``. CompileError when there is none or it cannot be imported."""
    if name in _targets:
        return _targets[name]
    if name in OWN:
        module, kind = OWN[name]
        with IMPORTS:
            _targets[name] = getattr(import_module(f"{__package__}.{module}"), kind)()
    else:
        point = plugins(GROUP).get(name)
        if point is None:
            hint = f"known: {', '.join(target_names())}, or install the package that adds it"
            raise CompileError(f"there is no target {name!r}", hint=hint)
        _targets[name] = load_plugin(point, "target", CompileError, lambda kind: kind())
    return _targets[name]
